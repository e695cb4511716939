"""Running windows change their form, from stored rows to panes or back. Results stay the same.

    rows         old form ─▶ results ───────────────────────────────▶│ closed
    the same     new form ─▶ thrown away, rejects dropped ───────────▶│─▶ results
                 │◀────── longest extent + longest slide ───────────▶│
                 begun, the stream had reached t0                     switched

Both forms give the same answers, to the bit, once the new one has all rows that the old one has. A window that is
looked at more than its extent after t0 has only rows that came after t0, and one slide more makes that true of the
evaluation before as well, with which ISTREAM and DSTREAM compare. By then it does not matter either when a query came,
nor what WHEN FULL counts from.

Invariants:
1. A change begins right after a call with rows, so every query that takes part has seen a row of the stream: t0 is a
   time by which each of them had begun.
2. The new form gets every call of the stream from then on, after the queries have got it. It is not part of `Running`
   until the switch. So checkpoints save only the old form, and no other query joins the new form or fills from it.
3. The memory of the new form is dispensable: when any request for memory is refused, the new form is given up. It is
   not part of the queries, so they go on as they were.

Driven by `engine.flow`.

Why: docs/decisions/change-beside.md
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.engine.instantiate import Made
from penstock.engine.planner import Planner
from penstock.engine.running import Running, Shared
from penstock.errors import BudgetError, StorageError
from penstock.lang.render import render_duration
from penstock.operators.chunk import Chunk
from penstock.operators.panes.family import PaneFamily
from penstock.operators.panes.results import PaneOutput
from penstock.operators.resources import Resources
from penstock.operators.shared_aggregation import AggregationOutput
from penstock.plan.nodes import AggregateNode
from penstock.plan.pane_cost import compare
from penstock.plan.panes import PanedWindow, families, family_of, why_not
from penstock.plan.physical import nodes as physical
from penstock.plan.physical.nodes import PhysicalPlan, Stage, WindowReader
from penstock.plan.sharing import shareable, stream_of
from penstock.rejects import Reject
from penstock.store.budget import Budget
from penstock.windows.steps import FOREVER

_LEAST_ROWS, _ROWS_PER_WINDOW = 1_000, 100
"""Costs are not looked at again before so many rows, however short the windows are."""

_AT_ONCE, _NEVER = (-FOREVER, 0), (FOREVER, 0)
"""When to look: the time that the stream has to reach, and the number of its rows."""

MakeForms = Callable[[PhysicalPlan], Made]
"""Makes what windows are to be: a plan of panes or of stored rows."""


class _MutedRejects:
    """Where the new form rejects rows: nowhere, as long as the old one does."""

    def __init__(self, reject: Reject) -> None:
        self._reject = reject
        self.silent = True

    def __call__(self, reason: str, row: dict[str, Any]) -> None:
        if not self.silent:
            self._reject(reason, row)


@dataclass(frozen=True, eq=False)
class _Window:
    """A query's window, by its number among those of the query that may be shared."""

    query: str
    number: int
    node: AggregateNode
    shared: Shared
    strategy: str


@dataclass(frozen=True, eq=False)
class _Successor:
    """What is to take a window's place."""

    window: _Window
    shared: Shared
    output: AggregationOutput | PaneOutput
    resources: Resources
    mute: _MutedRejects


@dataclass(eq=False)
class _Change:
    """`complete_after` is the time that the stream has to pass."""

    stream: str
    complete_after: int
    to_panes: bool
    successors: list[_Successor]

    @property
    def queries(self) -> set[str]:
        return {successor.window.query for successor in self.successors}

    @property
    def names(self) -> set[str]:
        """Those of all that it has stores of."""
        forms = {successor.shared for successor in self.successors}
        return {form.name for form in forms} | {f.window.name for f in forms if not isinstance(f, PaneFamily)}


