"""The grammar of rules, and of the functions that they call.

CREATE FUNCTION notify AS HTTP POST 'https://example.org/alarms' WITH ('timeout' = '5 SECONDS');

CREATE RULE hot WHEN SELECT room, AVG(x) AS mean FROM s [RANGE 1 MINUTE] GROUP BY room HAVING AVG(x) > 30
THEN EMIT INTO alarms SELECT room, mean, CALL notify(room, mean AS degrees)
"""

from __future__ import annotations

from abc import abstractmethod

from penstock.lang.dialect import Kind
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
        self.expect("AS", "AS HTTP POST and a quoted address")
        if not self.take("HTTP", "POST"):
            self.unexpected("HTTP POST and a quoted address", "functions in Python are given to App(functions={...})")
        url = self.expect_kind(Kind.STRING, "a quoted address, such as 'https://example.org/alarms'")
        options = self.options() if self.take("WITH") else ()
        return CreateFunction(name, (url.text, url.span), options)

    def create_rule(self, start: int) -> RuleStatement:
        name = self.name("the name of the rule")
        self.expect("WHEN", "WHEN and the condition of the rule")
        return self.rule(name, start)

    def rule(self, name: Name | None, start: int) -> RuleStatement:
        """After the word WHEN."""
        condition = self.matches() if self.is_pattern_ahead() else self.query()
        by = self.listed(self.value) if self.take("BY") else ()
        every = self.take("EVERY")
        hint = "write WHEN SELECT ... THEN EMIT INTO stream, or THEN CALL name(...)"
        self.expect("THEN", "THEN and what is to be done", hint)
        actions = self.listed(self.action)
        span = self.span_since(start)
        return RuleStatement(name, condition, by, every, actions, self.source.text[span[0] : span[1]], span)

    def matches(self) -> SelectSyntax:
        """A pattern alone: all columns of its matches."""
        source = self.pattern_item()
        star = SelectItem(None, None, Name("", source.span), source.span)
        return SelectSyntax(None, None, (star,), source, None, (), None, (), None, None, source.span)

    def action(self) -> Action:
        start = self.token.start
        if self.take("EMIT"):
            self.expect("INTO")
            target = self.name("the name of a sink or of a new stream")
            items = self.listed(self.item, self.another) if self.take("SELECT") else ()
            return EmitAction(target, items, self.span_since(start))
        if self.take("CALL"):
            return self.call(start)
        if self.is_action(0):
            return self.table_change()
        self.unexpected("EMIT INTO, CALL, INSERT INTO, UPSERT INTO, UPDATE or DELETE FROM")

    def call(self, start: int) -> CallAction:
        function = self.name("the name of a function")
        self.expect("(", "'(' and the arguments")
        arguments: tuple[SelectItem, ...] = ()
        if not self.take(")"):
            arguments = self.listed(self.item, self.another)
            self.expect(")", "',' or ')'")
        return CallAction(function, arguments, self.span_since(start))

    def another(self) -> bool:
        """`, CALL name(` and `, EMIT INTO` are actions; behind any other comma the list before it goes on."""
        return not self.is_action(1) and self.take(",")

    def is_action(self, ahead: int) -> bool:
        place, wanted = _ACTIONS.get(self.peek(ahead).word, (0, ""))
        return place > 0 and self.peek(ahead + place - 1).word == wanted
