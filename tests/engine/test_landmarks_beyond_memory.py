"""Running totals of more groups than memory: what is on disk follows the groups, however many rows have come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

SECOND = 1_000_000
KEYS = 10_000
MEMORY = 1_500_000
SINCE = "s [SINCE TIMESTAMP '1970-01-01 00:00:00' SLIDE 100 SECONDS] GROUP BY k"
STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, x DOUBLE, url STRING, EVENT TIME t);"
SUMS = f"SELECT k, SUM(x) AS total, COUNT(*) AS n, CORR(x, k) AS c FROM {SINCE}"
ROWS = f"""SELECT k, MIN(x) AS least, MAX(url) AS greatest, FIRST(url) AS first, LAST(x) AS newest,
    ARG_MAX(x, url) AS at_greatest, ARG_MIN(url, x) AS at_least FROM {SINCE}"""


def batch(number: int, rows: int = 5_000) -> pa.Table:
    """Five seconds of the stream. Values rise, so that each row may be an answer if rows leave; each url is new."""
    numbers = np.arange(number * rows, (number + 1) * rows)
    times = pa.array(numbers * SECOND // 1_000).view(pa.timestamp("us"))
    x = pa.array(numbers / 8, mask=numbers % 11 == 0)
    urls = pa.array([f"/page/{(n * 7919) % 1_000_003}" for n in numbers.tolist()])
    return pa.table({"t": times, "k": numbers * 7919 % KEYS, "x": x, "url": urls})


def program(query: str) -> str:
    return STREAM + f"CREATE QUERY totals AS {query};"


def answers(query: str, memory: int, batches: int = 24) -> tuple[pa.Table, ps.Metrics]:
    found: list[pa.RecordBatch] = []
    with ps.App(program(query), memory=memory, block_size="8KiB") as app:
        app.subscribe("totals", found.append)
        for number in range(batches):
            app.push("s", batch(number))
        metrics = app.metrics
        app.finish()
    return pa.Table.from_batches(found), metrics


@pytest.mark.parametrize("query", [SUMS, ROWS], ids=["sums", "rows"])
def test_answers_are_those_of_enough_memory(query: str) -> None:
    whole, in_memory = answers(query, 500 * MEMORY)
    paged, metrics = answers(query, MEMORY)
    assert paged.equals(whole)
    assert metrics.memory_peak <= MEMORY
    assert in_memory.memory_bytes - in_memory.pool_bytes > 2 * MEMORY


def test_what_is_on_disk_follows_the_groups(tmp_path: Path) -> None:
    """Between two evaluations, too: there is none before the end."""
    query = SUMS.replace("SLIDE 100 SECONDS", "SLIDE 1 DAY")
    sizes, batches = [], 240
    with ps.App(program(query), memory=MEMORY, block_size="8KiB", checkpoint=tmp_path) as app:
        for number in range(batches):
            app.push("s", batch(number))
            if number % 40 == 39:
                app.checkpoint()
                sizes.append(sum(file.stat().st_size for file in tmp_path.rglob("*.blocks")))
        app.finish()
        assert app.metrics.memory_peak <= MEMORY
        shown = app.results("totals")
    assert sizes[-1] < 1.1 * sizes[2]
    numbers = np.arange(batches * 5_000)
    assert shown["k"].to_pylist() == list(range(KEYS))
    assert shown["n"].to_pylist() == np.bincount(numbers * 7919 % KEYS, minlength=KEYS).tolist()


@pytest.mark.parametrize(("first", "then"), [(3 * MEMORY, MEMORY), (MEMORY, 100 * MEMORY)])
@pytest.mark.parametrize("query", [SUMS, ROWS], ids=["sums", "rows"])
def test_a_checkpoint_goes_on_in_another_budget(query: str, first: int, then: int, tmp_path: Path) -> None:
    whole, _ = answers(query, 500 * MEMORY)
    found: list[pa.RecordBatch] = []
    for memory, begin, end in ((first, 0, 15), (then, 15, 24)):
        options: dict[str, Any] = {"memory": memory, "block_size": "8KiB", "checkpoint": tmp_path}
        with ps.App(program(query), **options) as app:
            app.subscribe("totals", found.append)
            for number in range(begin, end):
                app.push("s", batch(number))
            if end == 24:
                app.finish()
            else:
                app.checkpoint()
    assert pa.Table.from_batches(found).equals(whole)
