"""How fast the streams of an app are, in event time: what the planner's estimates begin with once events have come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.components import component
from penstock.operators.chunk import Chunk

LEAST_EVENTS = 1000
"""After fewer events a rate says little, and the planner's default stands."""


@dataclass
class _Span:
    first: int
    last: int
    events: int


@component("Rates")
class Rates:
    """
    >>> import numpy as np
    >>> from penstock.operators.chunk import NO_ROWS
    >>> rates = Rates()
    >>> rates.note("s", [Chunk(np.arange(5001) * 200, NO_ROWS)], 5001)
    >>> rates.of("s"), rates.of("other")
    (5001.0, None)
    """

    def __init__(self) -> None:
        self._spans: dict[str, _Span] = {}

    def note(self, stream: str, chunks: Sequence[Chunk], rows: int) -> None:
        """So many events have passed, in the order of their times, and at least one."""
        span = self._spans.get(stream)
        if span is None:
            first = next(chunk for chunk in chunks if chunk.rows)
            span = self._spans[stream] = _Span(int(first.times[0]), 0, 0)
        last = chunks[-1].times
        span.last = last.item(-1) if len(last) else max(int(chunk.times[-1]) for chunk in chunks if chunk.rows)
        span.events += rows

    def note_rows(self, stream: str, rows: int, last: int) -> None:
        """As `note`, for rows after others; the last row has this time."""
        span = self._spans[stream]
        span.last = last
        span.events += rows

    def of(self, stream: str) -> float | None:
        """Events per second; None while too few have come."""
        span = self._spans.get(stream)
        if span is None or span.events < LEAST_EVENTS or span.last == span.first:
            return None
        return span.events * 1e6 / (span.last - span.first)

    def snapshot(self) -> dict[str, Any]:
        return {name: [span.first, span.last, span.events] for name, span in self._spans.items()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._spans = {name: _Span(*span) for name, span in snapshot.items()}
