"""A pattern whose events and keys are beyond memory: the events of each input in a log, by shards of the key that all
elements have in common.

    events of input 0 ─▶ log 0, by shard ─┐
    events of input 1 ─▶ log 1, by shard ─┼─▶ for each shard in which matches end:
    events that have served, by shard ────┘     its events with keys of these matches ─▶ matcher ─▶ matches ─┐
                         ▲                                                    │                              │
                         └───────────── what has served now ◀─────────────────┘                              │
                                                                                                             │
                                    matches in their order ◀──────────── runs of all shards ◀────────────────┘

Events that complete a match wait until they take a part of the memory, or until the runtime is about to return. Then
each shard is read once, from the time on that its first match may have begun at. Nothing is kept of a shard but its
events, and which of them have served.

Invariants:
1. Events that match are in one shard, and so are those that must not come between them: all have the same key.
2. Events and times below `_played` have been played. What does not end a match needs no playing.
3. Matches are those of `Matcher`, in the same order.
4. All logs have the same shards.

Why: docs/decisions/patterns-in-shards.md
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.arrays import Int64s
from penstock.components import component
from penstock.operators.chunk import CHUNK_ROWS, Chunk
from penstock.operators.paged.log import RowLog
from penstock.operators.patterns.intake import Passing
from penstock.operators.patterns.logged import MOST_ELEMENTS, LoggedInput, LoggedKey
from penstock.operators.patterns.matcher import Matcher
from penstock.operators.patterns.served import Served, is_noted
from penstock.operators.patterns.shards import Logs, PatternShards, Played
from penstock.operators.resources import Resources
from penstock.plan.patterns.nodes import PatternNode
from penstock.windows.steps import FOREVER

_BITS = 5
"""There are so many upper bits of the hash by which rows are divided at first."""

_LEAST_FREE = 8
"""Events that are taken over leave such a part of the memory free."""


def may_page(node: PatternNode) -> bool:
    """Patterns page whose elements all have a key in common, the same for those that read the same input."""
    keys: dict[int, Any] = {}
    for element in node.elements:
        if not element.keys or keys.setdefault(element.input, element.keys) != element.keys:
            return False
    return len(node.elements) <= MOST_ELEMENTS


@component("PagedPattern")
class PagedPattern:
    def __init__(self, name: str, node: PatternNode, resources: Resources) -> None:
        self._name, self._node = name, node
        self._resources = resources.apart()
        resources.at_end(self._resources.close)
        self._account = self._resources.account(f"{name}: rows of shards")
        self._device = self._resources.device(f"{name}-shards")
        self._key = LoggedKey(node)
        self._inputs = [LoggedInput(node, number, self._key) for number in range(len(node.inputs))]
        inputs = [self._log(f"events of input {own.number}", own.log_schema) for own in self._inputs]
        served = self._log("events that have served", self._key.served_schema) if is_noted(node) else None
        self._logs = Logs(inputs, served)
        self._keep = max(element.keep for element in node.elements)
        self._ends_later = any(order.waits for order in node.orders)
        self._indivisible: set[int] = set()
        self._played = self._come = Played(0, -FOREVER, -FOREVER)
        """How far events have been played, and how far they have come."""
        self._first_staged = FOREVER
        """No event is older that may not be on the device yet."""
        self._has_ends = False
        """Whether events wait that complete matches."""
        self._bytes = 0

    def _log(self, what: str, schema: Any) -> RowLog:
        staged = self._resources.account(f"{self._name}: {what} on their way to shards", is_spare=True)
        return RowLog(self._device, self._account, staged, schema, self._key.types, _BITS)

    # Events come

    def fill(self, matcher: Matcher, seen: int, reached: int) -> None:
        """Takes over the events of a pattern in memory, which are there until all have been taken. All matches have
        been found that end with one of the `seen` events, or before the time that is `reached`."""
        candidates = matcher.candidates
        for nodes in candidates.runs(CHUNK_ROWS):
            for own, log, store in zip(self._inputs, self._logs.inputs, matcher.rows, strict=True):
                found = own.of_nodes(candidates, nodes, store)
                if found is not None:
                    log.add(*found)
                    self._make_free(log)
        if self._logs.served is not None:
            for columns in Served((), self._account).added(candidates, self._key, self._node.apart):
                self._logs.served.add(np.full(len(columns[0]), reached), columns)
                self._make_free(self._logs.served)
        for log in self._logs.all:
            log.flush()
        self._played = self._come = Played(seen, reached, reached)

    def _make_free(self, log: RowLog) -> None:
        if self._account.free * _LEAST_FREE < self._account.total:
            log.flush()

    def add(self, number: int, chunk: Chunk, passing: Passing, positions: Int64s) -> None:
        """Events of an input behind all others, of which those that are passing are kept."""
        own = self._inputs[number]
        kept, columns = own.of(chunk, passing, positions)
        self._logs.inputs[number].add(kept.times, columns)
        self._first_staged = min(self._first_staged, int(kept.times[0]))
        self._has_ends = self._has_ends or any(
            own.completes >> element & 1 and keep.any() for element, _, keep in passing.places
        )

    def reach(self, seen: int, time: int, limit: int) -> None:
        """So many events have come, the last at this time, and all before `limit`."""
        time = max(time, self._come.time)
        self._come = Played(seen, time, max(limit, time, self._come.reached))
        if not self._has_ends and not self._is_over:
            self._played = self._come

    @property
    def _is_over(self) -> bool:
        """Whether the time of a match may be over that has not been found."""
        if not self._ends_later or self._come.reached == self._played.reached:
            return False
        within = self._node.within
        least, before = self._played.reached - within + 1, self._come.reached - within + 1
        return self._first_staged < before or any(
            log.count(number, least, before) for log in self._logs.inputs for number in range(log.shards)
        )

    @property
    def waits(self) -> bool:
        """Whether matches are yet to be looked for."""
        return self._played != self._come

    @property
    def played_upto(self) -> int:
        """No match with an earlier time is yet to come."""
        return self._played.reached

    @property
    def _bytes_added(self) -> int:
        return sum(log.bytes_added for log in self._logs.inputs)

    @property
    def has_many(self) -> bool:
        """Whether so many events have come that they are to be played, or old ones to be let go."""
        return self._bytes_added - self._bytes >= self._account.total

    # Events are played

    def play(self, put: Callable[[Chunk], None]) -> None:
        """Plays what waits and gives the matches, in order. Events that no match can have any more leave."""
        for log in self._logs.all:
            log.flush()
        self._first_staged, self._bytes = FOREVER, self._bytes_added
        if self.waits:
            shards = PatternShards(
                self._name,
                self._node,
                self._inputs,
                self._key,
                self._logs,
                self._indivisible,
                self._resources,
                self._device,
            )
            for chunk in shards.play(self._played, self._come):
                put(chunk)
            self._played, self._has_ends = self._come, False
        for log in self._logs.all:
            for number in range(log.shards):
                log.release(number, self._played.reached - self._keep + 1)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        """Nothing waits."""
        return {
            "inputs": [log.snapshot() for log in self._logs.inputs],
            "served": None if self._logs.served is None else self._logs.served.snapshot(),
            "indivisible": np.array(sorted(self._indivisible), np.int64),
            "played": list(self._played),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        for log, saved in zip(self._logs.inputs, snapshot["inputs"], strict=True):
            log.restore(saved)
        if self._logs.served is not None:
            self._logs.served.restore(snapshot["served"])
        self._indivisible = set(snapshot["indivisible"].tolist())
        self._played = self._come = Played(*snapshot["played"])
