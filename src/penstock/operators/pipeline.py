"""One running query: the operators of its plan, fed from the streams it reads.

`push` takes a run of one stream's events in order, with the watermark of that stream. It returns the query's results
and the time they have reached. The runtime orders the events and commits.

Large results do not wait for the end of a call (`outgoing`): during the call an operator sends them to the next
operator, and the last operator to `send_to`'s receiver.

Invariant: what a stage gives, and the time that it has reached, goes up in order. Rows that a stage has given and that
are not yet with the stage above are in `_Stage.given`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never

import numpy as np

from penstock.operators.chunk import NO_ROWS, Chunk
from penstock.operators.closing import ClosingAggregate
from penstock.operators.combine import Combine
from penstock.operators.edge import EdgeOperator
from penstock.operators.joins.core import JoinCore
from penstock.operators.joins.join import Join, OverJoin
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import PIECE_ROWS, Receive
from penstock.operators.panes.family import PaneFamily
from penstock.operators.panes.paned import PanedAggregate
from penstock.operators.partial_rows import partial_schema
from penstock.operators.partitioned import PartitionedAggregate
from penstock.operators.partitioned_changes import PartitionedChanges
from penstock.operators.partitioned_relation import PartitionedRelation, SessionRelation
from penstock.operators.partitioned_row_changes import PartitionedRowChanges, changes_by_one_row
from penstock.operators.parts import make_part
from penstock.operators.patterns.pattern import Pattern
from penstock.operators.project import Project
from penstock.operators.relation import WindowRelation
from penstock.operators.relation_changes import RelationChanges
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.shared_aggregation import SharedAggregation
from penstock.operators.sliding import SlidingAggregate
from penstock.operators.tables.lookup import LookUp
from penstock.operators.tables.scan import Scan
from penstock.operators.union import Union
from penstock.operators.wall_clock import WallClock
from penstock.plan.aggregations import Look, look_of, shows_row_changes
from penstock.plan.nodes import (
    AggregateNode,
    CombineNode,
    EdgeNode,
    JoinNode,
    LookupNode,
    Node,
    PatternNode,
    ProjectNode,
    RelationNode,
    ScanNode,
    StreamNode,
    UnionNode,
    children,
    streams,
)
from penstock.plan.sharing import may_share
from penstock.plan.strategy import closes_as_a_whole

Waits = Callable[[int], bool]
"""Asks whether something waits for the time that is given."""


@dataclass
class _Stage:
    """An operator and the stages that feed it; the stages of streams have no operator."""

    operator: Operator | None
    stream: str | None
    inputs: list[_Stage] = field(default_factory=list)
    above: _Stage | None = None
    port: int = 0
    given: list[Chunk] = field(default_factory=list)
    reached: int = START

    def waits_for(self, port: int, watermark: int) -> bool:
        assert self.operator is not None
        return self.operator.waits_for(port, watermark)

    def take(self) -> list[Chunk]:
        given, self.given = self.given, []
        return given


@dataclass
class _Shared:
    """One of the windows that may be shared: its stage, and what the operator there lives on."""

    stage: _Stage
    resources: Resources


class Pipeline:
    """Made with resources of its own, which `close` gives back. `shared` are the aggregations that it has with others,
    one for each of the plan's windows that may be shared, and `cores` those of its joins; without them it has its own.
    With `in_parts` it sees a part
    of the events of an aggregation and gives partial rows."""

    def __init__(
        self,
        name: str,
        node: Node,
        resources: Resources,
        shared: Iterable[SharedAggregation | PaneFamily] = (),
        cores: Iterable[JoinCore] = (),
        *,
        in_parts: bool = False,
    ) -> None:
        self.name = name
        self._in_parts = in_parts
        self._shared = iter(shared)
        self._cores = iter(cores)
        self._resources = resources
        self.schema = partial_schema(node) if in_parts and isinstance(node, AggregateNode) else node.schema.arrow
        self.streams = streams(node)
        self._operators: list[Operator] = []
        self._windows: list[_Shared] = []
        self._leaves: list[_Stage] = []
        self._receive: Receive | None = None
        self.met = 0
        """How many rows have come to operators with several inputs."""
        self._root = self._build(node, resources)

    def send_to(self, receive: Receive) -> None:
        """Many results of one call go there while it is at work, before those that it returns."""
        self._receive = receive

    def _build(self, node: Node, resources: Resources) -> _Stage:
        inputs = [self._build(child, resources) for child in children(node)]
        if isinstance(node, StreamNode):
            leaf = _Stage(None, node.name)
            self._leaves.append(leaf)
            return leaf
        name = f"{self.name}-{len(self._operators)}"
        shared = next(self._shared, None) if may_share(node) else None
        own = resources if shared is None else resources.apart()
        if self._in_parts and isinstance(node, AggregateNode):
            assert not isinstance(shared, PaneFamily), "parts keep the rows of their windows"
            operator = make_part(name, node, own, shared)
        else:
            core = next(self._cores, None) if isinstance(node, JoinNode) else None
            operator = make_operator(name, node, own, core or shared)
        slide = None if node.own_window is None else node.own_window.wall_clock_slide
        if slide is not None:
            operator = WallClock(name, operator, slide, resources)
        if isinstance(node, AggregateNode) and isinstance(node.input, JoinNode) and node.input.is_aggregated:
            join = inputs[0].operator
            assert isinstance(join, Join)
            operator = OverJoin(operator, join)
        self._operators.append(operator)
        stage = _Stage(operator, None, inputs)
        for port, below in enumerate(inputs):
            below.above, below.port = stage, port
        operator.send_to(lambda chunks: self._send(stage, chunks))
        if shared is not None:
            window = _Shared(stage, own)
            self._windows.append(window)
            resources.at_end(lambda: window.resources.close())
        return stage

    def exchange(self, number: int, operator: Operator, resources: Resources) -> Resources:
        """From the next call on another operator, which has been fed the same calls, answers for one of the windows
        that are shared; returns what the one before lived on, to be closed."""
        window = self._windows[number]
        assert window.stage.operator is not None
        self._operators[self._operators.index(window.stage.operator)] = operator
        window.stage.operator = operator
        stage = window.stage
        operator.send_to(lambda chunks: self._send(stage, chunks))
        before, window.resources = window.resources, resources
        return before

    @property
    def only(self) -> Operator | None:
        """The query's one operator; None if there are several."""
        return self._operators[0] if len(self._operators) == 1 else None

    @property
    def joins(self) -> list[Join]:
        """Its joins, the innermost first."""
        return [operator for operator in self._operators if isinstance(operator, Join)]

    def waits(self, stream: str) -> list[Waits]:
        """What the time of a stream reaches here."""
        found: list[Waits] = []
        for stage in self._leaves:
            while stage.stream in (None, stream) and stage.above is not None:
                port, stage = stage.port, stage.above
                if stage.operator is not None and stage.operator.heeds_time:
                    found.append(partial(stage.waits_for, port))
        return found

    def push(self, stream: str, chunks: list[Chunk], watermark: int) -> Progress:
        progress = self._push(self._root, stream, Progress(chunks, watermark))
        assert progress is not None, f"{self.name} does not read {stream}"
        return progress

    def _push(self, stage: _Stage, stream: str, events: Progress) -> Progress | None:
        if stage.operator is None:
            return events if stage.stream == stream else None
        fed = False
        for below in stage.inputs:
            progress = self._push(below, stream, events)
            if progress is not None:
                self._feed(stage, progress, below.port)
                fed = True
        return Progress(stage.take(), stage.reached) if fed else None

    def _feed(self, stage: _Stage, progress: Progress, port: int) -> None:
        """Hands on what a stream or the stage below gave; the watermark moves with the rows."""
        assert stage.operator is not None
        if len(stage.inputs) > 1:
            self.met += sum(chunk.rows for chunk in progress.chunks)
        for chunk, watermark in moves(progress):
            own = stage.operator.process(chunk, watermark, port)
            if own.chunks:
                stage.given += own.chunks
            if own.watermark > stage.reached:
                stage.reached = own.watermark

    def _send(self, stage: _Stage, chunks: list[Chunk]) -> None:
        """Results of a stage that is at work leave, and what it has given before leaves with them."""
        if stage.above is None and self._receive is None:
            stage.given += chunks
            return
        chunks = [chunk for chunk in stage.take() + chunks if chunk.rows]
        if not chunks:
            return
        last = int(chunks[-1].times[-1])
        if last > stage.reached:
            stage.reached = last
        if stage.above is None:
            assert self._receive is not None
            self._receive(chunks)
            return
        above = stage.above
        self._feed(above, Progress(chunks, last), stage.port)
        if sum(chunk.rows for chunk in above.given) >= PIECE_ROWS:
            self._send(above, [])

    @property
    def next_tick(self) -> int | None:
        """When the local clock next makes a window of this query slide; None if it never does."""
        return min((o.next_tick for o in self._operators if isinstance(o, WallClock)), default=None)

    def tick(self, now: int) -> Progress | None:
        """The local clock moves on; None where no window follows it."""
        return self._tick(self._root, now)

    def _tick(self, stage: _Stage, now: int) -> Progress | None:
        if stage.operator is None:
            return None
        ticked = False
        for below in stage.inputs:
            progress = self._tick(below, now)
            if progress is not None:
                self._feed(stage, progress, below.port)
                ticked = True
        if isinstance(stage.operator, WallClock):
            own = stage.operator.tick(now)
            stage.given += own.chunks
            stage.reached = max(stage.reached, own.watermark)
            ticked = True
        return Progress(stage.take(), stage.reached) if ticked else None

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        """The end of a bounded run: what the contract promises after the last event, whose time is `last_time` where
        this pipeline has seen only a part of the stream."""
        return self._finish(self._root, last_time)

    def _finish(self, stage: _Stage, last_time: int | None) -> list[Chunk]:
        assert stage.operator is not None, "a query is more than a stream"
        is_lowest = all(below.operator is None for below in stage.inputs)
        for below in stage.inputs:
            if below.operator is not None:
                last = [chunk for chunk in self._finish(below, last_time) if chunk.rows]
                if last:
                    self._feed(stage, Progress(last, int(last[-1].times[-1])), below.port)
        if isinstance(stage.operator, Combine):
            last_time = self._end(stage.inputs[0], last_time)
        elif not is_lowest:
            last_time = None
        stage.given += stage.operator.finish(last_time)
        return stage.take()

    def _end(self, stage: _Stage, last_time: int | None) -> int | None:
        """Where the windows of a stage have ended."""
        assert stage.operator is not None
        is_lowest = all(below.operator is None for below in stage.inputs)
        return stage.operator.end(last_time if is_lowest else None)

    def close(self) -> None:
        self._resources.close()

    def snapshot(self) -> dict[str, Any]:
        return {"operators": [o.snapshot() for o in self._operators]}

    def restore(self, snapshot: dict[str, Any]) -> None:
        for operator, saved in zip(self._operators, snapshot["operators"], strict=True):
            operator.restore(saved)


