"""What EXPLAIN says of a store that several windows share: its space, its hit rate and its requests.

The formulas are in `cost`; their inputs are computed here, from the windows by time whose rows are stored. Windows of
the same length read the same blocks at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.plan import cost
from penstock.plan.nodes import AggregateNode
from penstock.plan.physical.nodes import PhysicalPlan, StoredWindow
from penstock.plan.reads import grouping_of, reads_of
from penstock.plan.sharing import stream_of

_TIME, _SLOT = 8, 4
"""Bytes of a row's time, and of its group under one grouping."""


@dataclass(frozen=True)
class SharedStore:
    """Bytes of the rows stored once and as often as there are windows; the part of the blocks read that are found in
    memory; requests per second at most, and those of the windows apart."""

    stream: str
    queries: tuple[str, ...]
    row: int
    space: float
    space_apart: float
    hit_rate: float
    requests: float
    requests_apart: float


def shared_stores(plan: PhysicalPlan, workload: cost.Workload, *, block_size: int, memory: int) -> list[SharedStore]:
    """The stores that windows of different length, of several queries, share, with so much memory for the blocks of
    each."""
    found = []
    for stage in plan.stages:
        if isinstance(stage.form, StoredWindow) and len({reader.query for reader in stage.form.readers}) > 1:
            readers = [reader for reader in stage.form.readers if reader.node.window.extent.length is not None]
            windows = [reader.node for reader in readers]
            if len(set(map(_seconds, windows))) > 1:
                queries = tuple(dict.fromkeys(reader.query for reader in readers))
                found.append(_shared(stream_of(windows[0]), queries, windows, workload, block_size, memory))
    return found


def _shared(
    stream: str,
    queries: tuple[str, ...],
    windows: Sequence[AggregateNode],
    workload: cost.Workload,
    block_size: int,
    memory: int,
) -> SharedStore:
    row = _row_bytes(windows)
    block_rows = max(1, block_size // row)
    lengths = sorted(set(map(_seconds, windows)))
    blocks = [workload.rate * segment / block_rows for segment in cost.segments(lengths)]
    hit_rate = cost.hit_rate(cost.resident_blocks(blocks, memory / block_size), blocks)
    per_block = cost.shared_io(len(lengths), hit_rate) if hit_rate < 1 else 0.0
    return SharedStore(
        stream=stream,
        queries=queries,
        row=row,
        space=workload.rate * lengths[-1] * row,
        space_apart=sum(workload.rate * _seconds(window) * _row_bytes([window]) for window in windows),
        hit_rate=hit_rate,
        requests=per_block * workload.rate / block_rows,
        requests_apart=sum(cost.iops(workload.rate, block_size=block_size, row=_row_bytes([w])) for w in windows),
    )


def _seconds(window: AggregateNode) -> float:
    length = window.window.extent.length
    assert length is not None
    return length / 1e6


def _row_bytes(windows: Sequence[AggregateNode]) -> int:
    """Bytes of a row that has what all of these windows read; bits of NULLs are left out."""
    groupings = {grouping_of(window).name for window in windows}
    reads = {read.name: read for window in windows for read in reads_of(window.states)}
    sizes = [1 if read.is_filter else read.expression.type.storage.itemsize for read in reads.values()]
    return _TIME + _SLOT * len(groupings) + sum(sizes)
