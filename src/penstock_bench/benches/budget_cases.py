"""What the bench `budget` runs: queries whose state grows, each with events that make it grow.

The events of a case are spread over the same stretch of event time however many they are, so that a run of a few
thousand, the warm-up, goes through everything that the measured one goes through. They are made piece by piece as they
are pushed: the input takes a few hundred kilobytes at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

Push = tuple[str, pa.RecordBatch]

PIECE_ROWS = 8192
_PIECE_BYTES = 1 << 19
_SECOND = 1_000_000
_HOUR = 3600 * _SECOND


@dataclass(frozen=True)
class Case:
    """`pushes` makes the pushes of so many events. `in_one_push`: all events of a stream come in one push, made
    before anything is measured."""

    program: str
    pushes: Callable[[int], Iterator[Push]]
    quick: int
    full: int
    in_one_push: bool = False
    warm_up: int = 3000


def _spread(count: int, rows: int, stretch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pieces of at most `rows` events: their numbers and their times."""
    for first in range(0, count, rows):
        numbers = np.arange(first, min(count, first + rows))
        yield numbers, numbers * stretch // count


def _mixed(numbers: np.ndarray, keys: int) -> np.ndarray:
    """Each number's key; consecutive numbers up to `keys` have different ones, in an order without a pattern."""
    return (numbers * 2_654_435_761) % keys


def _numbers(keys: int | None, stretch: int = _HOUR, stream: str = "s") -> Callable[[int], Iterator[Push]]:
    """Events (t, k, x) with so many keys, or with a new one each."""

    def pushes(count: int) -> Iterator[Push]:
        for numbers, times in _spread(count, PIECE_ROWS, stretch):
            own = _mixed(numbers, keys or _MILLION)
            yield stream, pa.record_batch({"t": times, "k": own, "x": own * 0.5})

    return pushes