def moves(progress: Progress) -> list[tuple[Chunk, int]]:
    """What an operator is called with to be handed on what another one or a stream gave: the watermark moves with the
    rows."""
    chunks, watermark = progress.chunks, progress.watermark
    if len(chunks) == 1:
        return [(chunks[0], watermark)]
    if not chunks:
        return [(Chunk(np.empty(0, np.int64), NO_ROWS), watermark)]
    earlier = [(chunk, min(watermark, int(chunk.times[-1]))) for chunk in chunks[:-1] if chunk.rows]
    return [*earlier, (chunks[-1], watermark)]


def make_operator(
    name: str, node: Node, resources: Resources, shared: SharedAggregation | PaneFamily | JoinCore | None = None
) -> Operator:
    """The operator of one node; `shared` is what it has in common with other queries, if anything."""
    match node:
        case StreamNode():
            raise AssertionError("a stream is a leaf of the pipeline")
        case UnionNode():
            return Union(name, node, resources)
        case CombineNode():
            return Combine(name, node, resources)
        case JoinNode():
            assert shared is None or isinstance(shared, JoinCore)
            return Join(name, node, resources, shared)
        case ProjectNode():
            return Project(node, resources)
        case PatternNode():
            return Pattern(name, node, resources)
        case LookupNode():
            return LookUp(name, node, resources)
        case ScanNode():
            return Scan(name, node, resources)
        case EdgeNode():
            return EdgeOperator(name, node, resources)
        case RelationNode():
            return _make_relation(name, node, resources)
        case AggregateNode():
            assert not isinstance(shared, JoinCore)
            return _make_aggregate(name, node, resources, shared)
        case other:
            assert_never(other)


def _make_relation(name: str, node: RelationNode, resources: Resources) -> Operator:
    if node.window.extent.closes:
        return SessionRelation(name, node, resources)
    if node.partition_by:
        return (PartitionedRowChanges if changes_by_one_row(node) else PartitionedRelation)(name, node, resources)
    return (RelationChanges if shows_row_changes(node) else WindowRelation)(name, node, resources)


def _make_aggregate(
    name: str, node: AggregateNode, resources: Resources, shared: SharedAggregation | PaneFamily | None
) -> Operator:
    if closes_as_a_whole(node):
        return ClosingAggregate(name, node, resources)
    if node.partition_by:
        changes = look_of(node) is Look.CHANGES
        return (PartitionedChanges if changes else PartitionedAggregate)(name, node, resources)
    if isinstance(shared, PaneFamily):
        return PanedAggregate(node, resources, shared)
    return SlidingAggregate(name, node, resources, shared)
