"""Declarations: everything that can be said about a stream, in any sensible order."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import penstock.lang
from penstock.errors import QueryError
from penstock.lang import ProgramText, parse
from penstock.lang.query import StreamDef
from penstock.types import Field, Schema, SqlType

SECOND = 1_000_000


def stream(text: str) -> StreamDef:
    return parse(text).streams[0]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM S (t BIGINT NOT NULL, x DOUBLE, id BIGINT, EVENT TIME t UNIT MILLISECONDS LATENESS 5 SECONDS "
        "SEQUENCE id IDLE AFTER 1 MINUTE LATE INTO l) FROM 'in/*.csv' WITH ('header' = 'true', 'sep' = ';')",
        "create stream S (LATENESS 5 seconds, event time T unit millisecond, t bigint not null, x double precision"
        " null, sequence ID, id long, idle after 60 seconds) with ('header'='true','sep'=';') late into l"
        " from 'in/*.csv'",
        "CREATE STREAM S (t BIGINT NOT NULL, x DOUBLE, id BIGINT, EVENT TIME t UNIT MILLISECONDS) LATENESS INTERVAL "
        "'5' SECOND IDLE AFTER 1 MINUTE SEQUENCE id FROM 'in/*.csv' LATE INTO l "
        "WITH ('header'='true','sep'=';') -- end",
    ],
)
def test_properties_in_any_order(text: str) -> None:
    assert stream(text) == StreamDef(
        name="S",
        schema=Schema(
            (Field("t", SqlType.BIGINT, False), Field("x", SqlType.DOUBLE), Field("id", SqlType.BIGINT)),
        ),
        event_time="t",
        time_unit=1_000,
        lateness=5 * SECOND,
        sequence="id",
        uri="in/*.csv",
        idle_after=60 * SECOND,
        late_into="l",
        options=(("header", "true"), ("sep", ";")),
    )


def test_the_least_that_can_be_said() -> None:
    definition = stream("CREATE STREAM s (t TIMESTAMP, EVENT TIME t LATENESS 0)")
    assert (definition.time_unit, definition.lateness, definition.uri) == (1, 0, None)
    assert definition.place is not None
    assert (definition.place.line, definition.place.column) == (1, 15)


def test_every_type() -> None:
    definition = stream(
        "CREATE STREAM s (a BOOLEAN, b TINYINT, c SMALLINT, d INTEGER, e BIGINT, f REAL, g DOUBLE, h TEXT, i DATE,"
        " j TIMESTAMP, EVENT TIME j)"
    )
    assert [field.type.value for field in definition.schema] == (
        "BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE STRING DATE TIMESTAMP".split()  # noqa: SIM905
    )


@pytest.mark.parametrize(
    "word",
    ["date", "time", "end", "start", "range", "rows", "first", "value", "type", "user", "key", "offset", "window",
     "left", "event", "sequence", "lateness", "late", "session", "now", "slide", "count",
     "interval", "timestamp", "limit"],
)  # fmt: skip
def test_columns_may_bear_words_of_the_language(word: str) -> None:
    program = parse(
        f"CREATE STREAM s (t TIMESTAMP, {word} INT, EVENT TIME t);"
        f"SELECT {word} + 1 AS a, {word}, s.{word} AS b FROM s WHERE {word} > 1;"
        f"SELECT {word}, SUM({word}) AS {word}2 FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY {word} ORDER BY {word};"
        f"SELECT x.{word} FROM (SELECT {word} FROM s) AS x [PARTITION BY {word} ROWS 3]"
    )
    assert [query.body.schema.names[0] for query in program.queries] == ["a", word, word]


def test_an_empty_program_is_a_program() -> None:
    for text in ("", " \n", ";;", "-- nothing\n", "/* nothing */;"):
        assert not parse(text).queries


def test_examples_in_the_documentation_strings() -> None:
    for module in pkgutil.iter_modules(penstock.lang.__path__, "penstock.lang."):
        assert doctest.testmod(importlib.import_module(module.name)).failed == 0, module.name


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert parse("\ufeffSELECT k FROM s", streams={"s": Schema((Field("k", SqlType.INT),))}).queries[0].name == "q1"
    assert ProgramText("\ufeffCREATE STREAM a (t TIMESTAMP, EVENT TIME t)").declared_streams == {"a"}


def test_half_of_a_surrogate_pair_is_refused_with_its_place() -> None:
    with pytest.raises(QueryError, match="half of a surrogate pair is no character\n  at line 1, column 9"):
        parse("SELECT '\ud800' AS x FROM s", streams={"s": Schema((Field("k", SqlType.INT),))})
