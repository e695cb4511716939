"""The queries at work and the way of rows between them.

    rows of a stream ─▶ each stage and operator that reads it, once ─▶ the pipelines of the queries ─▶ outlets
                                                                                                  └─▶ derived streams

Invariants:
1. Queries run in the order in which they were started, and a query reads only streams that were there before it.
2. `passed` counts the rows of each stream since its first, whichever queries there were.
3. The names of pipelines, aggregations and shared windows are unique among those running and those of the last
   checkpoint, whose block files must stay as they are until the next one.
4. `engine.planner` makes the physical plan of queries, `engine.instantiate` what the plan says. Where the flow
   `adapts`, the form of windows may change while they run (`engine.strategy_change`).

Why: docs/decisions/derived-stream-time.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.aggregates.user import UserAggregate
from penstock.components import component, read_as
from penstock.engine.clock import Clock
from penstock.engine.instantiate import Made, Maker
from penstock.engine.outlet import Outlet
from penstock.engine.pieces import Pieces
from penstock.engine.planner import Planner
from penstock.engine.quiet_time import QuietTime
from penstock.engine.rates import Rates
from penstock.engine.routes import Routes
from penstock.engine.running import Running, Shared
from penstock.engine.saved_queries import Names, SavedQueries
from penstock.engine.strategy_change import StrategyChange, kin
from penstock.engine.tables.tables import TableSet, derived
from penstock.engine.ticking import Ticking
from penstock.errors import QueryError
from penstock.expressions.batch import Row
from penstock.lang.query import STRATEGIES, Query, StreamDef, StreamRef, columns_of
from penstock.lang.table_defs import TableDef, TableWrite
from penstock.operators.chunk import Chunk
from penstock.operators.joins.core import JoinCore
from penstock.operators.panes.family import PaneFamily
from penstock.operators.pipeline import Pipeline
from penstock.operators.resources import Resources
from penstock.operators.shared_aggregation import SharedAggregation
from penstock.operators.shared_window import SharedWindow
from penstock.operators.stage import Stage
from penstock.plan.backfill import backfilled_stream, not_stored, refuse_after_restart
from penstock.plan.chains import check_chains
from penstock.plan.identity import identity
from penstock.plan.nodes import Node
from penstock.plan.physical.nodes import PhysicalPlan, PlannedQuery
from penstock.plan.physical.rules.choose_panes import check_strategy
from penstock.plan.sharing import shareable, stream_of
from penstock.plan.tables.lookups import tables_of
from penstock.rejects import Reject
from penstock.store.manager import StoreManager

DERIVED_KEPT = 65_536
"""How many rows of a derived stream are kept for readers outside the app, besides the queries that read it."""


def _by_identity(saved: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had the fingerprint of the whole plan, with all columns of its streams."""
    queries = {
        name: {key: part for key, part in query.items() if key != "fingerprint"} | {"identity": query["fingerprint"]}
        for name, query in saved["queries"].items()
    }
    return {**saved, "queries": queries}


