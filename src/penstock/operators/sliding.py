"""Aggregation over sliding windows: each row is stored once, read once more when it leaves, and never copied.

The window's policy says where evaluations take place and what has left by then; the store gives the rows that leave;
the aggregation plays both against each other.

Invariants:
1. Between calls the cursor stands at the oldest row of the window; everything before it has left every state.
   Nothing leaves before `_oldest_leaves_at`, a time or a position like the steps' `leave_before`.
2. Row positions count the rows that entered the store; for windows that count rows before WHERE, that is every row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument, Bools, Int64s
from penstock.expressions.batch import Data
from penstock.expressions.vector import Evaluated, Vector
from penstock.jit import kernel
from penstock.lang.query import Emit
from penstock.operators.aggregation import Aggregation, Run
from penstock.operators.chunk import CHUNK_ROWS, NO_ROWS, Chunk
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.intake import Intake, Taken
from penstock.operators.operator import Operator, Progress
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.shown import Shown
from penstock.plan.nodes import AggregateNode
from penstock.store.fifo import ColumnSpec, View
from penstock.windows.spec import Rows, Since, TimeSlide
from penstock.windows.steps import Steps, policy_for

_TIME, _SLOT = ColumnSpec("time", np.dtype(np.int64), False), ColumnSpec("slot", np.dtype(np.int32), False)

LEAVING_AT_ONCE = 2 * CHUNK_ROWS
"""About how many leaving rows are brought together; a window that empties at once takes several turns."""


@kernel
def _left_by_time(times: Int64s, before: Int64s, used_up: bool) -> Int64s:
    """How many of the rows have left by each step; both run upwards. When more rows follow, the answer ends with the
    first step by which all of these have left."""
    left = np.empty(len(before), np.int64)
    at = 0
    for k in range(len(before)):
        while at < len(times) and times[at] < before[k]:
            at += 1
        left[k] = at
        if used_up and at == len(times):
            return left[: k + 1]
    return left


class Turn(NamedTuple):
    """Rows that leave together: how many have left by each step, where the window starts at each step, and whether
    more rows leave during the last of these steps."""

    removed: Run
    left: Int64s
    starts: Int64s
    more: bool


class SlidingAggregate(Operator):
    def __init__(self, name: str, node: AggregateNode, resources: Resources) -> None:
        self._window = node.window
        self._filter_first = node.filter_first
        self._intake = Intake(node.where, node.group_by, node.states, node.input.schema, resources.reject)
        self._aggregation = Aggregation(name, self._intake, node.states, node.answers, resources)
        self._emitter = Emitter(node.emission, node.schema, resources.reject)
        self._drain = node.emission.drain
        self._event_group = node.emission.emit is Emit.EVENT_GROUP
        self._shown = Shown(node)
        self._policy = policy_for(node.window, resources.rows_before(node.input))
        self._by_position = isinstance(node.window.extent, Rows)
        self._lag = 0 if isinstance(node.window.slide, TimeSlide) else 1
        self._rows = 0
        self._none = Run(0, np.empty(0, np.int32), self._intake.no_columns())
        self._one_group = self._intake.one_group and (node.where is None or node.filter_first)
        self._aggregation.one_group = self._one_group
        self._oldest_leaves_at = START
        self._store = None
        if not isinstance(node.window.extent, Since):
            slot = () if self._one_group else (_SLOT,)
            self._store = resources.fifo(name, [_TIME, *slot, *self._intake.column_specs])
            self._cursor = self._store.cursor()

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        results: list[Chunk] = []
        for part, reached in chunk.parts(watermark):
            self._process(part, reached, results)
        return Progress(results, watermark - self._lag)

    def _process(self, chunk: Chunk, watermark: int, results: list[Chunk]) -> None:
        self._policy.observe(chunk.times)
        if isinstance(self._window.extent, Since) and chunk.rows:
            chunk = chunk.slice(int(np.searchsorted(chunk.times, self._window.extent.time)), chunk.rows)
        keep = self._intake.passes(chunk)
        if keep is not None and self._filter_first:
            if not keep.all():
                chunk = chunk.filter(keep)
            keep = None
        taken = self._intake.take(chunk, keep)
        first = self._rows
        self._rows += chunk.rows
        if self._store is not None and chunk.rows:
            slots = () if self._one_group else (Argument(taken.slots, None),)
            self._store.append((Argument(chunk.times, None), *slots, *taken.columns))
        added = Run(first, taken.slots, taken.columns)
        done = 0
        while True:
            steps = self._policy.steps(chunk.times[done:] if done else chunk.times, first + done, watermark)
            self._play(added.part(done, chunk.rows) if done else added, steps, taken, done, results)
            if steps.complete:
                return
            done += int(steps.add_upto[-1])

    def _play(self, added: Run, steps: Steps, taken: Taken, offset: int, results: list[Chunk]) -> None:
        """Plays all steps, in turns where more rows leave than can be brought together. The step between two turns is
        played in two parts, and its evaluation waits for the second."""
        at = entered = 0
        while at < len(steps):
            turn = self._leaving(steps, at)
            evaluates = steps.evaluates[at : at + len(turn.left)]
            if turn.more:
                evaluates = evaluates.copy()
                evaluates[-1] = False
            add_upto = steps.add_upto[at : at + len(turn.left)]
            ends = steps.window_end[at : at + len(turn.left)]
            if self._event_group:
                first = offset - 1 + int(add_upto[0])
                within = add_upto - entered if entered else add_upto
                self._play_events(added, turn, within, evaluates, ends, taken, first, results)
            else:
                self._play_all(added, turn, add_upto - entered, evaluates, ends, results)
            if turn.removed.slots.size:
                self._intake.leave(turn.removed.slots, turn.removed.columns)
                self._intake.groups.collect(len(turn.removed.slots))
            if not turn.more:
                return
            added = added.part(int(add_upto[-1]) - entered, len(added.slots))
            entered = int(add_upto[-1])
            at += len(turn.left) - 1

    def _play_events(
        self,
        added: Run,
        turn: Turn,
        add_upto: Int64s,
        evaluates: Bools,
        ends: Int64s,
        taken: Taken,
        first: int,
        results: list[Chunk],
    ) -> None:
        """One result per event: its own keys, and its group's aggregates. The events are the rows from `first` on."""
        events = taken.slots[first : first + len(add_upto)]
        if not evaluates.all():
            events = np.where(evaluates, events, _NONE)
        _, played = self._aggregation.play(added, turn.removed, add_upto, turn.left, evaluates, events)
        if len(played.slots) == 0:
            return
        starts = turn.starts
        if len(played.slots) == len(events):
            keys = [_slice(key, first, len(events)) for key in taken.keys]
        else:
            shown = np.flatnonzero(events >= 0)
            starts, ends = starts[shown], ends[shown]
            keys = [key.values.take(pa.array(first + shown)) for key in taken.keys]
        self._emit(Evaluations(self._shown.rows(keys, played), None, starts, ends, None, played.failed), results)

    def _play_all(
        self, added: Run, turn: Turn, add_upto: Int64s, evaluates: Bools, ends: Int64s, results: list[Chunk]
    ) -> None:
        """Every group that has rows, in the order of the keys, in as many goes as the results take."""
        done = entered = gone = 0
        removed = turn.removed
        while done < len(add_upto):
            count, played = self._aggregation.play(
                added, removed, add_upto[done:] - entered, turn.left[done:] - gone, evaluates[done:]
            )
            shown = done + np.flatnonzero(evaluates[done : done + count])
            if len(shown):
                rows = self._shown.rows(self._intake.groups.keys(played.slots), played)
                upto = played.upto[shown - done]
                self._emit(Evaluations(rows, upto, turn.starts[shown], ends[shown], None, played.failed), results)
            done += count
            if done < len(add_upto):
                added = added.part(int(add_upto[done - 1]) - entered, len(added.slots))
                removed = removed.part(int(turn.left[done - 1]) - gone, len(removed.slots))
                entered, gone = int(add_upto[done - 1]), int(turn.left[done - 1])

    def _leaving(self, steps: Steps, at: int) -> Turn:
        """The rows that leave during the steps from `at` on; the cursor moves past them."""
        before = steps.leave_before[at:]
        views, more = self._read_leaving(int(before[-1]))
        if not views:
            starts = steps.window_start[at:]
            if self._by_position and self._store is not None and self._cursor.position < self._store.head:
                starts = np.full(len(before), self._oldest_time(), np.int64)
            return Turn(self._none, np.zeros(len(before), np.int64), starts, False)
        first = views[0].first
        columns = views[0].columns if len(views) == 1 else _joined(views)
        times = columns[0].values
        if self._one_group:
            removed = Run(first, np.zeros(len(times), np.int32), columns[1:])
        else:
            removed = Run(first, columns[1].values, columns[2:])
        if self._by_position:
            left = np.clip(before - first, 0, len(times))
            if more:
                left = left[: int(np.searchsorted(left, len(times))) + 1]
            oldest = np.append(times, self._oldest_time() if self._cursor.position < self._rows else times[-1])
            return Turn(removed, left, oldest[left], more)
        left = _left_by_time(times, before, more)
        return Turn(removed, left, steps.window_start[at : at + len(left)], more)

    def _read_leaving(self, before: int) -> tuple[list[View], bool]:
        """Views of the oldest rows, up to a time or a position, and whether there are more of them than at once."""
        views: list[View] = []
        if self._store is None or before <= self._oldest_leaves_at:
            return views, False
        rows = 0
        while self._cursor.position < self._store.head:
            view = self._cursor.view(self._store.head)
            if self._by_position:
                count = min(max(before - view.first, 0), view.count)
            else:
                times = view.columns[0].values
                count = view.count if times[-1] < before else int(np.searchsorted(times, before))
            if count and rows >= LEAVING_AT_ONCE:
                return views, True
            if self._by_position:
                self._oldest_leaves_at = view.first + count
            else:
                self._oldest_leaves_at = int(times[count]) if count < view.count else before - 1
            if count == 0:
                break
            views.append(view if count == view.count else view.head(count))
            rows += count
            self._cursor.advance(count)
            if count < view.count:
                break
            self._store.release(self._cursor.position)
        return views, False

    def _oldest_time(self) -> int:
        assert self._store is not None
        return int(self._cursor.view(self._store.head).columns[0].values[0])

    def _emit(self, evaluations: Evaluations, results: list[Chunk]) -> None:
        chunk = self._emitter.emit(evaluations)
        if chunk.rows:
            results.append(chunk)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        end = self._policy.last_boundary(self._drain, last_time)
        return [] if end is None else self.process(Chunk(np.empty(0, np.int64), NO_ROWS), end).chunks

    def snapshot(self) -> dict[str, Any]:
        saved = {
            "policy": self._policy.snapshot(),
            "aggregation": self._aggregation.snapshot(),
            "emitter": self._emitter.snapshot(),
            "rows": self._rows,
        }
        if self._store is not None:
            saved["cursor"] = self._cursor.position
        return saved

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._policy.restore(snapshot["policy"])
        self._aggregation.restore(snapshot["aggregation"])
        self._emitter.restore(snapshot["emitter"])
        self._rows = snapshot["rows"]
        if self._store is not None:
            self._cursor = self._store.cursor(snapshot["cursor"])
        self._oldest_leaves_at = START


_NONE = np.int32(-1)


def _joined(views: list[View]) -> tuple[Argument, ...]:
    columns = []
    for parts in zip(*(view.columns for view in views), strict=True):
        valid = None
        if any(p.valid is not None for p in parts):
            valid = np.concatenate([np.ones(len(p.values), np.bool_) if p.valid is None else p.valid for p in parts])
        columns.append(Argument(np.concatenate([p.values for p in parts]), valid))
    return tuple(columns)


def _slice(column: Evaluated, first: int, count: int) -> Data:
    """So many rows of a key column, without a copy."""
    held: Data = column.held
    if isinstance(held, list):
        return held[first : first + count]
    if isinstance(held, Vector):
        values, valid = column.columns
        return Vector(values[first : first + count], None if valid is None else valid[first : first + count])
    return held.slice(first, count)
