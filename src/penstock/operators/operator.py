"""What an operator is to the pipeline that feeds it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from penstock.expressions.scalar import RowFunction
from penstock.operators.chunk import Chunk
from penstock.operators.outgoing import Receive
from penstock.operators.stage import Consumer


class Progress(NamedTuple):
    """The results, in order. All later results have a time of at least `watermark`."""

    chunks: list[Chunk]
    watermark: int


class Operator(ABC):
    """Takes runs of events in order, one call after the other, and gives results in order.

    `process` may be called with no rows, for the watermark alone. `finish` ends a bounded run: everything that the
    contract promises after the last event comes out; `last_time` is the time of the stream's last event where the
    operator has seen only a part of it. `port` tells the inputs of a union apart.

    A single row (`expressions.batch.Row`) at port 0 need not come if `row_filter` does not hold for it and its time has
    been told. Such rows are counted in `left_out`.
    """

    row_filter: RowFunction | None = None
    left_out = 0

    def send_to(self, receive: Receive) -> None:  # noqa: B027
        """Many results of one call go there while it is at work, before those that it returns (`outgoing`). An operator
        that makes at most as many rows as it gets does not use it."""

    def send_later_to(self, send: Consumer) -> None:  # noqa: B027
        """What comes of events that have waited goes there, with the time it has reached, before the runtime returns
        (`Resources.later`). An operator whose events do not wait does not use it."""

    @abstractmethod
    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress: ...

    @property
    def heeds_time(self) -> bool:
        """Whether it can ever wait for time alone."""
        return True

    def waits_for(self, port: int, watermark: int) -> bool:
        """Whether a call without rows, which tells only that this input reaches `watermark`, can give results. If not,
        the call may be left out: the time comes with the next rows."""
        return True

    @abstractmethod
    def finish(self, last_time: int | None = None) -> list[Chunk]: ...

    def end(self, last_time: int | None = None) -> int | None:
        """The last boundary of a bounded run that is finished; None where there is none. For windows by time alone."""
        return None

    @abstractmethod
    def snapshot(self) -> dict[str, Any]: ...

    @abstractmethod
    def restore(self, snapshot: dict[str, Any]) -> None: ...
