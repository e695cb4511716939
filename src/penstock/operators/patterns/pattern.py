"""Patterns: matches of events of one or several streams (`docs/patterns.md` says what they mean).

    rows ─▶ intake: filters and keys ─┬▶ matcher: events in memory ────────────────────┬▶ matches
                                      └▶ paged: events in shards, once memory is short ┘

Nothing is done for an event but to keep it, until one completes a match.

Invariants:
1. Events wait for those of other inputs (`ports`), so that all are seen in the order of (time, input, sequence).
2. Events are in memory or in shards, all of them. From shards none comes back.
3. Matches and their order do not depend on where events are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.arrays import Int64s
from penstock.components import component
from penstock.operators.chunk import CHUNK_ROWS, NO_EVENTS, Chunk, concat
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Outgoing, Receive
from penstock.operators.patterns.candidates import Arrivals, joined
from penstock.operators.patterns.intake import InputIntake
from penstock.operators.patterns.matcher import END, Matcher, Order
from penstock.operators.patterns.paged import PagedPattern, may_page
from penstock.operators.ports import Due, Ports
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.stage import Consumer
from penstock.plan.patterns.nodes import PatternNode

_LEAST_FREE, _MANY_EVENTS = 3, 8
"""Events go to shards when less than the one part of the memory is free, or would be once more come, and what is kept
of them besides their values takes more than the other."""

_LEAST_BYTES = 1 << 17
"""Events that take fewer bytes stay in memory: what is known of shards would take as much."""


def _in_memory(saved: dict[str, Any]) -> dict[str, Any]:
    """Version 1 held all events in memory."""
    matcher = {name: saved[name] for name in ("candidates", "rows", "left")}
    return {"ports": saved["ports"], "seen": saved["seen"], "matcher": matcher, "paged": None}


@component("Pattern", 2, _in_memory)
class Pattern(Operator):
    def __init__(self, name: str, node: PatternNode, resources: Resources) -> None:
        self._name, self._node, self._resources = name, node, resources
        self._schemas = [below.schema.arrow for below in node.inputs]
        self._ports: Ports | None = None
        if len(node.inputs) > 1:
            account = resources.account(f"{name}: rows that wait for the other inputs")
            self._ports = Ports(len(node.inputs), account)
        held = resources.apart()
        resources.at_end(held.close)
        self._account = resources.account(f"{name}: events")
        self._matcher: Matcher | None = Matcher(name, node, held, self._show)
        self._paged: PagedPattern | None = None
        """The events, once they are in shards; then there is no matcher."""
        self._intakes = [InputIntake(number, node.elements, resources) for number in range(len(node.inputs))]
        self._may_page = may_page(node)
        self._seen = 0
        self._outgoing = Outgoing()
        self._send_later: Consumer | None = None

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        if self._ports is None:
            for parts, reached in self._stretches([chunk], watermark):
                self._advance(parts, reached)
            return self._progress(watermark)
        reached = self._ports.put(port, chunk, watermark)
        self._take(self._ports.take_due(), reached)
        return self._progress(reached)

    def send_to(self, receive: Receive) -> None:
        self._outgoing.receiver = receive

    def send_later_to(self, send: Consumer) -> None:
        self._send_later = send

    def _progress(self, reached: int) -> Progress:
        """What has come of a call, and how far time has come: events that wait are yet to be played."""
        paged = self._paged
        if paged is not None and paged.waits:
            reached = min(reached, paged.played_upto)
            if self._send_later is not None and self._play_waiting not in self._resources.later:
                self._resources.later.append(self._play_waiting)
        return Progress(self._outgoing.take(), reached)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        """No more events come: everything that waits for its time is decided."""
        if self._ports is None:
            self._advance([NO_EVENTS], int(END))
        else:
            self._take(self._ports.take(-START), int(END))
        if self._paged is not None:
            self._paged.play(self._outgoing.put)
        return self._outgoing.take()

    def _take(self, due: Due, limit: int) -> None:
        """Takes rows of all inputs that are due; `limit` is how far all have come."""
        rows = [concat(due.get(port, []), schema) for port, schema in enumerate(self._schemas)]
        for parts, reached in self._stretches(rows, limit):
            self._advance(parts, reached)

    def _stretches(self, due: list[Chunk], limit: int) -> Iterator[tuple[list[Chunk], int]]:
        """The rows of all inputs in stretches of their common order, with how far time has come after each. Where many
        events match, stretches are shorter: what is found in one is in memory together."""
        count = sum(chunk.rows for chunk in due)
        if count <= self._stretch:
            yield due, limit
            return
        times = np.concatenate([chunk.times for chunk in due])
        of = np.repeat(np.arange(len(due)), [chunk.rows for chunk in due])
        order = np.argsort(times, kind="stable") if len(due) > 1 else np.arange(count)
        taken, start = [0] * len(due), 0
        while start < count:
            stretch = order[start : start + self._stretch]
            start += len(stretch)
            upto = np.array(taken) + np.bincount(of[stretch], minlength=len(due))
            parts = [chunk.slice(a, int(b)) for chunk, a, b in zip(due, taken, upto, strict=True)]
            taken = upto.tolist()
            yield parts, limit if start == count else min(limit, int(times[stretch[-1]]))

    @property
    def _stretch(self) -> int:
        """How many events are taken together."""
        return CHUNK_ROWS if self._matcher is None else self._matcher.stretch

    def _advance(self, parts: list[Chunk], limit: int) -> None:
        """Takes the next events, some of each input; all before `limit` have come then."""
        positions = self._positions(parts)
        if self._matcher is not None:
            self._matcher.advance(self._arrivals(self._matcher, parts, positions), limit)
            if self._may_page:
                self._page(self._matcher, max(limit, _last_time(parts)))
        elif self._paged is not None:
            for number, (intake, part, own) in enumerate(zip(self._intakes, parts, positions, strict=True)):
                passing = intake.passing(part) if part.rows else None
                if passing is not None:
                    self._paged.add(number, part, passing, own)
            self._paged.reach(self._seen, _last_time(parts), limit)
            if self._paged.has_many:
                self._paged.play(self._outgoing.put)

    def _positions(self, parts: list[Chunk]) -> list[Int64s]:
        """Where the events are in the order of all."""
        count = sum(part.rows for part in parts)
        if len(parts) == 1:
            positions = [self._seen + np.arange(count)]
        else:
            order = np.argsort(np.concatenate([part.times for part in parts]), kind="stable")
            rank = np.empty(count, np.int64)
            rank[order] = np.arange(count)
            positions = np.split(self._seen + rank, np.cumsum([part.rows for part in parts])[:-1])
        self._seen += count
        return positions

    def _arrivals(self, matcher: Matcher, parts: list[Chunk], positions: list[Int64s]) -> Arrivals:
        """The events in the places of elements, in order."""
        found: list[Arrivals] = []
        for intake, part, where, rows in zip(self._intakes, parts, positions, matcher.rows, strict=True):
            if part.rows:
                found += intake.take(part, where, matcher.candidates.groups, rows)
        return joined(found)

    def _show(self, chunk: Chunk, order: Order) -> None:
        self._outgoing.put(chunk)

    # Events page

    def _page(self, matcher: Matcher, reached: int) -> None:
        """Events that leave too little memory for others go to shards. All before the time that is `reached` have come,
        and none that come later are older."""
        account, elements = self._account, len(self._node.elements)
        more = matcher.candidates.growth_for(matcher.stretch * elements)
        if (account.free - more) * _LEAST_FREE > account.total:
            return
        if matcher.nbytes >= max(account.total // _MANY_EVENTS, _LEAST_BYTES):
            self._begin_paging().fill(matcher, self._seen, reached)
            self._forget_events()

    def _begin_paging(self) -> PagedPattern:
        self._paged = PagedPattern(self._name, self._node, self._resources)
        return self._paged

    def _forget_events(self) -> None:
        """The events are in shards: none is kept here."""
        assert self._matcher is not None
        self._matcher.close()
        self._matcher = None

    def _play_waiting(self) -> None:
        if self._paged is not None and self._send_later is not None:
            self._paged.play(self._outgoing.put)
            self._send_later(self._outgoing.take(), self._paged.played_upto)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {
            "ports": None if self._ports is None else self._ports.snapshot(),
            "seen": self._seen,
            "matcher": None if self._matcher is None else self._matcher.snapshot(),
            "paged": None if self._paged is None else self._paged.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        if self._ports is not None:
            self._ports.restore(snapshot["ports"])
        self._seen = snapshot["seen"]
        if snapshot["paged"] is not None:
            self._begin_paging().restore(snapshot["paged"])
            self._forget_events()
        elif self._matcher is not None:
            self._matcher.restore(snapshot["matcher"])


def _last_time(parts: list[Chunk]) -> int:
    return max((int(part.times[-1]) for part in parts if part.rows), default=START)
