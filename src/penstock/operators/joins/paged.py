"""A join whose windows and keys are beyond memory: the rows of each side in a log, by shards of a key that all sides
have in common.

    rows of side 0 ─▶ log 0, by shard ─┐
    rows of side 1 ─▶ log 1, by shard ─┴─▶ for each shard that has got rows:
                                             rows in the windows with keys of waiting events ─▶ index
                                             events, in order ─▶ enter, find, show ─┐
                                                                                    │
                      results in the order of the events ◀── runs of all shards ◀───┘

Events wait until they take a part of the memory, or until the runtime is about to return. Then each shard is read once,
from the beginning of its windows: rows whose keys no waiting event has are passed over. Nothing is kept of a shard but
its rows.

Invariants:
1. Rows that match are in one shard, and so is all that an event finds: an event has the same key on all sides.
2. Rows of events below `_played_upto` have been looked for; the others wait.
3. Answers are those of `operators.joins.core`, and in the same order.
4. The logs of all sides have the same shards.

Why: docs/decisions/joins-in-shards.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.arrays import Int64s
from penstock.components import component
from penstock.expressions.evaluate import is_total
from penstock.lang.query import Emit
from penstock.operators.chunk import Chunk
from penstock.operators.joins.logged import LoggedSide
from penstock.operators.joins.piece import View
from penstock.operators.joins.rows import JoinRows
from penstock.operators.joins.shards import JoinShards, RejectOf, Since
from penstock.operators.paged.log import RowLog
from penstock.operators.resources import Resources
from penstock.plan.joins.placement import keys_by_side
from penstock.plan.nodes import JoinNode
from penstock.windows.spec import Range
from penstock.windows.steps import FOREVER

_BITS = 5
"""There are so many upper bits of the hash by which rows are divided at first."""

_LEAST_FREE = 8
"""Rows that are taken over leave such a part of the memory free."""


def may_page(nodes: Sequence[JoinNode]) -> bool:
    """Joins page where every event is shown what it finds in windows of time, by a key that all sides have. With more
    than two sides rows of different keys may meet on the way, and be rejected if a condition fails on them."""
    if keys_by_side(nodes[0]) is None:
        return False
    windows = [side.window for node in nodes for side in node.sides]
    conditions = [condition.expression for node in nodes for condition in node.conditions]
    return (
        all(window.is_per_event and isinstance(window.extent, Range) for window in windows)
        and all(node.emission.emit is Emit.EVENT_GROUP for node in nodes)
        and (len(nodes[0].sides) == 2 or all(map(is_total, conditions)))
    )


@component("PagedJoin")
class PagedJoin:
    """`kept` and `moments` are the columns of each side that are stored and compared."""

    def __init__(
        self,
        name: str,
        node: JoinNode,
        kept: Sequence[Sequence[str]],
        moments: Sequence[Sequence[str]],
        resources: Resources,
    ) -> None:
        self._name = name
        self._resources = resources.apart()
        resources.at_end(self._resources.close)
        self._account = self._resources.account(f"{name}: rows and results of shards")
        self._device = self._resources.device(f"{name}-shards")
        keys = keys_by_side(node)
        assert keys is not None, "other joins do not page"
        looked_up = [[e.left_keys for e in node.equalities if e.left == place] for place in range(len(node.sides))]
        for e in node.equalities:
            looked_up[e.right].append(e.right_keys)
        self._sides = [
            LoggedSide(node, place, key, list(dict.fromkeys(looked_up[place])), kept[place], moments[place])
            for place, key in enumerate(keys)
        ]
        self._logs = [
            RowLog(
                self._device,
                self._account,
                self._resources.account(f"{name}: rows of side {place} on their way to shards", is_spare=True),
                side.log_schema,
                side.key_types,
                _BITS,
            )
            for place, side in enumerate(self._sides)
        ]
        self._indivisible: set[int] = set()
        self._seen = self._played_upto = 0
        self._last_time = self._last_played = -FOREVER
        self._bytes = 0
        self.waits_since: int | None = None
        """The time of the first event that has not been played; None if there is none."""

    # Rows come

    def fill(self, sides: Sequence[JoinRows]) -> None:
        """Takes over the rows in the windows of a join in memory, which are there until all have been taken."""
        for log, own, rows in zip(self._logs, self._sides, sides, strict=True):
            for times, data, slots in rows.held():
                log.add(times, own.of_held(rows, times, data, slots))
                if self._account.free * _LEAST_FREE < self._account.total:
                    log.flush()
                self._last_time = max(self._last_time, int(times[-1]))
        self._last_played = self._last_time

    def add(self, chunks: Sequence[Chunk], times: Int64s, ports: Int64s) -> None:
        """Events behind all others: those of each input, and the input of each."""
        if len(times) == 0:
            return
        if self.waits_since is None:
            self.waits_since, self._bytes = int(times[0]), self._bytes_added
        numbers = np.arange(self._seen, self._seen + len(times))
        for log, side in zip(self._logs, self._sides, strict=True):
            log.add(*side.of(chunks[side.input], numbers[ports == side.input]))
        self._seen, self._last_time = self._seen + len(times), int(times[-1])

    @property
    def _bytes_added(self) -> int:
        return sum(log.bytes_added for log in self._logs)

    @property
    def has_many(self) -> bool:
        """Whether so many rows wait that they are to be played."""
        return self.waits_since is not None and self._bytes_added - self._bytes >= self._account.total

    # Events are played

    def play(self, views: Sequence[View], reject: RejectOf) -> None:
        """Plays the events that wait and gives their results to the views, and what they reject to `reject`."""
        if self.waits_since is None:
            return
        for log in self._logs:
            log.flush()
        lengths = _lengths([view.node for view in views])
        since = Since(self._played_upto, self._last_played, lengths)
        shards = JoinShards(self._name, self._sides, self._logs, self._indivisible, self._resources, self._device)
        for view, batches in shards.play(views, since, reject):
            for rows in batches:
                view.outgoing.put(rows)
        self._played_upto, self._last_played = self._seen, self._last_time
        self.waits_since = None
        for log, length in zip(self._logs, lengths, strict=True):
            for number in range(log.shards):
                log.release(number, self._last_played - length + 1)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        """No event waits."""
        return {
            "logs": [log.snapshot() for log in self._logs],
            "indivisible": np.array(sorted(self._indivisible), np.int64),
            "played_upto": self._played_upto,
            "last_played": self._last_played,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        for log, saved in zip(self._logs, snapshot["logs"], strict=True):
            log.restore(saved)
        self._indivisible = set(snapshot["indivisible"].tolist())
        self._seen = self._played_upto = snapshot["played_upto"]
        self._last_time = self._last_played = snapshot["last_played"]


def _lengths(nodes: Sequence[JoinNode]) -> list[int]:
    """How long the rows of each side are in some window, in microseconds."""
    longest = []
    for place in range(len(nodes[0].sides)):
        extents = [node.sides[place].window.extent for node in nodes]
        longest.append(max(extent.micros for extent in extents if isinstance(extent, Range)))
    return longest
