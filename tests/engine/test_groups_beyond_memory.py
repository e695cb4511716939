"""More groups than memory: they go to shards on the disk, the budget holds, and answers stay what they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps

MINUTE = 60_000_000
KEYS = 50_000
MEMORY = 2_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k {key} NOT NULL, x DOUBLE NOT NULL, EVENT TIME t);"
SLIDES = "SELECT k, SUM(x) AS total, COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 10 MINUTES] GROUP BY k"
EVERY_EVENT = "SELECT k, SUM(x) AS total, COUNT(*) AS n FROM s [RANGE 1 HOUR] GROUP BY k"
LANDMARK = SLIDES.replace("RANGE 1 HOUR SLIDE 10 MINUTES", "SINCE TIMESTAMP '1970-01-01 00:05:00' SLIDE 30 MINUTES")
ROWS = 2 * KEYS
BATCH = 5_000


def keys_of(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Each key about once in an hour, in a scattered order; every seventh event is of one of ten keys."""
    return np.where(numbers % 7 == 0, numbers % 10, numbers * 7919 % KEYS)


def batches(key: str, first: int = 0, last: int = ROWS) -> Iterator[pa.RecordBatch]:
    for start in range(first, last, BATCH):
        numbers = np.arange(start, min(start + BATCH, last))
        times = pa.array(numbers * (60 * MINUTE) // KEYS).view(pa.timestamp("us"))
        keys = pa.array(keys_of(numbers))
        columns = [times, keys if key == "BIGINT" else keys.cast(pa.string()), pa.array(numbers % 8 / 4)]
        yield pa.RecordBatch.from_arrays(columns, names=["t", "k", "x"])


def program(query: str, key: str) -> str:
    return STREAM.format(key=key) + "CREATE QUERY groups AS " + query + ";"


def answers(query: str, key: str, memory: int) -> tuple[pa.Table, ps.Metrics]:
    with ps.App(program(query, key), memory=memory, block_size="8KiB") as app:
        found = []
        app.subscribe("groups", found.append)
        for batch in batches(key):
            app.push("s", batch)
        metrics = app.metrics
        app.finish()
        return pa.Table.from_batches(found), metrics


@pytest.mark.parametrize("key", ["BIGINT", "STRING"])
@pytest.mark.parametrize("query", [SLIDES, EVERY_EVENT, LANDMARK])
def test_answers_are_those_of_enough_memory(query: str, key: str) -> None:
    whole, in_memory = answers(query, key, 100 * MEMORY)
    paged, metrics = answers(query, key, MEMORY)
    assert paged.equals(whole)
    assert metrics.memory_peak <= MEMORY
    assert in_memory.memory_bytes - in_memory.pool_bytes > 2 * MEMORY


def test_the_last_window_counted_by_hand() -> None:
    paged, _ = answers(SLIDES, "BIGINT", MEMORY)
    numbers = np.arange(ROWS)
    times = numbers * (60 * MINUTE) // KEYS
    last = 2 * 60 * MINUTE
    inside = (times >= last - 60 * MINUTE) & (times < last)
    counts = np.bincount(keys_of(numbers)[inside], minlength=KEYS)
    totals = np.bincount(keys_of(numbers)[inside], numbers[inside] % 8 / 4, minlength=KEYS)
    shown = paged.slice(paged.num_rows - np.count_nonzero(counts))
    assert shown["k"].to_pylist() == np.flatnonzero(counts).tolist()
    assert shown["n"].to_pylist() == counts[counts > 0].tolist()
    assert shown["total"].to_pylist() == totals[counts > 0].tolist()


TUMBLES = SLIDES.replace("SLIDE 10 MINUTES", "SLIDE 1 HOUR")


@pytest.mark.parametrize("query", [SLIDES, TUMBLES, LANDMARK])
def test_the_first_groups_of_an_order_fit_into_memory(query: str) -> None:
    """ORDER BY with LIMIT needs the first groups alone, counted by hand here; equal ones are in the order of keys."""
    ordered = f"{query} ORDER BY n DESC, total DESC LIMIT 300"
    paged, metrics = answers(ordered, "BIGINT", MEMORY)
    assert metrics.memory_peak <= MEMORY
    every = answers(query, "BIGINT", 100 * MEMORY)[0].to_pylist()
    ends = sorted({row["window_end"] for row in every})
    by_hand = []
    for end in ends:
        window = [row for row in every if row["window_end"] == end]
        by_hand += sorted(window, key=lambda row: (-row["n"], -row["total"], row["k"]))[:300]
    assert paged.to_pylist() == by_hand


@pytest.mark.parametrize("query", [SLIDES, TUMBLES])
def test_the_first_groups_beside_a_query_that_shows_all(query: str) -> None:
    """Two queries have the same groups. What one of them needs as a whole does not hold up the other."""
    found: dict[str, list[pa.RecordBatch]] = {"groups": [], "first": []}
    first = f"CREATE QUERY first AS {query} ORDER BY n DESC LIMIT 5;"
    with ps.App(program(query, "BIGINT") + first, memory=MEMORY, block_size="8KiB") as app:
        for name, own in found.items():
            app.subscribe(name, own.append)
        for batch in batches("BIGINT"):
            app.push("s", batch)
        app.finish()
        assert app.metrics.memory_peak <= MEMORY
    for name, own in (("groups", query), ("first", f"{query} ORDER BY n DESC LIMIT 5")):
        whole, _ = answers(own, "BIGINT", 100 * MEMORY)
        assert pa.Table.from_batches(found[name]).equals(whole)


@pytest.mark.parametrize("memory", [MEMORY, 3 * MEMORY, 100 * MEMORY])
@pytest.mark.parametrize("query", [SLIDES, EVERY_EVENT, LANDMARK])
def test_a_checkpoint_goes_on_in_any_budget(query: str, memory: int, tmp_path: Path) -> None:
    whole, _ = answers(query, "STRING", 100 * MEMORY)
    found: list[pa.RecordBatch] = []
    half = ROWS // 2 + 777
    with ps.App(program(query, "STRING"), memory=MEMORY, block_size="8KiB", checkpoint=tmp_path / "state") as app:
        app.subscribe("groups", found.append)
        for number, batch in enumerate(batches("STRING", 0, half)):
            app.push("s", batch)
            if number % 4 == 3:
                app.checkpoint()
        app.checkpoint()
    with ps.App(program(query, "STRING"), memory=memory, block_size="8KiB", checkpoint=tmp_path / "state") as app:
        app.subscribe("groups", found.append)
        for batch in batches("STRING", half):
            app.push("s", batch)
        app.finish()
    assert pa.Table.from_batches(found).equals(whole)


def test_results_that_are_long_texts_are_shown_in_parts() -> None:
    """Those of one evaluation take more than the memory."""
    keys, memory, ends = 6_000, MEMORY // 2, pa.array(["x" * 200]).cast(pa.string())
    query = "SELECT k, LAST(k) AS last, COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 30 MINUTES] GROUP BY k"
    found: list[pa.RecordBatch] = []
    with ps.App(program(query, "STRING"), memory=memory, block_size="8KiB") as app:
        app.subscribe("groups", found.append)
        for start in range(0, 2 * keys, 2000):
            numbers = np.arange(start, start + 2000)
            names = pc.binary_join_element_wise(pa.array(numbers * 7919 % keys).cast(pa.string()), ends[0], "")
            times = pa.array(numbers * (60 * MINUTE) // keys).view(pa.timestamp("us"))
            app.push("s", pa.table({"t": times, "k": names, "x": numbers / 4}))
        app.finish()
        assert app.metrics.memory_peak <= memory
    came = pa.Table.from_batches(found)
    assert came["k"].equals(came["last"])
    assert came.num_rows == keys // 2 + 3 * keys
    assert sum(came["n"].to_pylist()) == 4 * keys - keys // 2
