"""Every window form of the contract, and durations in every spelling."""

from __future__ import annotations

import pytest

from penstock.lang import parse
from penstock.lang.query import Join, Select
from penstock.lang.render import render_window
from penstock.types import Field, Schema, SqlType
from penstock.windows.spec import (
    AtClose,
    CountSlide,
    EveryEvent,
    Range,
    RateSized,
    Rows,
    Session,
    Since,
    TimeSlide,
    WindowSpec,
)

SECOND = 1_000_000
HOUR = 3_600 * SECOND
SCHEMA = Schema((Field("k", SqlType.STRING), Field("Key2", SqlType.INT), Field("x", SqlType.DOUBLE)))


def window(text: str) -> WindowSpec:
    body = parse(f"SELECT k FROM s {text}", streams={"s": SCHEMA}).queries[0].body
    assert isinstance(body, Select)
    assert body.window is not None
    return body.window


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[RANGE 1 HOUR]", WindowSpec(Range(HOUR), EveryEvent())),
        ("[range 1 hour slide 10 seconds]", WindowSpec(Range(HOUR), TimeSlide(10 * SECOND))),
        ("[RANGE 1 HOUR SLIDE 1 HOUR]", WindowSpec(Range(HOUR), TimeSlide(HOUR))),
        ("[RANGE 1 HOUR SLIDE 5 ROWS]", WindowSpec(Range(HOUR), CountSlide(5))),
        ("[RANGE 1 HOUR SLIDE 1 ROW]", WindowSpec(Range(HOUR), CountSlide(1))),
        ("[ROWS 100]", WindowSpec(Rows(100), EveryEvent())),
        ("[ROWS 1E2]", WindowSpec(Rows(100), EveryEvent())),
        ("[ROWS 1E2 SLIDE 1E1]", WindowSpec(Rows(100), CountSlide(10))),
        ("[ROWS 100 SLIDE 10]", WindowSpec(Rows(100), CountSlide(10))),
        ("[ROWS 100 SLIDE 10 ROWS WHEN FULL]", WindowSpec(Rows(100), CountSlide(10), when_full=True)),
        ("[ROWS 100 SLIDE 10 SECONDS]", WindowSpec(Rows(100), TimeSlide(10 * SECOND))),
        ("[PARTITION BY k ROWS 3]", WindowSpec(Rows(3), EveryEvent(), ("k",))),
        ("[PARTITION BY K, key2 ROWS 3 SLIDE 2]", WindowSpec(Rows(3), CountSlide(2), ("k", "Key2"))),
        ("[PARTITION BY k SESSION 5 MINUTES]", WindowSpec(Session(300 * SECOND), AtClose(), ("k",))),
        ("[SESSION 5 MINUTES]", WindowSpec(Session(300 * SECOND), AtClose())),
        ("[NOW]", WindowSpec(Range(1), EveryEvent())),
        ("[SINCE TIMESTAMP '1970-01-01 01:00:00' SLIDE 1 HOUR]", WindowSpec(Since(HOUR), TimeSlide(HOUR))),
        (
            "[RANGE 1 HOUR SLIDE 1 MINUTE OFFSET 15 SECONDS ON WALL CLOCK WHEN FULL]",
            WindowSpec(Range(HOUR), TimeSlide(60 * SECOND, 15 * SECOND, wall_clock=True), when_full=True),
        ),
        (
            "[RANGE 1 HOUR WHEN FULL SLIDE 1 MINUTE ON WALL CLOCK]",
            WindowSpec(Range(HOUR), TimeSlide(60 * SECOND, 0, wall_clock=True), when_full=True),
        ),
    ],
)
def test_forms(text: str, expected: WindowSpec) -> None:
    assert window(text) == expected
    assert window(f"AS a {text}") == expected
    assert window(f"{text} a") == expected


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1 MICROSECOND", 1),
        ("2 MICROSECONDS", 2),
        ("1 MILLISECOND", 1_000),
        ("250 milliseconds", 250_000),
        ("1 SECOND", SECOND),
        ("1.5 Seconds", 1_500_000),
        ("30E6 MILLISECONDS", 30_000 * SECOND),
        ("1.5e-3 SECONDS", 1_500),
        ("6E+1 SECONDS 1. SECOND", 61 * SECOND),
        ("INTERVAL '3E1' SECONDS", 30 * SECOND),
        ("INTERVAL '1E0 hour 3e1 minutes'", 5_400 * SECOND),
        ("1 MINUTE", 60 * SECOND),
        ("1 HOUR 30 MINUTES", 5_400 * SECOND),
        ("24 HOURS", 24 * HOUR),
        ("1 DAY", 24 * HOUR),
        ("2 WEEKS", 14 * 24 * HOUR),
        ("INTERVAL '1' HOUR", HOUR),
        ("INTERVAL 90 MINUTES", 5_400 * SECOND),
        ("INTERVAL '1 hour 30 minutes'", 5_400 * SECOND),
        ("INTERVAL '1' HOUR '30' MINUTES", 5_400 * SECOND),
    ],
)
def test_durations(text: str, micros: int) -> None:
    assert window(f"[RANGE {text}]").extent == Range(micros)
    assert window(f"[ROWS 5 SLIDE {text}]").slide == TimeSlide(micros)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[RATE SIZED 10 SECONDS]", RateSized(10 * SECOND, 10 * SECOND, SECOND // 10)),
        ("[rate sized 1050 microseconds]", RateSized(1050, 1050, 10)),
        ("[RATE SIZED 1 MICROSECOND]", RateSized(1, 1, 1)),
        ("[RATE SIZED 10 SECONDS SAMPLE 4 SECONDS]", RateSized(10 * SECOND, 4 * SECOND, SECOND // 25)),
        ("[RATE SIZED 10 SECONDS SAMPLE 7 MICROSECONDS]", RateSized(10 * SECOND, 7, 7)),
        ("[RATE SIZED 10 SECONDS EVERY 3 SECONDS]", RateSized(10 * SECOND, 9 * SECOND, 3 * SECOND)),
        ("[RATE SIZED 1 SECOND EVERY 3 SECONDS]", RateSized(SECOND, 3 * SECOND, 3 * SECOND)),
        (
            "[RATE SIZED 1 MINUTE SAMPLE 10 SECONDS EVERY 1 SECOND ON CHANGE OF 25 PERCENT]",
            RateSized(60 * SECOND, 10 * SECOND, SECOND, 25),
        ),
    ],
)
def test_rate_sized_windows(text: str, expected: RateSized) -> None:
    query = f"SELECT a.k FROM s {text} a, s {text} b WHERE a.k = b.k"
    body = parse(query, streams={"s": SCHEMA}).queries[0].body
    assert isinstance(body, Select)
    assert isinstance(body.source, Join)
    windows = [side.window for side in body.source.sides]
    assert windows == [WindowSpec(expected, EveryEvent())] * 2
    again = parse(query.replace(text, render_window(windows[0])), streams={"s": SCHEMA}).queries[0].body
    assert again == body
