"""The sqlglot dialect: its tokens, the names of types, and where a node stands in the text."""

from __future__ import annotations

import re
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token

from penstock.lang.places import QueryText, Span
from penstock.types import SqlType

TYPE_NAMES: dict[str, SqlType] = {
    "BOOLEAN": SqlType.BOOLEAN,
    "BOOL": SqlType.BOOLEAN,
    "TINYINT": SqlType.TINYINT,
    "SMALLINT": SqlType.SMALLINT,
    "INT": SqlType.INT,
    "INTEGER": SqlType.INT,
    "BIGINT": SqlType.BIGINT,
    "LONG": SqlType.BIGINT,
    "FLOAT": SqlType.FLOAT,
    "REAL": SqlType.FLOAT,
    "DOUBLE": SqlType.DOUBLE,
    "DOUBLE PRECISION": SqlType.DOUBLE,
    "STRING": SqlType.STRING,
    "TEXT": SqlType.STRING,
    "VARCHAR": SqlType.STRING,
    "DATE": SqlType.DATE,
    "TIMESTAMP": SqlType.TIMESTAMP,
}

SUFFIXES: dict[str, SqlType] = {
    "L": SqlType.BIGINT,
    "S": SqlType.SMALLINT,
    "Y": SqlType.TINYINT,
    "D": SqlType.DOUBLE,
    "F": SqlType.FLOAT,
}
"""Spark's letters after a number: 10L is a BIGINT."""

_UNCLOSED = re.compile(r"Missing (.+) from \d+:(\d+)")


def span_of(node: exp.Expr) -> Span | None:
    """The stretch of text a node was read from: its own offsets joined with those of everything below it."""
    starts: list[int] = []
    ends: list[int] = []
    for part in node.walk():
        start = part.meta.get("start")
        if start is not None:
            starts.append(start)
            ends.append(part.meta["end"] + 1)
    return (min(starts), max(ends)) if starts else None


class Penstock(Spark):
    """Spark's tokens, but double quotes are identifiers, as in standard SQL, and nothing is taken as a raw command."""

    class Tokenizer(Spark.Tokenizer):
        QUOTES: ClassVar = ["'"]
        IDENTIFIERS: ClassVar = ["`", '"']
        STRING_ESCAPES: ClassVar = ["\\", "'"]
        RAW_STRINGS: ClassVar = []
        HEX_STRINGS: ClassVar = []
        COMMANDS: ClassVar = set()
        NUMERIC_LITERALS: ClassVar = {suffix: type_.value for suffix, type_ in SUFFIXES.items()}


DIALECT = Penstock()


def tokenize(source: QueryText) -> list[Token]:
    try:
        return DIALECT.tokenize(source.text)
    except TokenError as error:
        unclosed = _UNCLOSED.match(str(error.__cause__))
        if unclosed is None:
            raise source.refusal("this text cannot be read as SQL", (0, 1)) from None
        delimiter, start = unclosed.group(1), min(int(unclosed.group(2)), len(source.text) - 1)
        raise source.refusal(f"a closing {delimiter} is missing", (start, len(source.text))) from None
