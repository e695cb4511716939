"""Tables larger than memory: their rows go to disk, the budget holds, and answers stay what they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import penstock as ps

MEMORY = 750_000
KEYS = 200_000
BATCH = 10_000
STREAMS = """CREATE STREAM s (t TIMESTAMP NOT NULL, k {key} NOT NULL, x BIGINT NOT NULL, EVENT TIME t);
CREATE STREAM r (t TIMESTAMP NOT NULL, k {key} NOT NULL, EVENT TIME t);
"""
COUNTED = "CREATE TABLE seen (k BIGINT PRIMARY KEY, n BIGINT, last BIGINT, total DOUBLE){ttl};"
COUNT = """
ON s WHERE s.x % 11 <> 5 UPSERT INTO seen VALUES (s.k, COALESCE(n, 0) + 1, s.x, COALESCE(total, 0.0) + x);
ON s WHERE s.x % 11 = 5 DELETE FROM seen WHERE seen.k = s.k;
CREATE QUERY q AS SELECT s.k, s.x, n, seen.last, PREV(seen.n) AS before FROM s LEFT JOIN seen ON s.k = seen.k;"""


def key_of(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Each key once in a scattered order; then every third event is of one of ten keys, the others repeat."""
    return np.where((numbers >= KEYS) & (numbers % 3 == 0), numbers % 10, numbers * 7919 % KEYS)


def batches(first: int, last: int) -> Iterator[pa.RecordBatch]:
    for start in range(first, last, BATCH):
        numbers = np.arange(start, min(start + BATCH, last))
        times = pa.array(numbers).view(pa.timestamp("us"))
        yield pa.RecordBatch.from_arrays([times, pa.array(key_of(numbers)), pa.array(numbers)], names=["t", "k", "x"])


def program(ttl: int | None = None) -> str:
    kept = f" WITH ('ttl' = '{ttl} MICROSECONDS')" if ttl else ""
    return STREAMS.format(key="BIGINT") + COUNTED.format(ttl=kept) + COUNT


def by_hand(rows: int, ttl: int | None = None) -> tuple[list[tuple[Any, ...]], dict[int, tuple[int, int, float]]]:
    """What the query shows, and what the table is in the end: a dictionary, event by event."""
    table: dict[int, tuple[int, int, float]] = {}
    shown: list[tuple[Any, ...]] = []
    numbers = np.arange(rows)
    for x, k in zip(numbers.tolist(), key_of(numbers).tolist(), strict=True):
        held = table.get(k)
        if held is not None and ttl is not None and held[1] + ttl <= x:
            held = None
        if x % 11 == 5:
            table.pop(k, None)
            now = None
        else:
            now = table[k] = ((held[0] if held else 0) + 1, x, (held[2] if held else 0.0) + x)
        shown.append((k, x, now[0] if now else None, now[1] if now else None, held[0] if held else None))
    left = {k: row for k, row in table.items() if ttl is None or row[1] + ttl > rows - 1}
    return shown, left


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def contents(app: ps.App) -> dict[int, tuple[int, int, float]]:
    return {row["k"]: (row["n"], row["last"], row["total"]) for row in app.table("seen").to_pylist()}


@pytest.mark.parametrize("ttl", [None, 150_000])
def test_a_table_ten_times_the_budget(ttl: int | None, tmp_path: Path) -> None:
    rows = KEYS + 60_000
    found: list[pa.RecordBatch] = []
    state = tmp_path / "state"
    for number, (first, last) in enumerate([(0, 130_001), (130_001, 230_017), (230_017, rows)]):
        with ps.App(program(ttl), memory=MEMORY * (1 + (number == 1)), block_size="8KiB", checkpoint=state) as app:
            app.subscribe("q", found.append)
            for at, batch in enumerate(batches(first, last)):
                app.push("s", batch)
                if at % 4 == 3:
                    app.checkpoint()
            app.checkpoint()
            if last == rows:
                table, metrics = contents(app), app.metrics
    shown, left = by_hand(rows, ttl)
    assert rows_of(pa.Table.from_batches(found)) == shown
    assert table == left
    assert metrics.memory_peak <= MEMORY
    in_table = metrics.tables["seen"]
    assert in_table.on_disk > 0.6 * len(left)
    if ttl is None:
        assert in_table.on_disk * 40 > 9 * MEMORY
    else:
        assert in_table.expired > KEYS / 3
        assert in_table.retention is not None
        assert in_table.retention < 1.5 * ttl


def test_rows_that_are_not_asked_for_as_they_were_are_not_read() -> None:
    text = STREAMS.format(key="BIGINT") + "CREATE TABLE seen AS LAST BY k FROM s;"
    with ps.App(text, memory=MEMORY, block_size="8KiB") as app:
        for batch in batches(0, KEYS + 20_000):
            app.push("s", batch)
        numbers = np.arange(KEYS + 20_000)
        last = dict(zip(key_of(numbers).tolist(), numbers.tolist(), strict=True))
        assert {row["k"]: row["x"] for row in app.table("seen").to_pylist()} == last
        assert app.metrics.memory_peak <= MEMORY


