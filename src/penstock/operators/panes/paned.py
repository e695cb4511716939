"""Aggregation over a window that is made of panes: one query's part of a family."""

from __future__ import annotations

from typing import Any

from penstock.operators.chunk import Chunk
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Receive
from penstock.operators.panes.family import PaneFamily
from penstock.operators.resources import Resources
from penstock.plan.nodes import AggregateNode


class PanedAggregate(Operator):
    def __init__(self, node: AggregateNode, resources: Resources, family: PaneFamily) -> None:
        self.family = family
        self.reader = reader = family.join(node, resources.reject)
        resources.at_end(lambda: family.leave(reader))

    def send_to(self, receive: Receive) -> None:
        self.reader.inbox.receiver = receive

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        return Progress(self.family.process(self.reader, chunk, watermark), watermark)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        return self.family.finish(self.reader, last_time)

    def end(self, last_time: int | None = None) -> int | None:
        return self.family.end(self.reader, last_time)

    def snapshot(self) -> dict[str, Any]:
        """Everything is saved with the family."""
        return {}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The family has been restored before."""
