"""What WITH says of a table, checked where it is written."""

from __future__ import annotations

from penstock.lang.durations import VARIABLE_UNITS, duration, singular
from penstock.lang.places import QueryText
from penstock.lang.syntax import CreateTable, LastBy
from penstock.lang.table_defs import TableDef

DATABASES = ("postgresql:", "postgres:", "sqlite:")
"""How addresses of databases begin."""

FILE_OPTIONS = ("format", "delimiter", "header", "null", "multiline")
_COMMON = ("refresh",)
_WITHOUT_SOURCE = ("ttl",)
_OF_DATABASES = ("table", "mode", "cache")

MODES = ("load", "lookup")
DEFAULT_CACHE = 100_000
"""Rows that a table in a database keeps of those that were looked up."""


def is_database(uri: str | None) -> bool:
    return uri is not None and uri.startswith(DATABASES)


def options_of(source: QueryText, statement: CreateTable | LastBy) -> tuple[tuple[str, str], ...]:
    """The options, their names in lower case; refuses what such a table has not."""
    given = {key.lower(): value for key, value in statement.options}
    uri = statement.uri if isinstance(statement, CreateTable) else None
    known = _WITHOUT_SOURCE
    if uri is not None:
        known = (*_COMMON, *(_OF_DATABASES if is_database(uri) else FILE_OPTIONS))
    for key, value in given.items():
        if key == "ttl" and uri is not None:
            raise source.refusal(
                "rows that are loaded have no event time, from which a time to live would count",
                statement.options_span,
                "leave out 'ttl', or FROM: a table with a time to live begins empty and is written by events",
            )
        if key not in known:
            there = f"there are {', '.join(known)}" if uri is not None else "a table without FROM 'uri' has only ttl"
            raise source.refusal(f"unknown option '{key}' of a table", statement.options_span, there)
        if key == "ttl" and not duration(value):
            days = VARIABLE_UNITS.get(singular(value.split()[-1]) if value.split() else "", 1)
            what = f"'{value}' is no length of time above 0"
            raise source.refusal(what, statement.options_span, f"write 'ttl' = '{days} DAY{'S' if days > 1 else ''}'")
        if key == "refresh" and not duration(value):
            raise source.refusal(f"'{value}' is no length of time", statement.options_span, "write '1 MINUTE'")
        if key == "mode" and value not in MODES:
            raise source.refusal(f"there is no mode '{value}'", statement.options_span, "write 'load' or 'lookup'")
        if key == "cache" and not (value.isascii() and value.isdigit() and len(value) < 12):
            raise source.refusal("'cache' is a number of rows", statement.options_span, "write 'cache' = '100000'")
    return tuple(given.items())


def ttl_of(table: TableDef) -> int | None:
    """For how much event time a row stays after its last change, in microseconds; None is for ever."""
    text = dict(table.options).get("ttl")
    return None if text is None else duration(text)


def refresh_of(table: TableDef) -> int | None:
    """How often the table is loaded again, in microseconds of the local clock."""
    text = dict(table.options).get("refresh")
    return None if text is None else duration(text)


def is_looked_up(table: TableDef) -> bool:
    """Whether the table stays in its database and rows are asked for when they are needed."""
    return dict(table.options).get("mode") == "lookup"


def cache_of(table: TableDef) -> int:
    return int(dict(table.options).get("cache", DEFAULT_CACHE))
