"""Aggregation over a sliding window: one query's part of an aggregation, which it may share with others."""

from __future__ import annotations

from typing import Any

from penstock.operators.arguments import Reading
from penstock.operators.changes import Changes
from penstock.operators.chunk import Chunk
from penstock.operators.evaluation import Evaluation
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Receive
from penstock.operators.resources import Resources
from penstock.operators.results import Results
from penstock.operators.shared_aggregation import MakeEvaluation, SharedAggregation
from penstock.plan.aggregations import Look, look_of
from penstock.plan.nodes import AggregateNode


def make_results(
    name: str, node: AggregateNode, reading: Reading, resources: Resources, *, one_group: bool
) -> Evaluation:
    """The evaluation whose shows are results."""
    make = Changes if look_of(node) is Look.CHANGES else Results
    return make(name, node, reading, resources, one_group=one_group)


class SlidingAggregate(Operator):
    """Without a `shared` aggregation the query has one of its own."""

    def __init__(
        self,
        name: str,
        node: AggregateNode,
        resources: Resources,
        shared: SharedAggregation | None = None,
        make_evaluation: MakeEvaluation = make_results,
    ) -> None:
        self._is_own = shared is None
        self._shared = (
            SharedAggregation(name, (node,), resources.apart(), make_evaluation) if shared is None else shared
        )
        self._reader = reader = self._shared.join(node, resources.reject)
        resources.at_end(lambda: self._shared.leave(reader))
        self._lag = node.window.lag

    def send_to(self, receive: Receive) -> None:
        self._reader.inbox.receiver = receive

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        return Progress(self._shared.process(self._reader, chunk, watermark), watermark - self._lag)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        return self._shared.finish(self._reader, last_time)

    def end(self, last_time: int | None = None) -> int | None:
        return self._shared.end(last_time)

    def snapshot(self) -> dict[str, Any]:
        return {
            "aggregation": self._shared.snapshot() if self._is_own else None,
            "show": self._shared.show_of(self._reader).snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """An aggregation that is shared has been restored before."""
        if self._is_own:
            self._shared.restore(snapshot["aggregation"])
        self._shared.show_of(self._reader).restore(snapshot["show"])
