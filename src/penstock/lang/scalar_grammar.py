"""The grammar of scalar expressions: operands with operators between and behind them, which bind as in Spark.

Expressions become sqlglot's nodes.
"""

from __future__ import annotations

from sqlglot import exp

from penstock.lang.operand_grammar import OperandParser
from penstock.lang.symbols import BINARY, SYMBOLS

_IS, _EQUALITY, _ORDER, _RANGE, _BITWISE, _TERM, _TIGHTEST = 9, 12, 13, 14, 15, 27, 30
"""How tightly operators bind: three times what `SYMBOLS` says, as `_ORDER` and `_RANGE` lie between its levels."""

_BINARY = {SYMBOLS[name][0]: (3 * SYMBOLS[name][1], node) for node, name in BINARY.items() if name in SYMBOLS}
_BINARY |= {symbol: (_ORDER, _BINARY[symbol][1]) for symbol in ("<", "<=", ">", ">=")}
_BINARY["||"] = _TERM, exp.DPipe

_PREDICATES = dict.fromkeys(("IS", "ISNULL", "NOTNULL", "NOT NULL"), _IS) | dict.fromkeys(
    ("BETWEEN", "NOT BETWEEN", "IN", "NOT IN", "LIKE", "NOT LIKE"), _RANGE
)
"""What makes a condition of the operand before it."""


class ExpressionParser(OperandParser):
    """Scalar expressions."""

    def value(self) -> exp.Expr:
        return self.operation(0) or self.unexpected("an expression")

    def condition(self) -> exp.Expr | None:
        """What follows WHERE, if it stands here."""
        return self.value() if self.take("WHERE") else None

    def operation(self, least: int) -> exp.Expr | None:
        """An operand and the operators behind it that bind at least so tightly; None if no operand stands here."""
        this = self.signed()
        most = _TIGHTEST
        while this is not None:
            operator, tokens = self.next_operator()
            level, node = _BINARY.get(operator) or (_PREDICATES.get(operator, -1), None)
            if not least <= level <= most:
                break
            self.advance(tokens)
            if node is None:
                this, most = self.predicate(operator, this), _RANGE
            else:
                this = node(this=this, expression=self.right(level + 1))
        return this

    def next_operator(self) -> tuple[str, int]:
        """The operator that comes next, if one does, and how many tokens it has: `<<` and NOT IN have two."""
        word = self.token.word
        if word in ("<", ">") and self.peek().word == word:
            return word + word, 2
        if word == "NOT":
            return f"NOT {self.peek().word}", 2
        return word, 1

    def right(self, least: int, wanted: str = "a value") -> exp.Expr:
        return self.operation(least) or self.unexpected(wanted)

    def signed(self) -> exp.Expr | None:
        """An operand with the signs and NOT before it."""
        if not self.at("+", "-", "NOT"):
            return self.operand()
        if self.take("+"):
            return self.signed()
        if self.take("-"):
            return exp.Neg(this=self.signed() or self.unexpected("a value"))
        self.expect("NOT")
        return exp.Not(this=self.right(_IS))

    def predicate(self, operator: str, this: exp.Expr) -> exp.Expr:
        """A condition, its first operand and its operator having been read."""
        negated = operator.startswith("NOT")
        made: exp.Expr
        if operator.endswith("BETWEEN"):
            low = self.right(_BITWISE, "the lower bound of BETWEEN")
            self.expect("AND", "AND between the bounds of BETWEEN")
            made = exp.Between(this=this, low=low, high=self.right(_BITWISE, "the upper bound of BETWEEN"))
        elif operator.endswith("IN"):
            self.expect("(", "'(' after IN")
            self.no_subquery()
            made = exp.In(this=this, expressions=list(self.listed(self.value)))
            self.expect(")")
        elif operator.endswith("LIKE"):
            made, negated = exp.Like(this=this, expression=self.right(_BITWISE), negate=negated), False
            if self.take("ESCAPE"):
                made = exp.Escape(this=made, expression=self.right(_BITWISE))
        elif operator == "IS":
            negated = self.take("NOT")
            if self.take("DISTINCT", "FROM"):
                same = exp.NullSafeEQ(this=this, expression=self.right(_EQUALITY))
                return same if negated else exp.Not(this=same)
            made = exp.Is(this=this, expression=self.right(_BITWISE, "NULL, TRUE, FALSE or DISTINCT FROM"))
        else:
            made = exp.Is(this=this, expression=exp.Null())
        return exp.Not(this=made) if negated else made
