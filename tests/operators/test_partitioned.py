"""Aggregates over windows per partition that are many times larger than their memory, against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import penstock as ps

STREAM = "CREATE STREAM s (t TIMESTAMP, k BIGINT, v BIGINT, EVENT TIME t);"
EVENTS, PARTITIONS, WINDOW = 200_000, 40, 2_000
WINDOW_BYTES = PARTITIONS * WINDOW * 4 * 8
"""Time, value, position and group of each row, at the least."""

Ints = NDArray[np.int64]


def stream(skew: bool) -> tuple[pa.Table, Ints, Ints]:
    chance = np.random.default_rng(3)
    keys = chance.integers(0, PARTITIONS, EVENTS)
    if skew:
        keys = keys * chance.integers(0, 2, EVENTS)
    values = chance.integers(-1_000_000, 1_000_000, EVENTS)
    times = pa.array(np.arange(EVENTS), pa.timestamp("us", tz="UTC"))
    return pa.table({"t": times, "k": keys, "v": values}), keys, values


def recomputed(keys: Ints, values: Ints) -> tuple[Ints, Ints]:
    """For each event the sum of its partition's last rows, and the time of the first of them."""
    sums, starts = np.empty(EVENTS, np.int64), np.empty(EVENTS, np.int64)
    for key in range(PARTITIONS):
        own = np.flatnonzero(keys == key)
        running = np.cumsum(values[own])
        before = np.concatenate([np.zeros(min(WINDOW, len(own)), np.int64), running[:-WINDOW]])
        sums[own] = running - before
        starts[own] = own[np.maximum(np.arange(len(own)) - WINDOW + 1, 0)]
    return sums, starts


def micros(table: pa.Table, name: str) -> list[int]:
    times: list[int] = table.column(name).cast("timestamp[us]").cast("int64").to_pylist()
    return times


@pytest.mark.parametrize("skew", [False, True], ids=["alike", "one partition has half"])
def test_a_window_many_times_its_memory_and_a_restart(skew: bool, tmp_path: Path) -> None:
    events, keys, values = stream(skew)
    sums, starts = recomputed(keys, values)
    text = STREAM + f"SELECT k, SUM(v) AS total FROM s [PARTITION BY k ROWS {WINDOW}] GROUP BY k"
    found: list[pa.Table] = []
    middle = EVENTS * 2 // 3
    for begin, end, block_size in [(0, middle, 4096), (middle, EVENTS, 16384)]:
        with ps.App(text, memory="800KB", checkpoint=tmp_path, block_size=block_size) as app:
            for start in range(begin, end, 9_000):
                app.push("s", events.slice(start, min(9_000, end - start)))
            found.append(app.results("q1"))
            assert app.metrics.blocks_read > 0
            assert app.metrics.memory_peak <= 800_000 < WINDOW_BYTES / 3
            app.checkpoint()
    results = pa.concat_tables(found)
    assert results.column("k").to_pylist() == keys.tolist()
    assert results.column("total").to_pylist() == sums.tolist()
    assert micros(results, "window_start") == starts.tolist()


def test_more_partitions_than_the_budget_has_room_for_are_refused() -> None:
    """What ISTREAM compares with is in memory, and so are its partitions."""
    text = STREAM + "SELECT ISTREAM COUNT(*) AS n FROM s [PARTITION BY k ROWS 3] GROUP BY k"
    times = pa.array(range(50_000), pa.timestamp("us", tz="UTC"))
    with ps.App(text, memory="1MB") as app, pytest.raises(ps.BudgetError, match="keys of partitions"):
        app.push("s", pa.table({"t": times, "k": range(50_000), "v": range(50_000)}))


def test_the_last_value_is_the_events_own() -> None:
    """Beside aggregates of the window, by a key and by a finer one, NULL included; FILTER leaves the events before."""
    text = """
        CREATE STREAM s (t TIMESTAMP, k BIGINT, j STRING, v BIGINT, EVENT TIME t);
        SELECT LAST(v) AS v, MAX(v) AS most, LAST(j) AS j, LAST(v) FILTER (WHERE v > 1) AS above, j AS key,
               LAST(v + 1) AS next
        FROM s [PARTITION BY k ROWS 2] WHERE j IS NULL OR j <> 'c' GROUP BY k, j
    """
    rows = [(1, "a", 3), (1, "b", 1), (1, "a", None), (2, None, 9), (1, "c", 7), (1, "a", 2), (2, None, 1)]
    events = [{"t": i, "k": k, "j": j, "v": v} for i, (k, j, v) in enumerate(rows)]
    expected = [
        (3, 3, "a", 3, "a", 4),
        (1, 1, "b", None, "b", 2),
        (None, None, "a", None, "a", None),
        (9, 9, None, 9, None, 10),
        (2, 2, "a", 2, "a", 3),
        (1, 9, None, 9, None, 2),
    ]
    for size in (1, 3, len(events)):
        with ps.App(text) as app:
            for start in range(0, len(events), size):
                app.push("s", events[start : start + size])
            found = app.results("q1").to_pylist()
        assert [tuple(row.values())[2:] for row in found] == expected
