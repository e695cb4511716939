"""One question to two systems: the same events, and their answers compared."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock_bench.measure.adapters.embedded import EmbeddedEngine
from penstock_bench.measure.adapters.engine import Engine
from penstock_bench.measure.setup.model import Setup
from penstock_bench.measure.setup.read import parse_setup

SECOND = 1_000_000
EPOCH = 1_700_000_000 * SECOND
COLUMNS = {"ts": "TIMESTAMP", "id": "INT", "a1": "DOUBLE"}
Batches = list[tuple[str, pa.RecordBatch]]


def setup_of(
    texts: Mapping[str, str],
    adapter: str = "embedded",
    streams: Iterable[str] = ("s",),
    columns: Mapping[str, str] = COLUMNS,
    **more: Any,
) -> Setup:
    made = {"BOOLEAN": True, "STRING": "x", "DATE": "2024-01-01"}
    fields = {
        name: {"generator": "constant", "value": made.get(kind, 1)} for name, kind in columns.items() if name != "ts"
    }
    options = more.pop("options", {})
    cause = more.pop("cause", None)
    return parse_setup(
        {
            "name": "answers",
            "streams": {name: {"columns": dict(columns)} for name in streams},
            "drivers": [{"name": "d", "fields": dict.fromkeys(streams, fields), "phases": [{"rate": 1, "events": 1}]}],
            "queries": {"q": {"text": dict(texts), **({"cause": cause} if cause else {})}},
            "system": {"adapter": adapter, "options": options},
            **more,
        }
    )


def events(count: int, ids: int = 10, seed: int = 0, every_us: int = 1_000, shift_us: int = 0) -> pa.RecordBatch:
    """One event every millisecond, just behind it: none but the first is on a boundary of anything."""
    random = np.random.default_rng(seed)
    times = EPOCH + shift_us + np.arange(count) * every_us + 137
    times[0] -= 137
    return pa.RecordBatch.from_arrays(
        [
            pa.array(times).cast(pa.timestamp("us", "UTC")),
            pa.array(random.integers(1, ids + 1, count).astype(np.int32)),
            pa.array(random.uniform(1, 100, count)),
        ],
        names=list(COLUMNS),
    )


def answers(engine: Engine, setup: Setup, batches: Batches, tables: Mapping[str, Path] | None = None) -> pa.Table:
    """What the engine says to the query `q`."""
    return all_answers(engine, setup, batches, tables)["q"]


def all_answers(
    engine: Engine, setup: Setup, batches: Batches, tables: Mapping[str, Path] | None = None
) -> dict[str, pa.Table]:
    got: dict[str, list[pa.RecordBatch]] = {query: [] for query in setup.queries}
    lock = threading.Lock()

    def emit(query: str, batch: pa.RecordBatch) -> None:
        with lock:
            got[query].append(batch.replace_schema_metadata(None))

    try:
        engine.start(setup, tables or {}, emit)
        for stream, batch in batches:
            engine.push(stream, batch)
        engine.finish()
    finally:
        engine.close()
    return {query: pa.Table.from_batches(rows) if rows else pa.table({}) for query, rows in got.items()}


def ours(setup: Setup, batches: Batches, tables: Mapping[str, Path] | None = None) -> pa.Table:
    return answers(EmbeddedEngine(), setup, batches, tables)


def assert_same(expected: pa.Table, got: pa.Table) -> None:
    """The same rows in any order, as far as the columns of `got` go; sums may differ in their last digits."""
    assert expected.num_rows > 0

    def rows(table: pa.Table) -> list[tuple[Any, ...]]:
        columns = [table.column(name).to_pylist() for name in got.column_names]
        return sorted(zip(*columns, strict=True), key=lambda row: [_coarse(value) for value in row])

    left, right = rows(expected), rows(got)
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        assert all(_equal(a, b) for a, b in zip(one, other, strict=True)), (one, other)


def _coarse(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else repr(value)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)
