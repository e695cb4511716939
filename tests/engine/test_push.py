"""What can be pushed: every form gives the same results, and what does not fit is refused whole or rejected by row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import penstock as ps

SECOND = 1_000_000
STREAM = """CREATE STREAM s (t TIMESTAMP, k STRING, v BIGINT, x DOUBLE, b BOOLEAN, d DATE, EVENT TIME t{});"""
QUERIES = """
    CREATE QUERY grouped AS SELECT k, d, SUM(v) AS v, MAX(x) AS x, COUNT(*) FILTER (WHERE b) AS n
        FROM s [ROWS 4] GROUP BY k, d;
    CREATE QUERY plain AS SELECT t, k, v, x, b, d FROM s;
"""
EVENTS: list[dict[str, Any]] = [
    {
        "t": datetime.fromtimestamp(i, UTC),
        "k": None if i % 5 == 4 else "ab"[i % 2],
        "v": None if i % 7 == 3 else i,
        "x": i / 3,
        "b": None if i % 6 == 5 else i % 2 == 0,
        "d": datetime(2024, 2, 27 + i % 3).date(),
    }
    for i in range(40)
]
TABLE = pa.Table.from_pylist(
    EVENTS,
    schema=pa.schema(
        [
            ("t", pa.timestamp("us", "UTC")),
            ("k", pa.string()),
            ("v", pa.int64()),
            ("x", pa.float64()),
            ("b", pa.bool_()),
            ("d", pa.date32()),
        ]
    ),
)

FORMS = {
    "dicts, one by one": lambda: EVENTS,
    "a list of dicts": lambda: [EVENTS],
    "a table": lambda: [TABLE],
    "a record batch": lambda: TABLE.to_batches(),
    "a record batch reader": lambda: [TABLE.to_reader()],
    "a table in chunks": lambda: [pa.concat_tables([TABLE[:7], TABLE[7:11], TABLE[11:]])],
    "a dict of columns": lambda: [{name: TABLE.column(name).to_pylist() for name in TABLE.column_names}],
    "a dict of arrays": lambda: [{name: TABLE.column(name) for name in TABLE.column_names}],
    "a pandas frame": lambda: [TABLE.to_pandas(types_mapper=pd.ArrowDtype)],
    "a polars frame": lambda: [pl.from_arrow(TABLE)],
    "other names and orders": lambda: [TABLE.select(["x", "d", "b", "v", "k", "t"]).rename_columns(list("XDBVKT"))],
    "an extra column": lambda: [TABLE.append_column("more", pa.nulls(len(TABLE)))],
    "narrow types": lambda: [TABLE.set_column(2, "v", TABLE.column("v").cast(pa.int8()))],
    "encoded strings": lambda: [TABLE.set_column(1, "k", TABLE.column("k").dictionary_encode())],
    "categories": lambda: [pl.from_arrow(TABLE).with_columns(pl.col("k").cast(pl.Categorical))],
    "small codes": lambda: [
        TABLE.set_column(1, "k", TABLE.column("k").cast(pa.dictionary(pa.int8(), pa.string()))),
    ],
    "large strings": lambda: [TABLE.set_column(1, "k", TABLE.column("k").cast(pa.large_string()))],
    "naive times": lambda: [TABLE.set_column(0, "t", TABLE.column("t").cast(pa.timestamp("ms")))],
    "every form in turn": lambda: [
        EVENTS[0],
        TABLE[1:5].set_column(1, "k", TABLE[1:5].column("k").dictionary_encode()),
        EVENTS[5:9],
        pl.from_arrow(TABLE[9:20]),
        EVENTS[20],
        TABLE[21:],
    ],
}


def results(pieces: Any, lateness: str = "") -> list[Any]:
    with ps.App(STREAM.format(lateness) + QUERIES) as app:
        for piece in pieces:
            app.push("s", piece)
        app.finish()
        assert app.metrics.events == len(EVENTS)
        return [app.results(name).to_pylist() for name in app.queries]


@pytest.mark.parametrize("lateness", ["", " LATENESS 5 SECONDS"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(form: str, lateness: str) -> None:
    expected = results([TABLE])
    assert len(expected[0]) == len(EVENTS)
    assert expected[1] == EVENTS
    assert results(FORMS[form](), lateness) == expected


def test_missing_keys_of_a_dict_are_null_in_any_batch() -> None:
    events = [{"t": i * SECOND, "k": "a"} for i in range(3)]
    for pieces in (events, [events], [pa.Table.from_pylist(EVENTS[:0], TABLE.schema), *events]):
        with ps.App(STREAM.format("") + QUERIES) as app:
            for piece in pieces:
                app.push("s", piece)
            assert app.results("plain").column("v").to_pylist() == [None] * 3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"t": "yesterday", "v": 1}, "column t must be TIMESTAMP"),
        ({"t": 1, "v": "one"}, "column v must be BIGINT"),
        ({"t": 1, "v": 1.5}, "column v must be BIGINT"),
        ({"t": 1, "v": 1 << 70}, "column v must be BIGINT"),
        ({"t": 1, "x": (1 << 60) + 1}, "column x must be DOUBLE"),
        ({"t": 1, "k": "\ud800"}, "column k must be STRING"),
        ({"t": 1, "k": 5}, "column k must be STRING"),
        ([{"t": 1}, 5], "a list with a int"),
        (TABLE.drop_columns(["v"]), "column v is missing"),
        (TABLE.set_column(2, "v", pa.array(["x"] * len(TABLE))), "column v is declared BIGINT"),
        (TABLE.set_column(2, "v", pa.array([0.5] * len(TABLE))), "column v is declared BIGINT"),
        ({"t": [1, 2], "v": [1]}, "cannot be read as columns"),
        (pd.DataFrame({"t": [1], "v": [object()]}), "cannot be read as columns"),
        (5, "cannot push a int"),
        (None, "cannot push a NoneType"),
        (np.arange(3), "cannot push a ndarray"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_of_it_is_taken(data: Any, words: str) -> None:
    with ps.App(STREAM.format("") + QUERIES) as app:
        app.push("s", EVENTS[0])
        with pytest.raises(ps.InputError) as caught:
            app.push("s", data)
        assert words in str(caught.value)
        assert "stream s" in str(caught.value)
        assert app.metrics.events == 1
        app.push("s", EVENTS[1])
        assert app.results("plain").num_rows == 2


def test_rows_with_null_where_none_may_be_are_rejected() -> None:
    text = "CREATE STREAM s (t TIMESTAMP, v BIGINT NOT NULL, EVENT TIME t); SELECT SUM(v) AS n FROM s [ROWS 9]"
    good = {"t": SECOND, "v": 1}
    bad = [{"t": None, "v": 1}, {"t": SECOND, "v": None}, {"t": None, "v": None}]
    for pieces in ([good, *bad, good], [[good, *bad, good]]):
        with ps.App(text) as app:
            heard: list[str] = []
            app.subscribe_rejects(lambda reason, row, heard=heard: heard.append(reason))
            for piece in pieces:
                app.push("s", piece)
            assert app.results("q1").column("n").to_pylist() == [1, 2]
            assert (app.metrics.events, app.metrics.rejected) == (5, 3)
            reasons = sorted(reject["reason"] for reject in app.rejects)
            assert reasons == ["stream s: t is NULL"] * 2 + ["stream s: v is NULL"]
            assert sorted(heard) == reasons


@pytest.mark.parametrize("unit", ["", " UNIT SECONDS"])
def test_impossible_times_are_rejected(unit: str) -> None:
    kind = "BIGINT" if unit else "TIMESTAMP"
    text = f"CREATE STREAM s (t {kind}, EVENT TIME t{unit}); SELECT COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 HOUR]"
    far = (1 << 63) - 1
    with ps.App(text) as app:
        for t in (far, -far, 1, (1 << 62)):
            app.push("s", {"t": t})
        app.push("s", pa.table({"t": pa.array([far, 2, -far]).cast(pa.int64())}))
        app.finish()
        assert app.results("q1").column("n").to_pylist() == [2]
        assert app.metrics.rejected == 5
        assert all("is in the year" in reject["reason"] for reject in app.rejects)


FIRST, LAST = -62_135_596_800, 253_402_300_799


@pytest.mark.parametrize(
    ("unit", "time", "reason"),
    [
        ("SECONDS", 1_730_000_000_000, "event time 1730000000000 is in the year 56,791; is UNIT MILLISECONDS meant?"),
        ("MILLISECONDS", 1_730_000_000_000_000, "in the year 56,791; is UNIT MICROSECONDS meant?"),
        ("DAYS", 1_730_000_000, "is UNIT SECONDS meant?"),
        ("MICROSECONDS", 1_730_000_000_000_000_000, "are these nanoseconds? Divide by 1,000: UNIT MICROSECONDS is"),
        (None, 1_730_000_000_000_000_000, "are these nanoseconds? Divide by 1,000: a TIMESTAMP is microseconds"),
        ("SECONDS", LAST + 1, "event time 253402300800 is in the year 10,000; is UNIT MILLISECONDS meant?"),
        ("SECONDS", FIRST - 1, "event time -62135596801 is in the year 0; times lie in the years 1 to 9999"),
    ],
)
def test_a_time_outside_of_the_years_1_to_9999_is_rejected_with_a_guess_at_the_unit(
    unit: str | None, time: int, reason: str
) -> None:
    column = f"t BIGINT, EVENT TIME t UNIT {unit}" if unit else "t TIMESTAMP, EVENT TIME t"
    with ps.App(f"CREATE STREAM s ({column}); SELECT t FROM s") as app:
        app.push("s", {"t": time})
        app.push("s", [{"t": 3}] * 100 + [{"t": time}])
        assert len(app.results("q1")) == 100
        assert [reject["reason"] for reject in app.rejects] == [app.rejects[0]["reason"]] * 2
        assert reason in app.rejects[0]["reason"]


def test_the_first_and_the_last_second_of_those_years_are_times() -> None:
    with ps.App("CREATE STREAM s (t BIGINT, EVENT TIME t UNIT SECONDS); SELECT t FROM s") as app:
        app.push("s", {"t": FIRST})
        app.push("s", {"t": LAST})
        assert app.results("q1").column("t").to_pylist() == [FIRST, LAST]


def test_events_far_ahead_of_the_clock_are_rejected() -> None:
    """One bad clock must not close every window."""
    clock = ps.testing.TestClock(100 * SECOND)
    text = (
        "CREATE STREAM s (t TIMESTAMP, EVENT TIME t); SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
    )
    with ps.App(text, max_ahead=5, clock=clock) as app:
        app.push("s", {"t": 99 * SECOND})
        app.push("s", [{"t": 105 * SECOND}, {"t": 105 * SECOND + 1}])
        app.push("s", {"t": 10_000 * SECOND})
        assert app.metrics.rejected == 2
        assert "too far ahead" in app.rejects[-1]["reason"]
        clock.set(20_000 * SECOND)
        app.push("s", {"t": 10_000 * SECOND})
        assert app.metrics.rejected == 2
        app.finish()
        assert app.results("q1").column("n").to_pylist() == [1, 1, 1]
    with ps.App(text) as app:  # off by default
        app.push("s", {"t": 10**15})
        assert app.metrics.rejected == 0


def test_a_row_that_cannot_be_computed_is_rejected_also_when_its_time_is_beyond_the_calendar() -> None:
    text = "CREATE STREAM s (t TIMESTAMP, v BIGINT, EVENT TIME t); SELECT t, 10 / v AS n FROM s"
    with ps.App(text) as app:
        app.push("s", {"t": 1 << 60, "v": 0})
        app.push("s", [{"t": 1 << 60, "v": 0}])
        assert app.metrics.rejected == 2
        assert app.rejects[0]["row"] == {"t": 1 << 60, "v": 0}
