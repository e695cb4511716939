"""MATCH_RECOGNIZE, as far as it means the same as a pattern: rows that follow each other at once, each one variable.

    FROM ticks MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY t
        MEASURES A.price AS top, LAST(B.price) AS bottom
        [ONE ROW PER MATCH] [AFTER MATCH SKIP PAST LAST ROW | AFTER MATCH SKIP TO NEXT ROW]
        PATTERN (A B{2}) WITHIN 1 MINUTE
        DEFINE B AS B.price < PREV(B.price)
    ) AS m

SQL lets nothing lie between the rows of a match, so between any two of them stands an element that must not come
(`recognize`). What depends on how long a quantifier runs is refused.
"""

from __future__ import annotations

from sqlglot import exp

from penstock.lang.create_grammar import CreateParser
from penstock.lang.recognize import Recognized, Variable, select_of
from penstock.lang.syntax import Name, RecognizeSyntax

_LONGEST = 32
"""Rows of a match."""

_INSTEAD = "write FROM PATTERN SEQ(s a, s+ b): b takes all rows that fit, and others may lie between"


class RecognizeParser(CreateParser):
    """Declarations plus MATCH_RECOGNIZE."""

    def recognize(self, stream: Name) -> RecognizeSyntax:
        """What follows the word."""
        start = self.last.start
        self.expect("(", "'(' after MATCH_RECOGNIZE")
        partition = self.names("a column of PARTITION BY") if self.take("PARTITION BY") else ()
        self.expect("ORDER BY", "ORDER BY and the event time")
        order = self.name("the column of the event time")
        if self.at("DESC"):
            self.out_of_place("rows are matched in the order of their times")
        self.take("ASC")
        self.expect("MEASURES", "MEASURES and what is shown of a match")
        measures = self.listed(self.measure)
        self.rows_per_match()
        apart = self.skips()
        self.expect("PATTERN")
        variables = self.variables()
        self.expect("WITHIN", "WITHIN and the time of a match", "write WITHIN 1 MINUTE: older rows are forgotten")
        within = self.duration("the time of WITHIN")
        defined = self.definitions()
        self.expect(")")
        written = Recognized(stream, partition, measures, variables, defined, within, apart, self.span_since(start))
        return RecognizeSyntax(stream, partition, order, select_of(self.source, written))

    def measure(self) -> tuple[exp.Expr, Name]:
        if self.at("FINAL", "RUNNING") and self.peek().word != ".":
            self.out_of_place("all rows of the match are seen here")
        expression = self.value()
        self.expect("AS", "AS and a name for the measure")
        return expression, self.name("a name after AS")

    def rows_per_match(self) -> None:
        if self.at("ALL"):
            self.refuse("ALL ROWS PER MATCH is not available", self.token.span, "write ONE ROW PER MATCH")
        self.take("ONE", "ROW", "PER", "MATCH")

    def skips(self) -> bool:
        """Whether a row may be in one match alone, as it is where nothing is said."""
        if not self.take("AFTER", "MATCH", "SKIP") or self.take("PAST", "LAST", "ROW"):
            return True
        if not self.take("TO", "NEXT", "ROW"):
            self.unexpected("PAST LAST ROW or TO NEXT ROW")
        return False

    def variables(self) -> tuple[Variable, ...]:
        self.expect("(", "'(' after PATTERN")
        found: list[Variable] = []
        while not self.take(")"):
            if self.at("(", "|", "{"):
                self.refuse("only variables can stand here", self.token.span, _INSTEAD)
            name = self.name("a variable of the pattern")
            if any(known.name.text.lower() == name.text.lower() for known in found):
                self.refuse(
                    f"the variable '{name.text}' stands twice in this PATTERN", name.span, "give each its own name"
                )
            if self.at("+", "*", "?"):
                self.refuse(
                    f"how many rows {self.token.text!r} takes depends on rows to come",
                    self.token.span,
                    f"write a number, such as {name.text}{{3}}, or {_INSTEAD}",
                )
            found.append(Variable(name, self.times(name)))
        if not found:
            self.refuse("the PATTERN has no variable", self.last.span, "write PATTERN (A B)")
        if sum(variable.times for variable in found) > _LONGEST:
            self.refuse(f"a match has at most {_LONGEST} rows", found[-1].name.span)
        return tuple(found)

    def times(self, name: Name) -> int:
        """`{3}`; 1 where nothing is written."""
        if not self.take("{"):
            return 1
        count = self.count("the number of rows")
        self.expect("}", hint=f"only a fixed number of rows can be asked for, such as {name.text}{{3}}")
        return count

    def definitions(self) -> dict[str, exp.Expr]:
        """The conditions of variables, by their names in lower case."""
        found: dict[str, exp.Expr] = {}

        def definition() -> None:
            name = self.name("a variable")
            self.expect("AS", "AS and a condition")
            if name.text.lower() in found:
                self.refuse(f"'{name.text}' is defined twice", name.span)
            found[name.text.lower()] = self.value()

        if self.take("DEFINE"):
            self.listed(definition)
        return found
