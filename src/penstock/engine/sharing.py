"""What queries have in common: stored windows, aggregations over them and families of panes are made here.

Queries that are started together and keep rows of the same stream share a window (`plan.sharing`), and those of them
that add up the same rows in the same groups an aggregation (`plan.aggregations`). One that is started later joins the
window if all that it reads is there, with an aggregation of its own. After a restart those that are as they were share
as before, and the others begin afresh in windows of their own. Windows that cost less that way are families made of
panes (`plan.pane_cost`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.engine.running import Running, Shared
from penstock.engine.saved_queries import Names, SavedQueries
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import Query
from penstock.operators.panes.family import PaneFamily, is_family
from penstock.operators.parts import PartialEvaluation
from penstock.operators.resources import Resources
from penstock.operators.shared_aggregation import SharedAggregation
from penstock.operators.shared_window import SharedWindow
from penstock.operators.sliding import make_results
from penstock.plan.aggregations import AggregationKey, key_of
from penstock.plan.cost import Workload
from penstock.plan.nodes import AggregateNode, Node
from penstock.plan.pane_cost import Choice, check_strategy, choose
from penstock.plan.panes import Family
from penstock.plan.reads import grouping_of
from penstock.plan.sharing import shareable, stream_of

Started = Sequence[tuple[Query, Node]]
Made = list[SharedWindow | Shared]


@dataclass(frozen=True, eq=False)
class _Together:
    """Windows of queries that are one aggregation or one family: the name of the saved one that it goes on from, if
    any."""

    saved: str
    nodes: list[AggregateNode]

    def with_one_more(self, node: AggregateNode) -> _Together:
        self.nodes.append(node)
        return self


_Groups = dict[tuple[str, AggregationKey | Family | None], _Together]


class Sharing:
    """`readers_of` gives the queries at work on a stream, `rate_of` its rate if that is known."""

    def __init__(
        self,
        names: Names,
        resources: Callable[[], Resources],
        readers_of: Callable[[str], Sequence[Running]],
        rate_of: Callable[[str], float | None],
        strategy_of: Callable[[Query], str],
        memory: int,
        *,
        in_parts: bool,
    ) -> None:
        self._names = names
        self._resources = resources
        self._readers_of = readers_of
        self._rate_of = rate_of
        self._strategy_of = strategy_of
        self._memory = memory
        self._in_parts = in_parts

    def share(self, queries: Started, saved: SavedQueries, made: Made, *, with_panes: bool) -> dict[str, list[Shared]]:
        """What each query has in common with others, and the windows of it; what had to be `made` is noted."""
        found: dict[str, list[_Together]] = {}
        groups: _Groups = {}
        panes = self._choose_panes(queries, saved) if with_panes else {}
        for query, node in queries:
            state = saved.of(query, node)
            names = [""] * len(shareable(node)) if state is None else state["aggregations"]
            found[query.name] = own = []
            for name, window in zip(names, shareable(node), strict=True):
                key: AggregationKey | Family | None = panes.get((self._strategy_of(query), window)) or key_of(window)
                if name:
                    key = None if is_family(saved.aggregations[name]) else key_of(window)
                own.append(groups.setdefault((name, key), _Together(name, [])).with_one_more(window))
        stored = [group for (_, key), group in groups.items() if isinstance(key, AggregationKey)]
        shared = self._make(groups, self._make_windows(stored, saved, made), saved, made)
        return {query: [shared[group] for group in together] for query, together in found.items()}

    def make_forms(self, nodes: Sequence[AggregateNode], family: Family | None) -> list[Shared]:
        """What is to take the place of windows at work: panes, or rows in a window that no other query is in yet."""
        groups: _Groups = {}
        own = [groups.setdefault(("", family or key_of(n)), _Together("", [])).with_one_more(n) for n in nodes]
        nothing, made = SavedQueries(), Made()
        try:
            stored = [] if family is not None else list(groups.values())
            shared = self._make(groups, self._make_windows(stored, nothing, made, joining=False), nothing, made)
        except BaseException:
            for one in reversed(made):
                one.close()
            raise
        return [shared[group] for group in own]

    def workload(self, window: AggregateNode) -> Workload:
        """The rate of the window's stream and the number of its groups, as far as they are known."""
        stream, grouping = stream_of(window), grouping_of(window)
        known = [
            groups
            for running in self._readers_of(stream)
            for shared in running.shared
            if (groups := shared.groups_of(grouping)) is not None
        ]
        rate = self._rate_of(stream)
        assumed = Workload() if rate is None else Workload(rate)
        return replace(assumed, groups_in_slide=max(known), groups=max(known)) if any(known) else assumed

    def _choose_panes(self, queries: Started, saved: SavedQueries) -> Choice:
        """Which windows of queries that begin afresh are made of panes."""
        for query, node in queries:
            check_strategy(query, node)
        fresh = [
            (self._strategy_of(query), window)
            for query, node in queries
            if saved.of(query, node) is None
            for window in shareable(node)
        ]
        return choose(fresh, self.workload, self._memory)

    def _make(
        self, groups: _Groups, windows: Mapping[_Together, SharedWindow], saved: SavedQueries, made: Made
    ) -> dict[_Together, Shared]:
        shared: dict[_Together, Shared] = {}
        for (_, key), group in groups.items():
            resources = self._resources()
            try:
                shared[group] = self._make_shared(group, key, resources, windows.get(group), saved)
            except BaseException:
                resources.close()
                raise
            self._names.use(shared[group].name)
            made.append(shared[group])
        return shared

    def _make_shared(
        self,
        group: _Together,
        key: AggregationKey | Family | None,
        resources: Resources,
        window: SharedWindow | None,
        saved: SavedQueries,
    ) -> Shared:
        kind, stream = ("aggregate" if window is not None else "family"), stream_of(group.nodes[0])
        name = group.saved or self._names.free(f"{kind}-{stream}-{fingerprint(key)[:12]}")
        if window is None:
            return PaneFamily(name, group.nodes, resources, saved.aggregations.get(name))
        make_evaluation = PartialEvaluation if self._in_parts else make_results
        return SharedAggregation(name, group.nodes, resources, make_evaluation, window)

    def _make_windows(
        self, groups: Sequence[_Together], saved: SavedQueries, made: Made, *, joining: bool = True
    ) -> dict[_Together, SharedWindow]:
        """The window of each aggregation: the one it had, one that is there and has all it reads, or one for all that
        begin on the same stream."""
        found: dict[_Together, SharedWindow] = {}
        together: dict[tuple[str, str], list[_Together]] = {}
        for group in groups:
            joins = self._window_for(group.nodes) if joining and not group.saved else None
            if joins is not None:
                found[group] = joins
                continue
            known = saved.aggregations[group.saved]["window"] if group.saved else ""
            together.setdefault((known, stream_of(group.nodes[0])), []).append(group)
        for (known, stream), sharing in together.items():
            nodes = [node for group in sharing for node in group.nodes]
            name = known or self._names.free(f"window-{stream}-{fingerprint(tuple(nodes))[:12]}")
            resources = self._resources()
            try:
                shared = SharedWindow(name, nodes, resources, saved.windows.get(known))
            except BaseException:
                resources.close()
                raise
            self._names.use(name)
            made.append(shared)
            found |= dict.fromkeys(sharing, shared)
        return found

    def _window_for(self, nodes: Sequence[AggregateNode]) -> SharedWindow | None:
        """A window at work that queries can join from here on."""
        stream = stream_of(nodes[0])
        windows = (window for running in self._readers_of(stream) for window in running.windows)
        return next((w for w in windows if w.stream == stream and all(map(w.takes, nodes))), None)
