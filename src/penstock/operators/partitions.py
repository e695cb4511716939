"""What windows per partition share: the partition of each row, the rows a partition keeps, and its evaluations.

Each partition is as if it had a stream and a window of its own: counts of rows, for the window's size, its slide and
WHEN FULL, are per partition. With a time slide all partitions are looked at at the boundary.

Invariants:
1. A partition's rows are one queue of `queues`, numbered by its slot in `table`: at most `_limits[p]`, oldest first.
2. `_seen[p]` is the number of rows that partition p ever had. Partitions are never forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.expressions.batch import Data
from penstock.expressions.evaluate import compile_expression
from penstock.jit import kernel
from penstock.operators.chunk import CHUNK_ROWS, Chunk
from penstock.operators.groups import GroupTable
from penstock.operators.resources import Resources
from penstock.plan.nodes import AggregateNode, RelationNode
from penstock.store.charged import ChargedArray
from penstock.store.fifo import ColumnSpec
from penstock.store.queues import Moved
from penstock.windows.spec import RowsOf
from penstock.windows.steps import BoundaryPolicy

MOST_ROWS = 10**12
"""The largest number of ROWS, as in the text of a query."""


@kernel
def numbers_of(partitions: Slots, totals: Int64s) -> Int64s:
    """After each row, the number of rows its partition has had."""
    seen = np.empty(len(partitions), np.int64)
    for row in range(len(partitions)):
        totals[partitions[row]] += 1
        seen[row] = totals[partitions[row]]
    return seen


@component("Partitions")
class Partitions:
    """The partitions of a node. `columns` are those that a window keeps of each row, its time first."""

    def __init__(
        self, name: str, node: AggregateNode | RelationNode, columns: Sequence[ColumnSpec], resources: Resources
    ) -> None:
        extent, slide = node.window.extent, node.window.slide
        self._limit = extent.limit
        self._own_limit = node.window.partition_by.index(extent.column) if isinstance(extent, RowsOf) else None
        assert self._limit is not None or self._own_limit is not None, "other windows have no partitions, or close"
        self._reject = resources.reject
        account = self._account = resources.account(f"{name}: keys of partitions")
        self.table = GroupTable(tuple(key.type for key in node.partition_by), account)
        self.queues = resources.queues(name, columns, node)
        self._when_full = node.window.when_full
        self._every = slide.events or 1
        # WHEN FULL is each partition's own affair, not the policy's.
        boundaries = replace(node.window, when_full=False)
        self._policy = None if slide.by_time is None else BoundaryPolicy(boundaries)
        self._drain = node.emission.drain
        self._keys = [compile_expression(key) for key in node.partition_by]
        self._seen = ChargedArray(account, np.int64)
        self._limits = ChargedArray(account, np.int64)

    @property
    def by_time(self) -> bool:
        """Whether evaluations take place at boundaries of time, not at events."""
        return self._policy is not None

    def admitted(self, chunk: Chunk) -> Chunk:
        """If the number of ROWS is a column: the rows that have a number there. The others are rejected."""
        if self._own_limit is None or not chunk.rows:
            return chunk
        values, valid = self._keys[self._own_limit](chunk.columns).columns
        fits: Bools = (values >= 1) & (values <= MOST_ROWS)
        if valid is not None:
            fits &= valid
        if fits.all():
            return chunk
        for row in np.flatnonzero(~fits):
            self._reject("ROWS_OUT_OF_RANGE: the number of ROWS must be at least 1", chunk.row(int(row)))
        return chunk.filter(fits)

    def begin(self, chunk: Chunk, numbers: Int64s) -> None:
        """Rows are about to enter that have these numbers in their partitions, 0 where they follow: partitions without
        rows go on from there."""
        partitions, first = np.unique(self._find(chunk), return_index=True)
        fresh = self._seen.array[partitions] == 0
        self._seen.array[partitions[fresh]] = np.maximum(numbers[first[fresh]] - 1, 0)

    def keys_of(self, chunk: Chunk) -> list[Data]:
        """The key of each row's partition."""
        return [key(chunk.columns).values for key in self._keys]

    def _find(self, chunk: Chunk) -> Slots:
        """The partition of each row."""
        keys = [key(chunk.columns) for key in self._keys]
        partitions = self.table.assign(keys, chunk.rows, None)
        held = len(self._seen)
        if self.table.capacity > held:
            self._seen.resize(self.table.capacity)
            self._limits.resize(self.table.capacity)
            self._limits.array[held:] = self._limit or 0
        if self._own_limit is not None:
            self._limits.array[partitions] = keys[self._own_limit].columns[0]
        return partitions

    def assign(self, chunk: Chunk) -> tuple[Slots, Bools]:
        """The partition of each row, and whether the row makes its partition due. To be called once per row."""
        partitions = self._find(chunk)
        seen = numbers_of(partitions, self._seen.array)
        due: Bools = seen % self._every == 0
        if self._when_full:
            due &= seen >= self._limits.array[partitions]
        return partitions, due

    def enter(self, partitions: Slots, columns: Sequence[Argument]) -> Moved:
        return self.queues.enter(partitions, columns, self._limits.array[partitions])

    def held(self) -> Iterator[tuple[Slots, Int64s, list[Data], tuple[Argument, ...]]]:
        """The rows of all partitions, some at a time, those of a partition in their order: the partition of each, its
        number there, the key of the partition and the columns."""
        numbers = ChargedArray(self._account, np.int64)
        numbers.resize(self.table.capacity)
        numbers.array[:] = self._seen.array[: len(numbers)] - self.queues.lengths_upto(len(numbers))
        for partitions, columns in self.queues.all():
            yield partitions, numbers_of(partitions, numbers.array), self.table.keys(partitions), columns
        numbers.clear()

    @property
    def nbytes(self) -> int:
        """What it keeps of partitions besides the values of their rows."""
        return self.table.nbytes + self._seen.nbytes + self._limits.nbytes + self.queues.queue_bytes

    def close(self) -> None:
        """Gives the memory back. It admits rows, and has none any more."""
        self.table.close()
        self._seen.clear()
        self._limits.clear()

    def due_at_boundary(self) -> Slots:
        """The partitions that are looked at at a boundary, in the order of their keys."""
        owners = self.table.order()
        return owners[self._seen.array[owners] >= self._limits.array[owners]] if self._when_full else owners

    def walk(self, chunk: Chunk, watermark: int, made: Callable[[], int]) -> Iterator[Chunk | int]:
        """For time slides: runs of rows to enter and, between them, the boundaries that are due. `made` tells how many
        rows have come of these so far, with those that were rejected."""
        assert self._policy is not None
        self._policy.observe(chunk.times)
        done, silent = 0, False
        while True:
            before = made()
            steps = self._policy.steps(chunk.times[done:], 0, watermark, silent)
            begin = 0
            for k in range(len(steps)):
                end = int(steps.add_upto[k])
                for start in range(begin, end, CHUNK_ROWS):
                    yield chunk.slice(done + start, done + min(start + CHUNK_ROWS, end))
                begin = end
                if steps.evaluates[k]:
                    yield int(steps.window_end[k])
            done += begin
            if steps.complete:
                return
            silent = made() == before

    def last_boundary(self, last_time: int | None) -> int | None:
        """The watermark at which a bounded run ends; None where it ends with its last event."""
        return None if self._policy is None else self._policy.last_boundary(self._drain, last_time)

    def boundaries(self) -> dict[str, Any] | None:
        """What is saved of the boundaries of time; None where there are none."""
        return None if self._policy is None else self._policy.snapshot()

    def go_on(self, boundaries: dict[str, Any] | None) -> None:
        """The inverse of `boundaries`."""
        if self._policy is not None and boundaries is not None:
            self._policy.restore(boundaries)

    def snapshot(self) -> dict[str, Any]:
        """All but the rows, which the storage manager saves."""
        return {
            "table": self.table.snapshot(),
            "policy": self.boundaries(),
            "seen": self._seen.array,
            "limits": None if self._own_limit is None else self._limits.array,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.table.restore(snapshot["table"])
        self.go_on(snapshot["policy"])
        self._seen.set(snapshot["seen"])
        limits = snapshot.get("limits")
        self._limits.set(np.full(len(self._seen), self._limit, np.int64) if limits is None else limits)
