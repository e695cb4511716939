"""More values in order than memory: they go to pages on the disk, the budget holds, and answers stay what they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

MINUTE = 60_000_000
VALUES = 80_000
MEMORY = 2_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, x BIGINT, y DOUBLE NOT NULL, EVENT TIME t);"
RANKS = "MEDIAN(x) AS n, PERCENTILE_DISC(y, 0.99) AS m, PERCENTILE_CONT(x, 0.9) FILTER (WHERE k = 1) AS one"
BOTH = "MEDIAN(x) AS n, PERCENTILE_DISC(y, 0.9) AS m"
QUERIES = {
    "slides": f"SELECT {RANKS} FROM s [RANGE 1 HOUR SLIDE 10 MINUTES]",
    "long groups": f"SELECT k, {RANKS} FROM s [RANGE 1 HOUR SLIDE 10 MINUTES] GROUP BY k",
    "every event": f"SELECT {BOTH} FROM s [RANGE 1 HOUR]",
    "every event of a group": f"SELECT k, {RANKS} FROM s [RANGE 1 HOUR] GROUP BY k",
    "rows": f"SELECT {BOTH} FROM s [ROWS {VALUES} SLIDE 5000 ROWS]",
    "rows of groups": f"SELECT k, {BOTH} FROM s [ROWS {VALUES}] GROUP BY k",
    "changes": f"SELECT ISTREAM k, {RANKS} FROM s [RANGE 1 HOUR SLIDE 10 MINUTES] GROUP BY k",
    "tumbling": f"SELECT {RANKS} FROM s [RANGE 1 HOUR SLIDE 1 HOUR]",
    "since": "SELECT MEDIAN(x) AS n FROM s [SINCE TIMESTAMP '1970-01-01 00:00:00Z' SLIDE 10 MINUTES]",
    "sessions": "SELECT MEDIAN(x) AS n FROM s [SESSION 3 MINUTES]",
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
        rare = [numbers % 211 == 0, numbers % 11 == 1, numbers % 53 == 2]
        doubles = np.select(rare, [np.nan, -0.0, -np.inf], values / 4)
        columns = [times, pa.array(numbers % 3), pa.array(values, mask=numbers % 13 == 0), pa.array(doubles)]
        yield pa.RecordBatch.from_arrays(columns, names=["t", "k", "x", "y"])


def plain(table: pa.Table) -> pa.Table:
    """With doubles as texts: NaN is NaN then, and -0.0 is not 0.0."""
    texts = [field.with_type(pa.string()) if pa.types.is_floating(field.type) else field for field in table.schema]
    return table.cast(pa.schema(texts))


def program(query: str) -> str:
    return STREAM + "CREATE QUERY ranks AS " + QUERIES[query] + ";"


def answers(query: str, memory: int) -> tuple[pa.Table, ps.Metrics]:
    with ps.App(program(query), memory=memory, block_size="8KiB") as app:
        found = []
        app.subscribe("ranks", found.append)
        for batch in batches():
            app.push("s", batch)
        metrics = app.metrics
        app.finish()
        return pa.Table.from_batches(found), metrics


@pytest.mark.parametrize("query", QUERIES)
def test_answers_are_those_of_enough_memory(query: str) -> None:
    whole, in_memory = answers(query, 100 * MEMORY)
    paged, metrics = answers(query, MEMORY)
    assert plain(paged).equals(plain(whole))
    assert metrics.memory_peak <= MEMORY
    if query not in ("tumbling", "sessions", "since"):  # these may have just begun anew
        assert in_memory.memory_bytes - in_memory.pool_bytes > MEMORY


def test_windows_sorted_by_hand() -> None:
    paged, _ = answers("slides", MEMORY)
    table = pa.Table.from_batches(batches())
    times = table["t"].cast(pa.int64()).to_numpy()
    numbers = np.arange(ROWS)
    valid = numbers % 13 != 0
    expected = []
    for end in range(10 * MINUTE, int(times[-1]) + 1, 10 * MINUTE):
        inside = (times >= end - 60 * MINUTE) & (times < end)
        doubles = np.sort(table["y"].to_numpy()[inside])  # NaN is last
        expected.append(
            (
                float(np.median(values_of(numbers[inside & valid]))),
                float(doubles[int(np.ceil(len(doubles) * 0.99)) - 1]),
            )
        )
    shown = list(zip(paged["n"].to_pylist(), paged["m"].to_pylist(), strict=True))
    assert shown[: len(expected)] == expected


@pytest.mark.parametrize("memory", [MEMORY, 100 * MEMORY])
@pytest.mark.parametrize("query", ["slides", "every event", "rows of groups", "since"])
def test_a_checkpoint_goes_on_in_any_budget(query: str, memory: int, tmp_path: Path) -> None:
    whole, _ = answers(query, 100 * MEMORY)
    found: list[pa.RecordBatch] = []
    half = ROWS * 3 // 4 + 777
    with ps.App(program(query), memory=MEMORY, block_size="8KiB", checkpoint=tmp_path / "state") as app:
        app.subscribe("ranks", found.append)
        for number, batch in enumerate(batches(0, half)):
            app.push("s", batch)
            if number % 4 == 3:
                app.checkpoint()
        app.checkpoint()
    with ps.App(program(query), memory=memory, block_size="8KiB", checkpoint=tmp_path / "state") as app:
        app.subscribe("ranks", found.append)
        for batch in batches(half):
            app.push("s", batch)
        app.finish()
    assert plain(pa.Table.from_batches(found)).equals(plain(whole))


def test_what_fits_no_longer_after_a_restart_goes_to_pages(tmp_path: Path) -> None:
    whole, _ = answers("slides", 100 * MEMORY)
    found: list[pa.RecordBatch] = []
    for memory, first, last in ((100 * MEMORY, 0, ROWS // 2), (MEMORY, ROWS // 2, ROWS)):
        with ps.App(program("slides"), memory=memory, block_size="8KiB", checkpoint=tmp_path / "state") as app:
            app.subscribe("ranks", found.append)
            for batch in batches(first, last):
                app.push("s", batch)
            app.checkpoint()
            if last == ROWS:
                app.finish()
    assert plain(pa.Table.from_batches(found)).equals(plain(whole))
