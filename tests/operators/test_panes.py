"""Families of windows made of panes, and each window by itself: the same rows, bit for bit, and the same rejects.

events ─┬─▶ a family of up to five windows ─▶ results of each query
        │     ↻ restarts on the way, queries that go
        └─▶ each query over stored rows    ─▶ the same results
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.cases import Table
from conformance.compare import assert_same
from conformance.description import Aggregate, Event, Query, Range, Stream, TimeSlide, Window, column
from conformance.runtimes import plain
from penstock.lang import parse
from penstock.operators.chunk import NO_ROWS, Chunk
from penstock.operators.make import make_operator
from penstock.operators.operator import Operator
from penstock.operators.panes.family import PaneFamily
from penstock.operators.resources import Resources
from penstock.plan.build import build
from penstock.plan.nodes import AggregateNode
from penstock.plan.panes import why_not
from penstock.plan.physical.nodes import OwnWindow
from penstock.store import state as state_format
from penstock.store.budget import Budget
from penstock.store.manager import StoreManager
from properties.generate import COLUMNS, CONDITIONS, COUNTED, HAVING, event_lists

STREAM = Stream("s", COLUMNS)
ONE = ("SUM", "AVG", "VAR_SAMP", "STDDEV_POP")
ANY = ("COUNT", "MIN", "MAX", "FIRST", "LAST")
TWO = ("COVAR_POP", "CORR", "ARG_MIN", "ARG_MAX")


@st.composite
def calls(draw: st.DrawFn, number: int) -> Aggregate:
    function = draw(st.sampled_from((*ONE, *ANY, *TWO)))
    names: tuple[str, ...]
    if function in TWO:
        names = (draw(st.sampled_from(("n", "x"))), "y" if function == "CORR" else draw(st.sampled_from(("x", "y"))))
    else:
        names = (draw(st.sampled_from(("n", "x", "y", "w") if function in ("SUM", "AVG", *ANY) else ("n", "x", "y"))),)
    only = draw(st.one_of(st.none(), st.none(), st.sampled_from(CONDITIONS)))
    return Aggregate(function, tuple(map(column, names)), f"a{number}", only)


@st.composite
def windows(draw: st.DrawFn, unit: int) -> Window:
    """Extents and slides with common divisors, slides up to the extent, but not tumbling."""
    step = draw(st.sampled_from((1, 1, 2, 3)))
    extent = draw(st.integers(2, 9)) * step
    slide = draw(st.integers(1, extent - 1).map(lambda n: max(1, n // step) * step).filter(lambda n: n < extent))
    offset = draw(st.sampled_from((0, 0, 1, 2))) % slide
    full = draw(st.sampled_from((False, False, True)))
    return Window(Range(extent * unit), TimeSlide(slide * unit, offset * unit), when_full=full)


@st.composite
def queries(draw: st.DrawFn, unit: int) -> list[Query]:
    """Queries of one family: they agree in WHERE, keys and aggregates; some also in their window."""
    keys = draw(st.sampled_from(((), ("k",), ("k", "g"), ("y",))))
    aggregates = tuple(draw(calls(i)) for i in range(draw(st.integers(1, 3))))
    where = draw(st.one_of(st.none(), st.sampled_from(CONDITIONS)))
    found: list[Query] = []
    for _ in range(draw(st.integers(1, 5))):
        query = Query("s", draw(windows(unit)), tuple(map(column, keys)), (*aggregates, COUNTED), where=where)
        query = replace(query, emit=draw(st.sampled_from((None, None, "RSTREAM", "ISTREAM", "DSTREAM"))))
        query = replace(query, drain=draw(st.booleans()), having=draw(st.sampled_from((None, None, HAVING))))
        if draw(st.integers(0, 4)) == 0:
            query = replace(query, order_by=((draw(st.sampled_from(query.names)), draw(st.booleans())),), limit=2)
        found.append(query)
    return found


@dataclass(frozen=True)
class Story:
    """The sizes of the batches, in turn, the rest in one; after which a restart takes place, and which query goes."""

    batches: tuple[int, ...]
    restarts: frozenset[int]
    goes: dict[int, int]
    block_size: int


stories = st.builds(
    Story,
    st.lists(st.sampled_from((1, 1, 2, 5, 13)), max_size=20).map(tuple),
    st.frozensets(st.integers(0, 20), max_size=3),
    st.dictionaries(st.integers(0, 20), st.integers(0, 4), max_size=2),
    st.sampled_from((65536, 1024)),
)


class Runtime:
    """The operators of queries: one family, or each query by itself."""

    def __init__(self, nodes: list[AggregateNode], as_family: bool, block_size: int) -> None:
        self.nodes = dict(enumerate(nodes))
        self.rejects: list[Any] = []
        self._as_family, self._block_size = as_family, block_size
        self._results = {i: [pa.RecordBatch.from_pylist([], schema=n.schema.arrow)] for i, n in self.nodes.items()}
        self._start(None)

    def _start(self, saved: dict[str, Any] | None) -> None:
        self._stores = StoreManager(Budget(1 << 24), None, self._block_size)
        self._family = None
        if self._as_family:
            resources = self._made()
            layout = None if saved is None else saved["family"]
            self._family = PaneFamily("f", list(self.nodes.values()), resources, layout)
        self._resources = {i: self._made() for i in self.nodes}
        self._operators: dict[int, Operator] = {}
        for i, node in self.nodes.items():
            if self._family is None:
                self._operators[i] = make_operator(f"q{i}", OwnWindow(node), self._resources[i])
            else:
                output = self._family.join(node, self._resources[i])
                output.consumer = lambda chunks, reached, query=i: self._take(query, chunks)

    def _made(self) -> Resources:
        return Resources(self._stores, lambda *reject: self.rejects.append(reject))

    def push(self, chunk: Chunk, watermark: int) -> None:
        if self._family is not None:
            self._family.process(chunk, watermark)
        for i, operator in self._operators.items():
            self._take(i, operator.process(chunk, watermark).chunks)

    def finish(self) -> None:
        if self._family is not None:
            self._family.finish(None)
        for i, operator in self._operators.items():
            self._take(i, operator.finish())

    def _take(self, query: int, chunks: list[Chunk]) -> None:
        schema = self.nodes[query].schema.arrow
        self._results[query] += [pa.RecordBatch.from_arrays(c.arrow.columns, schema=schema) for c in chunks]

    def drop(self, query: int) -> None:
        self._operators.pop(query, None)
        del self.nodes[query]
        self._resources.pop(query).close()

    def restart(self, without: int | None = None) -> None:
        saved = {
            "family": None if self._family is None else self._family.snapshot(),
            "operators": {str(i): operator.snapshot() for i, operator in self._operators.items()},
            "stores": self._stores.snapshot(),
        }
        saved = state_format.decode(state_format.encode(saved))
        if without is not None:
            del self.nodes[without]
        self._start(saved)
        self._stores.restore(saved["stores"])
        if self._family is not None:
            self._family.restore(saved["family"])
        for i, operator in self._operators.items():
            operator.restore(saved["operators"][str(i)])
        if self._family is not None:
            self._family.settle()

    def tables(self) -> list[Table]:
        return [plain(pa.Table.from_batches(batches)) for batches in self._results.values()]


def nodes_of(texts: list[str]) -> tuple[list[AggregateNode], pa.Schema]:
    program = parse(";\n".join([STREAM.sql(), *texts]))
    nodes = [build(query.body) for query in program.queries]
    assert all(isinstance(node, AggregateNode) and why_not(node) is None for node in nodes)
    return [node for node in nodes if isinstance(node, AggregateNode)], program.streams[0].schema.arrow


def chunk_of(events: list[Event], schema: pa.Schema) -> Chunk:
    if not events:
        return Chunk(np.empty(0, np.int64), NO_ROWS)
    return Chunk(np.array([e["t"] for e in events], np.int64), pa.RecordBatch.from_pylist(events, schema=schema))


def run(
    nodes: list[AggregateNode], schema: pa.Schema, events: list[Event], story: Story, as_family: bool
) -> tuple[list[Table], int]:
    runtime = Runtime(nodes, as_family, story.block_size)
    begin = 0
    for number, size in enumerate((*story.batches, len(events))):
        batch = events[begin : begin + size]
        begin += size
        goes = story.goes.get(number)
        may_go = goes in runtime.nodes and len(runtime.nodes) > 1
        if number in story.restarts:
            runtime.restart(without=goes if may_go else None)
        elif may_go:
            runtime.drop(goes)
        if batch:
            runtime.push(chunk_of(batch, schema), batch[-1]["t"])
    runtime.finish()
    return runtime.tables(), len(runtime.rejects)


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[list[str], list[Event]]:
    unit = draw(st.sampled_from((1, 1_000_000)))
    events = sorted(draw(event_lists(unit, 0)), key=lambda event: event["t"])
    for event in events:
        if event["x"] == 0.0 and event["g"] == 1:
            event["x"] = -0.0
    return [query.sql() for query in draw(queries(unit))], events


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(scenarios(), stories)
def test_panes_give_the_answers_of_stored_rows(scenario: tuple[list[str], list[Event]], story: Story) -> None:
    texts, events = scenario
    nodes, schema = nodes_of(texts)
    expected, rejected = run(nodes, schema, events, story, as_family=False)
    tables, rejects = run(nodes, schema, events, story, as_family=True)
    for text, mine, theirs in zip(texts, tables, expected, strict=True):
        assert_same(mine, theirs, text)
    assert rejects == rejected
