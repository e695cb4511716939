"""Aggregations in parts: events dealt out by a hash of their time, partial rows merged, and the answer of one place.

events ─┬─▶ part 0 ─┐
        ├─▶ part 1 ─┼─▶ merge ─▶ the embedded engine's rows, bit for bit, and its rejects
        └─▶ part 2 ─┘
              ↻ restarts on the way
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.cases import Table
from conformance.compare import assert_same
from conformance.description import Aggregate, Event, Query, Range, Stream, TimeSlide, Window, column
from conformance.runtimes import AT_ONCE, drive_embedded, plain
from penstock.errors import BudgetError, CheckpointError
from penstock.lang import parse
from penstock.operators import merging, partial_rows
from penstock.operators.chunk import NO_ROWS, Chunk
from penstock.operators.make import make_part
from penstock.operators.merging import Merge
from penstock.operators.operator import Operator
from penstock.operators.partial_rows import partial_schema
from penstock.operators.parts import PartialEvaluation
from penstock.operators.resources import Resources
from penstock.operators.shared_aggregation import SharedAggregation
from penstock.operators.shared_window import SharedWindow
from penstock.operators.stage import Output
from penstock.plan.aggregations import AggregationKey, key_of
from penstock.plan.build import build
from penstock.plan.nodes import AggregateNode
from penstock.plan.partials import mergeable
from penstock.plan.physical.nodes import ClosingWindow, OwnWindow
from penstock.plan.strategy import closes_as_a_whole
from penstock.store import state as state_format
from penstock.store.budget import Budget
from penstock.store.manager import StoreManager
from penstock.windows import spec
from properties.generate import COLUMNS, CONDITIONS, COUNTED, HAVING, event_lists, landmarks, sliding

FUNCTIONS = ("COUNT", "SUM", "AVG", "MIN", "MAX", "VAR_SAMP", "STDDEV_POP", "COVAR_POP", "CORR")
STREAM = Stream("s", COLUMNS)
Rejects = list[tuple[str, dict[str, Any]]]


def _own_form(node: AggregateNode) -> OwnWindow | ClosingWindow:
    return ClosingWindow(node) if closes_as_a_whole(node) else OwnWindow(node)


class Part:
    """The operators of one part, with stores of its own; those that store the same rows share one window."""

    def __init__(self, nodes: list[AggregateNode], rejects: Rejects, block_size: int) -> None:
        self._nodes = nodes
        self._rejects = rejects
        self._block_size = block_size
        self._start()

    def _start(self) -> None:
        self._stores = StoreManager(Budget(1 << 24), None, self._block_size)
        storing = [n for n in self._nodes if isinstance(n.window.extent, spec.Range) and not closes_as_a_whole(n)]
        self._window = SharedWindow("w", storing, self._resources()) if len(storing) > 1 else None
        self._shared: dict[AggregationKey, SharedAggregation] = {}
        for node in storing if self._window is not None else ():
            key, number = key_of(node), len(self._shared)
            if key not in self._shared:
                alike = [other for other in storing if key_of(other) == key]
                self._shared[key] = SharedAggregation(
                    f"a{number}", alike, self._resources(), PartialEvaluation, self._window
                )
        self._came: list[list[Chunk]] = [[] for _ in self._nodes]
        self._parts: list[Operator | Output] = []
        for i, node in enumerate(self._nodes):
            shared = self._shared.get(key_of(node))
            if shared is None:
                self._parts.append(make_part(f"q{i}", _own_form(node), self._resources()))
            else:
                output = shared.join(node, self._resources())
                output.consumer = lambda chunks, reached, came=self._came[i]: came.extend(chunks)
                self._parts.append(output)

    def process(self, chunk: Chunk, watermark: int) -> list[list[Chunk]]:
        """What each query says of rows."""
        if self._window is not None:
            self._window.process(chunk, watermark)
        return self._taken(lambda operator: operator.process(chunk, watermark).chunks)

    def finish(self, last_time: int) -> list[list[Chunk]]:
        if self._window is not None:
            self._window.finish(last_time)
        return self._taken(lambda operator: operator.finish(last_time))

    def _taken(self, ask: Callable[[Operator], list[Chunk]]) -> list[list[Chunk]]:
        said = []
        for part, came in zip(self._parts, self._came, strict=True):
            said.append(ask(part) if isinstance(part, Operator) else list(came))
            came.clear()
        return said

    def _resources(self) -> Resources:
        return Resources(self._stores, lambda *reject: self._rejects.append(reject))

    def restart(self) -> None:
        saved = {
            "window": None if self._window is None else self._window.snapshot(),
            "shared": [shared.snapshot() for shared in self._shared.values()],
            "parts": [part.snapshot() for part in self._parts],
            "stores": self._stores.snapshot(),
        }
        saved = state_format.decode(state_format.encode(saved))
        self._start()
        self._stores.restore(saved["stores"])
        if self._window is not None:
            self._window.restore(saved["window"])
        for shared, own in zip(self._shared.values(), saved["shared"], strict=True):
            shared.restore(own)
        for part, own in zip(self._parts, saved["parts"], strict=True):
            part.restore(own)
        if self._window is not None:
            self._window.settle()


def chunk_of(events: list[Event], schema: pa.Schema) -> Chunk:
    if not events:
        return Chunk(np.empty(0, np.int64), NO_ROWS)
    return Chunk(np.array([e["t"] for e in events], np.int64), pa.RecordBatch.from_pylist(events, schema=schema))


def shuffled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pa.array(np.random.default_rng(batch.num_rows).permutation(batch.num_rows)))


def run_in_parts(
    queries: list[str],
    events: list[Event],
    parts: int,
    batches: list[int],
    restarts: list[int],
    block_size: int = 65536,
    memory: int = 1 << 26,
) -> tuple[list[Table], Rejects]:
    """`events` in the order of their times; after each batch everything that the parts said is merged."""
    program = parse(";\n".join([STREAM.sql(), *queries]))
    schema = program.streams[0].schema.arrow
    nodes = [node for node in (build(query.body) for query in program.queries) if isinstance(node, AggregateNode)]
    assert [mergeable(node) for node in nodes] == [None] * len(queries)
    rejects: Rejects = []
    places = [Part(nodes, rejects, block_size) for _ in range(parts)]
    resources = Resources(StoreManager(Budget(memory), None), lambda *reject: rejects.append(reject))
    merges = [Merge(f"q{i}", node, resources) for i, node in enumerate(nodes)]
    results = [[pa.RecordBatch.from_pylist([], schema=node.schema.arrow)] for node in nodes]

    def take(said: list[list[list[Chunk]]]) -> None:
        """What each operator of each part said."""
        for node, merge, result, chunks in zip(nodes, merges, results, zip(*said, strict=True), strict=True):
            partials = [chunk.arrow for own in chunks for chunk in own]
            assert all(batch.schema.equals(partial_schema(node), check_metadata=True) for batch in partials)
            for chunk in merge.merge([shuffled(batch) for batch in partials[::-1]]):
                result.append(pa.RecordBatch.from_arrays(chunk.arrow.columns, schema=node.schema.arrow))

    begin = 0
    for number, size in enumerate((*batches, len(events))):
        batch = events[begin : begin + size]
        begin += size
        if not batch:
            continue
        said = []
        for part, place in enumerate(places):
            mine = chunk_of([e for e in batch if hash((e["t"], 7)) % parts == part], schema)
            said.append(place.process(mine, batch[-1]["t"]))
        take(said)
        if number in restarts:
            places[number % parts].restart()
    if events:
        take([place.finish(events[-1]["t"]) for place in places])
    return [plain(pa.Table.from_batches(result)) for result in results], rejects


def run_whole(queries: list[str], events: list[Event]) -> tuple[list[Table], int]:
    names = [f"q{i + 1}" for i in range(len(queries))]
    run = drive_embedded(";\n".join([STREAM.sql(), *queries]), [("s", e) for e in events], names, ("s",), AT_ONCE)
    return [run.table(name) for name in names], run.rejects


@st.composite
def calls(draw: st.DrawFn, number: int) -> Aggregate:
    function = draw(
        st.sampled_from(("COUNT", "SUM", "AVG", "MIN", "MAX", "VAR_SAMP", "STDDEV_POP", "COVAR_POP", "CORR"))
    )
    if function in ("COVAR_POP", "CORR"):
        names: tuple[str, ...] = (draw(st.sampled_from(("n", "x"))), "y")
    elif function in ("COUNT", "MIN", "MAX"):
        names = (draw(st.sampled_from(("n", "x", "k", "w", "g"))),)
    else:
        names = (draw(st.sampled_from(("n", "x", "y", "w") if function in ("SUM", "AVG") else ("n", "x", "y"))),)
    only = draw(st.one_of(st.none(), st.none(), st.sampled_from(CONDITIONS)))
    return Aggregate(function, tuple(map(column, names)), f"a{number}", only)


@st.composite
def tumbling(draw: st.DrawFn, unit: int) -> Window:
    size = draw(st.integers(1, 25)) * unit
    return Window(Range(size), TimeSlide(size))


@st.composite
def queries(draw: st.DrawFn, unit: int) -> Query:
    window = draw(st.one_of(sliding(unit), tumbling(unit), landmarks(unit)))
    keys = draw(st.sampled_from(((), ("k",), ("k", "g"), ("y",))))
    aggregates = [draw(calls(i)) for i in range(draw(st.integers(1, 4)))]
    query = Query("s", replace(window, when_full=False), tuple(map(column, keys)))
    if draw(st.integers(0, 3)) == 0:
        query, aggregates = replace(query, having=HAVING), [*aggregates, COUNTED]
    query = replace(
        query,
        aggregates=tuple(aggregates),
        where=draw(st.one_of(st.none(), st.sampled_from(CONDITIONS))),
        distinct=draw(st.integers(0, 4)) == 0,
        emit=draw(st.sampled_from((None, "RSTREAM"))),
        drain=isinstance(window.extent, Range) and draw(st.booleans()),
    )
    if draw(st.integers(0, 3)) == 0:
        order = ((draw(st.sampled_from(query.names)), draw(st.booleans())),)
        query = replace(query, order_by=order, limit=draw(st.one_of(st.none(), st.integers(1, 3))))
    return query


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[list[str], list[Event]]:
    unit = draw(st.sampled_from((1, 1_000_000)))
    events = sorted(draw(event_lists(unit, 0)), key=lambda event: event["t"])
    for event in events:
        if event["x"] == 0.0 and event["g"] == 1:
            event["x"] = -0.0
    return [query.sql() for query in draw(st.lists(queries(unit), min_size=1, max_size=3))], events


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    scenarios(),
    st.integers(1, 5),
    st.lists(st.sampled_from((1, 1, 2, 5, 13)), max_size=20),
    st.lists(st.integers(0, 20), max_size=4),
    st.sampled_from((65536, 256)),
)
def test_parts_give_the_answer_of_one_place(
    scenario: tuple[list[str], list[Event]], parts: int, batches: list[int], restarts: list[int], block_size: int
) -> None:
    texts, events = scenario
    whole, rejected = run_whole(texts, events)
    tables, rejects = run_in_parts(texts, events, parts, batches, restarts, block_size)
    for text, mine, theirs in zip(texts, tables, whole, strict=True):
        assert_same(mine, theirs, text)
    assert len(rejects) == rejected


def many_events(count: int, keys: int) -> list[Event]:
    rng = np.random.default_rng(11)
    times = np.sort(rng.integers(0, 40_000_000, count)).tolist()
    prices = np.round(rng.random(count) * 1e3, 2).tolist()
    names = rng.integers(0, keys, count).tolist()
    return [
        {"t": t, "q": i, "k": f"key {name}", "g": name % 7, "n": name, "w": i, "x": price, "y": -price}
        for i, (t, name, price) in enumerate(zip(times, names, prices, strict=True))
    ]


@pytest.mark.parametrize("at_once", [64, 1 << 17])
def test_many_groups_and_evaluations_are_merged_in_portions(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts send evaluations of some hundred groups in pieces; the merge never cuts one into its smaller portions."""
    monkeypatch.setattr(merging, "MERGED_AT_ONCE", at_once)
    monkeypatch.setattr(partial_rows, "EMITTED_AT_ONCE", at_once)
    events = many_events(6_000, 300)
    query = (
        "SELECT k, g, SUM(x) AS a, AVG(y) AS b, MIN(k) AS c, MAX(y) AS d, CORR(x, y) AS e, COUNT(*) AS f "
        "FROM s [RANGE 10 SECONDS SLIDE 1500 MILLISECONDS] GROUP BY k, g"
    )
    (whole,), _ = run_whole([query], events)
    (table,), rejects = run_in_parts([query], events, 4, [4_000], [0])
    assert_same(table, whole, query)
    assert not rejects


