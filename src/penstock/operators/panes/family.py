"""Many windows over one stream and grouping, made of panes: two-level aggregation, for a whole family of queries.

    rows ─▶ columns, groups ─▶ the open pane ─ closes ─▶ one pane row per group ─▶ all windows
                                                                                   │ evaluated at their boundaries
                                                                                   ▼
                               results of all windows in one go, cut into those of each query

A row costs what it costs in one window; a window costs a few nanoseconds per group and pane. Nothing is done per
window in Python but handing over the results of its queries. Panes and windows are in memory (`held`) or, once their
groups leave too little of it, in shards (`paged`).

Invariants:
1. The queries of a family are there from its first row on.
2. Rows of a pane are added after every boundary up to the pane's start has been closed, and the pane is closed before
   the boundaries after it. So every window is made of whole panes wherever it is looked at. Where rows are in shards,
   boundaries are gathered, in `_dues`, and closed together: rows that are younger wait in a log.
3. Windows are known by numbers that stay; slots are laid out by their place among those that are left.

Made and called by `engine.flow` for the queries that it starts together.

Why: docs/decisions/families-in-one-sweep.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.arrays import Int64s
from penstock.components import component, is_of, read_as
from penstock.errors import BudgetError
from penstock.operators.aggregation import RowRun
from penstock.operators.chunk import Chunk
from penstock.operators.cutting import cuts_of
from penstock.operators.intake import Intake, ReadRows
from penstock.operators.outgoing import Share
from penstock.operators.paged.shard import EnteringRows
from penstock.operators.panes.clock import Due, PaneClock
from penstock.operators.panes.held import HeldPanes
from penstock.operators.panes.paged import PagedPanes
from penstock.operators.panes.results import PaneOutput, PaneResults
from penstock.operators.resources import Resources
from penstock.operators.results import slice_of
from penstock.operators.stage import Stage
from penstock.plan.aggregations import unite
from penstock.plan.nodes import AggregateNode
from penstock.plan.panes import Pane, PanedWindow, pane_of
from penstock.plan.reads import GroupingKey, grouping_of

_LEAST_FREE, _MANY_GROUPS = 3, 8
"""Groups go to shards when less than the one part of the memory is free, and they have more than the other."""

_LEAST_GROUP_BYTES = 1 << 16
"""Groups of fewer bytes stay in memory: what is known of their shards would take as much."""

_TOGETHER = 128
"""So many boundaries of windows in shards are closed together."""


def _in_memory(saved: dict[str, Any]) -> dict[str, Any]:
    """Version 1: no groups were in shards."""
    held = {name: saved[name] for name in ("store", "pane", "totals", "positions", "pane_ends")}
    return {name: saved[name] for name in ("layout", "clock", "results", "events")} | {"held": held, "paged": None}


@component("PaneFamily", 2, _in_memory)
class PaneFamily(Stage):
    """For the queries whose `nodes` are given, each of which is to `join`; `resources` are its own, and go with it. One
    that goes on from saved state has the windows and pane rows of its `saved` layout, whichever queries are left."""

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
        self._pane = pane_of(windows) if layout is None else Pane(*layout["pane"])
        source, where = nodes[0].input, nodes[0].where
        self._node = replace(nodes[0], states=united.states, answers=united.answers[0])
        self._grouping = grouping_of(nodes[0])
        self._texts = texts = resources.account(f"{name}: groups and strings")
        self._intake = Intake(where, nodes[0].group_by, united.states, source.schema, self._reject, texts)
        words = None if layout is None else [(key, width) for key, width in layout["words"]]
        has_extras = layout is not None and layout["has_extras"]
        apart = resources.apart()
        resources.at_end(apart.close)
        held = HeldPanes(name, self._intake, united.states, self._numbers, apart, words, has_extras=has_extras)
        self._held: HeldPanes | None = held
        self._layout = held.layout
        self._paged: PagedPanes | None = None
        """The windows, once their groups are in shards."""
        self._dues: list[Due] = []
        cuts = cuts_of(max(nodes, key=PanedWindow.of), texts)
        self._count = None if cuts is None else cuts.count
        self._clock = PaneClock(windows)
        compared = resources.account(f"{name}: rows that the next are compared with")
        self._results = PaneResults(self._intake.groups, compared)
        self._events = 0
        self._groups_in_pane = 0
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
        return self._intake.groups.size if self._grouping == grouping else None

    @property
    def groups_in_pane(self) -> int:
        """How many groups the last panes had, on average; 0 before the first has closed. In shards they are not
        counted any more."""
        return self._groups_in_pane if self._held is None else self._held.groups_in_pane

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
        (self._held or self._in_shards).keep(kept)
        self._clock.keep(kept)
        self._numbers = self._numbers[kept]
        self._windows = [self._windows[place] for place in kept.tolist()]

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
        for part, reached in chunk.parts(watermark, self._count if self._paged is None else None):
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
            read = self._intake.read(chunk, None)
            rows = self._take(read, chunk)
            panes = (times - self._pane.offset) // self._pane.micros
            edges = [0, *(np.flatnonzero(np.diff(panes)) + 1).tolist(), chunk.rows]
            for begin, end in pairwise(edges):
                start = int(panes[begin]) * self._pane.micros + self._pane.offset
                self._pass_time(start)
                self._clock.arrive(int(times[begin]), int(times[end - 1]))
                if rows is None:
                    continue
                if self._held is not None:
                    own = rows if end - begin == chunk.rows else rows.part(begin, end)
                    begin += self._add(own, start + self._pane.micros)
                if begin < end:
                    self._log(chunk, read, begin)  # with all rows behind it
                    rows = None
        self._pass_time(watermark)

    def _take(self, read: ReadRows, chunk: Chunk) -> RowRun | None:
        """Rows that enter panes in memory; None if they are in shards."""
        first = self._events
        self._events += chunk.rows
        if self._held is not None:
            try:
                taken = self._held.take(read, chunk.rows)
            except BudgetError as refusal:
                self._page_on_need(refusal)
            else:
                if not self._is_short:
                    return RowRun(first, taken.slots, taken.columns)
                self._page()  # before states grow with the rows
        self._log(chunk, read, 0)
        return None

    def _add(self, rows: RowRun, ends: int) -> int:
        """Rows enter the pane in memory that ends then. If it becomes short, groups go to shards; returns how many rows
        have entered before."""
        assert self._held is not None
        done = self._held.add(rows, ends)
        while done < len(rows.slots):
            if self._is_short:
                self._page()
                break
            done += self._held.add(rows.part(done, len(rows.slots)), ends)
        return done

    def _pass_time(self, upto: int, only: int | None = None) -> None:
        """All boundaries up to this time, of all windows or of one."""
        if self._held is not None:
            try:
                self._held.close_pane(upto)
            except BudgetError as refusal:
                self._page_on_need(refusal)
        while (due := self._clock.due(upto, only)) is not None:
            self._slide(due)

    def _slide(self, due: Due) -> None:
        """Windows come to a boundary: what is too old leaves them, and they are evaluated."""
        if self._held is not None:
            try:
                order = self._held.leave(due, self._clock.extents)
            except BudgetError as refusal:
                self._page_on_need(refusal)
            else:
                self._held.evaluate(due, self._clock.extents, order, self._results)
                return
        self._dues.append(due)
        if sum(len(own.windows) for own in self._dues) >= _TOGETHER:
            self._play()

    def _show(self) -> None:
        """Makes the results, and forgets groups that are gone."""
        if self._held is None:
            self._play()
            return
        self._results.show()
        self._held.collect_if_many()
        if self._is_short:
            self._page()

    # Groups page

    @property
    def _in_shards(self) -> PagedPanes:
        assert self._paged is not None
        return self._paged

    @property
    def _is_short(self) -> bool:
        """Whether groups leave too little memory for others."""
        account = self._texts
        if not self._node.group_by or account.free * _LEAST_FREE > account.total:
            return False
        assert self._held is not None
        return self._held.nbytes >= max(account.total // _MANY_GROUPS, _LEAST_GROUP_BYTES)

    def _page_on_need(self, refusal: BudgetError) -> None:
        """Groups have been refused memory."""
        assert self._held is not None
        if not self._node.group_by or self._held.nbytes < _LEAST_GROUP_BYTES:
            raise refusal
        self._page()

    def _page(self) -> None:
        """The groups go to shards."""
        held = self._held
        assert held is not None
        self._results.show()
        self._groups_in_pane = held.groups_in_pane
        held.write_to(self._begin_paging(), self._pane.micros)
        self._forget_groups()

    def _begin_paging(self) -> PagedPanes:
        parts = self._node, self._intake.own, self._numbers, self._pane, self._layout
        self._paged = PagedPanes(self.name, *parts, self._resources)
        return self._paged

    def _forget_groups(self) -> None:
        self._held = None
        self._intake.page()
        self._results.page(self._intake.groups)

    def _log(self, chunk: Chunk, read: ReadRows, begin: int) -> None:
        """Rows from one on go to shards."""
        rows = chunk.rows - begin
        keys = [slice_of(key, begin, rows) for key in read.keys]
        columns = [column.at(slice(begin, chunk.rows)) for column in self._intake.own_columns(read)]
        keep = None if read.keep is None else read.keep[begin:]
        positions = np.arange(rows)  # not logged
        self._in_shards.add(EnteringRows(chunk.times[begin:], positions, keys, columns, self._intake.interners, keep))

    def _play(self) -> None:
        """Closes the boundaries that windows in shards have come to."""
        dues, self._dues = self._dues, []
        if dues:
            self._in_shards.play(dues, self._clock.extents, self._results)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {
            "layout": {
                "windows": [list(window) for window in self._windows],
                "numbers": self._numbers,
                "pane": list(self._pane),
                "words": [[key, width] for key, width in self._layout],
                "has_extras": self._held is not None and self._held.has_extras,
            },
            "clock": self._clock.snapshot(),
            "results": self._results.snapshot(),
            "events": self._events,
            "held": None if self._held is None else self._held.snapshot(),
            "paged": None if self._paged is None else self._paged.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """When all queries that are left have joined; then `settle`."""
        self._clock.restore(snapshot["clock"])
        self._results.restore(snapshot["results"])
        self._events = snapshot["events"]
        if snapshot["paged"] is None:
            assert self._held is not None
            self._held.restore(snapshot["held"])
        else:
            assert self._held is not None
            self._held.close()
            self._begin_paging().restore(snapshot["paged"])
            self._forget_groups()


def is_family(saved: dict[str, Any]) -> bool:
    """Whether saved state is that of a family."""
    return is_of(PaneFamily, saved, known_by="layout")
