"""Queries built in Python. A builder renders the text of a program, which goes through the one parser.

>>> calls = stream("calls", {"t": "TIMESTAMP", "agent": "STRING", "seconds": "DOUBLE"}, event_time="t",
...                lateness="5 seconds")
>>> busy = (calls.window("RANGE 1 HOUR SLIDE 10 SECONDS").where("seconds > 0").group_by("agent")
...         .select(mean="AVG(seconds)", calls="COUNT(*)"))
>>> print(busy)
SELECT `agent`, (AVG(seconds)) AS `mean`, (COUNT(*)) AS `calls`
FROM `calls` [RANGE 1 HOUR SLIDE 10 SECONDS]
WHERE (seconds > 0)
GROUP BY `agent`

`penstock.App(busy)` runs it, `penstock.App([busy, other])` several. Names are quoted; conditions, expressions and
windows are text as in the language, each of which must be complete in itself: it cannot reach beyond its clause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import QueryError
from penstock.lang.dialect import tokenize
from penstock.lang.places import QueryText
from penstock.types import SqlType

_OPENING = {"(": ")", "[": "]"}


@dataclass(frozen=True)
class _Stream:
    name: str
    declaration: str


@dataclass(frozen=True)
class BuiltQuery:
    """A query over a stream; every method returns a new one."""

    _stream: _Stream
    _window: str | None = None
    _where: tuple[str, ...] = ()
    _keys: tuple[tuple[str, str], ...] = ()
    _outputs: tuple[tuple[str, str], ...] = ()
    _having: str | None = None
    _order: tuple[str, ...] = ()
    _limit: int | None = None
    _emit: str = ""
    _name: str | None = field(default=None)

    def window(self, window: str) -> BuiltQuery:
        """What stands between the brackets: "RANGE 1 HOUR SLIDE 10 SECONDS"."""
        return replace(self, _window=_complete(window, "the window"))

    def where(self, condition: str) -> BuiltQuery:
        """Several conditions must all hold."""
        return replace(self, _where=(*self._where, _complete(condition, "the condition")))

    def group_by(self, *columns: str, **expressions: str) -> BuiltQuery:
        """Columns by name, and expressions with a name: `group_by("agent", hour="HOUR(t)")`."""
        return replace(self, _keys=(*self._keys, *_items(columns, expressions)))

    def select(self, *columns: str, **expressions: str) -> BuiltQuery:
        """Columns by name, and expressions with a name. The keys of `group_by` come before them by themselves."""
        return replace(self, _outputs=(*self._outputs, *_items(columns, expressions)))

    def having(self, condition: str) -> BuiltQuery:
        return replace(self, _having=_complete(condition, "the condition"))

    def order_by(self, *expressions: str, descending: bool = False) -> BuiltQuery:
        """Of each evaluation; call it again for keys in the other direction."""
        direction = " DESC" if descending else ""
        order = tuple(f"({_complete(e, 'the expression')}){direction}" for e in expressions)
        return replace(self, _order=(*self._order, *order))

    def limit(self, count: int) -> BuiltQuery:
        return replace(self, _limit=int(count))

    def istream(self) -> BuiltQuery:
        """Only rows that were not in the evaluation before."""
        return replace(self, _emit="ISTREAM ")

    def dstream(self) -> BuiltQuery:
        """Only rows that were in the evaluation before and are no more."""
        return replace(self, _emit="DSTREAM ")

    def rstream(self) -> BuiltQuery:
        """All rows of every evaluation."""
        return replace(self, _emit="RSTREAM ")

    def named(self, name: str) -> BuiltQuery:
        """The name by which the results are read."""
        return replace(self, _name=name)

    def __str__(self) -> str:
        outputs = dict(self._keys) | dict(self._outputs)
        shown = [e if e == quoted(n) else f"({e}) AS {quoted(n)}" for n, e in outputs.items()]
        head = f"CREATE QUERY {quoted(self._name)} AS " if self._name is not None else ""
        lines = [
            f"{head}SELECT {self._emit}{', '.join(shown) or '*'}",
            f"FROM {quoted(self._stream.name)}" + (f" [{self._window}]" if self._window is not None else ""),
        ]
        if self._where:
            lines.append("WHERE " + " AND ".join(f"({condition})" for condition in self._where))
        if self._keys:
            lines.append("GROUP BY " + ", ".join(e if e == quoted(n) else f"({e})" for n, e in self._keys))
        if self._having is not None:
            lines.append(f"HAVING ({self._having})")
        if self._order:
            lines.append("ORDER BY " + ", ".join(self._order))
        if self._limit is not None:
            lines.append(f"LIMIT {self._limit}")
        return "\n".join(lines)


def stream(
    name: str,
    columns: Mapping[str, str | SqlType],
    *,
    event_time: str,
    unit: str | None = None,
    lateness: str | None = None,
    sequence: str | None = None,
    idle_after: str | None = None,
    late_into: str | None = None,
    source: str | None = None,
    arrival_order: bool = False,
) -> BuiltQuery:
    """A stream to build queries on. A column's type is a word of the language, with NOT NULL if it has none; `unit` is
    that of a BIGINT event time, such as "milliseconds"; `source` is where the command reads it from. With
    `arrival_order` it is read in that order, and `event_time` names the timestamps that dispatch goes by.

    >>> print(render(stream("s", {"at": "BIGINT NOT NULL", "x y": "INT"}, event_time="at", unit="seconds")))
    CREATE STREAM `s` (
        `at` BIGINT NOT NULL,
        `x y` INT,
        EVENT TIME `at` UNIT seconds
    );
    SELECT *
    FROM `s`
    """
    lines = [f"{quoted(column)} {_words(str(kind), 'the type')}" for column, kind in columns.items()]
    time = f"{'ARRIVAL ORDER' if arrival_order else 'EVENT TIME'} {quoted(event_time)}"
    for clause, words in (("UNIT", unit), ("LATENESS", lateness), ("IDLE AFTER", idle_after)):
        time += "" if words is None else f" {clause} {_words(words, clause)}"
    time += "" if sequence is None else f" SEQUENCE {quoted(sequence)}"
    body = ",\n    ".join([*lines, time])
    tail = "" if source is None else f" FROM {_text(source)}"
    tail += "" if late_into is None else f" LATE INTO {quoted(late_into)}"
    return BuiltQuery(_Stream(name, f"CREATE STREAM {quoted(name)} (\n    {body}\n){tail}"))


def render(queries: Any, without: Collection[str] = ()) -> str:
    """The text of a program with these queries: each stream once (but those of the given names), then the queries."""
    listed: Iterable[Any] = [queries] if isinstance(queries, BuiltQuery) else queries
    streams: dict[str, str] = {}
    texts: list[str] = []
    for query in listed:
        if not isinstance(query, BuiltQuery):
            raise QueryError(
                f"a program is text or a list of built queries, not of {type(query).__name__}",
                hint="build queries with penstock.stream(...)",
            )
        declared = streams.setdefault(query._stream.name, query._stream.declaration)
        if declared != query._stream.declaration:
            raise QueryError(
                f"the stream '{query._stream.name}' is declared in two ways",
                hint="build all its queries on one penstock.stream(...)",
            )
        texts.append(str(query))
    return ";\n".join([text for name, text in streams.items() if name not in without] + texts)


def quoted(name: str) -> str:
    """A name as the language reads it, whatever is in it.

    >>> print(quoted("a`b"))
    `a``b`
    """
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _items(columns: tuple[str, ...], expressions: Mapping[str, str]) -> list[tuple[str, str]]:
    named = [(name, _complete(text, "the expression")) for name, text in expressions.items()]
    return [(column, quoted(column)) for column in columns] + named


def _words(text: str, what: str) -> str:
    """Text of words and numbers only, such as a duration or a type."""
    if not all(character.isalnum() or character in " ._" for character in text):
        raise QueryError(f"{what} cannot be {text!r}", hint="write words and numbers, such as 10 SECONDS or INT")
    return text


def _complete(text: str, what: str) -> str:
    """Text that ends what it begins: brackets are closed where they were opened, and no statement ends in it."""
    source = QueryText(text)
    tokens = tokenize(source)
    open_brackets: list[str] = []
    for token in tokens:
        if token.commented:
            raise source.refusal(f"{what} cannot have a comment", token.span)
        if token.word in _OPENING:
            open_brackets.append(_OPENING[token.word])
        elif token.word in _OPENING.values():
            if not open_brackets or open_brackets.pop() != token.word:
                raise source.refusal(f"{what} closes a bracket that it has not opened", token.span)
        elif token.word == ";":
            raise source.refusal(f"{what} cannot end the statement", token.span, "one builder makes one query")
    if open_brackets or not tokens:
        raise source.refusal(f"{what} is not complete" if tokens else f"{what} is empty", None)
    return text.strip()
