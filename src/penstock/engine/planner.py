"""Physical plans of a running app: the rules of `plan.physical.rules`, told what the app knows.

Queries that are started together share what they can. One that is started later joins a stored window at work if all
that it reads is there. After a restart queries that are as they were keep what they had, and the others begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock.engine.running import Running
from penstock.engine.saved_queries import SavedQueries
from penstock.lang.query import Query
from penstock.plan.cost import Workload
from penstock.plan.nodes import AggregateNode, Node
from penstock.plan.pane_cost import CHANGE
from penstock.plan.physical.circumstances import Circumstances, StoredRows
from penstock.plan.physical.lower import lower_windows
from penstock.plan.physical.nodes import PhysicalPlan, WindowReader
from penstock.plan.physical.rules import make_plan, optimised
from penstock.plan.reads import GroupingKey, grouping_of
from penstock.plan.sharing import shareable, stream_of


class Planner:
    """`readers_of` gives the queries at work on a stream, `rate_of` its rate if that is known."""

    def __init__(
        self,
        readers_of: Callable[[str], Sequence[Running]],
        rate_of: Callable[[str], float | None],
        strategy_of: Callable[[Query], str],
        memory: int,
    ) -> None:
        self._readers_of = readers_of
        self._rate_of = rate_of
        self._strategy_of = strategy_of
        self._memory = memory

    def plan(
        self, queries: Sequence[tuple[Query, Node]], saved: SavedQueries, *, with_panes: bool = True
    ) -> PhysicalPlan:
        """The plan of queries that start now."""
        windows = [window for _, node in queries for window in shareable(node)]
        streams = list(dict.fromkeys(map(stream_of, windows)))
        circumstances = Circumstances(
            rates=self._rates(streams),
            groups=self._groups(windows),
            memory=self._memory,
            strategies={query.name: self._strategy_of(query) for query, _ in queries},
            with_panes=with_panes,
            at_work=self._at_work(streams),
            existing=saved.existing(queries),
        )
        return make_plan(queries, circumstances)

    def other_forms(self, windows: Sequence[WindowReader], strategies: Mapping[str, str]) -> PhysicalPlan:
        """What windows at work would be if they began now, apart from all others. Panes must be better than stored rows
        by the factor for windows at work."""
        nodes = [window.node for window in windows]
        circumstances = Circumstances(
            rates=self._rates(map(stream_of, nodes)),
            groups=self._groups(nodes),
            memory=self._memory,
            strategies=strategies,
            strategy_factor=CHANGE,
        )
        return optimised(lower_windows(windows), circumstances)

    def workload(self, window: AggregateNode) -> Workload:
        """The rate of the window's stream and the number of its groups, as far as they are known."""
        measured = Circumstances(rates=self._rates([stream_of(window)]), groups=self._groups([window]))
        return measured.workload(window)

    def _rates(self, streams: Iterable[str]) -> dict[str, float]:
        known = {stream: self._rate_of(stream) for stream in streams}
        return {stream: rate for stream, rate in known.items() if rate is not None}

    def _groups(self, windows: Sequence[AggregateNode]) -> dict[tuple[str, GroupingKey], int]:
        """The numbers of groups that aggregations at work have under the groupings of these windows."""
        found: dict[tuple[str, GroupingKey], int] = {}
        shared = {s: {o for r in self._readers_of(s) for o in r.shared} for s in map(stream_of, windows)}
        for window in windows:
            stream, grouping = stream_of(window), grouping_of(window)
            if shared[stream] and (stream, grouping) not in found:
                found[stream, grouping] = max(one.groups_of(grouping) or 0 for one in shared[stream])
        return found

    def _at_work(self, streams: Iterable[str]) -> tuple[StoredRows, ...]:
        """The stored windows of streams, in the order in which their queries were started."""
        readers = [running for stream in streams for running in self._readers_of(stream)]
        windows = dict.fromkeys(window for running in readers for window in running.windows)
        return tuple(held for window in windows if (held := window.held) is not None)
