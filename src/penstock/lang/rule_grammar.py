"""The grammar of rules, and of the functions that they call.

CREATE FUNCTION notify AS HTTP POST 'https://example.org/alarms' WITH ('timeout' = '5 SECONDS');

CREATE RULE hot WHEN SELECT room, AVG(x) AS mean FROM s [RANGE 1 MINUTE] GROUP BY room HAVING AVG(x) > 30
THEN EMIT INTO alarms SELECT room, mean, CALL notify(room, mean AS degrees)
"""

from __future__ import annotations

from abc import abstractmethod

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.lang.pattern_grammar import PatternParser
from penstock.lang.syntax import (
    Action,
    CallAction,
    CreateFunction,
    EmitAction,
    Name,
    RuleStatement,
    SelectItem,
    SelectSyntax,
)
from penstock.lang.table_grammar import TableParser

RULE_WORDS = ("BY", "EVERY", "THEN")
"""What may follow the condition of a rule, and is no alias of a stream there."""

_ACTIONS = {
    "EMIT": (2, "INTO"),
    "CALL": (3, "("),
    "INSERT": (2, "INTO"),
    "UPSERT": (2, "INTO"),
    "UPDATE": (3, "SET"),
    "DELETE": (2, "FROM"),
}
"""How actions begin: the first word, and which of the next is what."""


class RuleParser(PatternParser, TableParser):
    """Patterns and tables plus rules; `grammar` adds queries."""

    @abstractmethod
    def item(self) -> SelectItem: ...

    def create_function(self) -> CreateFunction:
        name = self.name("the name of the function")
        self.expect(TokenType.ALIAS, "AS HTTP POST and a quoted address")
        if not self.take("HTTP", "POST"):
            self.unexpected("HTTP POST and a quoted address", "functions in Python are given to App(functions={...})")
        url = self.expect(TokenType.STRING, "a quoted address, such as 'https://example.org/alarms'")
        options = self.options() if self._match(TokenType.WITH) else ()
        return CreateFunction(name, (url.text, self.span_of_token(url)), options)

    def create_rule(self, start: int) -> RuleStatement:
        name = self.name("the name of the rule")
        if not self._match(TokenType.WHEN, advance=False):
            self.unexpected("WHEN and the condition of the rule")
        return self.rule(name, start)

    def rule(self, name: Name | None, start: int) -> RuleStatement:
        self.expect(TokenType.WHEN, "WHEN")
        condition = self.matches() if self.is_pattern_ahead() else self.query()
        by = self.keys() if self.take("BY") else ()
        every = self.take("EVERY")
        if not self._match(TokenType.THEN):
            self.unexpected(
                "THEN and what is to be done", "write WHEN SELECT ... THEN EMIT INTO stream, or THEN CALL name(...)"
            )
        actions = [self.action()]
        while self._match(TokenType.COMMA):
            actions.append(self.action())
        span = self.span_since(start)
        return RuleStatement(name, condition, by, every, tuple(actions), self.source.text[span[0] : span[1]], span)

    def matches(self) -> SelectSyntax:
        """A pattern alone: all columns of its matches."""
        source = self.pattern_item()
        star = SelectItem(None, None, Name("", source.span), source.span)
        return SelectSyntax(None, None, (star,), source, None, (), None, (), None, None, source.span)

    def keys(self) -> tuple[exp.Expr, ...]:
        keys = [self.value()]
        while self._match(TokenType.COMMA):
            keys.append(self.value())
        return tuple(keys)

    def action(self) -> Action:
        start = self._curr.start if self._curr else 0
        if self.take("EMIT"):
            self.expect(TokenType.INTO, "INTO")
            target = self.name("the name of a sink or of a new stream")
            items = self.items() if self._match(TokenType.SELECT) else ()
            return EmitAction(target, items, self.span_since(start))
        if self.take("CALL"):
            return self.call(start)
        if self.is_action(0):
            return self.table_change()
        self.unexpected("EMIT INTO, CALL, INSERT INTO, UPSERT INTO, UPDATE or DELETE FROM")

    def call(self, start: int) -> CallAction:
        function = self.name("the name of a function")
        self.expect(TokenType.L_PAREN, "'(' and the arguments")
        arguments: tuple[SelectItem, ...] = ()
        if not self._match(TokenType.R_PAREN):
            arguments = self.items()
            self.expect(TokenType.R_PAREN, "',' or ')'")
        return CallAction(function, arguments, self.span_since(start))

    def items(self) -> tuple[SelectItem, ...]:
        """A select list, up to the next action."""
        items = [self.item()]
        while self.another():
            items.append(self.item())
        return tuple(items)

    def another(self) -> bool:
        """`, CALL name(` and `, EMIT INTO` are actions; behind any other comma the list before it goes on."""
        if not self._match(TokenType.COMMA, advance=False) or self.is_action(1):
            return False
        self._advance()
        return True

    def is_action(self, ahead: int) -> bool:
        words = self._tokens[self._index + ahead : self._index + ahead + 3]
        if not words or words[0].token_type == TokenType.IDENTIFIER or words[0].text.upper() not in _ACTIONS:
            return False
        place, wanted = _ACTIONS[words[0].text.upper()]
        return len(words) >= place and words[place - 1].text.upper() == wanted
