"""Aggregation over the last n rows of each partition, as if each partition had a stream of its own.

Rows leave in the order of their partition, not of the stream, so a FIFO store does not fit: rows live in a pool and
each partition links its own, oldest first. The pool is memory, counted against the budget.

Invariants:
1. `heads[p]` is the oldest row in the window of partition p, `counts[p]` how many it has, at most n.
2. A group's key begins with its partition's key, so the groups of one partition are neighbours in `groups.order()`.
3. A place that was given up is not used again before the chunk that gave it up is done.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument, Bools, Int64s, Slots
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.vector import Evaluated
from penstock.jit import kernel
from penstock.lang.query import Emit
from penstock.operators.aggregation import Aggregation, Played, Run
from penstock.operators.chunk import CHUNK_ROWS, NO_ROWS, Chunk
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.groups import GroupTable
from penstock.operators.intake import Intake
from penstock.operators.operator import Operator, Progress
from penstock.operators.resources import Resources
from penstock.operators.shown import Shown
from penstock.plan.nodes import AggregateNode
from penstock.windows.spec import CountSlide, Rows, TimeSlide
from penstock.windows.steps import BoundaryPolicy


@kernel
def _link(
    partitions: Slots,
    places: Int64s,
    limit: int,
    heads: Int64s,
    tails: Int64s,
    counts: Int64s,
    totals: Int64s,
    nexts: Int64s,
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Links rows into their partitions; returns who left, how many by each row, and after each row the oldest
    place and the number of rows ever seen of its partition."""
    rows = len(partitions)
    gone = np.empty(rows, np.int64)
    gone_upto = np.empty(rows, np.int64)
    oldest = np.empty(rows, np.int64)
    seen = np.empty(rows, np.int64)
    left = 0
    for row in range(rows):
        p = partitions[row]
        place = places[row]
        if counts[p] == 0:
            heads[p] = place
        else:
            nexts[tails[p]] = place
        tails[p] = place
        counts[p] += 1
        if counts[p] > limit:
            gone[left] = heads[p]
            left += 1
            heads[p] = nexts[heads[p]]
            counts[p] -= 1
        totals[p] += 1
        gone_upto[row] = left
        oldest[row] = heads[p]
        seen[row] = totals[p]
    return gone[:left], gone_upto, oldest, seen


