"""What the rows of each stream reach: resolved once, until queries come or go.

a stream's rows ─▶ the tables that it writes ─▶ each stage that reads it, once, and the operators of single queries
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.engine.running import Running
from penstock.engine.stepping import Steps, meeting_slides
from penstock.engine.tables.tables import TableSet
from penstock.operators.pipeline import Pipeline
from penstock.operators.stage import Consumer, Stage
from penstock.operators.tables.writer import TableWriter
from penstock.store.budget import Budget


@dataclass(frozen=True, slots=True)
class Route:
    """`steps` are those in which time passes, where windows over the stream meet again in one query."""

    readers: tuple[Running, ...]
    writers: Sequence[TableWriter]
    feeds: Sequence[Consumer]
    steps: Steps | None


class Routes(dict[str, Route]):
    """By the names of the streams. A route is made when it is asked for first."""

    def __init__(self, tables: TableSet, budget: Budget) -> None:
        self._tables = tables
        self._budget = budget
        self._readers: dict[str, tuple[Running, ...]] = {}
        self._steps: dict[str, Steps] = {}

    def note(self, running: Sequence[Running]) -> None:
        """These queries are at work."""
        self.clear()
        streams = set().union(*(one.pipeline.streams for one in running))
        self._readers = {s: tuple(one for one in running if s in one.pipeline.streams) for s in streams}
        self._steps = self._make_steps(running)

    def __missing__(self, stream: str) -> Route:
        readers = self._readers.get(stream, ())
        feeds = tuple(_feeds(stream, readers))
        route = self[stream] = Route(readers, self._tables.writers(stream), feeds, self._steps.get(stream))
        return route

    def _make_steps(self, running: Sequence[Running]) -> dict[str, Steps]:
        meeting = [(one.pipeline, meeting_slides(one.node)) for one in running]
        found: dict[str, Steps] = {}
        for stream in set().union(*(slides for _, slides in meeting)):
            slide = min(slides[stream] for _, slides in meeting if stream in slides)
            pipelines = [pipeline for pipeline, slides in meeting if stream in slides]
            found[stream] = Steps(slide, partial(_rows_met, pipelines), self._budget)
        return found


def _feeds(stream: str, readers: Sequence[Running]) -> Iterator[Consumer]:
    """What takes the rows of a stream: each stage once, and the operators of single queries."""
    called = set[tuple[Stage, int]]()
    for reader in readers:
        for stage, port in reader.pipeline.stages(stream):
            if (stage, port) not in called:
                called.add((stage, port))
                yield partial(stage.take, port=port)
        yield from reader.pipeline.entries.get(stream, ())


def _rows_met(pipelines: Sequence[Pipeline]) -> int:
    return sum(pipeline.met for pipeline in pipelines)
