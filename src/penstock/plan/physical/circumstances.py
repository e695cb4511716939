"""What the rules are told that is not in the plan: measurements, what was asked, what is at work and what is saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.plan.cost import Workload
from penstock.plan.nodes import AggregateNode
from penstock.plan.pane_cost import DEFAULT_MEMORY, PREFERENCE
from penstock.plan.placement import Spread
from penstock.plan.reads import GroupingKey, grouping_of, holds_all_rows, reads_of
from penstock.plan.sharing import stream_of


@dataclass(frozen=True)
class StoredRows:
    """What a stored window at work holds of each row: the `columns` of its store, and the slots of `groupings`. `texts`
    are the columns of strings that some query reads now: the codes of the others mean nothing."""

    name: str
    stream: str
    columns: frozenset[str]
    groupings: tuple[GroupingKey, ...]
    texts: frozenset[str]

    def takes(self, node: AggregateNode) -> bool:
        """Whether a query that begins now can be one more member: all that it reads is stored. Windows that count rows
        count from their own beginning, so they cannot join."""
        if node.window.extent.length is None or stream_of(node) != self.stream:
            return False
        key, reads = grouping_of(node), reads_of(node.states)
        if key.name not in self.columns and all(key.name != grouping.name for grouping in self.groupings):
            return False
        if any(read.name not in self.columns or (read.is_text and read.name not in self.texts) for read in reads):
            return False
        return all(holds_all_rows(g, (node,)) for g in self.groupings if g.name not in self.columns)


@dataclass(frozen=True)
class Existing:
    """The names of stages that queries have, in saved state or at work. `aggregations` and `joins` have for each query
    those of its windows and joins, in their order; `windows` has the stored window of each aggregation. An aggregation
    that is not in `windows` is a family of panes."""

    aggregations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    joins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    windows: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OnSpark:
    """How queries were placed `before`, and whether all that can be merged is to be spread `in_parts`."""

    before: Mapping[str, Spread] = field(default_factory=dict)
    in_parts: bool = False


@dataclass(frozen=True)
class Circumstances:
    """`rates` are those of streams, `groups` the numbers of groups by stream and grouping, as far as they are measured;
    `assumed` is the workload where they are not. `strategies` has what is asked for queries in place of what their text
    asks for, `strategy_factor` by how much panes must be better. `with_panes` is False for queries that begin with
    stored rows. `at_work` are the stored windows that new queries may join. `on_spark` is None for one process."""

    rates: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[tuple[str, GroupingKey], int] = field(default_factory=dict)
    assumed: Workload = field(default_factory=Workload)
    memory: int = DEFAULT_MEMORY
    strategies: Mapping[str, str] = field(default_factory=dict)
    strategy_factor: float = PREFERENCE
    with_panes: bool = True
    at_work: tuple[StoredRows, ...] = ()
    existing: Existing = field(default_factory=Existing)
    on_spark: OnSpark | None = None

    def workload(self, window: AggregateNode) -> Workload:
        """The rate of the window's stream and the number of its groups, as far as they are known."""
        stream = stream_of(window)
        assumed = self.assumed
        if stream in self.rates:
            assumed = replace(assumed, rate=self.rates[stream])
        groups = self.groups.get((stream, grouping_of(window)), 0) if self.groups else 0
        return replace(assumed, groups_in_slide=groups, groups=groups) if groups else assumed