def _texts(nbytes: int, stretch: int = _HOUR) -> Callable[[int], Iterator[Push]]:
    """Events (t, z) with texts that are all different."""

    def pushes(count: int) -> Iterator[Push]:
        for numbers, times in _spread(count, max(1, _PIECE_BYTES // nbytes), stretch):
            texts = [f"{number:010d}" * (nbytes // 10) for number in numbers.tolist()]
            yield "s", pa.record_batch({"t": times, "z": texts})

    return pushes


def _two_streams(keys: int) -> Callable[[int], Iterator[Push]]:
    """Events (t, k, x, a, b, c) of the streams a and b in turns."""

    def pushes(count: int) -> Iterator[Push]:
        for numbers, times in _spread(count, PIECE_ROWS // 2, _HOUR):
            for place, stream in enumerate(("a", "b")):
                own, more = _mixed(numbers + place * keys // 2, keys), numbers * 0.5
                yield (
                    stream,
                    pa.record_batch(
                        {"t": times, "k": own, "x": more, "p": numbers, "q": numbers + 1, "r": numbers + 2}
                    ),
                )

    return pushes


def _one_after_the_other(count: int) -> Iterator[Push]:
    """All events of stream a before the first one of stream b: they wait."""
    for stream in ("a", "b"):
        for numbers, times in _spread(count, PIECE_ROWS, _HOUR):
            more = numbers * 0.5
            yield (
                stream,
                pa.record_batch(
                    {"t": times, "k": numbers, "x": more, "p": numbers, "q": numbers + 1, "r": numbers + 2}
                ),
            )


def _then_silence(count: int) -> Iterator[Push]:
    """A group each, and one event an hour later."""
    for numbers, times in _spread(count, PIECE_ROWS, 1):
        yield "s", pa.record_batch({"t": times, "k": numbers, "x": numbers * 0.5})
    yield "s", pa.record_batch({"t": [_HOUR], "k": [0], "x": [0.5]})


def _late(count: int) -> Iterator[Push]:
    """One event, and then events an hour before it with texts of 10 KB."""
    yield "s", pa.record_batch({"t": [_HOUR], "z": ["first"]})
    yield from _texts(10_000, _SECOND)(count)


def _out_of_order(count: int) -> Iterator[Push]:
    """Events (t, k, x, p, q, r), each piece in disorder and half an hour back and forth."""
    for numbers, times in _spread(count, PIECE_ROWS, _HOUR):
        order = np.argsort(_mixed(numbers, len(numbers) * 7919), kind="stable")
        back = np.where(numbers % 2 == 0, 0, _HOUR // 2)
        own = {"t": (times + _HOUR // 2 - back)[order], "k": numbers, "x": numbers * 0.5}
        yield "s", pa.record_batch({**own, "p": numbers, "q": numbers + 1, "r": numbers + 2})


def _sessions(count: int) -> Iterator[Push]:
    """100,000 keys, each with events a second apart, in two sessions."""
    per_key = 10
    keys = max(1, count // per_key)
    for numbers, _ in _spread(count, PIECE_ROWS, 1):
        round_number, key = numbers // keys, numbers % keys
        times = round_number * _SECOND + np.where(round_number >= per_key // 2, _HOUR, 0) + key * _SECOND // keys
        yield "s", pa.record_batch({"t": times, "k": key, "x": key * 0.5})


_NUMBERS = "CREATE STREAM s (t BIGINT, k BIGINT, x DOUBLE, EVENT TIME t UNIT MICROSECONDS);\n"
_TEXTS = "CREATE STREAM s (t BIGINT, z STRING, EVENT TIME t UNIT MICROSECONDS);\n"
_WIDE = (
    "CREATE STREAM {0} (t BIGINT, k BIGINT, x DOUBLE, p BIGINT, q BIGINT, r BIGINT, "
    "EVENT TIME t UNIT MICROSECONDS{1});\n"
)
_TWO = _WIDE.format("a", "") + _WIDE.format("b", "")
_JOIN = (
    _TWO + "SELECT u.k, u.x AS ux, v.x AS vx FROM a [RANGE 30 MINUTES] AS u, b [RANGE 30 MINUTES] AS v WHERE u.k = v.k;"
)
_PATTERN = _TWO + "SELECT u.k, v.x - u.x AS more FROM PATTERN SEQ(a u, b v) WHERE u.k = v.k WITHIN 30 MINUTES;"
_TABLE = (
    _NUMBERS
    + "CREATE TABLE totals (k BIGINT PRIMARY KEY, total DOUBLE, n BIGINT);\n"
    + "ON s UPSERT INTO totals (k, total, n) VALUES (s.k, COALESCE(total, 0.0) + x, COALESCE(n, 0) + 1);\n"
    + "SELECT s.k, total, n, PREV(totals.total) AS before FROM s, totals WHERE s.k = totals.k;"
)
_MILLION = 1_000_003
"""A number of keys whose multiples do not meet."""

CASES = {
    "keys": Case(
        _NUMBERS + "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE 2 HOURS SLIDE 1 HOUR] GROUP BY k;",
        _numbers(None),
        1_000_000,
        1_000_000,
    ),
    "keys, what is new": Case(
        _NUMBERS + "SELECT ISTREAM k, SUM(x) AS total FROM s [RANGE 2 HOURS SLIDE 10 MINUTES] GROUP BY k;",
        _numbers(None),
        500_000,
        1_000_000,
    ),
    "texts of 10 KB": Case(
        _TEXTS + "SELECT z, COUNT(*) AS n FROM s [RANGE 2 HOURS SLIDE 1 HOUR] GROUP BY z;",
        _texts(10_000),
        15_000,
        60_000,
    ),
    "texts of 1 MB": Case(
        _TEXTS + "SELECT MAX(z) AS most, LAST(z) AS latest FROM s [RANGE 2 HOURS];",
        _texts(1_000_000),
        200,
        400,
        warm_up=10,
    ),
    "texts that leave again": Case(
        _TEXTS + "SELECT z, COUNT(*) AS n FROM s [RANGE 2 MINUTES SLIDE 1 MINUTE] GROUP BY z;",
        _texts(1000),
        200_000,
        1_000_000,
    ),
    "COUNT(DISTINCT)": Case(
        _NUMBERS + "SELECT COUNT(DISTINCT k) AS n FROM s [RANGE 2 HOURS SLIDE 10 MINUTES];",
        _numbers(None),
        1_000_000,
        4_000_000,
    ),
    "MEDIAN": Case(
        _NUMBERS + "SELECT MEDIAN(x) AS m FROM s [RANGE 2 HOURS SLIDE 10 MINUTES];",
        _numbers(None),
        1_000_000,
        4_000_000,
    ),
    "joins": Case(_JOIN, _two_streams(100_000), 400_000, 2_000_000),
    "joins of 1 M keys": Case(_JOIN, _two_streams(_MILLION), 1_500_000, 4_000_000),
    "patterns": Case(_PATTERN, _two_streams(100_000), 300_000, 2_000_000),
    "patterns of 1 M keys": Case(_PATTERN, _two_streams(_MILLION), 1_500_000, 4_000_000),
    "tables": Case(_TABLE, _numbers(100_000), 400_000, 4_000_000),
    "tables of 1 M keys": Case(_TABLE, _numbers(_MILLION), 1_000_000, 2_000_000),
    "sessions": Case(
        _NUMBERS + "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM s [PARTITION BY k SESSION 10 SECONDS] GROUP BY k;",
        _sessions,
        1_000_000,
        1_000_000,
    ),
    "reordering": Case(
        _WIDE.format("s", " LATENESS 2 HOURS") + "SELECT COUNT(*) AS n, SUM(x) AS total, MAX(p) AS p, MAX(q) AS q, "
        "MAX(r) AS r, MAX(k) AS k FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE];",
        _out_of_order,
        1_000_000,
        4_000_000,
    ),
    "streams that wait": Case(
        _TWO + "SELECT COUNT(*) AS n, SUM(x) AS total, MAX(p) AS p, MAX(q) AS q, MAX(r) AS r, MAX(k) AS k FROM "
        "(SELECT * FROM a UNION ALL SELECT * FROM b) [RANGE 1 MINUTE SLIDE 1 MINUTE];",
        _one_after_the_other,
        1_500_000,
        4_000_000,
    ),
    "one push": Case(
        _NUMBERS + "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k;",
        _numbers(None, 1000 * _SECOND),
        1_000_000,
        4_000_000,
        in_one_push=True,
    ),
    "silence": Case(
        _NUMBERS + "SELECT k, AVG(x) AS m, COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 SECOND] GROUP BY k;",
        _then_silence,
        10_000,
        60_000,
        warm_up=3,
    ),
    "late events": Case(_TEXTS + "SELECT COUNT(z) AS n FROM s [RANGE 1 HOUR SLIDE 1 MINUTE];", _late, 20_000, 60_000),
}
"""The cases by name. State that is not in pages is larger than the budget in those of keys and of texts that stay."""