class PartitionedAggregate(Operator):
    def __init__(self, name: str, node: AggregateNode, resources: Resources) -> None:
        assert isinstance(node.window.extent, Rows)
        self._limit = node.window.extent.count
        self._when_full = node.window.when_full
        slide = node.window.slide
        self._every = slide.count if isinstance(slide, CountSlide) else 1
        # WHEN FULL is each partition's own affair, not the policy's.
        boundaries = replace(node.window, when_full=False)
        self._policy = BoundaryPolicy(boundaries) if isinstance(slide, TimeSlide) else None
        self._drain = node.emission.drain
        keys = node.partition_by + node.group_by
        self._intake = Intake(node.where, keys, node.states, node.input.schema, resources.reject)
        self._aggregation = Aggregation(name, self._intake, node.states, node.answers, resources)
        self._emitter = Emitter(node.emission, node.schema, resources.reject)
        self._event_group = node.emission.emit is Emit.EVENT_GROUP
        self._shown = Shown(node)
        self._partition_keys = [compile_expression(key) for key in node.partition_by]
        self._partitions = GroupTable(tuple(key.type for key in node.partition_by))
        self._account = resources.account(f"{name}: rows of partitions")
        self._heads, self._tails, self._counts, self._totals = (np.zeros(16, np.int64) for _ in range(4))
        self._owner = np.zeros(16, np.int32)
        self._times = np.empty(0, np.int64)
        self._slots = np.empty(0, np.int32)
        self._positions = np.empty(0, np.int64)
        self._nexts = np.empty(0, np.int64)
        self._columns = self._intake.no_columns()
        self._free = np.empty(0, np.int64)
        self._rows = 0

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        results: list[Chunk] = []
        if self._policy is None:
            for part, _ in chunk.parts(watermark):
                self._per_event(part, results)
        else:
            self._at_boundaries(chunk, watermark, results)
        return Progress(results, watermark if self._policy else watermark - 1)

    def _per_event(self, chunk: Chunk, results: list[Chunk]) -> None:
        if chunk.rows == 0:
            return
        partitions, added, removed, gone_upto, oldest, seen, keys = self._enter(chunk)
        evaluates: Bools = seen % self._every == 0
        if self._when_full:
            evaluates &= seen >= self._limit
        add_upto = np.arange(1, chunk.rows + 1)
        starts = self._times[oldest]
        at = entered = left = 0
        while at < chunk.rows:
            part = slice(at, None)
            events = ranges = None
            if self._event_group:
                events = np.where(evaluates[part], added.slots, np.int32(-1))
            else:
                begins, ends = self._ranges()
                ranges = (begins[partitions[part]], ends[partitions[part]])
            done, played = self._aggregation.play(
                added, removed, add_upto[part] - entered, gone_upto[part] - left, evaluates[part], events, ranges
            )
            shown = at + np.flatnonzero(evaluates[at : at + done])
            own = (
                None
                if events is None
                else [key.values.take(pa.array(at + np.flatnonzero(events >= 0))) for key in keys]
            )
            upto = played.upto[shown - at]
            owners = partitions[shown].astype(np.int64)
            if len(shown):
                self._emit(played, upto, starts[shown], chunk.times[shown], owners, own, results)
            at += done
            added = added.part(done, len(added.slots))
            removed = removed.part(int(gone_upto[at - 1]) - left, len(removed.slots))
            entered, left = at, int(gone_upto[at - 1])
        self._collect(removed_places=self._given_up)

    def _at_boundaries(self, chunk: Chunk, watermark: int, results: list[Chunk]) -> None:
        assert self._policy is not None
        self._policy.observe(chunk.times)
        done = 0
        while True:
            steps = self._policy.steps(chunk.times[done:], 0, watermark)
            begin = 0
            for k in range(len(steps)):
                end = int(steps.add_upto[k])
                for start in range(begin, end, CHUNK_ROWS):
                    self._only_enter(chunk.slice(done + start, done + min(start + CHUNK_ROWS, end)))
                begin = end
                if steps.evaluates[k]:
                    self._evaluate_all(int(steps.window_end[k]), results)
            done += begin
            if steps.complete:
                return

    def _only_enter(self, chunk: Chunk) -> None:
        _, added, removed, gone_upto, _, _, _ = self._enter(chunk)
        everything = np.full(1, chunk.rows, np.int64)
        self._aggregation.play(added, removed, everything, gone_upto[-1:], np.zeros(1, np.bool_))
        self._collect(removed_places=self._given_up)

    def _evaluate_all(self, boundary: int, results: list[Chunk]) -> None:
        """One evaluation per partition, in the order of their keys."""
        groups = self._intake.groups
        order = groups.order()
        begins, ends = self._ranges()
        owners = self._partitions.order()
        if self._when_full:
            owners = owners[self._counts[owners] >= self._limit]
        chosen = [order[begins[p] : ends[p]] for p in owners]
        alive = [slots[groups.counts[slots] > 0] for slots in chosen]
        upto = np.cumsum([len(slots) for slots in alive], dtype=np.int64)
        slots = np.concatenate(alive) if alive else order[:0]
        played = self._aggregation.evaluate(slots, upto)
        starts = self._times[self._heads[owners]]
        bounds = np.full(len(owners), boundary, np.int64)
        self._emit(played, upto, starts, bounds, owners.astype(np.int64), None, results)

    def _emit(
        self,
        played: Played,
        upto: Int64s,
        starts: Int64s,
        ends: Int64s,
        partitions: Int64s,
        own: list[Any] | None,
        results: list[Chunk],
    ) -> None:
        keys = self._intake.groups.keys(played.slots) if own is None else own
        rows = self._shown.rows(keys[len(self._partition_keys) :], played)
        chunk = self._emitter.emit(Evaluations(rows, upto, starts, ends, partitions, played.failed))
        if chunk.rows:
            results.append(chunk)

    def _enter(self, chunk: Chunk) -> tuple[Slots, Run, Run, Int64s, Int64s, Int64s, list[Evaluated]]:
        """Puts rows into the pool and links them; the rows that leave are copied out of it."""
        keys = [key(chunk.columns) for key in self._partition_keys]
        partitions = self._partitions.assign(keys, chunk.rows, None)
        taken = self._intake.take(chunk, self._intake.passes(chunk))
        self._make_room(chunk.rows)
        places, self._free = self._free[: chunk.rows], self._free[chunk.rows :]
        self._times[places], self._slots[places] = chunk.times, taken.slots
        self._positions[places] = np.arange(self._rows, self._rows + chunk.rows)
        for pool, column in zip(self._columns, taken.columns, strict=True):
            pool.values[places] = column.values
            if pool.valid is not None:
                pool.valid[places] = True if column.valid is None else column.valid
        belongs = taken.slots >= 0
        self._owner[taken.slots[belongs]] = partitions[belongs]
        gone, gone_upto, oldest, seen = _link(
            partitions, places, self._limit, self._heads, self._tails, self._counts, self._totals, self._nexts
        )
        self._given_up = gone
        leaving = tuple(
            Argument(pool.values[gone], None if pool.valid is None else pool.valid[gone]) for pool in self._columns
        )
        added = Run(self._rows, taken.slots, taken.columns)
        removed = Run(0, self._slots[gone], leaving, self._positions[gone])
        self._rows += chunk.rows
        return partitions, added, removed, gone_upto, oldest, seen, taken.keys

    def _ranges(self) -> tuple[Int64s, Int64s]:
        """Where in `groups.order()` each partition's groups begin and end."""
        order = self._intake.groups.order()
        owners = self._owner[order]
        begins, ends = np.zeros(self._partitions.capacity, np.int64), np.zeros(self._partitions.capacity, np.int64)
        first = np.flatnonzero(np.diff(owners, prepend=-1))
        begins[owners[first]] = first
        ends[owners[first]] = np.append(first[1:], len(owners))
        return begins, ends

    def _make_room(self, rows: int) -> None:
        more = self._partitions.capacity - len(self._heads)
        if more > 0:
            nothing = np.zeros(more, np.int64)
            self._heads, self._tails = np.append(self._heads, nothing), np.append(self._tails, nothing)
            self._counts, self._totals = np.append(self._counts, nothing), np.append(self._totals, nothing)
        more = self._intake.groups.capacity - len(self._owner)
        if more > 0:
            self._owner = np.append(self._owner, np.zeros(more, np.int32))
        if len(self._free) < rows:
            size = len(self._times)
            more = max(rows, size)
            row_bytes = 8 * 4 + 4 + sum(c.values.itemsize + (c.valid is not None) for c in self._columns)
            self._account.resize((size + more) * row_bytes + 5 * 8 * len(self._heads))
            self._times = np.append(self._times, np.empty(more, np.int64))
            self._slots = np.append(self._slots, np.empty(more, np.int32))
            self._positions = np.append(self._positions, np.empty(more, np.int64))
            self._nexts = np.append(self._nexts, np.empty(more, np.int64))
            self._columns = tuple(
                Argument(
                    np.append(c.values, np.zeros(more, c.values.dtype)),
                    None if c.valid is None else np.append(c.valid, np.zeros(more, np.bool_)),
                )
                for c in self._columns
            )
            self._free = np.append(self._free, np.arange(size, size + more))

    def _collect(self, removed_places: Int64s) -> None:
        """After a chunk: places and strings that left may be used again."""
        if len(removed_places):
            if any(self._intake.interners):
                columns = tuple(
                    Argument(c.values[removed_places], None if c.valid is None else c.valid[removed_places])
                    for c in self._columns
                )
                self._intake.leave(self._slots[removed_places], columns)
            self._free = np.append(self._free, removed_places)
        self._intake.groups.collect(len(removed_places))

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        end = None if self._policy is None else self._policy.last_boundary(self._drain, last_time)
        return [] if end is None else self.process(Chunk(np.empty(0, np.int64), NO_ROWS), end).chunks

    _ARRAYS = ("heads", "tails", "counts", "totals", "owner", "times", "slots", "positions", "nexts", "free")

    def snapshot(self) -> dict[str, Any]:
        return {
            "aggregation": self._aggregation.snapshot(),
            "emitter": self._emitter.snapshot(),
            "partitions": self._partitions.snapshot(),
            "policy": None if self._policy is None else self._policy.snapshot(),
            "rows": self._rows,
            "columns": [{"values": c.values, "valid": c.valid} for c in self._columns],
            **{name: getattr(self, f"_{name}") for name in self._ARRAYS},
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._aggregation.restore(snapshot["aggregation"])
        self._emitter.restore(snapshot["emitter"])
        self._partitions.restore(snapshot["partitions"])
        if self._policy is not None:
            self._policy.restore(snapshot["policy"])
        self._rows = snapshot["rows"]
        self._columns = tuple(Argument(c["values"], c["valid"]) for c in snapshot["columns"])
        for name in self._ARRAYS:
            setattr(self, f"_{name}", snapshot[name])
