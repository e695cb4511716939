"""Windows of rows and slides by rows, with more groups than memory: positions say which rows are in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

KEYS = 20_000
MEMORY = 1_500_000
ROWS = 30_000
BATCH = 3_000
MICROS = 3_600 * 1_000_000 // KEYS
STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, x DOUBLE, EVENT TIME t);"
WINDOWS = [
    f"ROWS {KEYS} SLIDE 7000",
    f"ROWS {KEYS} SLIDE 20 MINUTES",
    f"ROWS {KEYS}",
    "RANGE 1 HOUR SLIDE 7000 ROWS",
]


def batches(first: int, last: int) -> list[pa.Table]:
    found = []
    for start in range(first, last, BATCH):
        numbers = np.arange(start, min(start + BATCH, last))
        x = pa.array(numbers % 8 / 4, mask=numbers % 5 == 0)
        times = pa.array(numbers // 3 * 3 * MICROS).view(pa.timestamp("us"))
        found.append(pa.table({"t": times, "k": numbers * 7919 % KEYS, "x": x}))
    return found


def program(window: str) -> str:
    return STREAM + f"CREATE QUERY q AS SELECT k, SUM(x) AS s, COUNT(*) AS n FROM s [{window}] WHERE k <> 5 GROUP BY k;"


def answers(window: str, memory: int) -> tuple[pa.Table, ps.Metrics]:
    found: list[pa.RecordBatch] = []
    with ps.App(program(window), memory=memory, block_size="8KiB") as app:
        app.subscribe("q", found.append)
        for batch in batches(0, ROWS):
            app.push("s", batch)
        metrics = app.metrics
        app.finish()
    return pa.Table.from_batches(found), metrics


@pytest.mark.parametrize("window", WINDOWS)
def test_answers_are_those_of_enough_memory(window: str, tmp_path: Path) -> None:
    """Those of a run that goes on from a checkpoint in another budget, too."""
    whole, in_memory = answers(window, 200 * MEMORY)
    paged, metrics = answers(window, MEMORY)
    assert paged.equals(whole)
    assert metrics.memory_peak <= MEMORY
    assert in_memory.memory_bytes - in_memory.pool_bytes > MEMORY
    half, found = ROWS * 4 // 5, list[pa.RecordBatch]()
    for memory, first, last in ((MEMORY, 0, half), (2 * MEMORY, half, ROWS)):
        with ps.App(program(window), memory=memory, block_size="8KiB", checkpoint=tmp_path) as app:
            app.subscribe("q", found.append)
            for batch in batches(first, last):
                app.push("s", batch)
            if last == ROWS:
                app.finish()
            else:
                app.checkpoint()
    assert pa.Table.from_batches(found).equals(whole)
