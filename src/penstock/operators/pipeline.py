"""One query at work: its plan's operators, fed from the streams it reads.

`push` takes a run of one stream's events in order, with the watermark that stream has reached, and returns the
query's results and the time they have reached. Who orders the events, and who commits, is the runtime's affair.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.operators.chunk import Chunk, concat
from penstock.operators.closing import ClosingAggregate
from penstock.operators.operator import Operator, Progress
from penstock.operators.partitioned import PartitionedAggregate
from penstock.operators.project import Project
from penstock.operators.relation import WindowRelation
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.sliding import SlidingAggregate
from penstock.operators.union import Union
from penstock.plan.nodes import AggregateNode, Node, ProjectNode, RelationNode, StreamNode, UnionNode, children, streams
from penstock.plan.strategy import closes_as_a_whole


@dataclass
class _Stage:
    """An operator and the stages that feed it; the stages of streams have no operator."""

    operator: Operator | None
    stream: str | None
    inputs: list[_Stage] = field(default_factory=list)


class Pipeline:
    """Made with resources of its own, which `close` gives back."""

    def __init__(self, name: str, node: Node, resources: Resources) -> None:
        self.name = name
        self._resources = resources
        self.schema = node.schema
        self.streams = streams(node)
        self._operators: list[Operator] = []
        self._root = self._build(node, resources)
        self._reached = START

    def _build(self, node: Node, resources: Resources) -> _Stage:
        inputs = [self._build(child, resources) for child in children(node)]
        if isinstance(node, StreamNode):
            return _Stage(None, node.name)
        operator = make_operator(f"{self.name}-{len(self._operators)}", node, resources)
        self._operators.append(operator)
        return _Stage(operator, None, inputs)

    def push(self, stream: str, chunk: Chunk, watermark: int) -> Progress:
        pieces: list[Chunk] = []
        for progress in self._push(self._root, stream, chunk, watermark):
            pieces.append(progress.chunk)
            self._reached = max(self._reached, progress.watermark)
        return Progress(concat(pieces, self.schema.arrow), self._reached)

    def _push(self, stage: _Stage, stream: str, chunk: Chunk, watermark: int) -> list[Progress]:
        if stage.operator is None:
            return [Progress(chunk, watermark)] if stage.stream == stream else []
        return [
            stage.operator.process(progress.chunk, progress.watermark, port)
            for port, below in enumerate(stage.inputs)
            for progress in self._push(below, stream, chunk, watermark)
        ]

    def finish(self, last_time: int | None = None) -> Chunk:
        """The end of a bounded run: what the contract promises after the last event, whose time is `last_time` where
        this pipeline has seen only a part of the stream."""
        return self._finish(self._root, last_time)

    def _finish(self, stage: _Stage, last_time: int | None) -> Chunk:
        pieces: list[Chunk] = []
        assert stage.operator is not None, "a query is more than a stream"
        for port, below in enumerate(stage.inputs):
            if below.operator is not None:
                last = self._finish(below, last_time)
                last_time = None
                reached = int(last.times[-1]) if last.rows else START
                pieces.append(stage.operator.process(last, reached, port).chunk)
        pieces.append(stage.operator.finish(last_time))
        return concat(pieces, pieces[-1].columns.schema)

    def close(self) -> None:
        self._resources.close()

    def snapshot(self) -> dict[str, Any]:
        return {"operators": [o.snapshot() for o in self._operators], "reached": self._reached}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._reached = snapshot["reached"]
        for operator, saved in zip(self._operators, snapshot["operators"], strict=True):
            operator.restore(saved)


def make_operator(name: str, node: Node, resources: Resources) -> Operator:
    if isinstance(node, UnionNode):
        return Union(name, node, resources)
    if isinstance(node, ProjectNode):
        return Project(node, resources)
    if isinstance(node, RelationNode):
        return WindowRelation(name, node, resources)
    assert isinstance(node, AggregateNode)
    if closes_as_a_whole(node):
        return ClosingAggregate(name, node, resources)
    if node.partition_by:
        return PartitionedAggregate(name, node, resources)
    return SlidingAggregate(name, node, resources)
