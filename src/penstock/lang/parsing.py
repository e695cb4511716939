"""The way in: query text to a typed program, or a `QueryError` that points at the place.

No text, however hostile, has any other outcome: its length and nesting are limited before the grammar sees it, and
nothing of it is ever run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from penstock.lang.bind_aggregates import UserSignature
from penstock.lang.catalog import Catalog
from penstock.lang.dialect import SURROGATE, Token, tokenize
from penstock.lang.grammar import StatementParser
from penstock.lang.places import QueryText
from penstock.lang.program import ProgramBinder
from penstock.lang.query import Program, TableRef
from penstock.lang.syntax import CreateFunction, CreateSink, CreateStream, CreateTable, Statement
from penstock.types import Schema

LONGEST_TEXT = 500_000
DEEPEST_NESTING = 30

_BYTE_ORDER_MARK = "\ufeff"

_OPENING = frozenset({"(", "[", "{", "CASE"})
_CLOSING = frozenset({")", "]", "}", "END"})


def parse(
    text: str,
    *,
    streams: Mapping[str, Schema] | None = None,
    sinks: Collection[str] = (),
    queries: Collection[str] = (),
    tables: Collection[TableRef] = (),
    user_aggregates: Mapping[str, UserSignature] | None = None,
    functions: Collection[str] = (),
) -> Program:
    """Parses and types a program. `streams`, `tables`, `sinks` and `queries` are what a running app has already; rules
    may call the `functions` besides those that are declared.

    >>> program = parse('''
    ...     CREATE STREAM calls (t TIMESTAMP, agent INT, seconds DOUBLE, EVENT TIME t);
    ...     SELECT agent, SUM(seconds) AS busy FROM calls [RANGE 1 DAY SLIDE 10 SECONDS] GROUP BY agent;
    ... ''')
    >>> program.queries[0].name, program.queries[0].body.schema.names
    ('q1', ('agent', 'busy'))
    """
    catalog = Catalog(streams or {}, sinks, queries, tables)
    return ProgramText(text).bind(catalog, user_aggregates or {}, functions)


class ProgramText:
    """A text whose statements have been read, for a caller that looks at them before it knows all streams.

    >>> ProgramText("CREATE STREAM Calls (t TIMESTAMP, EVENT TIME t) -- CREATE STREAM other").declared_streams
    {'calls'}
    """

    def __init__(self, text: str) -> None:
        self._text = text
        with _refusals(text) as source:
            self._statements = _statements(source)

    @property
    def declared_streams(self) -> set[str]:
        """The names, in lower case, that the text declares by CREATE STREAM."""
        return {s.name.text.lower() for s in self._statements if isinstance(s, CreateStream)}

    def bind(
        self, catalog: Catalog, user_aggregates: Mapping[str, UserSignature], functions: Collection[str]
    ) -> Program:
        """The typed program."""
        with _refusals(self._text) as source:
            return ProgramBinder(source, catalog, user_aggregates, functions).bind(self._statements)


class Outside(NamedTuple):
    """Something outside of the app that a text names: a file, a database, an address."""

    kind: str
    name: str
    uri: str


def outside(text: str) -> list[Outside]:
    """What a text reads, writes and calls, in its order. Types and names need not fit.

    >>> outside("CREATE TABLE z (k INT, PRIMARY KEY (k)) FROM 'z.csv'; CREATE FUNCTION f AS HTTP POST 'https://a/'")
    [Outside(kind='table', name='z', uri='z.csv'), Outside(kind='function', name='f', uri='https://a/')]
    """
    found = []
    with _refusals(text) as source:
        for statement in _statements(source):
            if isinstance(statement, CreateFunction):
                found.append(Outside("function", statement.name.text, statement.url[0]))
            elif isinstance(statement, CreateTable | CreateStream | CreateSink) and statement.uri is not None:
                kind = {CreateTable: "table", CreateStream: "stream", CreateSink: "sink"}[type(statement)]
                found.append(Outside(kind, statement.name.text, statement.uri))
    return found


@contextmanager
def _refusals(text: str) -> Iterator[QueryText]:
    """Whatever a text does to the libraries underneath, it is refused in our words."""
    source = QueryText(text.removeprefix(_BYTE_ORDER_MARK))
    if len(text) > LONGEST_TEXT:
        raise source.refusal(
            f"the text is {len(text):,} characters long; at most {LONGEST_TEXT:,} are read", None, "split it"
        )
    half = SURROGATE.search(source.text)
    if half is not None:
        raise source.refusal(
            "half of a surrogate pair is no character", half.span(), "write the whole character, or its escape in data"
        )
    try:
        yield source
    except RecursionError:
        raise source.refusal("an expression in this text is nested too deeply", None, "split it") from None


def _statements(source: QueryText) -> list[Statement]:
    tokens = tokenize(source)
    _check_nesting(source, tokens)
    return StatementParser(source).statements(tokens)


def _check_nesting(source: QueryText, tokens: list[Token]) -> None:
    depth = 0
    for token in tokens:
        if token.word in _OPENING:
            depth += 1
            if depth > DEEPEST_NESTING:
                raise source.refusal(f"nested more than {DEEPEST_NESTING} levels deep", token.span, "split it")
        elif token.word in _CLOSING:
            depth -= 1
        elif token.word == ";":
            depth = 0