def test_an_overflow_is_of_the_whole_and_not_of_a_part() -> None:
    """Two parts overflow and cancel in one window; in the other the whole overflows: that row goes to the rejects."""
    greatest = 2**63 - 1
    blank = {name: None for name, _ in COLUMNS}
    sums = [(1, greatest), (1, greatest), (2, -greatest), (2, -greatest), (13, greatest), (14, greatest)]
    events = [{**blank, "t": t, "w": w} for t, w in sums]
    query = "SELECT SUM(w) AS a FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS]"
    (table,), rejects = run_in_parts([query], events, 5, [], [])
    assert [row[2] for row in table.rows] == [0]
    assert [reason for reason, _ in rejects] == ["an aggregate could not be computed: integer overflow"]


def test_nothing_to_merge() -> None:
    query = "SELECT COUNT(*) AS a FROM s [RANGE 10 SECONDS SLIDE 1 SECOND]"
    (table,), rejects = run_in_parts([query], [], 3, [], [])
    assert not table.rows
    assert not rejects


def test_evaluations_are_merged_by_halves_where_memory_is_short() -> None:
    query = "SELECT k, SUM(x) AS a, MAX(x) AS b FROM s [RANGE 10 SECONDS SLIDE 1 SECOND] GROUP BY k"
    events = [{"t": 1_000_000 * second, "k": str(key), "x": 0.5 * key} for second in range(60) for key in range(8)]
    much = run_in_parts([query], events, 3, [], [])
    assert len(much[0][0].rows) >= 60 * 8
    for memory in (100_000, 10_000):
        assert run_in_parts([query], events, 3, [], [], memory=memory) == much
    with pytest.raises(BudgetError, match="partial rows"):
        run_in_parts([query], events, 3, [], [], memory=500)


def test_partial_rows_of_another_version_are_refused() -> None:
    node = build(parse(f"{STREAM.sql()}; SELECT SUM(x) AS a FROM s [RANGE 1 DAY SLIDE 1 DAY]").queries[0].body)
    assert isinstance(node, AggregateNode)
    merge = Merge("q", node, Resources(StoreManager(Budget(1 << 20), None), lambda *reject: None))
    stranger = pa.RecordBatch.from_pylist([], schema=partial_schema(node).with_metadata({"penstock.partials": "0"}))
    with pytest.raises(CheckpointError, match="version 0"):
        list(merge.merge([stranger]))
