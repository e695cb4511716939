"""Queries of an app come and go: their streams are declared, they are started, and they are dropped.

Invariant: a text of which one part is refused starts nothing, and what it had declared is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.aggregates.user import UserAggregate
from penstock.components import read_as
from penstock.engine.builder import BuiltQuery, render
from penstock.engine.flow import Flow
from penstock.engine.inputs import Inputs
from penstock.engine.names import find
from penstock.engine.outlet import Outlet
from penstock.engine.rule_calls import RuleCalls
from penstock.engine.service_times import first_arrivals
from penstock.engine.stream_input import StreamInput
from penstock.errors import InputError, QueryError
from penstock.lang import parse
from penstock.lang.query import Program, StreamDef
from penstock.plan.arrived import arrival_columns
from penstock.plan.backfill import all_backfilled
from penstock.plan.build import build
from penstock.plan.columns import needed_columns
from penstock.plan.joins.explain import warn_of_theta
from penstock.plan.nodes import Node


@dataclass(frozen=True)
class Registration:
    """`sinks` are those of the program that the app starts with. `begin_dispatch` starts input buffers by the name of
    a policy."""

    inputs: Inputs
    flow: Flow
    calls: RuleCalls
    users: Mapping[str, UserAggregate]
    sinks: tuple[str, ...]
    begin_dispatch: Callable[[str], object]

    def start(
        self,
        program: Program,
        nodes: Mapping[str, Node],
        state: dict[str, Any] | None = None,
        *,
        backfill: bool = False,
    ) -> None:
        """Declares the streams and tables of a program and starts its queries. `nodes` are their logical plans by name;
        `state` is that of the checkpoint that the app goes on from."""
        for stream in program.streams:
            self._declare_stream(stream, program, nodes.values(), state)
        self.flow.declare(program.streams, program.queries, program.tables, program.writes)
        if program.tables:
            self.flow.load_tables()
        past = {name: source.dispatched for name, source in self.inputs.streams.items()} if backfill else None
        self.flow.start([(query, nodes[query.name]) for query in program.queries], past)
        warn_of_theta(nodes)
        for name, node in nodes.items():
            self._watch_matches(name, node)
        self.calls.declare(program.functions)
        for query in program.queries:
            if query.rule is not None:
                self.calls.attach(query.rule, self.flow.running[query.name].outlet)

    def _declare_stream(
        self, stream: StreamDef, program: Program, nodes: Iterable[Node], state: dict[str, Any] | None
    ) -> None:
        columns = set(needed_columns(stream, nodes, program.writes))
        if state is not None and stream.name in state["streams"]:
            columns |= set(read_as(StreamInput, state["streams"][stream.name])["columns"])
        if stream.arrival and self.inputs.dispatcher is None:
            self.begin_dispatch("fcfs")
        self.inputs.declare(stream, tuple(columns), self.sinks, [query.name for query in program.queries])

    def _watch_matches(self, query: str, node: Node) -> None:
        """Measures the service time of matches, if the rows of the query show when their events came."""
        columns = arrival_columns(node, [s.definition for s in self.inputs.streams.values()])
        if columns and self.inputs.dispatcher is not None:
            recognised = self.inputs.dispatcher.recognised
            outlet = self.flow.running[query].outlet
            outlet.watch(lambda rows, number: recognised(query, first_arrivals(rows, columns)))

    def add(self, text: str | BuiltQuery, backfill: bool) -> str:
        """Starts the queries of a text beside those that run; returns the name of the last one."""
        running = self.flow.running
        known = {s.definition.name: s.definition.schema for s in self.inputs.streams.values()}
        known |= {r.feeds: r.node.schema for r in running.values() if r.feeds is not None}
        rules = [r.query.rule.name for r in running.values() if r.query.rule is not None]
        taken = [*running, *rules, *self.inputs.late_names]
        program = parse(
            text if isinstance(text, str) else render(text, without=known),
            streams=known,
            sinks=self.sinks,
            queries=taken,
            tables=self.flow.tables.refs,
            user_aggregates=self.users,
            functions=self.calls.names,
        )
        if program.sinks or program.tables or not program.queries:
            raise QueryError(
                "a running app takes queries and streams", hint="declare sinks and tables when the app starts"
            )
        nodes = logical_plans(program)
        with self.inputs.offers_wait():
            self._start_beside(program, nodes, backfill)
        return program.queries[-1].name

    def _start_beside(self, program: Program, nodes: Mapping[str, Node], backfill: bool) -> None:
        running = self.flow.running
        needed = [(s, needed_columns(s.definition, nodes.values())) for s in self.inputs.streams.values()]
        for source, columns in needed:
            source.check_can_widen(columns, self.inputs.waiting(source.definition.name))
        before = (set(running), set(self.inputs.streams), self.inputs.late_names)
        try:
            self.start(program, nodes, backfill=all_backfilled(program.queries, backfill))
        except BaseException:
            self._take_back(*before)
            raise
        for source, columns in needed:
            source.widen(columns)

    def _take_back(self, queries: set[str], streams: set[str], late_names: list[str]) -> None:
        """Ends everything except these, which were there before."""
        for name in reversed([n for n in self.flow.running if n not in queries]):
            self.flow.drop(name)
        self.inputs.take_back(streams, late_names)

    def drop(self, name: str) -> None:
        feeds = self.flow.running[name].feeds
        readers = [] if feeds is None else self.flow.readers(feeds)
        if readers:
            raise InputError(f"query {name} feeds {', '.join(readers)}; drop those first")
        if feeds is not None and self.flow.tables.are_written_by(feeds):
            raise InputError(f"query {name} feeds {feeds}, which changes a table; it stays as long as the app")
        self.flow.drop(name)

    def query(self, name: str) -> str:
        """A query's name as it was given; a rule stands for the query of its condition."""
        running = self.flow.running
        rules = {r.query.rule.name.lower(): query for query, r in running.items() if r.query.rule is not None}
        return find(rules.get(name.lower(), name), "query", running)

    def outlet(self, name: str) -> Outlet:
        """Where results of a query wait, or the late events that go to a name."""
        late = self.inputs.late_outlet(name)
        return late if late is not None else self.flow.running[self.query(name)].outlet


def logical_plans(program: Program) -> dict[str, Node]:
    """By the name of the query."""
    return {query.name: build(query.body) for query in program.queries}