@component("Flow", 2, _by_identity)
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
        self._routes = Routes(self.tables, stores.budget)
        self._quiet = QuietTime()
        self._pieces = Pieces(stores)
        self._stepped: dict[str, int] = {}
        self._told: dict[str, int] = {}
        """The time of each stream that its readers have been told. A stream with new readers has no entry."""
        self._later: list[Callable[[], None]] = []
        self._saved = SavedQueries()
        self._names = Names()
        self.running: dict[str, Running] = {}
        self.version = 0
        """Changes when queries come, go or change their form."""
        self.passed: dict[str, int] = {}
        self._ticking = Ticking(clock.now())
        self._planner = Planner(
            lambda stream: self._routes[stream].readers, self._rates.of, self._strategy_of, stores.budget.total
        )
        self._maker = Maker(self._names, self._resources, lambda name: self._windows[name], in_parts=in_parts)
        self._changing = self._make_changing() if adapts else None

    # Queries come and go

    def expect(self, snapshot: dict[str, Any]) -> None:
        """Queries that are started from now on take up what the snapshot has of them, when it is restored."""
        snapshot = read_as(Flow, snapshot)
        self._saved = SavedQueries(snapshot)
        self._names.use_only(self._saved.names | set(snapshot["changing"]))
        self._asked = dict(snapshot["strategies"])
        self.passed.update(snapshot["passed"])
        self._stepped.update(snapshot["stepped"])
        self._rates.restore(snapshot["rates"])

    def declare(
        self,
        streams: Iterable[StreamDef],
        queries: Sequence[Query],
        tables: Sequence[TableDef],
        writes: Sequence[TableWrite],
    ) -> None:
        """Makes tables, empty; before the queries that read them are started. `streams` and `queries` are all that
        begin now."""
        schemas = {stream.name: stream.schema for stream in streams}
        names = list(derived(queries, self._sinks))
        self.tables.note_streams(schemas, names)
        if tables:
            schemas |= {q.into: columns_of(q.body) for q in queries if q.into is not None and q.into in names}
            known = {name: StreamRef(name, schema) for name, schema in schemas.items()}
            self.tables.declare(tables, writes, known, self.passed)
            self._routes.clear()  # streams may write more tables than before

    def load_tables(self) -> None:
        """Fills the tables from their sources, except those that an expected snapshot has."""
        self.tables.load(self._saved.tables)

    def start(self, queries: Sequence[tuple[Query, Node]], past: Mapping[str, int] | None = None) -> None:
        """Starts queries together, from here on or, given how far the streams have come, with the rows of the past that
        are stored; if that fails, nothing of them stays."""
        for query, node in queries:
            if self._saved.of(query, node) is None:
                self._asked.pop(query.name, None)
                if past is None and self._saved.queries:
                    refuse_after_restart(query)
        check_chains([*((running.query, running.node) for running in self.running.values()), *queries])
        made = Made()
        try:
            plan = self._planner.plan(queries, self._saved, with_panes=past is None)
            made = self._maker.make(plan, self._saved)
            for planned in plan.queries:
                self._start(plan, planned, made)
            self._note_changes()
            if self._changing is not None:
                self._changing.started({stream_of(window) for _, node in queries for window in shareable(node)})
            if past is not None:
                self._backfill(queries, past)
        except BaseException:
            for query, _ in reversed(queries):
                if query.name in self.running:
                    self.drop(query.name)
            made.close_unused()
            raise

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

    def _strategy_of(self, query: Query) -> str:
        if self._in_parts:
            return "window"
        return self._asked.get(query.name) or query.strategy or self._strategy

    def _start(self, plan: PhysicalPlan, planned: PlannedQuery, made: Made) -> None:
        query, node = planned.query, planned.node
        shared, cores = made.shared_of(query.name), made.cores_of(query.name)
        print_of = identity(node)
        saved = self._saved.of(query, node)
        name = self._names.free(f"{query.name}-{print_of[:12]}") if saved is None else saved["pipeline"]
        resources = self._resources()
        feeds = None if query.into in self._sinks else query.into
        try:
            pipeline = Pipeline(
                name,
                plan,
                planned,
                resources,
                shared,
                cores,
                lambda chunks, watermark: self._deliver(outlet, feeds, chunks, watermark),
                follows_time=feeds is not None,
                in_parts=self._in_parts,
            )
        except BaseException:
            resources.close()
            raise
        keep = DERIVED_KEPT if feeds is not None else 0 if query.into is not None else None
        waiting = self._stores.create_waiting(f"{name}-results")
        resources.at_end(lambda: self._stores.drop(f"{name}-results"))
        outlet = Outlet(query.name, pipeline.schema, waiting, keep)
        self.running[query.name] = Running(query, node, print_of, pipeline, tuple(shared), outlet, feeds, tuple(cores))
        self._names.use(name)
        self._ticking.add(query.name, node, pipeline)

    def _resources(self) -> Resources:
        return Resources(
            self._stores,
            self._reject,
            self._users,
            now=self._clock.now(),
            passed=self.passed,
            tables=self.tables,
            later=self._later,
        )

    # Windows change their form

    def _make_changing(self) -> StrategyChange:
        return StrategyChange(
            self.running,
            self.passed,
            self._stores.budget,
            self._planner,
            lambda plan: self._maker.make(plan, SavedQueries()),
            self._resources,
            lambda running: self._strategy_of(running.query),
            lambda stream: self._rates.of(stream) is not None,
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

    def changes(self) -> dict[str, str]:
        """What the windows become, for each query whose windows are about to change."""
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

    def is_settled(self, stream: str) -> bool:
        """Whether the windows over a stream keep their form until `version` changes."""
        return self._changing is None or self._changing.is_settled(stream)

    def sole_reader(self, stream: str) -> Running | None:
        """The only query that a stream's rows reach, until `version` changes; None if they reach more."""
        route = self._routes[stream]
        if len(route.readers) != 1 or len(route.feeds) != 1 or route.readers[0].feeds is not None:
            return None
        if self.tables or route.steps is not None or self.next_tick is not None:
            return None
        return None if self._quiet.is_stirred_by(stream) else route.readers[0]

    def note_rows(self, stream: str, rows: int, last: int) -> None:
        """Rows have passed to the sole reader of a stream without `dispatch`; the last one has this time."""
        self.passed[stream] += rows
        self._rates.note_rows(stream, rows, last)

    def _note_changes(self) -> None:
        self.version += 1
        self._told.clear()
        running = tuple(self.running.values())
        self._routes.note(running)
        self._quiet.note(running, self._routes, self.tables)

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
        """Hands a stream's rows to the queries that read it, and their results to those that read these. Rows come in
        pieces (`engine.pieces`): what queries and tables keep for each other is a piece's worth.

        Results that are many leave while their query is at work (`operators.outgoing`), also to derived streams: the
        readers of these are called in the middle of it. Where windows over the stream meet again in one query, time
        passes in steps (`engine.stepping`). Time alone goes on where something waits for it (`engine.quiet_time`)."""
        self._pass(stream, chunks, watermark)
        self._end_call()

    def settle(self) -> None:
        """Does what has waited for more rows: the runtime is about to return."""
        while self._later:
            self._later.pop()()
            self._end_call()

    def _end_call(self) -> None:
        self.tables.collect()
        while (due := self._quiet.due()) is not None:
            self._hand_on(*due)

    def _hand_on(self, stream: str, watermark: int) -> None:
        self._quiet.handed_on(stream)
        self._pass(stream, [], watermark)

    def _pass(self, stream: str, chunks: list[Chunk], watermark: int) -> None:
        self._told[stream] = watermark
        steps = self._routes[stream].steps
        if steps is not None:
            for some, reached in steps.cut(self._stepped.get(stream), chunks, watermark):
                self._dispatch_pieces(stream, some, reached)
            self._stepped[stream] = watermark
        elif len(chunks) == 1 and isinstance(chunks[0].columns, Row):
            self._dispatch(stream, chunks, watermark, 1)
        else:
            self._dispatch_pieces(stream, chunks, watermark)

    def _dispatch_pieces(self, stream: str, chunks: list[Chunk], watermark: int) -> None:
        for piece, reached in self._pieces.in_order(chunks, watermark):
            self._dispatch(stream, piece, reached, sum(chunk.rows for chunk in piece))

    def _dispatch(self, stream: str, chunks: list[Chunk], watermark: int, rows: int) -> None:
        route = self._routes[stream]  # asked for each piece: windows may change their form between two of them
        self._quiet.stirred.add(stream)
        self.passed[stream] = self.passed.get(stream, 0) + rows
        if rows:
            self._rates.note(stream, chunks, rows)
        for writer in route.writers:
            writer.process(stream, chunks, watermark)
        for feed in route.feeds:
            feed(chunks, watermark)
        if self._changing is not None:
            self._changing.after(stream, chunks, watermark)
        if rows > 1:
            self.tables.collect()  # what one row leaves is collected at the end of the call

    def _deliver(self, outlet: Outlet, feeds: str | None, chunks: list[Chunk], watermark: int) -> None:
        """Results of a query go to its outlet and to the derived stream that it feeds. A time without rows that its
        readers have been told, or that is held, goes nowhere."""
        rows = 0
        for chunk in chunks:
            if len(chunk.times):
                rows += 1
                outlet.put(chunk.columns)
        if feeds is None:
            return
        if rows or not self._is_quiet(feeds, watermark):
            self._quiet.handed_on(feeds)
            self._pass(feeds, chunks, watermark)

    def _is_quiet(self, stream: str, watermark: int) -> bool:
        """Whether a time without rows is not handed on."""
        if self._told.get(stream) == watermark or self._quiet.is_held(stream, watermark):
            return True
        if not self._quiet.is_quiet(stream, watermark):
            return False
        self._quiet.hold(stream, watermark)
        return True

    def tick(self, now: int) -> None:
        """Lets the windows slide that follow the local clock."""
        for name in self._ticking.due(now):
            self.running[name].pipeline.tick(now)

    @property
    def next_tick(self) -> int | None:
        """When the local clock may next make a window slide; None if it never does."""
        return self._ticking.next_tick

    def finish(self, last_times: Mapping[str, int] | None = None) -> None:
        """Ends a bounded run. What derives from results ends later in the same loop (invariant 1). `last_times` says
        when the streams ended that have passed here only in part."""
        self._hand_on_all()
        ended, finished = last_times or {}, set[Stage]()
        for running in tuple(self.running.values()):
            self.tables.finish(tables_of(running.node))
            last_time = max((ended[stream] for stream in running.pipeline.streams if stream in ended), default=None)
            for stage in running.stages:
                if stage not in finished:
                    finished.add(stage)
                    self.settle()  # the last rows of a query may wait in a stage that reads them
                    stage.finish(last_time)
            self.settle()
            running.pipeline.finish(last_time)
        self.settle()
        self.tables.finish(self.tables.names)

    def _hand_on_all(self) -> None:
        for stream, watermark in self._quiet.take().items():
            self._pass(stream, [], watermark)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        self._hand_on_all()
        queries = {
            name: {
                "pipeline": running.pipeline.name,
                "identity": running.identity,
                "aggregations": [aggregation.name for aggregation in running.shared],
                "joins": [core.name for core in running.cores],
                "parts": running.pipeline.snapshot(),
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
            "stepped": self._stepped,
            "rates": self._rates.snapshot(),
            "strategies": self._asked,
            "changing": sorted(self._names_of_changes()),
        }

    def _names_of_changes(self) -> set[str]:
        return set() if self._changing is None else self._changing.names

    @property
    def store_names(self) -> set[str]:
        """The names by which parts of queries have their block files now."""
        pipelines = {running.pipeline.name for running in self.running.values()}
        return pipelines | set(self._aggregations) | set(self._windows) | set(self._cores) | self._names_of_changes()

    def committed(self, names: set[str]) -> None:
        """The last snapshot is durable, with parts of these names: block files that only earlier ones name are gone."""
        self._names.use_only(self.store_names | names)

    def restore(self) -> None:
        """What was expected is there: queries that are the same go on, the others have begun afresh."""
        saved, self._saved = self._saved, SavedQueries()
        resumed = [window for name, window in self._windows.items() if name in saved.windows]
        for window in resumed:
            window.restore(saved.windows[window.name])
        for name, aggregation in self._aggregations.items():
            if name in saved.aggregations:
                aggregation.restore(saved.aggregations[name])
        for name, core in self._cores.items():
            if name in saved.joins:
                core.restore(saved.joins[name])
        for name, running in self.running.items():
            state = saved.queries.get(name)
            if state is not None and state["pipeline"] == running.pipeline.name:
                running.pipeline.restore(state["parts"])
                running.outlet.restore(state["outlet"])
        for window in resumed:
            window.settle()
        for aggregation in self._aggregations.values():
            if isinstance(aggregation, PaneFamily):
                aggregation.settle()
        self.tables.restore(saved.tables)
        self._ticking.restored()
        self._told.clear()
        self.version += 1


def _check(strategy: str) -> None:
    if strategy not in STRATEGIES:
        raise QueryError(f"there is no strategy '{strategy}'", hint=f"use {' or '.join(STRATEGIES)}")
