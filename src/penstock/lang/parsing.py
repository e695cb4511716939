"""The way in: query text to a typed program, or a `QueryError` that points at the place.

No text, however hostile, has any other outcome: its length and nesting are limited before the grammar sees it, and
nothing of it is ever run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.lang.bind_aggregates import UserSignature
from penstock.lang.catalog import Catalog
from penstock.lang.dialect import DIALECT, tokenize
from penstock.lang.grammar import StatementParser
from penstock.lang.places import QueryText
from penstock.lang.program import ProgramBinder
from penstock.lang.query import Program, TableRef
from penstock.types import Schema

LONGEST_TEXT = 500_000
DEEPEST_NESTING = 30

_BYTE_ORDER_MARK = "\ufeff"
_SURROGATE = re.compile("[\ud800-\udfff]")

_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})


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
    source = QueryText(text.removeprefix(_BYTE_ORDER_MARK))
    if len(text) > LONGEST_TEXT:
        raise source.refusal(
            f"the text is {len(text):,} characters long; at most {LONGEST_TEXT:,} are read", None, "split it"
        )
    half = _SURROGATE.search(source.text)
    if half is not None:
        raise source.refusal(
            "half of a surrogate pair is no character", half.span(), "write the whole character, or its escape in data"
        )
    try:
        tokens = tokenize(source)
        _check_nesting(source, tokens)
        statements = StatementParser(dialect=DIALECT).statements(source, tokens)
        catalog = Catalog(streams or {}, sinks, queries, tables)
        return ProgramBinder(source, catalog, user_aggregates or {}, functions).bind(statements)
    except RecursionError:
        raise source.refusal("an expression in this text is nested too deeply", None, "split it") from None
    except SqlglotError as error:
        raise source.refusal(f"this text cannot be read: {str(error)[:200]}", None) from None


def declared_streams(text: str) -> set[str]:
    """The names, in lower case, that the text declares by CREATE STREAM. Comments and strings declare nothing.

    >>> declared_streams("CREATE STREAM Calls (t TIMESTAMP, EVENT TIME t); SELECT 'CREATE STREAM b' -- CREATE STREAM c")
    {'calls'}
    """
    tokens = tokenize(QueryText(text.removeprefix(_BYTE_ORDER_MARK)))
    return {
        third.text.lower()
        for first, second, third in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if first.text.upper() == "CREATE" and second.text.upper() == "STREAM" and _is_word(first) and _is_word(second)
    }


def _is_word(token: Token) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)


def _check_nesting(source: QueryText, tokens: list[Token]) -> None:
    depth = 0
    for token in tokens:
        if token.token_type in _OPENING:
            depth += 1
            if depth > DEEPEST_NESTING:
                raise source.refusal(
                    f"nested more than {DEEPEST_NESTING} levels deep", (token.start, token.end + 1), "split it"
                )
        elif token.token_type in _CLOSING:
            depth -= 1
        elif token.token_type == TokenType.SEMICOLON:
            depth = 0
