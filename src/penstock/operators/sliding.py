"""Aggregation over the sliding window of one query: over rows of a subquery or a join, or by the local clock.

Invariants:
1. An operator gives back what came of a call: no event waits for another call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.components import component
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


@component("SlidingAggregate")
class SlidingAggregate(Operator):
    def __init__(
        self, name: str, node: AggregateNode, resources: Resources, make_evaluation: MakeEvaluation = make_results
    ) -> None:
        self._waiting: list[Callable[[], None]] = []
        """Plays events that wait."""
        self._aggregation = SharedAggregation(name, (node,), resources.apart(later=self._waiting), make_evaluation)
        self._output = self._aggregation.join(node, resources)
        self._output.consumer = self._take
        self._output.follows_time = False
        self._lag = node.window.lag
        self._came: list[Chunk] = []

    def _take(self, chunks: list[Chunk], reached: int) -> None:
        self._came += chunks

    def _given(self) -> list[Chunk]:
        came, self._came = self._came, []
        return came

    def send_to(self, receive: Receive) -> None:
        self._output.early = receive

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        self._aggregation.window.process(chunk, watermark)
        while self._waiting:
            self._waiting.pop()()
        return Progress(self._given(), watermark - self._lag)

    def waits_for(self, port: int, watermark: int) -> bool:
        return self._aggregation.waits_for(watermark)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        self._aggregation.finish(last_time)
        return self._given()

    def end(self, last_time: int | None = None) -> int | None:
        return self._aggregation.end(last_time)

    def snapshot(self) -> dict[str, Any]:
        return {"aggregation": self._aggregation.snapshot(), "show": self._output.snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._aggregation.restore(snapshot["aggregation"])
        self._output.restore(snapshot["show"])
