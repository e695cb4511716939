"""Tables with texts larger than memory: texts go to disk with their rows, and answers stay what they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

MEMORY = 1_000_000
KEYS = 24_000
BATCH = 3_000
PROGRAM = """
CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING, x BIGINT NOT NULL, w STRING, EVENT TIME t);
CREATE TABLE seen (k STRING PRIMARY KEY, n BIGINT, w STRING){ttl};
ON s WHERE s.x % 11 <> 5 UPSERT INTO seen VALUES (s.k, COALESCE(n, 0) + 1, s.w);
ON s WHERE s.x % 11 = 5 DELETE FROM seen WHERE seen.k = s.k;
CREATE QUERY q AS SELECT s.k, s.x, n, seen.w, PREV(seen.w) AS before FROM s LEFT JOIN seen ON s.k = seen.k;"""


def key_of(number: int) -> str | None:
    """Each key in a scattered order; then every third event is of one of ten keys, the others repeat."""
    if number % 97 == 0:
        return None
    key = number % 10 if number >= KEYS and number % 3 == 0 else number * 7919 % KEYS
    return "" if key == 0 else "k" * 20_000 if key == 1 else f"the key with the number {key}"


def text_of(number: int) -> str | None:
    return None if number % 13 == 0 else "" if number % 17 == 0 else f"{number} is a text " * (4 + number % 7)


def batches(first: int, last: int) -> Iterator[pa.RecordBatch]:
    for start in range(first, last, BATCH):
        numbers = range(start, min(start + BATCH, last))
        columns = [
            pa.array(numbers, pa.int64()).view(pa.timestamp("us")),
            pa.array(list(map(key_of, numbers)), pa.string()),
            pa.array(numbers, pa.int64()),
            pa.array(list(map(text_of, numbers)), pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=["t", "k", "x", "w"])


def by_hand(rows: int, ttl: int | None) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What the query shows, and what the table is in the end, by its keys: a dictionary, event by event."""
    table: dict[str, tuple[int, str | None, int]] = {}
    shown: list[tuple[Any, ...]] = []
    for x in range(rows):
        k = key_of(x)
        held = None if k is None else table.get(k)
        if held is not None and ttl is not None and held[2] + ttl <= x:
            held = None
        now = None
        if k is not None and x % 11 == 5:
            table.pop(k, None)
        elif k is not None:
            now = table[k] = ((held[0] if held else 0) + 1, text_of(x), x)
        shown.append((k, x, now and now[0], now and now[1], held and held[1]))
    left = {k: row[:2] for k, row in table.items() if ttl is None or row[2] + ttl > rows - 1}
    return shown, [(k, *left[k]) for k in sorted(left)]


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("ttl", [None, 16_000])
def test_texts_of_a_table_that_are_several_times_the_budget(ttl: int | None, tmp_path: Path) -> None:
    rows = KEYS + 8_000
    found: list[pa.RecordBatch] = []
    program = PROGRAM.format(ttl=f" WITH ('ttl' = '{ttl} MICROSECONDS')" if ttl else "")
    for number, (first, last) in enumerate([(0, 15_001), (15_001, 26_017), (26_017, rows)]):
        # The second app has everything in memory; then rows and texts have no room again.
        memory = MEMORY * (40 if number == 1 else 1)
        with ps.App(program, memory=memory, block_size="8KiB", checkpoint=tmp_path / "state") as app:
            app.subscribe("q", found.append)
            for at, batch in enumerate(batches(first, last)):
                app.push("s", batch)
                if at % 3 == 2:
                    app.checkpoint()
            app.checkpoint()
            metrics = app.metrics
            assert metrics.memory_peak <= memory
            table = rows_of(app.table("seen"))
    shown, left = by_hand(rows, ttl)
    assert rows_of(pa.Table.from_batches(found)) == shown
    assert table == left
    assert metrics.tables["seen"].on_disk > 0.4 * len(left)
    if ttl is None:
        assert sum(len(k) + len(w or "") for k, _, w in left) > 2.5 * MEMORY


def test_the_last_rows_are_not_read_to_be_replaced() -> None:
    text = """CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING NOT NULL, x BIGINT NOT NULL, w STRING, EVENT TIME t);
        CREATE TABLE seen AS LAST BY k FROM s;"""
    with ps.App(text, memory=MEMORY, block_size="8KiB") as app:
        rows = KEYS + 8_000
        for batch in batches(0, rows):
            app.push("s", batch.filter(batch.column("k").is_valid()))
        last = {k: x for x in range(rows) if (k := key_of(x)) is not None}
        table = app.table("seen")
        assert dict(zip(table["k"].to_pylist(), table["x"].to_pylist(), strict=True)) == last
        assert table["w"].to_pylist() == [text_of(last[k]) for k in sorted(last)]
        assert app.metrics.memory_peak <= MEMORY
        assert app.metrics.tables["seen"].on_disk > 0.5 * len(last)


def test_others_get_the_memory_of_texts() -> None:
    text = """CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING, x BIGINT NOT NULL, w STRING, EVENT TIME t);
        CREATE STREAM r (t TIMESTAMP NOT NULL, x BIGINT NOT NULL, EVENT TIME t);
        CREATE TABLE seen AS LAST BY k FROM s;
        CREATE QUERY q AS SELECT MODE(x) AS n FROM r [ROWS 100000 SLIDE 100000];"""
    with ps.App(text, memory=9 * MEMORY // 2, block_size="8KiB") as app:
        for batch in batches(2, 9_000):
            app.push("s", batch)
        assert app.metrics.tables["seen"].on_disk == 0
        for start in range(0, 16_000, BATCH):
            numbers = np.arange(start, start + BATCH)
            times = pa.array(numbers).view(pa.timestamp("us"))
            app.push("r", pa.RecordBatch.from_arrays([times, pa.array(numbers)], names=["t", "x"]))
        assert app.metrics.tables["seen"].on_disk > 8_000
        assert len(app._flow.tables.table("seen").interners["k"]) == 0
