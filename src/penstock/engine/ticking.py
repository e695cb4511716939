"""Which queries slide now by the local clock: a calendar of the windows ON WALL CLOCK.

The calendar names candidates, at a cost that does not grow with the number of queries; whether one is due is what its
own windows say, for they know which ticks took place before a restart. `Flow` calls.

Invariants:
1. A query whose next tick is not after the calendar's position is in `_behind`: it was restored with ticks that it
   missed, or was started while the clock stood before the last tick.
2. Queries are named in the order in which they were started.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Protocol

from penstock.plan.nodes import Node, walk
from penstock.windows.sliding.calendar import Calendar
from penstock.windows.spec import TimeSlide


class TickingQuery(Protocol):
    """A query at work, as far as the clock is concerned."""

    @property
    def next_tick(self) -> int | None: ...


class Ticking:
    def __init__(self, now: int) -> None:
        self._calendar = Calendar(now, local_time=True)
        self._numbers = count()
        self._entries: dict[str, list[int]] = {}
        self._names: dict[int, str] = {}
        self._clocked: dict[str, TickingQuery] = {}
        self._behind: set[str] = set()

    @property
    def next_tick(self) -> int | None:
        """The local time at which a window may slide next; None if none ever does."""
        if not self._clocked:
            return None
        ticks = [self._calendar.next_due, *(self._clocked[name].next_tick for name in self._behind)]
        return min((tick for tick in ticks if tick is not None), default=None)

    def add(self, name: str, node: Node, clocked: TickingQuery) -> None:
        """A query has started; one without windows that follow the clock is passed over."""
        slides = list(wall_clock_slides(node))
        if not slides:
            return
        self._clocked[name] = clocked
        self._entries[name] = [next(self._numbers) for _ in slides]
        for number, slide in zip(self._entries[name], slides, strict=True):
            self._calendar.register(number, slide.micros, slide.offset)
            self._names[number] = name
        self._note_behind(name)

    def drop(self, name: str) -> None:
        for number in self._entries.pop(name, ()):
            self._calendar.remove(number)
            del self._names[number]
        self._clocked.pop(name, None)
        self._behind.discard(name)

    def restored(self) -> None:
        """Queries have taken up where they were: ticks that they missed are due."""
        for name in self._clocked:
            self._note_behind(name)

    def due(self, now: int) -> list[str]:
        """The queries that slide now, each once; it is up to them to make up for all ticks they missed."""
        overtaken = {self._names[number] for number in self._calendar.overtaken(now).tolist()}
        candidates = sorted(overtaken | self._behind, key=lambda name: self._entries[name])
        ready = [name for name in candidates if _is_due(self._clocked[name], now)]
        # After the clock was set back, the next tick of one that slides now may still be behind the calendar.
        self._behind = set(candidates) if now < self._calendar.position else set(candidates).difference(ready)
        return ready

    def _note_behind(self, name: str) -> None:
        if _is_due(self._clocked[name], self._calendar.position):
            self._behind.add(name)


def _is_due(clocked: TickingQuery, now: int) -> bool:
    return clocked.next_tick is not None and clocked.next_tick <= now


def wall_clock_slides(node: Node) -> Iterator[TimeSlide]:
    """The slides of a plan's windows that follow the local clock."""
    for below in walk(node):
        slide = None if below.own_window is None else below.own_window.wall_clock_slide
        if slide is not None:
            yield slide