def test_texts_are_released_with_their_rows() -> None:
    text = (
        """CREATE STREAM s (t TIMESTAMP, k STRING, w STRING, EVENT TIME t);
        CREATE TABLE seen (k STRING PRIMARY KEY, w STRING, """
        + ", ".join(f"c{i} DOUBLE" for i in range(40))
        + """)
            WITH ('ttl' = '8 MILLISECONDS');
        ON s UPSERT INTO seen (k, w) VALUES (s.k, s.w);
        CREATE QUERY q AS SELECT s.k, PREV(seen.w) AS before FROM s, seen WHERE s.k = seen.k;"""
    )
    with ps.App(text, memory="3500KB", block_size="4KiB") as app:
        on_disk, before = 0, []
        for start in range(0, 60_000, 500):
            times = range(start, start + 500)
            rows = {"t": [*times], "k": [f"key {t % 9_000}" for t in times], "w": [f"text {t}" for t in times]}
            schema = pa.schema({"t": pa.timestamp("us"), "k": pa.string(), "w": pa.string()})
            app.push("s", pa.RecordBatch.from_pydict(rows, schema))
            on_disk = max(on_disk, app.metrics.tables["seen"].on_disk)
            before += app.results("q").column("before").to_pylist()
        assert on_disk > 2_000
        assert before == [None] * 60_000  # a key comes again when its row is over
        texts = app._flow.tables.table("seen").interners["w"]
        assert (texts.find([f"text {t}" for t in range(60_000)]) >= 0).sum() < 10_000
        assert {row["w"] for row in app.table("seen").to_pylist()} == {f"text {t}" for t in range(52_000, 60_000)}


def test_others_get_the_memory_of_a_table() -> None:
    text = STREAMS.format(key="BIGINT") + (
        "CREATE TABLE seen AS LAST BY k FROM s;CREATE QUERY q AS SELECT MODE(k) AS n FROM r [ROWS 100000 SLIDE 100000];"
    )
    with ps.App(text, memory=2 * MEMORY, block_size="8KiB") as app:
        for batch in batches(0, 30_000):
            app.push("s", batch)
        assert app.metrics.tables["seen"].on_disk == 0
        for batch in batches(0, 10_000):
            app.push("r", batch.select(["t", "k"]))
        assert app.metrics.tables["seen"].on_disk == 30_000
        assert app.table("seen")["x"].to_numpy().tolist() == np.argsort(key_of(np.arange(30_000))).tolist()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT r.t, seen.k FROM r, seen WHERE r.k = seen.x",
        "SELECT COUNT(*) AS c FROM seen [SLIDE 1 SECOND]",
    ],
)
def test_what_looks_at_all_rows_has_them_in_memory(query: str) -> None:
    text = STREAMS.format(key="BIGINT") + "CREATE TABLE seen AS LAST BY k FROM s;CREATE QUERY q AS " + query

    def run(memory: int) -> list[Any]:
        with ps.App(text, memory=memory, block_size="8KiB") as app:
            for at, batch in enumerate(batches(0, 60_000)):
                app.push("s", batch)
                app.advance("r", (at + 1) * BATCH)
            app.push("r", {"t": 60_000, "k": 77})
            app.finish()
            shown: list[Any] = app.results("q").to_pylist()
            return shown

    assert len(run(100 * MEMORY)) == 1
    with pytest.raises(ps.BudgetError, match="table seen needs"):
        run(MEMORY)


def test_a_table_that_is_loaded_and_written(tmp_path: Path) -> None:
    rows = 60_000
    path = tmp_path / "seen.parquet"
    keys = np.arange(rows)
    parquet.write_table(pa.table({"k": keys, "x": keys * 2, "y": keys * 3}), path)
    text = STREAMS.format(key="BIGINT") + (
        f"CREATE TABLE seen (k BIGINT PRIMARY KEY, x BIGINT, y BIGINT) FROM '{path}';"
        "ON s UPDATE seen SET x = seen.x + 1 WHERE seen.k = s.k;"
    )
    with ps.App(text, memory=MEMORY, block_size="8KiB") as app:
        assert app.metrics.tables["seen"].on_disk > 0.9 * rows
        for batch in batches(0, 20_000):
            app.push("s", batch)
        table = app.table("seen")
        touched = np.isin(keys, key_of(np.arange(20_000)))
        assert table["x"].to_numpy().tolist() == (keys * 2 + touched).tolist()
        assert table["y"].to_numpy().tolist() == (keys * 3).tolist()
