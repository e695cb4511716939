"""UNION ALL: one order of (time, position in FROM, sequence), whoever arrives first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BudgetError
from penstock.operators.chunk import NO_ROWS, Chunk
from penstock.operators.resources import Resources
from penstock.operators.union import Union
from penstock.plan.nodes import StreamNode, UnionNode
from penstock.store import state as state_format
from penstock.store.budget import Budget
from penstock.store.manager import StoreManager
from penstock.types import Field, Schema, SqlType

SCHEMA = Schema((Field("name", SqlType.STRING), Field("n", SqlType.BIGINT)))
OTHER = Schema((Field("other", SqlType.STRING), Field("m", SqlType.BIGINT)))


def union(memory: int = 1 << 24, inputs: int = 3) -> tuple[Union, Budget]:
    streams = tuple(StreamNode(f"s{i}", SCHEMA if i == 0 else OTHER) for i in range(inputs))
    budget = Budget(memory)
    resources = Resources(StoreManager(budget, None), lambda reason, row: None)
    return Union("u", UnionNode(streams, SCHEMA), resources), budget


def chunk(rows: list[tuple[int, int, int]], encoded: bool = False) -> Chunk:
    """Rows are (time, port, number)."""
    if not rows:
        return Chunk(np.empty(0, np.int64), NO_ROWS)
    port = rows[0][1]
    names = pa.array([f"from {port}"] * len(rows))
    batch = pa.RecordBatch.from_arrays(
        [names.dictionary_encode() if encoded else names, pa.array([n for _, _, n in rows])],
        names=list((SCHEMA if port == 0 else OTHER).names),
    )
    return Chunk(np.array([t for t, _, _ in rows], np.int64), batch)


streams = st.lists(st.lists(st.integers(0, 30), max_size=15).map(sorted), min_size=3, max_size=3)


@settings(max_examples=150, deadline=None)
@given(streams, st.randoms())
def test_rows_come_out_in_one_order(times: list[list[int]], chance: Any) -> None:
    rows = [[(t, port, 100 * port + i) for i, t in enumerate(ts)] for port, ts in enumerate(times)]
    operator, budget = union()
    out: list[tuple[int, str, int]] = []
    reached = -(1 << 62)

    def take(chunks: list[Chunk]) -> None:
        for part in chunks:
            if part.rows:
                assert part.arrow.schema.names == ["name", "n"]
                out.extend(zip(part.times.tolist(), *(c.to_pylist() for c in part.arrow.columns), strict=True))

    at = [0, 0, 0]
    reached_by = [reached] * 3
    while any(at[p] < len(rows[p]) for p in range(3)):
        port = chance.choice([p for p in range(3) if at[p] < len(rows[p])])
        step = chance.randint(1, 4)
        part = rows[port][at[port] : at[port] + step]
        at[port] += step
        progress = operator.process(chunk(part, chance.random() < 0.5), part[-1][0], port)
        take(progress.chunks)
        reached_by[port] = part[-1][0]
        assert out == _due(rows, at, reached_by), "a row waits only as long as an input can bring one before it"
        assert progress.watermark >= reached
        reached = progress.watermark
        if chance.random() < 0.2:
            saved = state_format.decode(state_format.encode(operator.snapshot()))
            operator, budget = union()
            operator.restore(saved)
    take(operator.finish())
    assert out == [(t, f"from {port}", n) for t, port, n in sorted(row for port in rows for row in port)]
    assert budget.used == 0


def _due(rows: list[list[tuple[int, int, int]]], at: list[int], reached_by: list[int]) -> list[tuple[int, str, int]]:
    """What can be out, in order: an input can still bring rows from its watermark on, those of an input before another
    come first."""
    given = sorted(row for port, own in enumerate(rows) for row in own[: at[port]])
    return [
        (t, f"from {port}", n)
        for t, port, n in given
        if all((w, other) > (t, port) for other, w in enumerate(reached_by) if other != port)
    ]


def test_the_watermark_is_that_of_the_slowest() -> None:
    operator, _ = union(inputs=2)
    assert operator.process(chunk([(5, 0, 1)]), 9, 0).watermark == -(1 << 62)
    progress = operator.process(chunk([]), 4, 1)
    assert progress.watermark == 4
    assert [c.rows for c in progress.chunks] == [0]
    progress = operator.process(chunk([]), 5, 1)
    assert progress.watermark == 5
    assert [c.rows for c in progress.chunks] == [1]  # a row at 5 that comes from the second input belongs behind it


def test_a_row_waits_for_the_inputs_before_it_at_its_time() -> None:
    operator, _ = union(inputs=2)
    operator.process(chunk([]), 5, 0)
    progress = operator.process(chunk([(5, 1, 1)]), 5, 1)
    assert [c.rows for c in progress.chunks] == [0]  # a row at 5 may still come from the first input
    progress = operator.process(chunk([]), 6, 0)
    assert [c.rows for c in progress.chunks] == [1]


def test_waiting_rows_count_against_the_budget() -> None:
    operator, budget = union(memory=10_000, inputs=2)
    operator.process(chunk([(i, 0, i) for i in range(100)]), 99, 0)
    assert budget.used > 800
    with pytest.raises(BudgetError, match="wait for the other inputs"):
        operator.process(chunk([(i, 0, i) for i in range(100, 5_000)]), 4_999, 0)


def test_what_single_rows_take_is_on_the_account() -> None:
    """An Arrow batch of one row takes much more than the row, until many are put together."""
    operator, budget = union()
    for i in range(200):
        operator.process(chunk([(i, 0, i)]), i, 0)
    assert budget.used > 200 * 1024
    for i in range(200, 10_000):
        operator.process(chunk([(i, 0, i)]), i, 0)
    assert 10_000 * 24 < budget.used < 10_000 * 64 + 300 * 2048
    released = operator.process(chunk([(20_000, 1, 0)]), 20_000, 1).chunks + operator.finish()
    assert [n for part in released if part.rows for n in part.arrow.column("n").to_pylist()] == [*range(10_000), 0]
    assert budget.used == 0


def test_a_row_that_waits_does_not_hold_on_to_its_batch() -> None:
    operator, _ = union(inputs=2)
    operator.process(chunk([(9_999, 1, 0)]), 9_999, 1)
    operator.process(chunk([(i, 0, i) for i in range(10_001)]), 10_000, 0)
    (waiting,) = operator._ports._waiting[0]
    assert waiting.rows == 1
    assert waiting.arrow.get_total_buffer_size() < 1000
