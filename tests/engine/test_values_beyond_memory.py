"""More distinct values than memory: they go to pages on the disk, the budget holds, and answers stay what they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

MINUTE = 60_000_000
VALUES = 60_000
MEMORY = 3_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, x BIGINT, y DOUBLE NOT NULL, EVENT TIME t);"
COUNTS = "COUNT(DISTINCT x) AS n, COUNT(DISTINCT y) AS m, COUNT(DISTINCT x) FILTER (WHERE k = 1) AS one"
QUERIES = {
    "slides": f"SELECT {COUNTS} FROM s [RANGE 1 HOUR SLIDE 10 MINUTES]",
    "long groups": f"SELECT k, {COUNTS} FROM s [RANGE 1 HOUR SLIDE 10 MINUTES] GROUP BY k",
    "every event": "SELECT COUNT(DISTINCT x) AS n, COUNT(DISTINCT y) AS m FROM s [RANGE 1 HOUR]",
    "every event of a group": f"SELECT k, {COUNTS} FROM s [RANGE 1 HOUR] GROUP BY k",
    "rows": f"SELECT COUNT(DISTINCT x) AS n, COUNT(DISTINCT y) AS m FROM s [ROWS {VALUES} SLIDE 5000 ROWS]",
    "changes": f"SELECT ISTREAM k, {COUNTS} FROM s [RANGE 1 HOUR SLIDE 10 MINUTES] GROUP BY k",
    "tumbling": f"SELECT {COUNTS} FROM s [RANGE 1 HOUR SLIDE 1 HOUR]",
    "since": "SELECT COUNT(DISTINCT x) AS n FROM s [SINCE TIMESTAMP '1970-01-01 00:00:00Z' SLIDE 10 MINUTES]",
    "sessions": "SELECT COUNT(DISTINCT x) AS n FROM s [SESSION 3 MINUTES]",
}
ROWS = 2 * VALUES
BATCH = 5_000


def values_of(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Nearly all are different within an hour, in a scattered order; every seventh event has one of ten values."""
    return np.where(numbers % 7 == 0, numbers % 10, numbers * 7919 % (VALUES + 1))


def batches(first: int = 0, last: int = ROWS) -> Iterator[pa.RecordBatch]:
    for start in range(first, last, BATCH):
        numbers = np.arange(start, min(start + BATCH, last))
        pauses = numbers // 50_000 * (5 * MINUTE)
        times = pa.array(numbers * (60 * MINUTE) // VALUES + pauses).view(pa.timestamp("us"))
        values = values_of(numbers)
        doubles = np.select([numbers % 11 == 0, numbers % 11 == 1], [np.nan, -0.0], values / 4)
        columns = [times, pa.array(numbers % 3), pa.array(values, mask=numbers % 13 == 0), pa.array(doubles)]
        yield pa.RecordBatch.from_arrays(columns, names=["t", "k", "x", "y"])


def program(query: str) -> str:
    return STREAM + "CREATE QUERY counts AS " + QUERIES[query] + ";"


def answers(query: str, memory: int) -> tuple[pa.Table, ps.Metrics]:
    with ps.App(program(query), memory=memory, block_size="8KiB") as app:
        found = []
        app.subscribe("counts", found.append)
        for batch in batches():
            app.push("s", batch)
        metrics = app.metrics
        app.finish()
        return pa.Table.from_batches(found), metrics


@pytest.mark.parametrize("query", QUERIES)
def test_answers_are_those_of_enough_memory(query: str) -> None:
    whole, in_memory = answers(query, 100 * MEMORY)
    paged, metrics = answers(query, MEMORY)
    assert paged.equals(whole)
    assert metrics.memory_peak <= MEMORY
    if query not in ("tumbling", "sessions", "since"):  # these may have just begun anew
        assert in_memory.memory_bytes - in_memory.pool_bytes > MEMORY


def test_windows_counted_by_hand() -> None:
    paged, _ = answers("slides", MEMORY)
    table = pa.Table.from_batches(batches())
    times = table["t"].cast(pa.int64()).to_numpy()
    numbers = np.arange(ROWS)
    valid = numbers % 13 != 0
    counts = []
    for end in range(10 * MINUTE, int(times[-1]) + 1, 10 * MINUTE):
        inside = (times >= end - 60 * MINUTE) & (times < end)
        counts.append(
            (
                len(np.unique(values_of(numbers[inside & valid]))),
                len(np.unique(table["y"].to_numpy()[inside] + 0.0)),
                len(np.unique(values_of(numbers[inside & valid & (numbers % 3 == 1)]))),
            )
        )
    shown = list(zip(*(paged[name].to_pylist() for name in ("n", "m", "one")), strict=True))
    assert shown[: len(counts)] == counts


@pytest.mark.parametrize("memory", [MEMORY, 3 * MEMORY, 100 * MEMORY])
@pytest.mark.parametrize("query", ["slides", "long groups", "every event", "changes", "since"])
def test_a_checkpoint_goes_on_in_any_budget(query: str, memory: int, tmp_path: Path) -> None:
    whole, _ = answers(query, 100 * MEMORY)
    found: list[pa.RecordBatch] = []
    half = ROWS * 3 // 4 + 777
    with ps.App(program(query), memory=MEMORY, block_size="8KiB", checkpoint=tmp_path / "state") as app:
        app.subscribe("counts", found.append)
        for number, batch in enumerate(batches(0, half)):
            app.push("s", batch)
            if number % 4 == 3:
                app.checkpoint()
        app.checkpoint()
    with ps.App(program(query), memory=memory, block_size="8KiB", checkpoint=tmp_path / "state") as app:
        app.subscribe("counts", found.append)
        for batch in batches(half):
            app.push("s", batch)
        app.finish()
    assert pa.Table.from_batches(found).equals(whole)


def test_what_fits_no_longer_after_a_restart_goes_to_pages(tmp_path: Path) -> None:
    whole, _ = answers("slides", 100 * MEMORY)
    found: list[pa.RecordBatch] = []
    for memory, first, last in ((100 * MEMORY, 0, ROWS // 2), (MEMORY, ROWS // 2, ROWS)):
        with ps.App(program("slides"), memory=memory, block_size="8KiB", checkpoint=tmp_path / "state") as app:
            app.subscribe("counts", found.append)
            for batch in batches(first, last):
                app.push("s", batch)
            app.checkpoint()
            if last == ROWS:
                app.finish()
    assert pa.Table.from_batches(found).equals(whole)
