"""The queries at work and the way of rows between them.

    a stream's rows -> (shared windows) -> the pipelines that read it -> their outlets
                                |
                                +-> derived streams -> the pipelines that read those

Invariants:
1. Queries run in the order in which they were started, and a query reads only streams that were there before it.
2. `passed` counts the rows of each stream since its first, whichever queries there were.
3. The names of pipelines, aggregations and shared windows are unique among those running and those of the last
   checkpoint, whose block files must stay as they are until the next one.
4. Queries that are started together and keep rows of the same stream share a window (`plan.sharing`), and those of
   them that add up the same rows in the same groups an aggregation (`plan.aggregations`). One that is started later
   joins the window if all that it reads is there, with an aggregation of its own. After a restart those that are as
   they were share as before, and the others begin afresh in windows of their own.
5. Windows that are started together and cost less that way are families made of panes (`plan.pane_cost`). Where the
   flow `adapts`, they may change while they run (`engine.changing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.aggregates.user import UserAggregate
from penstock.engine.changing import Changing, kin
from penstock.engine.clock import Clock
from penstock.engine.join_cores import make_cores
from penstock.engine.outlet import Outlet
from penstock.engine.rates import Rates
from penstock.engine.running import Members, Running, Shared, receivers
from penstock.engine.tables.tables import TableSet, derived
from penstock.engine.ticking import Ticking
from penstock.errors import QueryError
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import STRATEGIES, Query, StreamDef, StreamRef, columns_of
from penstock.lang.table_defs import TableDef, TableWrite
from penstock.operators.chunk import CHUNK_ROWS, Chunk
from penstock.operators.emitter import Reject
from penstock.operators.joins.core import JoinCore
from penstock.operators.panes.family import PaneFamily, is_family
from penstock.operators.parts import PartialEvaluation
from penstock.operators.pipeline import Pipeline
from penstock.operators.resources import Resources
from penstock.operators.shared_aggregation import SharedAggregation
from penstock.operators.shared_window import SharedWindow
from penstock.operators.sliding import make_results
from penstock.plan.aggregations import AggregationKey, key_of
from penstock.plan.backfill import backfilled_stream, not_stored, refuse_after_restart
from penstock.plan.cost import Workload
from penstock.plan.nodes import AggregateNode, Node
from penstock.plan.pane_cost import Choice, check_strategy, choose
from penstock.plan.panes import Family
from penstock.plan.reads import grouping_of
from penstock.plan.sharing import shareable, stream_of
from penstock.plan.tables.lookups import tables_of
from penstock.store.manager import StoreManager

DERIVED_KEPT = 65_536
"""How many rows of a derived stream wait for who may want to read them, besides the queries that do."""


@dataclass(frozen=True, eq=False)
class _Together:
    """Windows of queries that are one aggregation or one family: the name of the saved one that it goes on from, if
    any."""

    saved: str
    nodes: list[AggregateNode]

    def with_one_more(self, node: AggregateNode) -> _Together:
        self.nodes.append(node)
        return self


class Flow:
    """With `in_parts` only a part of each stream passes here, and queries give partial rows (`operators.parts`)."""

    def __init__(
        self,
        stores: StoreManager,
        reject: Reject,
        users: Mapping[str, UserAggregate],
        clock: Clock,
        sinks: Iterable[str],
        *,
        in_parts: bool = False,
        strategy: str = "auto",
        adapts: bool = False,
        tables: TableSet | None = None,
    ) -> None:
        _check(strategy)
        self._stores = stores
        self._reject = reject
        self._users = users
        self._clock = clock
        self._sinks = set(sinks)
        self.tables = tables or TableSet(stores, reject, clock)
        self._in_parts = in_parts
        self._strategy = "window" if in_parts else strategy
        self._asked: dict[str, str] = {}
        self._rates = Rates()
        self._readers: dict[str, tuple[Running, ...]] = {}
        self._receivers: dict[str, list[Running | Members]] = {}
        self._saved: dict[str, Any] = {}
        self._saved_aggregations: dict[str, Any] = {}
        self._saved_joins: dict[str, Any] = {}
        self._saved_windows: dict[str, Any] = {}
        self._saved_tables: dict[str, Any] = {}
        self._used_names: set[str] = set()
        self.running: dict[str, Running] = {}
        self.passed: dict[str, int] = {}
        self._ticking = Ticking(clock.now())
        self._changing = self._make_changing() if adapts else None

    # Queries come and go

    def expect(self, snapshot: dict[str, Any]) -> None:
        """Queries that are started from now on take up what the snapshot has of them, when it is restored."""
        self._saved, self._saved_windows = snapshot["queries"], snapshot["windows"]
        self._saved_aggregations, self._saved_tables = snapshot["aggregations"], snapshot["tables"]
        self._saved_joins = snapshot["joins"]
        self._used_names = {saved["pipeline"] for saved in self._saved.values()}
        self._used_names |= set(self._saved_windows) | set(self._saved_aggregations) | set(snapshot["changing"])
        self._used_names |= set(self._saved_joins)
        self._asked = dict(snapshot["strategies"])
        self.passed.update(snapshot["passed"])
        self._rates.restore(snapshot["rates"])

    def declare(
        self,
        streams: Iterable[StreamDef],
        queries: Sequence[Query],
        tables: Sequence[TableDef],
        writes: Sequence[TableWrite],
    ) -> None:
        """Makes tables, filled from their sources unless an expected snapshot has them; before the queries that read
        them are started. `streams` and `queries` are all that begin now."""
        schemas = {stream.name: stream.schema for stream in streams}
        names = list(derived(queries, self._sinks))
        self.tables.note_streams(schemas, names)
        if tables:
            schemas |= {q.into: columns_of(q.body) for q in queries if q.into is not None and q.into in names}
            known = {name: StreamRef(name, schema) for name, schema in schemas.items()}
            self.tables.declare(tables, writes, known, self.passed)
            self.tables.load(self._saved_tables)

    def start(self, queries: Sequence[tuple[Query, Node]], past: Mapping[str, int] | None = None) -> None:
        """Starts queries together, from here on or, given how far the streams have come, with the rows of the past that
        are stored; if that fails, nothing of them stays."""
        for query, node in queries:
            if self._saved_state(query, node) is None:
                self._asked.pop(query.name, None)
                if past is None and self._saved:
                    refuse_after_restart(query)
        made: list[SharedWindow | Shared] = []
        made_cores: list[JoinCore] = []
        try:
            shared = self._share(queries, made, with_panes=past is None)
            cores = self._make_cores(queries, made_cores)
            for query, node in queries:
                self._start(query, node, shared[query.name], cores[query.name])
            self._note_changes()
            if self._changing is not None:
                self._changing.started({stream_of(window) for _, node in queries for window in shareable(node)})
            if past is not None:
                self._backfill(queries, past)
        except BaseException:
            for query, _ in reversed(queries):
                if query.name in self.running:
                    self.drop(query.name)
            for one in (*reversed(made), *made_cores):
                if not one.is_used:
                    one.close()
            raise

    def _share(
        self, queries: Sequence[tuple[Query, Node]], made: list[SharedWindow | Shared], *, with_panes: bool
    ) -> dict[str, list[Shared]]:
        """What each query has in common with others, and the windows of it; what had to be `made` is noted."""
        found: dict[str, list[_Together]] = {}
        groups: dict[tuple[str, AggregationKey | Family | None], _Together] = {}
        panes = self._choose_panes(queries) if with_panes else {}
        for query, node in queries:
            saved = self._saved_state(query, node)
            names = [""] * len(shareable(node)) if saved is None else saved["aggregations"]
            found[query.name] = own = []
            for name, window in zip(names, shareable(node), strict=True):
                key: AggregationKey | Family | None = panes.get((self._strategy_of(query), window)) or key_of(window)
                if name:
                    key = None if is_family(self._saved_aggregations[name]) else key_of(window)
                own.append(groups.setdefault((name, key), _Together(name, [])).with_one_more(window))
        stored = [group for (_, key), group in groups.items() if isinstance(key, AggregationKey)]
        shared = self._make(groups, self._make_windows(stored, made), made)
        return {query: [shared[group] for group in together] for query, together in found.items()}

    def _make(
        self,
        groups: Mapping[tuple[str, AggregationKey | Family | None], _Together],
        windows: Mapping[_Together, SharedWindow],
        made: list[SharedWindow | Shared],
    ) -> dict[_Together, Shared]:
        shared: dict[_Together, Shared] = {}
        for (_, key), group in groups.items():
            resources = self._resources()
            try:
                shared[group] = self._make_shared(group, key, resources, windows.get(group))
            except BaseException:
                resources.close()
                raise
            self._used_names.add(shared[group].name)
            made.append(shared[group])
        return shared

    def _backfill(self, queries: Sequence[tuple[Query, Node]], past: Mapping[str, int]) -> None:
        """Lets queries that have just begun take over the rows that others have stored of the past."""
        filled: set[Shared] = set()
        for query, node in queries:
            stream = backfilled_stream(query, node, past)
            for shared in self.running[query.name].shared:
                if shared in filled or self.passed.get(stream, 0) == 0:
                    continue
                filled.add(shared)
                assert isinstance(shared, SharedAggregation)
                others = [other for other in self._aggregations.values() if isinstance(other, SharedAggregation)]
                if not shared.fill([other for other in others if other is not shared], past[stream]):
                    raise not_stored(query)

    def _choose_panes(self, queries: Sequence[tuple[Query, Node]]) -> Choice:
        """Which windows of queries that begin afresh are made of panes."""
        for query, node in queries:
            check_strategy(query, node)
        fresh = [
            (self._strategy_of(query), window)
            for query, node in queries
            if self._saved_state(query, node) is None
            for window in shareable(node)
        ]
        return choose(fresh, self._workload, self._stores.budget.total)

    def _workload(self, window: AggregateNode) -> Workload:
        """The rate of the window's stream and the number of its groups, as far as they are known."""
        stream, grouping = stream_of(window), grouping_of(window)
        known = [
            groups
            for running in self._readers.get(stream, ())
            for shared in running.shared
            if (groups := shared.groups_of(grouping)) is not None
        ]
        rate = self._rates.of(stream)
        assumed = Workload() if rate is None else Workload(rate)
        return replace(assumed, groups_in_slide=max(known), groups=max(known)) if any(known) else assumed

    def _strategy_of(self, query: Query) -> str:
        if self._in_parts:
            return "window"
        return self._asked.get(query.name) or query.strategy or self._strategy

    def _make_shared(
        self,
        group: _Together,
        key: AggregationKey | Family | None,
        resources: Resources,
        window: SharedWindow | None,
    ) -> Shared:
        kind, stream = ("aggregate" if window is not None else "family"), stream_of(group.nodes[0])
        name = group.saved or self._free_name(f"{kind}-{stream}-{fingerprint(key)[:12]}")
        if window is None:
            return PaneFamily(name, group.nodes, resources, self._saved_aggregations.get(name))
        make_evaluation = PartialEvaluation if self._in_parts else make_results
        return SharedAggregation(name, group.nodes, resources, make_evaluation, window)

    def _make_windows(
        self, groups: Sequence[_Together], made: list[SharedWindow | Shared], *, joining: bool = True
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
            known = self._saved_aggregations[group.saved]["window"] if group.saved else ""
            together.setdefault((known, stream_of(group.nodes[0])), []).append(group)
        for (known, stream), sharing in together.items():
            nodes = [node for group in sharing for node in group.nodes]
            name = known or self._free_name(f"window-{stream}-{fingerprint(tuple(nodes))[:12]}")
            resources = self._resources()
            try:
                shared = SharedWindow(name, nodes, resources, self._saved_windows.get(known))
            except BaseException:
                resources.close()
                raise
            self._used_names.add(name)
            made.append(shared)
            found |= dict.fromkeys(sharing, shared)
        return found

    def _window_for(self, nodes: Sequence[AggregateNode]) -> SharedWindow | None:
        """A window at work that queries can join from here on."""
        stream = stream_of(nodes[0])
        readers = self._readers.get(stream, ())
        windows = (window for running in readers for window in running.windows if stream == window.stream)
        return next((window for window in windows if all(map(window.takes, nodes))), None)

    def _make_cores(self, queries: Sequence[tuple[Query, Node]], made: list[JoinCore]) -> dict[str, list[JoinCore]]:
        known = []
        for query, node in queries:
            saved = self._saved_state(query, node)
            known.append((query, node, None if saved is None else saved.get("joins")))
        return make_cores(known, self._saved_joins, self._resources, self._take_name, made)

    def _start(self, query: Query, node: Node, shared: list[Shared], cores: list[JoinCore]) -> None:
        print_of = fingerprint(node)
        saved = self._saved_state(query, node)
        name = self._free_name(f"{query.name}-{print_of[:12]}") if saved is None else saved["pipeline"]
        resources = self._resources()
        try:
            pipeline = Pipeline(name, node, resources, shared, cores, in_parts=self._in_parts)
        except BaseException:
            resources.close()
            raise
        feeds = None if query.into in self._sinks else query.into
        keep = DERIVED_KEPT if feeds is not None else 0 if query.into is not None else None
        outlet = Outlet(query.name, pipeline.schema, keep)
        self.running[query.name] = Running(query, node, print_of, pipeline, tuple(shared), outlet, feeds, tuple(cores))
        self._used_names.add(name)
        self._ticking.add(query.name, node, pipeline)

    def _resources(self) -> Resources:
        return Resources(
            self._stores, self._reject, self._users, now=self._clock.now(), passed=self.passed, tables=self.tables
        )

    def _saved_state(self, query: Query, node: Node) -> dict[str, Any] | None:
        """What the checkpoint has of the query, if that is still the same."""
        saved: dict[str, Any] | None = self._saved.get(query.name)
        return saved if saved is not None and saved["fingerprint"] == fingerprint(node) else None

    def _free_name(self, base: str) -> str:
        name, number = base, 1
        while name in self._used_names:
            number += 1
            name = f"{base}-{number}"
        return name

    def _take_name(self, base: str) -> str:
        name = self._free_name(base)
        self._used_names.add(name)
        return name

    # Windows change their form

    def _make_changing(self) -> Changing:
        return Changing(
            self.running,
            self.passed,
            self._stores.budget,
            self._make_forms,
            self._resources,
            lambda running: self._strategy_of(running.query),
            lambda stream: self._rates.of(stream) is not None,
            self._workload,
            self._note_changes,
        )

    def set_strategy(self, strategy: str, query: str | None) -> None:
        """How the windows of a query and its family, or of all, are kept from now on."""
        _check(strategy)
        assert self._changing is not None, "only a flow that adapts is asked"
        if query is None:
            self._strategy = strategy
            asked = set(self.running)
        else:
            chosen = self.running[query]
            check_strategy(replace(chosen.query, strategy=strategy), chosen.node)
            asked = kin(query, self.running)
        self._asked |= dict.fromkeys(asked, strategy)
        self._changing.ask(asked, strategy)

    def _make_forms(self, nodes: Sequence[AggregateNode], family: Family | None) -> list[Shared]:
        """What is to take the place of windows at work: panes, or rows in a window that no other query is in yet."""
        groups: dict[tuple[str, AggregationKey | Family | None], _Together] = {}
        own = [groups.setdefault(("", family or key_of(n)), _Together("", [])).with_one_more(n) for n in nodes]
        made: list[SharedWindow | Shared] = []
        try:
            stored = [] if family is not None else list(groups.values())
            shared = self._make(groups, self._make_windows(stored, made, joining=False), made)
        except BaseException:
            for one in reversed(made):
                one.close()
            raise
        return [shared[group] for group in own]

    def changes(self) -> dict[str, str]:
        """For each query whose windows are about to change what they become."""
        return {} if self._changing is None else self._changing.shown()

    def drop(self, name: str) -> None:
        if self._changing is not None:
            self._changing.dropped(name)
        self._asked.pop(name, None)
        self.running.pop(name).pipeline.close()
        self._ticking.drop(name)
        self._note_changes()

    def readers(self, stream: str) -> list[str]:
        return [name for name, running in self.running.items() if stream in running.pipeline.streams]

    def _note_changes(self) -> None:
        everyone = tuple(self.running.values())
        streams = set().union(*(running.pipeline.streams for running in everyone))
        self._readers = {s: tuple(r for r in everyone if s in r.pipeline.streams) for s in streams}
        self._receivers = {stream: receivers(readers) for stream, readers in self._readers.items()}

    @property
    def _windows(self) -> dict[str, SharedWindow]:
        return {window.name: window for running in self.running.values() for window in running.windows}

    @property
    def _cores(self) -> dict[str, JoinCore]:
        return {core.name: core for running in self.running.values() for core in running.cores}

    @property
    def _aggregations(self) -> dict[str, Shared]:
        return {shared.name: shared for running in self.running.values() for shared in running.shared}

    # Rows pass

    def dispatch(self, stream: str, chunks: list[Chunk], watermark: int) -> None:
        """Hands a stream's rows to the queries that read it, and their results to those that read these. Where they
        change tables, they come in parts: what the tables keep of the past for their readers is a part's worth then."""
        if self.tables.are_written_by(stream) and sum(chunk.rows for chunk in chunks) > CHUNK_ROWS:
            filled = [chunk for chunk in chunks if chunk.rows]
            for number, chunk in enumerate(filled, 1):
                last = watermark if number == len(filled) else min(watermark, int(chunk.times[-1]))
                for part, reached in chunk.parts(last):
                    self._dispatch(stream, [part], reached)
        else:
            self._dispatch(stream, chunks, watermark)

    def _dispatch(self, stream: str, chunks: list[Chunk], watermark: int) -> None:
        self.passed[stream] = self.passed.get(stream, 0) + sum(chunk.rows for chunk in chunks)
        self._rates.note(stream, chunks)
        if self.tables:
            self.tables.process(stream, chunks, watermark)
        for receiver in self._receivers.get(stream, ()):
            if isinstance(receiver, Members):
                for running, results in receiver.push(chunks, watermark):
                    self._deliver(running, results, watermark)
            else:
                progress = receiver.pipeline.push(stream, chunks, watermark)
                self._deliver(receiver, progress.chunks, progress.watermark)
        if self._changing is not None:
            self._changing.after(stream, chunks, watermark)
        if self.tables:
            self.tables.collect()

    def _deliver(self, running: Running, chunks: list[Chunk], watermark: int) -> None:
        for chunk in chunks:
            if chunk.rows:
                running.outlet.put(chunk.arrow)
        if running.feeds is not None:
            self.dispatch(running.feeds, chunks, watermark)

    def tick(self, now: int) -> None:
        """Lets the windows slide that follow the local clock."""
        for name in self._ticking.due(now):
            running = self.running[name]
            progress = running.pipeline.tick(now)
            if progress is not None:
                self._deliver(running, progress.chunks, progress.watermark)

    @property
    def next_tick(self) -> int | None:
        """When the local clock may next make a window slide; None if it never does."""
        return self._ticking.next_tick

    def finish(self, last_times: Mapping[str, int] | None = None) -> None:
        """Ends a bounded run. What derives from results ends later in the same loop (invariant 1). `last_times` says
        when the streams ended that have passed here only in part."""
        ended = last_times or {}
        for running in tuple(self.running.values()):
            self.tables.finish(tables_of(running.node))
            last_time = max((ended[stream] for stream in running.pipeline.streams if stream in ended), default=None)
            last = [chunk for chunk in running.pipeline.finish(last_time) if chunk.rows]
            if last:
                self._deliver(running, last, int(last[-1].times[-1]))
        self.tables.finish(self.tables.names)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        queries = {
            name: {
                "pipeline": running.pipeline.name,
                "fingerprint": running.fingerprint,
                "aggregations": [aggregation.name for aggregation in running.shared],
                "joins": [core.name for core in running.cores],
                "operators": running.pipeline.snapshot(),
                "outlet": running.outlet.snapshot(),
            }
            for name, running in self.running.items()
        }
        aggregations = {name: aggregation.snapshot() for name, aggregation in self._aggregations.items()}
        windows = {name: window.snapshot() for name, window in self._windows.items()}
        return {
            "queries": queries,
            "aggregations": aggregations,
            "joins": {name: core.snapshot() for name, core in self._cores.items()},
            "windows": windows,
            "tables": self.tables.snapshot(),
            "passed": self.passed,
            "rates": self._rates.snapshot(),
            "strategies": self._asked,
            "changing": sorted(self._names_of_changes()),
        }

    def _names_of_changes(self) -> set[str]:
        return set() if self._changing is None else self._changing.names

    def committed(self) -> None:
        """The last snapshot is durable: block files that only earlier ones name are gone."""
        self._used_names = {running.pipeline.name for running in self.running.values()}
        self._used_names |= set(self._aggregations) | set(self._windows) | self._names_of_changes() | set(self._cores)

    def restore(self) -> None:
        """What was expected is there: queries that are the same go on, the others have begun afresh."""
        resumed = [window for name, window in self._windows.items() if name in self._saved_windows]
        for window in resumed:
            window.restore(self._saved_windows[window.name])
        for name, aggregation in self._aggregations.items():
            if name in self._saved_aggregations:
                aggregation.restore(self._saved_aggregations[name])
        for name, core in self._cores.items():
            if name in self._saved_joins:
                core.restore(self._saved_joins[name])
        for name, running in self.running.items():
            saved = self._saved.get(name)
            if saved is not None and saved["pipeline"] == running.pipeline.name:
                running.pipeline.restore(saved["operators"])
                running.outlet.restore(saved["outlet"])
        for window in resumed:
            window.settle()
        for aggregation in self._aggregations.values():
            if isinstance(aggregation, PaneFamily):
                aggregation.settle()
        self.tables.restore(self._saved_tables)
        self._saved, self._saved_aggregations, self._saved_windows, self._saved_tables = {}, {}, {}, {}
        self._saved_joins = {}
        self._ticking.restored()


def _check(strategy: str) -> None:
    if strategy not in STRATEGIES:
        raise QueryError(f"there is no strategy '{strategy}'", hint=f"use {' or '.join(STRATEGIES)}")
