"""A shard of a join in memory: those of its rows in the windows that its waiting events may find, and the events.

It is made anew each time, filled with rows of the log, given the events, and closed. What is looked up, checked and
shown is what a join does that is in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.arrays import Int64s
from penstock.operators.chunk import Chunk
from penstock.operators.emitter import Evaluations
from penstock.operators.joins.logged import LoggedSide
from penstock.operators.joins.piece import Piece, matches_at_once, next_size
from penstock.operators.joins.rows import JoinRows
from penstock.operators.joins.sides import tables_of
from penstock.operators.joins.view import JoinView
from penstock.operators.resources import Resources
from penstock.plan.nodes import JoinNode

Show = Callable[[int, Int64s, Chunk], None]
"""Takes the number of a view, and results of it with the numbers of their events."""

RejectFor = Callable[[int, str, dict[str, Any]], None]
"""Takes the number of a view, and what it rejects."""


class _ShardView(JoinView):
    """Shows results with the events that they are of."""

    def __init__(self, name: str, number: int, node: JoinNode, shard: JoinShard, show: Show) -> None:
        self.number = number
        self._show = show
        self.events: Int64s = np.empty(0, np.int64)
        """The numbers of the events of a piece."""
        super().__init__(name, node, shard)

    def _put(self, evaluated: Evaluations, numbers: Int64s) -> None:
        chunk, sizes = self._emitter.emit_each(evaluated)
        if chunk.rows:
            self._show(self.number, np.repeat(self.events[numbers], sizes), chunk)


class JoinShard:
    """For the views of these `nodes`. If there is no room for it, nothing of it stays."""

    def __init__(
        self,
        name: str,
        nodes: Sequence[JoinNode],
        sides: Sequence[LoggedSide],
        resources: Resources,
        show: Show,
        reject: RejectFor,
    ) -> None:
        self.resources = resources
        self._reject = reject
        try:
            account = resources.account(f"{name}: keys of a shard")
            tables = tables_of(nodes[0], account)
            self.sides = [
                JoinRows(
                    f"{name}: side {place} of a shard",
                    side.schema,
                    side.window,
                    None,
                    side.kept,
                    {own: table for (at, own), table in tables.items() if at == place},
                    {},
                    side.moments,
                    resources,
                    side.computed,
                )
                for place, side in enumerate(sides)
            ]
            self._views = [
                _ShardView(f"{name}: view {number} of a shard", number, node, self, show)
                for number, node in enumerate(nodes)
            ]
        except BaseException:
            resources.close()
            raise
        self._at_once = matches_at_once(account.total)

    @property
    def nbytes(self) -> int:
        return self.resources.nbytes

    def rejected(self, view: JoinView, reason: str, row: dict[str, Any]) -> None:
        assert isinstance(view, _ShardView)
        self._reject(view.number, reason, row)

    def hold(self, place: int, rows: Chunk) -> None:
        """Rows that came before all events are in the window of a side."""
        self.sides[place].enter(rows)
        self.sides[place].settle()

    def play(self, chunks: Sequence[Chunk], numbers: Sequence[Int64s], size: int) -> int:
        """The rows of some events enter the sides, with the numbers of the events. A piece has `size` events to begin
        with; returns how many the next one should have."""
        events = np.concatenate(numbers)
        events.sort()
        events = events[np.append(True, events[1:] != events[:-1])]
        times: Int64s = np.empty(len(events), np.int64)
        for chunk, own in zip(chunks, numbers, strict=True):
            times[np.searchsorted(events, own)] = chunk.times
        done = 0
        while done < len(events):
            stop = min(done + size, len(events))
            bounds = [np.searchsorted(own, (events[done], events[stop - 1] + 1)).tolist() for own in numbers]
            parts = [chunk.slice(*bound) for chunk, bound in zip(chunks, bounds, strict=True)]
            places = [own[slice(*bound)] for own, bound in zip(numbers, bounds, strict=True)]
            matches = self._see(self._piece(parts, places, events[done:stop], times[done:stop]), events[done:stop])
            size = next_size(size, stop - done, matches, self._at_once)
            done = stop
        return size

    def _piece(self, parts: list[Chunk], places: list[Int64s], events: Int64s, times: Int64s) -> Piece:
        before = [rows.head for rows in self.sides]
        heads, own = [], []
        for rows, part, place, head in zip(self.sides, parts, places, before, strict=True):
            here = np.zeros(len(events), np.bool_)
            here[np.searchsorted(events, place)] = True
            if part.rows:
                rows.enter(part)
            else:
                rows.fresh = rows.head
            heads.append(head + np.cumsum(here))
            own.append(np.where(here, heads[-1] - 1, -1))
        return Piece(times, before, heads, own, int(times[-1]))

    def _see(self, piece: Piece, events: Int64s) -> int:
        matches = 0
        for view in self._views:
            view.events = events
            matches = max(matches, view.see(piece))
        for rows in self.sides:
            rows.settle()
        for place, rows in enumerate(self.sides):
            rows.release(min(view.needed[place] for view in self._views))
        return matches

    def close(self) -> None:
        self.resources.close()