class StrategyChange:
    """`running` are the queries at work, which it changes; `changed` is called when it has. `passed` counts the rows of
    each stream."""

    def __init__(
        self,
        running: dict[str, Running],
        passed: Mapping[str, int],
        budget: Budget,
        planner: Planner,
        make_forms: MakeForms,
        resources: Callable[[], Resources],
        strategy_of: Callable[[Running], str],
        is_measured: Callable[[str], bool],
        changed: Callable[[], None],
    ) -> None:
        self._running = running
        self._passed = passed
        self._memory = budget.total
        self._planner = planner
        self._make_forms = make_forms
        self._resources = resources
        self._strategy_of = strategy_of
        self._is_measured = is_measured
        self._changed = changed
        self._changes: list[_Change] = []
        self._looks: dict[str, tuple[int, int]] = {}
        self._at_work = False
        budget.on_need(self._give_up_all)

    # What is asked

    def ask(self, queries: Iterable[str], strategy: str) -> None:
        """These queries have another strategy: windows of their streams are looked at with the next rows. A change to
        the other form is given up; if others take part in it that still want it, it begins again."""
        asked = set(queries)
        for name in asked:
            self._looks |= {stream_of(window): _AT_ONCE for window in shareable(self._running[name].node)}
        for change in list(self._changes):
            if strategy == ("window" if change.to_panes else "panes") and not asked.isdisjoint(change.queries):
                self._give_up(change)

    def started(self, streams: Iterable[str]) -> None:
        """Queries have begun on these streams, so windows may change there that could not before."""
        for stream in streams:
            if self._looks.get(stream) == _NEVER:
                del self._looks[stream]

    def dropped(self, query: str) -> None:
        """A query goes, also from what it was to become."""
        for change in list(self._changes):
            own = [s for s in change.successors if s.window.query == query]
            change.successors = [s for s in change.successors if s.window.query != query]
            for successor in own:
                successor.resources.close()
            if not change.successors:
                self._changes.remove(change)

    @property
    def names(self) -> set[str]:
        """The names of all forms that are being made: they have stores of these names."""
        return set().union(*(change.names for change in self._changes))

    def shown(self) -> dict[str, str]:
        """For each query in a change what it becomes."""
        found: dict[str, str] = {}
        for change in self._changes:
            longest = max(PanedWindow.of(s.window.node).extent for s in change.successors)
            form = "panes" if change.to_panes else "one window"
            text = f"becomes {form}: a change is under way that ends when {render_duration(longest)} have come"
            found |= {successor.window.query: text for successor in change.successors}
        return found

    # Rows pass

    def after(self, stream: str, chunks: list[Chunk], watermark: int) -> None:
        """The queries have been given a call."""
        if self._changes:
            for change in self._of(stream):
                self._feed(change, chunks, watermark)
        due, rows = self._looks.get(stream, _AT_ONCE)
        if watermark >= due and self._passed.get(stream, 0) >= rows:
            times = [int(chunk.times[-1]) for chunk in chunks if chunk.rows]
            if times:
                self._look(stream, max(watermark, times[-1]))

    def is_settled(self, stream: str) -> bool:
        """Whether rows of the stream change nothing here until queries come or go."""
        return not self._changes and self._looks.get(stream) == _NEVER

    def _of(self, stream: str) -> list[_Change]:
        return [change for change in self._changes if change.stream == stream]

    def _feed(self, change: _Change, chunks: list[Chunk], watermark: int) -> None:
        self._at_work = True
        try:
            for stage in dict.fromkeys(successor.shared.stage for successor in change.successors):
                stage.take(chunks, watermark)
        except (BudgetError, StorageError):
            self._give_up(change)
            return
        finally:
            self._at_work = False
        if watermark > change.complete_after:
            self._switch(change)

    def _switch(self, change: _Change) -> None:
        self._changes.remove(change)
        going = Counter(successor.window.shared for successor in change.successors)
        whole = {form for form, many in going.items() if isinstance(form, PaneFamily) and form.queries == many}
        for successor in change.successors:
            window = successor.window
            running = self._running[window.query]
            before = running.pipeline.exchange(
                window.number, successor.output, successor.shared.stage, successor.resources
            )
            if window.shared not in whole:
                before.close()
            shared = list(running.shared)
            shared[window.number] = successor.shared
            self._running[window.query] = replace(running, shared=tuple(shared))
            successor.mute.silent = False
        for form in whole:  # at once: windows that leave one by one are moved together each time
            form.close()
        self._changed()

    # Changes begin and end

    def _look(self, stream: str, reached: int) -> None:
        """Begins the changes that are wanted, and says when to look again: where costs decide, after the longest of
        the windows. The first time nothing has been measured that was not known when the queries began."""
        windows = self._windows(stream)
        is_first = stream not in self._looks
        extents = [PanedWindow.of(window.node).extent for window in windows if window.strategy == "auto"]
        rows = self._passed.get(stream, 0) + max(_LEAST_ROWS, _ROWS_PER_WINDOW * len(windows))
        self._looks[stream] = (reached + max(extents), rows) if extents else _NEVER
        if is_first:
            return
        busy = {(s.window.query, s.window.number) for change in self._changes for s in change.successors}
        free = [w for w in windows if (w.query, w.number) not in busy and self._may_change(w)]
        for stage, own in self._to_panes([w for w in free if not isinstance(w.shared, PaneFamily)]):
            self._begin(stream, reached, own, PhysicalPlan((stage,), ()), to_panes=True)
        back = self._to_rows([w for w in free if isinstance(w.shared, PaneFamily)])
        if back:
            stored = self._planner.other_forms(_readers(back), {window.query: "window" for window in back})
            self._begin(stream, reached, back, stored, to_panes=False)

    def _windows(self, stream: str) -> list[_Window]:
        """The windows over a stream that can be had either way."""
        return [
            _Window(name, number, node, shared, self._strategy_of(running))
            for name, running in self._running.items()
            for number, (node, shared) in enumerate(zip(shareable(running.node), running.shared, strict=True))
            if stream_of(node) == stream and why_not(node) is None
        ]

    def _may_change(self, window: _Window) -> bool:
        """Costs decide only by what was measured."""
        return window.strategy != "auto" or self._is_measured(stream_of(window.node))

    def _to_panes(self, windows: Sequence[_Window]) -> list[tuple[Stage, list[_Window]]]:
        """The families that are wanted, each with its windows."""
        by_reader = {(window.query, window.number): window for window in windows}
        plan = self._planner.other_forms(_readers(windows), {window.query: window.strategy for window in windows})
        return [
            (stage, [by_reader[reader.query, reader.number] for reader in stage.form.readers])
            for stage in plan.stages
            if isinstance(stage.form, physical.PaneFamily)
        ]

    def _to_rows(self, windows: Sequence[_Window]) -> list[_Window]:
        by_family: dict[Shared, list[_Window]] = {}
        for window in windows:
            by_family.setdefault(window.shared, []).append(window)
        found: list[_Window] = []
        for form, own in by_family.items():
            assert isinstance(form, PaneFamily)
            found += [window for window in own if window.strategy == "window"]
            if all(window.strategy == "auto" for window in own):
                workload = self._planner.workload(own[0].node)
                if form.groups_in_pane:
                    workload = replace(workload, groups_in_slide=form.groups_in_pane)
                if compare(family_of([window.node for window in own]), workload).prefers_rows(self._memory):
                    found += own
        return found

    def _begin(
        self, stream: str, reached: int, windows: Sequence[_Window], plan: PhysicalPlan, *, to_panes: bool
    ) -> None:
        extents = [PanedWindow.of(window.node) for window in windows]
        complete = reached + max(w.extent for w in extents) + max(w.slide for w in extents)
        forms: list[Shared] = []
        self._at_work = True
        try:
            made = self._make_forms(plan)
            forms = [made.shared[window.query][window.number] for window in windows]
            for form in dict.fromkeys(forms):
                form.begin_at(reached)
            successors = [self._successor(window, form) for window, form in zip(windows, forms, strict=True)]
        except (BudgetError, StorageError):
            _close(forms)
        else:
            self._changes.append(_Change(stream, complete, to_panes, successors))
        finally:
            self._at_work = False

    def _successor(self, window: _Window, form: Shared) -> _Successor:
        resources = self._resources()
        mute = _MutedRejects(resources.reject)
        own = resources.apart(mute)
        output = form.join(window.node, own)
        output.follows_time = False
        return _Successor(window, form, output, own, mute)

    def _give_up(self, change: _Change) -> None:
        """Closes the new forms as a whole, perhaps in the middle of a call: their queries do not leave one by one."""
        self._changes.remove(change)
        _close(successor.shared for successor in change.successors)

    def _give_up_all(self) -> bool:
        """Memory is needed; returns whether some was given up. False if a new form itself asks, so it is refused."""
        if self._at_work or not self._changes:
            return False
        for change in list(self._changes):
            self._give_up(change)
        return True


def _readers(windows: Iterable[_Window]) -> list[WindowReader]:
    return [WindowReader(window.query, window.number, window.node) for window in windows]


def _close(forms: Iterable[Shared]) -> None:
    for form in dict.fromkeys(forms):
        form.close()


def kin(query: str, running: Mapping[str, Running]) -> set[str]:
    """The query and those with which it has a family, or would have one."""
    nodes = {name: shareable(other.node) for name, other in running.items()}
    mine = set(nodes[query])
    alike = {
        node
        for family in families(node for own in nodes.values() for node in own)
        if not mine.isdisjoint(family.nodes)
        for node in family.nodes
    }
    forms = {form for form in running[query].shared if isinstance(form, PaneFamily)}
    found = {name for name, own in nodes.items() if not alike.isdisjoint(own)}
    return {query} | found | {name for name, other in running.items() if not forms.isdisjoint(other.shared)}
