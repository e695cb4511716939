"""Windows that slide with the local clock: the window's own operator, driven by ticks in place of the watermark.

    released     1   2   5   8                event times, as the stream hands them on
    clock        ----------|---------|        ticks at the multiples of the slide
    tick at 5    [1   2   )                   what was released by then, with times below 5
    tick at 10   [1   2   5   8     )

Rows with times from the next tick on (their clock is ahead of ours) wait in sorted runs.

Invariants:
1. Every row inside the operator is older than the next tick, and every row that waits is not.
2. A tick takes place once, in order, also after a restart; one that was missed takes place at the next call.

Why: docs/decisions/wall-clock-operator.md
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.components import component
from penstock.operators.chunk import NO_EVENTS, Chunk, joined
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Receive
from penstock.operators.reorder import TIME
from penstock.operators.resources import Resources
from penstock.windows.spec import TimeSlide, last_boundary_upto


@component("WallClock")
class WallClock(Operator):
    """`inner` takes the time of the last tick for the watermark."""

    def __init__(self, name: str, inner: Operator, slide: TimeSlide, resources: Resources) -> None:
        self._inner = inner
        self._slide = slide
        self._last = last_boundary_upto(resources.now, slide)
        self._ahead = resources.runs(f"{name}-ahead", TIME)

    def send_to(self, receive: Receive) -> None:
        self._inner.send_to(receive)

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        upto = int(np.searchsorted(chunk.times, self.next_tick))
        if upto < chunk.rows:
            rest = chunk.slice(upto, chunk.rows)
            self._ahead.add(rest.arrow.append_column(TIME, pa.array(rest.times)))
            chunk = chunk.slice(0, upto)
        return self._inner.process(chunk, self._last)

    def tick(self, now: int) -> Progress:
        """All ticks up to now; where there was none, the time reached is that of the last."""
        if now >= self.next_tick:
            self._last = last_boundary_upto(now, self._slide)
        return self._inner.process(self._overtaken(), self._last)

    def _overtaken(self) -> Chunk:
        """The rows that waited for the clock and need not any more."""
        pieces = self._ahead.take_upto(self.next_tick - 1)
        if not pieces:
            return NO_EVENTS
        rows = joined(pieces)
        times: Int64s = rows.column(TIME).to_numpy()
        return Chunk(times, rows.drop_columns([TIME]))

    @property
    def next_tick(self) -> int:
        return self._last + self._slide.micros

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        """A bounded run ends with the tick that comes next; what is still ahead of the clock then stays out."""
        self._last = self.next_tick
        return self._inner.process(self._overtaken(), self._last).chunks

    def end(self, last_time: int | None = None) -> int | None:
        return self._last

    def snapshot(self) -> dict[str, Any]:
        return {"last": self._last, "inner": self._inner.snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._last = snapshot["last"]
        self._inner.restore(snapshot["inner"])
