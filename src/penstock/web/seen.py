"""A running application as the app view shows it, embedded or on Spark, with the history of its rates.

A thread of its own looks once a second; pages read what it has seen, so that any number of tabs costs the app no more.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.errors import PenstockError
from penstock.lang.query import Program
from penstock.store.manager import StoreUse

EVERY_SECONDS = 1.0
_POINTS = 600


@dataclass(frozen=True)
class StreamSeen:
    name: str
    events: int
    late: int
    held: int
    watermark: int | None


@dataclass(frozen=True)
class QuerySeen:
    """`windows` are written as in the query; `kept` says how, and for how many other queries too."""

    name: str
    text: str
    windows: tuple[str, ...]
    results: int | None
    kept: str
    sharers: int
    into: str


@dataclass(frozen=True)
class MemorySeen:
    """Bytes. `pool` are the blocks of windows, which give way to other needs; `held` is by holder."""

    used: int
    pool: int
    peak: int
    budget: int
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TableSeen:
    """Rows in memory, previous ones for readers that are behind, those that have expired, and how long ago in event
    time, in microseconds, the oldest was written; None without a time to live."""

    name: str
    rows: int
    past: int
    expired: int
    retention: int | None


@dataclass(frozen=True)
class Seen:
    """`figures` are more facts of the engine, by name, as text."""

    engine: str
    state: str
    program: Program
    events: int
    results: int
    late: int
    rejected: int
    watermark: int | None
    streams: tuple[StreamSeen, ...]
    queries: tuple[QuerySeen, ...]
    memory: MemorySeen | None
    stores: tuple[StoreUse, ...]
    rejects: tuple[tuple[str, str], ...]
    figures: Mapping[str, str]
    tables: tuple[TableSeen, ...] = ()


@dataclass(frozen=True)
class Point:
    """`at` is seconds since the epoch; rates are per second since the point before."""

    at: float
    events: float
    results: float
    memory: int


class Watched:
    """Looks until the app has ended or `stop` is called. `look` answers None when the app is gone."""

    def __init__(self, name: str, look: Callable[[], Seen | None]) -> None:
        self.name = name
        self._look = look
        self._seen = self._first()
        self._points: deque[Point] = deque(maxlen=_POINTS)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"penstock-look-{name}", daemon=True)

    def _first(self) -> Seen:
        seen = self._look()
        if seen is None:
            raise PenstockError("the app is gone")
        return seen

    def start(self) -> Watched:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._ended.set()

    @property
    def seen(self) -> Seen:
        """What was seen last."""
        return self._seen

    @property
    def points(self) -> list[Point]:
        return list(self._points)

    def _watch(self) -> None:
        before, last = time.monotonic(), self._seen
        while not self._ended.wait(EVERY_SECONDS):
            try:
                seen = self._look()
            except PenstockError:
                continue
            if seen is None:
                break
            now = time.monotonic()
            passed = now - before
            rates = (seen.events - last.events) / passed, (seen.results - last.results) / passed
            self._points.append(Point(time.time(), *rates, 0 if seen.memory is None else seen.memory.used))
            self._seen, before, last = seen, now, seen
            if seen.state in ("closed", "failed"):
                break
