"""One query over a join: its windows, when it is evaluated, which rows it shows.

Per event, the rows in which the arriving event takes part, with RSTREAM the relation of all windows, or what has come
to it and gone from it; at slides the relation at each boundary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.components import component
from penstock.expressions.batch import Batch, Data
from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import columns
from penstock.expressions.vector import Vector
from penstock.lang.query import Emit
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.joins.changes import JoinChanges, can_tell_changes
from penstock.operators.joins.outer import OuterSearch
from penstock.operators.joins.piece import Piece
from penstock.operators.joins.rate_sizing import MatchWaits
from penstock.operators.joins.rows import JoinRows
from penstock.operators.joins.search import Found, Search, Windows, rows_of, together
from penstock.operators.joins.windows import NOTHING, side_window
from penstock.operators.outgoing import Outgoing
from penstock.operators.resources import Resources
from penstock.operators.stretches import stretches
from penstock.plan.nodes import JoinNode
from penstock.windows.spec import WindowSpec
from penstock.windows.steps import BoundaryPolicy

if TYPE_CHECKING:
    from penstock.operators.joins.core import JoinCore

_ROWS_AT_ONCE = 1 << 17
"""About how many rows of the first window are joined at a time."""


class Looked(Protocol):
    """What a view looks at."""

    sides: list[JoinRows]
    resources: Resources

    def rejected(self, view: JoinView, reason: str, row: dict[str, Any]) -> None:
        """A row of the join is rejected for each query that reads the view."""


@component("JoinView")
class JoinView:
    def __init__(self, name: str, node: JoinNode, core: Looked) -> None:
        self.node = self._node = node
        resources, reject = core.resources, self._reject
        self._core = core
        self._sides = core.sides
        self._windows = [side_window(side.window) for side in node.sides]
        matches = resources.account(f"{name}: matches of one evaluation")
        self._search = (Search if node.is_inner else OuterSearch)(node, core.sides, reject, matches)
        told = can_tell_changes(node)
        emission = replace(node.emission, emit=Emit.RSTREAM) if told else node.emission
        self._emitter = Emitter(emission, node.schema, reject)
        self._account = resources.account(f"{name}: rows that the next are compared with")
        self._policy = None if node.sides[0].window.time_slide is None else BoundaryPolicy(_evaluation(node))
        self._of_events = self._policy is None and node.emission.emit is Emit.EVENT_GROUP
        expressions = [o.expression for o in node.emission.outputs] + [o.expression for o in node.emission.order_by]
        self._shown = sorted(set().union(*(columns(expression) for expression in expressions)))
        self._changes = JoinChanges(node, self._search, self._shown) if told else None
        inputs = [side.input for side in node.sides]
        self._ordered = len(inputs) == 2 and inputs[0] != inputs[1] and (node.is_inner or self._of_events)
        self.needed = [rows.head for rows in core.sides]
        sizers = zip(node.sides, self._windows, strict=True)
        self.sizers = {side.alias: w.sizer for side, w in sizers if w.sizer is not None}
        self.waits = MatchWaits()
        checked = [condition.expression for condition in node.conditions]
        shareable = node.is_inner and self._of_events and all(map(is_total, checked))
        self._common = (node.bands, node.conditions) if shareable and node.where is None else None
        self._looked = Windows([], [])
        self._rejected = 0
        self.starts: list[tuple[Int64s, Int64s]] = []
        """The ends and starts of the windows that were evaluated since they were last taken."""
        self.outgoing = Outgoing()
        self.lag = node.sides[0].window.lag

    def _reject(self, reason: str, row: dict[str, Any]) -> None:
        self._rejected += 1
        self._core.rejected(self, reason, row)

    def last_boundary(self, last_time: int | None) -> int | None:
        return None if self._policy is None else self._policy.last_boundary(self._node.emission.drain, last_time)

    def see(self, piece: Piece) -> int:
        matches = self._see(piece)
        self._search.account.resize(0)
        return matches

    def _see(self, piece: Piece) -> int:
        if self._policy is not None:
            return self._see_boundaries(self._policy, piece)
        if len(piece.times) == 0:
            return 0
        before = self.needed
        windows = self._at(piece.times, piece.heads)
        starts = self._starts(piece.times, windows)
        if self._of_events:
            found, matches = self._arriving(piece, windows)
            rows = self._search.batch(found, self._shown)
            self._emit(found, rows, np.arange(len(piece.times)), starts, piece.times)
            return matches
        if self._changes is not None:
            return self._see_changes(self._changes, piece, windows, before, starts)
        return self._relations(windows, starts, piece.times)

    # Several queries together

    @property
    def common(self) -> tuple[Any, ...] | None:
        """What must be the same for queries over one core to differ in their windows alone: what one of them finds
        with the longest windows is then enough for all. None if a query looks at more than matches, or rejects some:
        those are only the ones in its own windows."""
        return self._common

    def look(self, piece: Piece) -> Windows:
        """The windows at each event of a piece."""
        self._looked = self._at(piece.times, piece.heads)
        return self._looked

    def search_for(self, views: Sequence[JoinView], piece: Piece, windows: Windows) -> tuple[Found, Batch, int]:
        """What the events of a piece find in windows that hold those of all views, with the columns that these show."""
        found, matches = self._arriving(piece, windows)
        self._search.account.resize(0)
        return found, self._search.batch(found, sorted({name for view in views for name in view._shown})), matches

    def show(self, found: Found, rows: Batch, piece: Piece) -> None:
        """Makes the results of a piece, of what was found in larger windows."""
        windows = self._looked
        inside = np.ones(len(found), np.bool_)
        for low, at in zip(windows.low, found.at, strict=True):
            inside &= at >= low[found.evaluation]
        if not inside.all():
            found, rows = found.take(inside), rows_of_batch(rows, self._shown, inside)
        starts = self._starts(piece.times, windows)
        self._emit(found, rows, np.arange(len(piece.times)), starts, piece.times)

    # Per event

    def _arriving(self, piece: Piece, windows: Windows) -> tuple[Found, int]:
        """The rows in which arriving events take part, and how many were looked at."""
        parts = [rows_of(np.empty(0, np.int64), 0, np.empty(0, np.int64), len(self._sides))]
        looked_at = self._search.looked_at
        for place in range(len(self._sides)):
            events = np.flatnonzero(piece.own[place] >= 0)
            if len(events) == 0:
                continue
            first = rows_of(events, place, piece.own[place][events], len(self._sides))
            self._search.before = self._earlier(place, piece)
            found = self._search.containing(place, first, windows)
            parts.append(found.take(self._search.fresh(found)) if self._search.before else found)
        self._search.before = []
        all_found = self._in_order(self._where(together(parts, len(self._sides))))
        if self.sizers and len(all_found):
            times = [self._times(place, all_found) for place in range(len(self._sides))]
            self.waits.add(piece.times[all_found.evaluation], times)
        return all_found, self._search.looked_at - looked_at

    def _see_changes(
        self, changes: JoinChanges, piece: Piece, windows: Windows, before: Sequence[int], starts: Int64s
    ) -> int:
        come, matches = self._arriving(piece, windows)
        self._search.all_before = True
        gone = self._in_order(self._where(changes.gone(piece, windows, before)))
        self._search.all_before = False
        one, other = (come, gone) if self._node.emission.emit is Emit.ISTREAM else (gone, come)
        found = one.take(changes.less(one, other))
        rows = self._search.batch(found, self._shown)
        self._emit(found, rows, np.arange(len(piece.times)), starts, piece.times)
        return matches + len(gone)

    def _times(self, place: int, found: Found) -> Int64s:
        """The times of the rows of a side; of those that are all NULL, the latest there is."""
        times = np.full(len(found), NOTHING, np.int64)
        there = found.at[place] >= 0
        times[there] = self._sides[place].times(found.at[place][there])
        return times

    def _earlier(self, place: int, piece: Piece) -> list[tuple[int, Int64s]]:
        """An event that is in several sides at once is found with the first of them."""
        own = self._node.sides[place].input
        return [(side, piece.own[side]) for side in range(place) if self._node.sides[side].input == own]

    # Whole relations

    def _see_boundaries(self, policy: BoundaryPolicy, piece: Piece) -> int:
        policy.observe(piece.times)
        heads = [np.append(b, head) for b, head in zip(piece.before, piece.heads, strict=True)]
        done, most, silent = 0, 0, False
        while True:
            made = self.outgoing.made + self._rejected
            steps = policy.steps(piece.times[done:], 0, piece.watermark, silent)
            silent = False
            at = done + steps.add_upto[steps.evaluates] if len(steps) else np.empty(0, np.int64)
            if len(at):
                ends = steps.window_end[steps.evaluates]
                windows = self._at(ends - 1, [head[at] for head in heads])
                starts = self._starts(ends, windows)
                self.starts.append((ends, starts))
                most = max(most, self._relations(windows, starts, ends))
                silent = self._is_steady(windows) and self.outgoing.made + self._rejected == made
            done += int(steps.add_upto[-1]) if len(steps) else 0
            if steps.complete:
                return most

    def _is_steady(self, windows: Windows) -> bool:
        """Whether rows leave a window only when another row comes."""
        last = zip(self._windows, windows.low, windows.high, strict=True)
        return all(window.is_steady(int(low[-1]), int(high[-1])) for window, low, high in last)

    def _relations(self, windows: Windows, starts: Int64s, ends: Int64s) -> int:
        most = 0
        for first, last in self._groups(windows):
            evaluations = np.arange(first, last)
            found = self._search.all_rows(evaluations, windows)
            most = max(most, len(found))
            found = self._in_order(self._where(found))
            rows = self._search.batch(found, self._shown)
            self._emit(found, rows, evaluations, starts, ends)
        self._account.resize(self._emitter.nbytes)
        return most

    def _groups(self, windows: Windows) -> Iterator[tuple[int, int]]:
        """Evaluations that are worked on together."""
        sizes = [np.maximum(high - low, 0) for low, high in zip(windows.low, windows.high, strict=True)]
        return stretches(np.add.reduce(sizes), _ROWS_AT_ONCE)

    # Common to both

    def _at(self, times: Int64s, heads: list[Int64s]) -> Windows:
        tails = [
            window.tails(times, head, rows.rows)
            for window, head, rows in zip(self._windows, heads, self._sides, strict=True)
        ]
        self.needed = [int(tail[-1]) for tail in tails]
        return Windows(tails, heads)

    def _starts(self, ends: Int64s, windows: Windows) -> Int64s:
        """The least start of the windows."""
        starts = [
            window.starts(ends, low, high, rows.rows)
            for window, low, high, rows in zip(self._windows, windows.low, windows.high, self._sides, strict=True)
        ]
        least = np.minimum.reduce(starts)
        return np.where(least == NOTHING, ends, least)

    def _where(self, found: Found) -> Found:
        if self._node.where is None or not len(found):
            return found
        return self._search.filtered(self._node.where, found)

    def _in_order(self, found: Found) -> Found:
        """By the positions of the sides' rows, in the order of FROM."""
        if self._ordered or len(found) < 2:
            return found
        return found.take(np.lexsort([*reversed(found.at), found.evaluation]))

    def _emit(self, found: Found, rows: Batch, evaluations: Int64s, starts: Int64s, ends: Int64s) -> None:
        counts = np.bincount(found.evaluation - evaluations[0], minlength=len(evaluations))
        if self._of_events:
            there = counts > 0
            evaluations, counts = evaluations[there], counts[there]
        evaluated = Evaluations(rows, np.cumsum(counts), starts[evaluations], ends[evaluations])
        self._put(evaluated, evaluations)

    def _put(self, evaluated: Evaluations, numbers: Int64s) -> None:
        """The results of these evaluations go out; `numbers` are theirs in the piece."""
        self.outgoing.put(self._emitter.emit(evaluated))

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {
            "windows": [window.snapshot() for window in self._windows],
            "emitter": self._emitter.snapshot(),
            "policy": None if self._policy is None else self._policy.snapshot(),
            "needed": list(self.needed),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        for window, saved in zip(self._windows, snapshot["windows"], strict=True):
            window.restore(saved)
        self._emitter.restore(snapshot["emitter"])
        if self._policy is not None:
            self._policy.restore(snapshot["policy"])
        self.needed = list(snapshot["needed"])
        self._account.resize(self._emitter.nbytes)


def view_of(name: str, node: JoinNode, core: JoinCore) -> JoinView:
    """The view of a core that shows this join: one that is there, or a new one."""
    same = (view for view in core.views if isinstance(view, JoinView) and view.node == node)
    return next(same, None) or JoinView(name, node, core)


def rows_of_batch(rows: Batch, names: Sequence[str], which: Bools) -> Batch:
    """Some rows of some columns."""
    data: dict[str, Data] = {}
    for name in names:
        column = rows.data(name)
        if isinstance(column, Vector):
            valid = column.valid
            data[name] = Vector(column.values[which], None if valid is None else valid[which])
        else:
            data[name] = rows.column(name).filter(pa.array(which))
    return Batch(rows.kinds, data, int(which.sum()))


def _evaluation(node: JoinNode) -> WindowSpec:
    """A window that is empty only where all windows of the join are."""
    extents = [side.window.extent for side in node.sides]
    longest = max(extents, key=lambda e: 1 << 62 if e.length is None else e.length)
    return replace(node.sides[0].window, extent=longest)
