"""Many windows over one stream and grouping, made of panes: two-level aggregation, for a whole family of queries.

    rows ─▶ columns, groups ─▶ the open pane: added only
                                   │ closes: one pane row per group
                                   ├─────────────────▶ store ──▶ tails: rows that are too old for a window
                                   ▼ enter all windows              │ leave it
                         totals: a slot for each window and group ◀─┘
                                   │ evaluated at the windows' boundaries
                                   ▼
                         results of all windows in one go, cut into those of each query

A row costs what it costs in one window; a window costs a few nanoseconds per group and pane. Nothing is done per
window in Python but handing over the results of its queries.

Invariants:
1. The queries of a family are there from its first row on.
2. Rows of a pane are added after every boundary up to the pane's start has been closed, and the pane is closed before
   the boundaries after it. So every window is made of whole panes wherever it is looked at.
3. `_positions[w]` is the oldest pane row in window w: a pane row is in the totals of the windows whose position is
   not beyond it.
4. A group has its slot as long as the open pane or some window has rows of it.
5. Windows are known by numbers that stay; slots are laid out by their place among those that are left.

Made and called by `engine.flow` for the queries that it starts together.

Why: docs/decisions/families-in-one-sweep.md
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.arrays import Int64s
from penstock.components import component, is_of, read_as
from penstock.operators.aggregation import EMITTED_AT_ONCE, Aggregation, RowRun
from penstock.operators.chunk import Chunk
from penstock.operators.cutting import cuts_of
from penstock.operators.intake import Intake
from penstock.operators.outgoing import Share
from penstock.operators.panes.clock import Due, PaneClock
from penstock.operators.panes.results import Gathered, PaneOutput, PaneResults
from penstock.operators.panes.store import PaneStore
from penstock.operators.panes.totals import PaneTotals
from penstock.operators.resources import Resources
from penstock.operators.stage import Stage
from penstock.plan.aggregations import unite
from penstock.plan.nodes import AggregateNode
from penstock.plan.panes import Pane, PanedWindow, pane_of
from penstock.plan.reads import GroupingKey, grouping_of

_COLLECT_AFTER = 1024
"""Pane rows that leave windows, at least, between two looks for groups that are gone."""


@component("PaneFamily")
class PaneFamily(Stage):
    """For the queries whose `nodes` are given, each of which is to `join`; `resources` are its own, and go with it. One
    that goes on from saved state has the windows and pane rows of its `saved` layout, whichever queries are left.
    `groups_in_pane` is how many groups the last panes had, on average; 0 before the first has closed."""

    def __init__(
        self, name: str, nodes: Sequence[AggregateNode], resources: Resources, saved: dict[str, Any] | None = None
    ) -> None:
        united = unite(nodes)
        layout = None if saved is None else read_as(PaneFamily, saved)["layout"]
        self.name = name
        self._resources = resources
        self._answers = dict(zip(nodes, united.answers, strict=True))
        self._outputs: list[PaneOutput] = []
        self._numbers: Int64s
        if layout is None:
            windows = list(dict.fromkeys(PanedWindow.of(node) for node in nodes))
            self._numbers = np.arange(len(windows))
        else:
            windows = [PanedWindow(*window) for window in layout["windows"]]
            self._numbers = layout["numbers"]
        self._windows = windows
        pane = pane_of(windows) if layout is None else Pane(*layout["pane"])
        self._pane_micros, self._pane_offset = pane
        source, where = nodes[0].input, nodes[0].where
        self._grouping = grouping_of(nodes[0])
        texts = resources.account(f"{name}: groups and strings")
        self._intake = Intake(where, nodes[0].group_by, united.states, source.schema, self._reject, texts)
        self._groups = self._intake.groups
        self._held = self._groups.tally()
        self._pane = Aggregation(f"{name}-pane", self._intake, united.states, resources)
        words = None if layout is None else [(key, width) for key, width in layout["words"]]
        self._totals = PaneTotals(name, united.states, len(windows), resources, words)
        has_extras = layout is not None and layout["has_extras"]
        self._store = PaneStore(
            f"{name}-panes",
            self._totals.row_words,
            len(self._totals.layout),
            len(windows),
            resources,
            has_extras=has_extras,
        )
        cuts = cuts_of(max(nodes, key=PanedWindow.of), texts)
        self._count = None if cuts is None else cuts.count
        self._clock = PaneClock(windows)
        compared = resources.account(f"{name}: rows that the next are compared with")
        self._results = PaneResults(self._groups, compared)
        self._positions = np.zeros(len(windows), np.int64)
        self._account = resources.account(f"{name}: panes")
        self._pane_ends: int | None = None
        self._events = 0
        self._left = 0
        self.groups_in_pane = 0
        self._share = Share()

    # Queries come and go

    @property
    def is_used(self) -> bool:
        return bool(self._outputs)

    @property
    def stage(self) -> Stage:
        return self

    @property
    def queries(self) -> int:
        return len(self._outputs)

    def groups_of(self, grouping: GroupingKey) -> int | None:
        """How many groups there are now; None if the family has another grouping."""
        return self._groups.size if self._grouping == grouping else None

    def join(self, node: AggregateNode, resources: Resources) -> PaneOutput:
        """One of the queries that it was made for; it leaves with its resources."""
        number = int(self._numbers[self._windows.index(PanedWindow.of(node))])
        output = PaneOutput(node, number, resources.reject, self._last_boundary)
        self._outputs.append(output)
        self._results.join(output, self._answers[node])
        output.made.share = self._share
        self._share.change(1)
        resources.at_end(lambda: self._leave(output))
        return output

    def _leave(self, output: PaneOutput) -> None:
        """A query goes, with the last one of a window what the window held, and with the last one the family."""
        self._outputs.remove(output)
        self._results.leave(output)
        self._share.change(-1)
        if self._outputs:
            self.settle()
        else:
            self.close()

    def settle(self) -> None:
        """Frees the content of windows that no query reads any more."""
        wanted = {output.window for output in self._outputs}
        kept = np.flatnonzero([number in wanted for number in self._numbers.tolist()])
        if len(kept) == len(self._windows):
            return
        self._totals.keep(kept)
        self._clock.keep(kept)
        self._positions, self._numbers = self._positions[kept], self._numbers[kept]
        self._windows = [self._windows[place] for place in kept.tolist()]
        self._store.release(int(self._positions.min()))
        self._collect()

    def begin_at(self, reached: int) -> None:
        """The stream had rows before the first that comes, and has reached this time."""
        self._clock.observe(np.array([reached]))

    def close(self) -> None:
        """Gives all memory back; all queries have left, or none has joined."""
        self._resources.close()

    def _reject(self, reason: str, row: dict[str, Any]) -> None:
        for output in self._outputs:
            output.reject(reason, row)

    # Rows pass

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> None:
        for part, reached in chunk.parts(watermark, self._count):
            self._enter(part, reached)
            self._show()
        for output in self._outputs:
            if output.made or output.follows_time:
                output.send(output.made.take(), watermark)

    def finish(self, last_time: int | None) -> None:
        """The end of a bounded run, which is not the same for all windows."""
        for window in dict.fromkeys(output.window for output in self._outputs):
            end = self._last_boundary(window, last_time)
            if end is not None:
                self._pass_time(end, self._place(window))
                self._show()
        for output in self._outputs:
            if output.made:
                output.send_rows(output.made.take())

    def _last_boundary(self, window: int, last_time: int | None) -> int | None:
        """The last boundary of a bounded run."""
        return self._clock.last_boundary(self._place(window), last_time)

    def _place(self, window: int) -> int:
        return int(np.flatnonzero(self._numbers == window)[0])

    def _enter(self, chunk: Chunk, watermark: int) -> None:
        self._clock.observe(chunk.times)
        keep = self._intake.passes(chunk)
        if keep is not None and not keep.all():
            chunk = chunk.filter(keep)
        if chunk.rows:
            times = chunk.times
            taken = self._intake.take(chunk, None)
            self._totals.fit(self._groups.capacity)  # windows that are looked at before a pane closes know them, too
            rows = RowRun(self._events, taken.slots, taken.columns)
            self._events += chunk.rows
            panes = (times - self._pane_offset) // self._pane_micros
            edges = [0, *(np.flatnonzero(np.diff(panes)) + 1).tolist(), chunk.rows]
            for begin, end in pairwise(edges):
                start = int(panes[begin]) * self._pane_micros + self._pane_offset
                self._pass_time(start)
                self._clock.arrive(int(times[begin]), int(times[end - 1]))
                self._pane.add(rows if end - begin == chunk.rows else rows.part(begin, end))
                self._pane_ends = start + self._pane_micros
        self._pass_time(watermark)

    def _pass_time(self, upto: int, only: int | None = None) -> None:
        """All boundaries up to this time, of all windows or of one."""
        if self._pane_ends is not None and self._pane_ends <= upto:
            self._close_pane(self._pane_ends)
            self._pane_ends = None
        while (due := self._clock.due(upto, only)) is not None:
            self._slide(due)

    def _close_pane(self, end: int) -> None:
        groups = np.flatnonzero(self._pane.counts).astype(np.int32)
        self.groups_in_pane = (7 * self.groups_in_pane + len(groups)) // 8 if self.groups_in_pane else len(groups)
        if len(groups) == 0:
            return
        words, extras = self._totals.rows_of(self._pane.states, self._pane.counts, groups)
        first = self._store.head
        self._store.append(end, groups, words, extras)
        self._totals.enter(self._pane.states, first, groups, words, extras)
        self._pane.reset(groups)
        if self._store.nbytes > self._account.nbytes:
            self._account.resize(self._store.nbytes)

    def _slide(self, due: Due) -> None:
        """Windows come to a boundary: what is too old leaves them, and they are evaluated."""
        before = self._positions[due.windows]
        self._positions[due.windows] = after = self._store.after(due.boundary - self._clock.extents[due.windows])
        many = np.int32(len(self._windows))
        for rows in self._store.read(before, after):
            slots = rows.slots * many + due.windows[rows.windows].astype(np.int32)
            self._totals.leave(rows.positions, slots, rows.words, rows.extras)
            self._left += len(slots)
        self._store.release(int(self._positions.min()))
        order = self._groups.order()
        at_once = max(1, EMITTED_AT_ONCE // max(1, len(order)))
        for begin in range(0, len(due.evaluated), at_once):
            self._evaluate(due.boundary, due.evaluated[begin : begin + at_once], order)
            if self._results.rows >= EMITTED_AT_ONCE:
                self._results.show()

    def _evaluate(self, boundary: int, windows: Int64s, order: Any) -> None:
        """All groups that have rows in these windows, in the order of the keys."""
        slots = order[None, :] * np.int32(len(self._windows)) + windows[:, None].astype(np.int32)
        counts = self._totals.counts[slots]
        shown = counts > 0
        chosen = slots[shown]
        self._results.gather(
            Gathered(
                self._numbers[windows],
                boundary - self._clock.extents[windows],
                np.full(len(windows), boundary),
                shown.sum(axis=1),
                np.broadcast_to(order, slots.shape)[shown],
                counts[shown],
                self._totals.evaluate(chosen),
            )
        )

    def _show(self) -> None:
        """Makes the results, and forgets groups that are gone."""
        self._results.show()
        if self._left >= max(_COLLECT_AFTER, len(self._totals.counts)):
            self._collect()

    def _collect(self) -> None:
        """Frees groups that neither the open pane nor a window has rows of."""
        in_use = self._totals.in_use()
        self._held.rows[: len(in_use)] = in_use
        self._groups.collect(self._groups.capacity)
        self._left = 0
        self._account.resize(self._store.nbytes)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {
            "layout": {
                "windows": [list(window) for window in self._windows],
                "numbers": self._numbers,
                "pane": [self._pane_micros, self._pane_offset],
                "words": [[key, width] for key, width in self._totals.layout],
                "has_extras": self._store.has_extras,
            },
            "store": self._store.snapshot(),
            "clock": self._clock.snapshot(),
            "pane": self._pane.snapshot(),
            "totals": self._totals.snapshot(),
            "results": self._results.snapshot(),
            "positions": self._positions,
            "pane_ends": self._pane_ends,
            "events": self._events,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """When all queries that are left have joined; then `settle`."""
        self._store.restore(snapshot["store"])
        self._clock.restore(snapshot["clock"])
        self._pane.restore(snapshot["pane"])
        self._totals.restore(snapshot["totals"])
        self._results.restore(snapshot["results"])
        self._positions = snapshot["positions"]
        self._pane_ends, self._events = snapshot["pane_ends"], snapshot["events"]
        self._collect()


def is_family(saved: dict[str, Any]) -> bool:
    """Whether saved state is that of a family."""
    return is_of(PaneFamily, saved, known_by="layout")
