"""Single events that linger for others: a batch of a few events costs the engine hardly more than one event.

Invariant: events are taken in the order in which they were added.
"""

from __future__ import annotations

import time
from typing import Any

from penstock.engine.ingest import holds_columns

MOST = 4096
"""So many events are processed even before their time is up."""


class LingeringEvents:
    """`linger` is in seconds; without it no event waits.

    >>> lingering = LingeringEvents(linger=60.0)
    >>> lingering.takes({"x": 1}), lingering.add("s", {"x": 1}), lingering.add("s", {"x": 2})
    (True, False, False)
    >>> lingering.take()
    [('s', [{'x': 1}, {'x': 2}])]
    """

    def __init__(self, linger: float) -> None:
        self._linger = int(linger * 1_000_000_000)
        self.is_used = self._linger > 0
        """Whether events may wait at all."""
        self._events: list[tuple[str, list[dict[str, Any]]]] = []
        self._count = 0
        self._since = 0

    def takes(self, data: Any) -> bool:
        return isinstance(data, dict) and not holds_columns(data)

    def add(self, stream: str, event: dict[str, Any]) -> bool:
        """Keeps an event; returns whether the oldest has waited long enough."""
        now = time.perf_counter_ns()
        if not self._events:
            self._since = now
        if not self._events or self._events[-1][0] != stream:
            self._events.append((stream, []))
        self._events[-1][1].append(event)
        self._count += 1
        return now - self._since >= self._linger or self._count >= MOST

    def take(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """All lingering events, as runs of events of one stream."""
        if not self._events:
            return []
        taken, self._events, self._count = self._events, [], 0
        return taken
