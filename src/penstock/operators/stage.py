"""A stage serves several queries and is called once for each chunk; it pushes the rows of each query to its output.

    stream or stage ─▶ stage ─┬▶ output of query 1 ─▶ consumer: the operator above, or the end of the query
                              ├▶ output of query 2 ─▶ ...
                              └▶ ...

Stages are stored windows with their aggregations, families of panes and cores of joins. An operator (`operator`) has
one output and gives its rows back; what feeds it hands them on.

Invariants:
1. A stage gets every call of its inputs once, and sends what came of a call to the outputs before the call ends.
2. The rows of an output come in order, and with them the time that they have reached.

Why: docs/decisions/stages-push.md
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from penstock.operators.chunk import NO_EVENTS, Chunk
from penstock.operators.outgoing import Receive
from penstock.rejects import Reject

Consumer = Callable[[list[Chunk], int], None]
"""Takes rows in order, and the time before which no more come."""


class Output:
    """The rows of a stage for one query. `consumer` takes them, `reject` its rejects. `early` takes large results while
    the stage is at work; without it they go to the consumer. If the consumer does not follow time, a call without rows
    does not reach it."""

    __slots__ = ("consumer", "early", "follows_time", "reject")

    def __init__(self, reject: Reject) -> None:
        self.reject = reject
        self.consumer: Consumer = _nowhere
        self.early: Receive | None = None
        self.follows_time = True

    def send(self, chunks: list[Chunk], reached: int) -> None:
        """What came of a call."""
        if chunks or self.follows_time:
            self.consumer(chunks, reached)

    def send_rows(self, chunks: list[Chunk]) -> None:
        """Large results of a call that is still at work, or the last ones of a bounded run: time goes no further than
        the last row."""
        if self.early is not None:
            self.early(chunks)
        else:
            self.consumer(chunks, int(chunks[-1].times[-1]))

    def end(self, last_time: int | None) -> int | None:
        """The last boundary of a bounded run that is finished; None where there is none."""
        return None

    def snapshot(self) -> dict[str, Any]:
        """What the stage keeps for this query alone."""
        return {}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The stage has been restored before."""


class Stage(ABC):
    @abstractmethod
    def finish(self, last_time: int | None) -> None:
        """The end of a bounded run: everything that the contract promises after the last event goes out. `last_time` is
        the time of the stream's last event where the stage has seen only a part of it."""

    @abstractmethod
    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> None:
        """Takes rows of an input in order, perhaps none, and the time that it has reached."""

    def take(self, chunks: list[Chunk], watermark: int, port: int = 0) -> None:
        for chunk, reached in moves(chunks, watermark):
            self.process(chunk, reached, port)

    def waits_for(self, port: int, watermark: int) -> bool:
        """Whether a call without rows, which tells only that this input reaches `watermark`, can give results. If not,
        the call may be left out: the time comes with the next rows."""
        return True


def moves(chunks: list[Chunk], watermark: int) -> Iterator[tuple[Chunk, int]]:
    """The calls by which rows are handed on: the watermark moves with the rows."""
    if not chunks:
        yield NO_EVENTS, watermark
        return
    for chunk in chunks[:-1]:
        if chunk.rows:
            yield chunk, min(watermark, int(chunk.times[-1]))
    yield chunks[-1], watermark


def _nowhere(chunks: list[Chunk], reached: int) -> None:
    pass
