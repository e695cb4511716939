"""One query at work: the operators of its plan, and the outputs of the stages that it reads with other queries.

    stream ─▶ shared stage ─▶ output ─┐
    stream ─▶ operator ───────────────┴▶ operator ─▶ deliver

Rows are pushed. What a stream, a stage or an operator gives goes to the operator above at once, and what the last one
gives goes to `deliver`, with the time it has reached. The runtime orders the events, calls the shared stages and
commits.

Large results do not wait for the end of a call (`outgoing`): they go on while the operator is at work.

Invariant: what an operator gives, and the time that it has reached, goes up in order.

Why: docs/decisions/stages-push.md
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any

from penstock.expressions.batch import Row
from penstock.expressions.evaluate import UNCERTAIN
from penstock.operators.chunk import Chunk
from penstock.operators.combine import Combine
from penstock.operators.joins.core import JoinCore, JoinOutput
from penstock.operators.joins.over_join import OverJoin
from penstock.operators.joins.view import JoinView, view_of
from penstock.operators.make import make_operator, make_part
from penstock.operators.operator import Operator
from penstock.operators.panes.family import PaneFamily
from penstock.operators.partial_rows import partial_schema
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.shared_aggregation import SharedAggregation
from penstock.operators.stage import Consumer, Output, Stage, moves
from penstock.operators.wall_clock import WallClock
from penstock.plan.nodes import AggregateNode, JoinNode, streams
from penstock.plan.physical import nodes as physical

Waits = Callable[[int], bool]
"""Asks whether something waits for the time that is given."""


class _Part(ABC):
    """A stream, an operator or an output in the tree of a query. `above` takes its rows, at `port`. `met` counts the
    rows that have come where several inputs meet."""

    def __init__(self, inputs: list[_Part]) -> None:
        self.inputs = inputs
        self.met = 0
        self.above: _Part | None = None
        self.port = 0
        for port, below in enumerate(inputs):
            below.above, below.port = self, port
            below.connect(self._take if len(inputs) == 1 else partial(self._meet, port=port))

    @abstractmethod
    def connect(self, consumer: Consumer) -> None:
        """From now on the rows go there."""

    @abstractmethod
    def _take(self, chunks: list[Chunk], watermark: int, port: int = 0) -> None:
        """Takes rows of an input."""

    def _meet(self, chunks: list[Chunk], watermark: int, port: int) -> None:
        for chunk in chunks:
            self.met += len(chunk.times)
        self._take(chunks, watermark, port)

    def waits(self, port: int) -> dict[Hashable, Waits]:
        """What may wait for the time of an input."""
        return {}

    def end(self, last_time: int | None) -> int | None:
        """Where its windows have ended in a bounded run."""
        return None


class _Stream(_Part):
    """A stream whose rows operators take; `entries` are the consumers of all such streams."""

    def __init__(self, name: str, entries: dict[str, list[Consumer]]) -> None:
        super().__init__([])
        self.name = name
        self._entries = entries

    def connect(self, consumer: Consumer) -> None:
        self._entries.setdefault(self.name, []).append(consumer)

    def _take(self, chunks: list[Chunk], watermark: int, port: int = 0) -> None:
        raise AssertionError("a stream has no input")


class _Operated(_Part):
    """An operator of the query's own."""

    def __init__(self, operator: Operator, inputs: list[_Part]) -> None:
        super().__init__(inputs)
        self.operator = operator
        self._is_lowest = all(isinstance(below, _Stream) for below in inputs)
        self._filter = operator.row_filter
        self._told = self._reached = START
        operator.send_to(self._send_rows)
        operator.send_later_to(self._send)

    def connect(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def _take(self, chunks: list[Chunk], watermark: int, port: int = 0) -> None:
        if self._filter is not None and port == 0 and self._leaves_out(chunks, watermark):
            return
        if len(chunks) == 1:
            rows, reached = self.operator.process(chunks[0], watermark, port)
            if rows or reached > self._reached:
                self._send(rows, reached)
            return
        for chunk, upto in moves(chunks, watermark):
            self._send(*self.operator.process(chunk, upto, port))

    def _leaves_out(self, chunks: list[Chunk], watermark: int) -> bool:
        """Whether nothing can come of what is a single row."""
        if watermark > self._told:
            self._told = watermark
        elif len(chunks) == 1 and isinstance(row := chunks[0].columns, Row) and self._filter is not None:
            try:
                if self._filter(row.values) is not True:
                    self.operator.left_out += 1
                    return True
            except UNCERTAIN:
                pass
        return False

    def _send(self, chunks: list[Chunk], watermark: int) -> None:
        if watermark > self._reached:
            self._reached = watermark
        elif not chunks:
            return  # it has been told so
        self._consumer(chunks, self._reached)

    def _send_rows(self, chunks: list[Chunk]) -> None:
        """Rows alone: time goes no further than the last of them."""
        chunks = [chunk for chunk in chunks if chunk.rows]
        if chunks:
            self._send(chunks, int(chunks[-1].times[-1]))

    def waits(self, port: int) -> dict[Hashable, Waits]:
        if not self.operator.heeds_time:
            return {}
        return {(self.operator, port): partial(self.operator.waits_for, port)}

    def tick(self, now: int) -> None:
        if isinstance(self.operator, WallClock):
            self._send(*self.operator.tick(now))

    def end(self, last_time: int | None) -> int | None:
        return self.operator.end(last_time if self._is_lowest else None)

    def finish(self, last_time: int | None) -> None:
        if isinstance(self.operator, Combine):
            last_time = self.inputs[0].end(last_time)
        elif not self._is_lowest:
            last_time = None
        self._send_rows(self.operator.finish(last_time))

    def snapshot(self) -> dict[str, Any]:
        return self.operator.snapshot()

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.operator.restore(snapshot)


class _Shared(_Part):
    """An output of a stage. `ports` are those at which streams come, by their names, if the runtime calls the stage.
    Without them the stage takes rows of subqueries, and this part calls it. `resources` are those of the output."""

    def __init__(
        self, output: Output, stage: Stage, ports: dict[str, int], resources: Resources, inputs: list[_Part]
    ) -> None:
        super().__init__(inputs)
        self.output = output
        self.stage = stage
        self.ports = ports
        self.resources = resources

    def connect(self, consumer: Consumer) -> None:
        self.output.consumer = consumer

    def _take(self, chunks: list[Chunk], watermark: int, port: int = 0) -> None:
        self.stage.take(chunks, watermark, port)

    def waits(self, port: int) -> dict[Hashable, Waits]:
        return {(self.stage, port): partial(self.stage.waits_for, port)}

    def end(self, last_time: int | None) -> int | None:
        return self.output.end(last_time)

    def finish(self, last_time: int | None) -> None:
        if self.inputs:
            self.stage.finish(last_time if all(isinstance(below, _Stream) for below in self.inputs) else None)

    def snapshot(self) -> dict[str, Any]:
        return self.output.snapshot()

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.output.restore(snapshot)


class Pipeline:
    """The part of a physical plan that belongs to one query. Made with resources of its own, which `close` gives back.
    `shared` are the aggregations of its windows that may be shared, and `cores` those of its joins, both by their
    numbers. `follows_time`: `deliver` is told the time also where there are no rows. With `in_parts` the query sees a
    part of the events of an aggregation and gives partial rows.

    `entries` are the consumers of the streams whose rows operators take."""

    def __init__(
        self,
        name: str,
        plan: physical.PhysicalPlan,
        planned: physical.PlannedQuery,
        resources: Resources,
        shared: Sequence[SharedAggregation | PaneFamily],
        cores: Sequence[JoinCore],
        deliver: Consumer,
        *,
        follows_time: bool = True,
        in_parts: bool = False,
    ) -> None:
        self.name = name
        self._resources = resources
        node = planned.node
        self.schema = partial_schema(node) if in_parts and isinstance(node, AggregateNode) else node.schema.arrow
        self.streams = streams(node)
        self.entries: dict[str, list[Consumer]] = {}
        self.joins: list[JoinView] = []
        """The views of its joins, the innermost first."""
        self._stages = plan.by_number
        self._shared, self._cores = shared, cores
        self._make = make_part if in_parts else make_operator
        self._parts: list[_Operated | _Shared] = []
        self._sources: list[_Stream | _Shared] = []
        self._windows: list[_Shared] = []
        root = self._build(planned.rows)
        root.connect(deliver)
        if isinstance(root, _Shared):
            root.output.follows_time = follows_time

    def _build(self, source: physical.Source) -> _Part:
        if isinstance(source, str):
            stream = _Stream(source, self.entries)
            self._sources.append(stream)
            return stream
        stage = self._stages[source.stage]
        match stage.form:
            case physical.StoredWindow(_) | physical.PaneFamily(_) as window:
                return self._add_window(window.readers[source.output])
            case physical.JoinCore(joins):
                inputs = [] if joins[0].node.joins_streams else [self._build(read) for read in stage.inputs]
                return self._add_join(joins[source.output], inputs)
            case physical.Table():
                raise AssertionError("tables give no rows, they are looked up")
            case form:
                return self._add_operator(
                    form, [self._build(read) for read in stage.inputs if not self._is_table(read)]
                )

    def _is_table(self, source: physical.Source) -> bool:
        return not isinstance(source, str) and isinstance(self._stages[source.stage].form, physical.Table)

    @property
    def _next_name(self) -> str:
        return f"{self.name}-{len(self._parts)}"

    def _add_operator(self, form: physical.Private, inputs: list[_Part]) -> _Part:
        name, node = self._next_name, form.node
        operator = self._make(name, form, self._resources)
        slide = None if node.own_window is None else node.own_window.wall_clock_slide
        if slide is not None:
            operator = WallClock(name, operator, slide, self._resources)
        if isinstance(node, AggregateNode) and isinstance(node.input, JoinNode) and node.input.is_aggregated:
            (below,) = inputs
            assert isinstance(below, _Shared)
            assert isinstance(below.output, JoinOutput)
            operator = OverJoin(operator, below.output)
        part = _Operated(operator, inputs)
        self._parts.append(part)
        return part

    def _add_window(self, reader: physical.WindowReader) -> _Shared:
        shared, stream = self._shared[reader.number], reader.node.input.stream_name
        assert stream is not None, "windows over subqueries are not shared"
        own = self._resources.apart()
        window = _Shared(shared.join(reader.node, own), shared.stage, {stream: 0}, own, [])
        self._resources.at_end(lambda: window.resources.close())
        self._windows.append(window)
        self._sources.append(window)
        self._parts.append(window)
        return window

    def _add_join(self, reader: physical.JoinReader, inputs: list[_Part]) -> _Shared:
        node, core = reader.node, self._cores[reader.number]
        view = view_of(self._next_name, node, core)
        ports = {} if inputs else {below.stream_name: port for port, below in enumerate(node.inputs)}
        streams = {stream: port for stream, port in ports.items() if stream is not None}
        join = _Shared(core.join(view, self._resources), core, streams, self._resources, inputs)
        self.joins.append(view)
        self._parts.append(join)
        if not inputs:
            self._sources.append(join)
        return join

    def exchange(self, number: int, output: Output, stage: Stage, resources: Resources) -> Resources:
        """From the next call on another output, of a stage that has been given the same calls, answers for one of the
        windows that are shared. Returns the resources of the output before, to be closed."""
        window = self._windows[number]
        output.consumer, output.follows_time = window.output.consumer, window.output.follows_time
        before = window.resources
        window.output, window.stage, window.resources = output, stage, resources
        return before

    @property
    def is_one_window(self) -> bool:
        """Whether the query is one window that may be shared, and nothing else."""
        return len(self._parts) == len(self._windows) == 1

    @property
    def met(self) -> int:
        """How many rows have come where several inputs meet."""
        return sum(part.met for part in self._parts)

    def stages(self, stream: str) -> Iterator[tuple[Stage, int]]:
        """The shared stages that read a stream, each with the port of the stream."""
        for source in self._sources:
            if isinstance(source, _Shared) and stream in source.ports:
                yield source.stage, source.ports[stream]

    def waits(self, stream: str) -> dict[Hashable, Waits]:
        """What the time of a stream reaches here."""
        found: dict[Hashable, Waits] = {}
        for source in self._sources:
            if isinstance(source, _Shared):
                if stream not in source.ports:
                    continue
                found |= source.waits(source.ports[stream])
            elif source.name != stream:
                continue
            part: _Part = source
            while part.above is not None:
                port, part = part.port, part.above
                found |= part.waits(port)
        return found

    @property
    def next_tick(self) -> int | None:
        """When the local clock next makes a window of this query slide; None if it never does."""
        operators = [part.operator for part in self._parts if isinstance(part, _Operated)]
        return min((o.next_tick for o in operators if isinstance(o, WallClock)), default=None)

    def tick(self, now: int) -> None:
        """The local clock moves on."""
        for part in self._parts:
            if isinstance(part, _Operated):
                part.tick(now)

    def finish(self, last_time: int | None = None) -> None:
        """The end of a bounded run: what the contract promises after the last event, whose time is `last_time` where
        this pipeline has seen only a part of the stream. The stages that the runtime calls have ended."""
        for part in self._parts:
            part.finish(last_time)

    def close(self) -> None:
        self._resources.close()

    def snapshot(self) -> list[dict[str, Any]]:
        return [part.snapshot() for part in self._parts]

    def restore(self, snapshot: list[dict[str, Any]]) -> None:
        """The shared stages have been restored before."""
        for part, saved in zip(self._parts, snapshot, strict=True):
            part.restore(saved)
