"""The watermark of a derived stream without rows is passed on only where an operator waits for it.

A query without results still reports how far its stream has come. Most readers do not need that: a projection, a window
at every event, a look-up that holds no row back. So such a time is *held*, and the readers of that stream, and of the
streams that derive from it, are not called. It is passed on with the next rows, or as soon as an operator waits for it
(`Operator.waits_for`, `Stage.waits_for`).

Invariants:
1. No result depends on it: a time is held only while every operator that it would reach says that it gives no result.
2. When a call of the flow returns, no operator waits for a time that is held.

Why: docs/decisions/quiet-time.md
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from penstock.engine.routes import Routes
from penstock.engine.running import Running
from penstock.engine.tables.tables import TableSet
from penstock.operators.pipeline import Waits


class QuietTime:
    def __init__(self) -> None:
        self._held: dict[str, int] = {}
        self._reached: dict[str, dict[Hashable, Waits] | None] = {}
        """For each derived stream what may wait for its time; None where each time is handed on."""
        self._touched: dict[str, frozenset[Hashable]] = {}
        """For each stream what its rows reach before their results become another stream."""
        self.stirred: set[str] = set()
        """Streams of which rows have passed. The operators that they reach may wait from now on; those that the results
        of these reach are stirred by the stream of the results."""
        self._asked: dict[frozenset[str], dict[str, list[Waits]]] = {}
        """For streams that were stirred together what may wait from then on, by the stream whose time it waits for."""

    def note(self, running: Sequence[Running], routes: Routes, tables: TableSet) -> None:
        """These queries are at work. Queries read only streams that were there before them, so the last ones come
        first here."""
        self._reached = {}
        for one in reversed(running):
            if one.feeds is not None and one.feeds not in self._reached:
                found = self._waiting(one.feeds, routes[one.feeds].readers)
                self._reached[one.feeds] = None if found is None else found | tables.waits(one.feeds)
        self._held = {stream: time for stream, time in self._held.items() if stream in self._reached}
        self._touched = {}
        for stream in {stream for one in running for stream in one.pipeline.streams}:
            pipelines = [reader.pipeline for reader in routes[stream].readers]
            own = [pipeline.waits(read) for pipeline in pipelines for read in pipeline.streams]
            self._touched[stream] = frozenset(tables.waits(stream)).union(*own)
        self.stirred = set(self._touched)
        self._asked.clear()

    def _waiting(self, stream: str, readers: Sequence[Running]) -> dict[Hashable, Waits] | None:
        found: dict[Hashable, Waits] = {}
        for reader in readers:
            found |= reader.pipeline.waits(stream)
            if reader.feeds is not None:
                beyond = self._reached.get(reader.feeds)
                if beyond is None:
                    return None
                found |= beyond
        return found

    def is_stirred_by(self, stream: str) -> bool:
        """Whether rows of a stream reach operators that may wait for the time of a derived stream."""
        return bool(self._asked_after(frozenset([stream])))

    def is_quiet(self, stream: str, watermark: int) -> bool:
        """Whether no operator waits for this time of the stream."""
        reached = self._reached.get(stream)
        if reached is None:
            return False
        for waits in reached.values():  # noqa: SIM110 - asked for every event, so without a generator
            if waits(watermark):
                return False
        return True

    def is_held(self, stream: str, watermark: int) -> bool:
        """Whether this time of the stream is held. It was quiet then, and `due` finds it where that has changed."""
        return self._held.get(stream) == watermark

    def hold(self, stream: str, watermark: int) -> None:
        self._held[stream] = watermark

    def handed_on(self, stream: str) -> None:
        self._held.pop(stream, None)

    def due(self) -> tuple[str, int] | None:
        """A stream whose time is waited for by now, and that time."""
        stirred = frozenset(self.stirred)
        asked = self._asked.get(stirred)
        if asked is None:
            asked = self._asked[stirred] = self._asked_after(stirred)
        if asked:
            for stream, watermark in self._held.items():
                for waits in asked.get(stream, ()):
                    if waits(watermark):
                        return stream, watermark
        self.stirred.clear()
        return None

    def _asked_after(self, stirred: frozenset[str]) -> dict[str, list[Waits]]:
        nothing = frozenset[Hashable]()
        touched = nothing.union(*(self._touched.get(stream, nothing) for stream in stirred))
        asked = {
            stream: [waits for key, waits in (reached or {}).items() if key in touched]
            for stream, reached in self._reached.items()
        }
        return {stream: waits for stream, waits in asked.items() if waits}

    def take(self) -> dict[str, int]:
        """All times that are held; they are handed on now."""
        held, self._held = self._held, {}
        return held
