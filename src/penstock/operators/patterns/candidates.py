"""The events that may become part of a match: one node for each event and element it can stand for.

Nodes are in a ring, in the order of their events, with links to the nodes that came before them under the same key (see
`kernels`). They leave by time from the ring's tail, without being looked for.

Invariants:
1. Node numbers rise by one; those in [tail, stop) are in the ring. A link to a node before the tail is the end.
2. Nodes of one event are next to each other and have one position; no link leads to a node of the same event.
3. Slot 0 is that of elements without a key; slot k + 1 belongs to group k of `groups`, as long as that has nodes.
4. Nodes, keys and what is kept for each key are on the account before they are taken.
5. The deadline of nodes in [tail, due) has passed. Matches that wait for a deadline begin with one of these nodes; each
   such node was handed out once, at its deadline.

Why: docs/decisions/patterns-backwards.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.operators.groups import GroupTable
from penstock.operators.patterns import kernels
from penstock.operators.resources import Resources
from penstock.plan.patterns.nodes import PatternNode
from penstock.store.charged import ChargedArray
from penstock.store.own_memory import zeros

_SMALLEST = 1024


class Arrivals(NamedTuple):
    """Events in the places of elements, in the order of (position, element); slots are those of the ring."""

    times: Int64s
    positions: Int64s
    elements: Int64s
    slots: Slots
    rows: Int64s


_NOTHING = np.empty(0, np.int64)
NO_ARRIVALS = Arrivals(_NOTHING, _NOTHING, _NOTHING, np.empty(0, np.int32), _NOTHING)


def joined(parts: list[Arrivals]) -> Arrivals:
    """All of them, in order. Parts with the same events are given in the order of their elements."""
    if len(parts) < 2:
        return parts[0] if parts else NO_ARRIVALS
    times, positions, elements, slots, rows = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(positions, kind="stable")
    return Arrivals(times[order], positions[order], elements[order], slots[order], rows[order])


class Due(NamedTuple):
    """Nodes whose time is over, and the newest nodes of all elements, under their keys, when it was."""

    nodes: Int64s
    heads: Int64s


@component("Candidates")
class Candidates:
    def __init__(self, name: str, node: PatternNode, resources: Resources) -> None:
        elements = node.elements
        self._account = account = resources.account(f"{name}: events that may match")
        self.groups = GroupTable(next((tuple(k.type for k in e.keys) for e in elements if e.keys), ()), account)
        self._within = node.within
        self._keep = max(element.keep for element in elements)
        self._keyed = np.array([bool(element.keys) for element in elements])
        self._inputs = np.array([element.input for element in elements], np.int64)
        self._waits = np.zeros(len(elements), np.bool_)
        for order in node.orders:
            self._waits[order.plain[0]] |= order.waits
        self._any_waits = bool(self._waits.any())
        self.tail = self.stop = self._due = 0
        self._ring_bytes = 0
        self._make(_SMALLEST)
        self._of_keys = (
            ChargedArray(account, np.int64, (len(elements),), fill=-1),
            ChargedArray(account, np.int64),
            ChargedArray(account, np.int64, fill=-1),
        )
        """For each slot the newest node of each element, how many nodes it has, and up to where they are taken."""
        self._fit_keys()

    def _fit_keys(self) -> None:
        """Each slot has a place. What all arrays need is asked for together, so that a refusal says all of it."""
        slots, have = self.groups.capacity + 1, len(self._counts)
        if slots > have:
            more = (slots - have) * 8 * (len(self._keyed) + 2)
            self._account.charge(more)
            self._account.release(more)
            for array in self._of_keys:
                array.resize(slots)

    @property
    def _heads(self) -> Int64s:
        return self._of_keys[0].array

    @property
    def _counts(self) -> Int64s:
        return self._of_keys[1].array

    @property
    def _busy(self) -> Int64s:
        return self._of_keys[2].array

    def _make(self, capacity: int) -> None:
        width = len(self._keyed)
        nbytes = capacity * (30 + 4 * width)
        self._account.resize(self._account.nbytes - self._ring_bytes + nbytes)
        self._ring_bytes = nbytes
        self.times, self.positions = zeros(capacity, np.int64), zeros(capacity, np.int64)
        self.rows, self.elements = zeros(capacity, np.int64), zeros(capacity, np.int8)
        self.slots, self.used = zeros(capacity, np.int32), zeros(capacity, np.bool_)
        self.links = zeros((capacity, width), np.int32)

    @property
    def budget(self) -> int:
        """Bytes that there are in all."""
        return self._account.total

    @property
    def _columns(self) -> tuple[Any, ...]:
        return (self.times, self.positions, self.elements, self.slots, self.rows, self.used, self.links)

    def _capacity_for(self, count: int) -> int:
        capacity = len(self.times)
        while capacity < self.stop - self.tail + count:
            capacity *= 2
        return capacity

    def growth_for(self, count: int) -> int:
        """Bytes that the ring needs more to take so many nodes."""
        return (self._capacity_for(count) - len(self.times)) * (30 + 4 * len(self._keyed))

    def _grow(self, count: int) -> None:
        capacity = self._capacity_for(count)
        if capacity == len(self.times):
            return
        old, ids = self._columns, np.arange(self.tail, self.stop)
        before = len(self.times) - 1
        self._make(capacity)
        for column, values in zip(self._columns, old, strict=True):
            column[ids & (capacity - 1)] = values[ids & before]

    def add(self, new: Arrivals, limit: int) -> Due:
        """Adds nodes; all events before `limit` have come then."""
        self._grow(len(new.times))
        self._fit_keys()
        due = 0
        if self._any_waits:
            latest = max(limit, int(new.times[-1])) if len(new.times) else limit
            due = kernels.count_due(
                self.times, self.elements, self._due, self.stop, self._waits,
                latest - self._within, new.times, new.elements,
            )  # fmt: skip
        nodes, heads = np.empty(due, np.int64), np.empty((due, len(self._keyed)), np.int64)
        self._due, noted = kernels.link(
            new.times, new.positions, new.elements, new.slots, new.rows, self.times, self.positions, self.elements,
            self.slots, self.rows, self.used, self.links, self._heads, self._keyed, self._counts, self.tail, self.stop,
            self._due, self._within, self._waits, self._any_waits, limit, nodes, heads,
        )  # fmt: skip
        self.stop += len(new.times)
        return Due(nodes[:noted], heads[:noted])

    def expire(self, limit: int, left: Int64s) -> None:
        """Lets nodes go that no match can have any more once all events before `limit` have come."""
        before = self.tail
        self.tail = kernels.expire(
            self.times, self.elements, self.slots, self.rows, self._inputs, self._counts, self.tail, self.stop,
            limit - self._keep, left,
        )  # fmt: skip
        if not self._any_waits:
            self._due = self.tail
        if self.tail > before and self.groups.types:
            self.groups.counts[:] = self._counts[1 : self.groups.capacity + 1]
            self.groups.collect(self.tail - before)

    # What searches read of nodes

    def at(self, nodes: Int64s) -> Int64s:
        """The places of nodes in the ring's columns."""
        return nodes & (len(self.times) - 1)

    def linked(self, nodes: Int64s, element: int) -> Int64s:
        """The newest node of an element that came before each; -1 where there is none."""
        distance = self.links[self.at(nodes), element]
        newest: Int64s = np.where(distance > 0, nodes - distance, -1)
        return newest

    def exist(self, starts: Int64s, floors: Int64s, ceilings: Int64s, after: Int64s, element: int) -> Bools:
        found = np.empty(len(starts), np.bool_)
        kernels.exists(
            starts, floors, ceilings, after, element, self.times, self.positions, self.links, self.tail, found
        )
        return found

    def take_once(self, upto: Int64s, nodes: Int64s) -> Bools:
        """Which matches may have the nodes they want for themselves; oldest first."""
        keep = np.empty(len(upto), np.bool_)
        kernels.consume(upto, nodes, self.used, keep)
        return keep

    def take_apart(self, firsts: Int64s, lasts: Int64s) -> Bools:
        """Which matches, from their first to their last nodes, share no event with one that was taken before."""
        keep = np.empty(len(firsts), np.bool_)
        begin, end = self.at(firsts), self.at(lasts)
        # Positions only grow, so what a key left behind in its slot holds up no other.
        kernels.keep_apart(self.positions[begin], self.positions[end], self.slots[begin], self._busy, keep)
        return keep

    # What is known of nodes besides their events

    def runs(self, most: int) -> Iterator[Int64s]:
        """All nodes in order, at least so many at a time but for the last ones; those of an event together."""
        first, mask = self.tail, len(self.positions) - 1
        while first < self.stop:
            end = min(first + most, self.stop)
            while end < self.stop and self.positions[end & mask] == self.positions[end - 1 & mask]:
                end += 1
            yield np.arange(first, end)
            first = end

    def end_matches(self, nodes: Int64s) -> Bools:
        """With which nodes the last match of their key ended, of those that share no event."""
        at = self.at(nodes)
        ended: Bools = self._busy[self.slots[at]] == self.positions[at]
        return ended

    def note_served(self, nodes: Int64s, ends: Int64s) -> None:
        """Some nodes have served in ONE places, and with others matches ended that share no event."""
        self.used[self.at(nodes)] = True
        at = self.at(ends)
        np.maximum.at(self._busy, self.slots[at], self.positions[at])

    # Durability

    def snapshot(self) -> dict[str, Any]:
        ids = self.at(np.arange(self.tail, self.stop))
        return {
            "groups": self.groups.snapshot(),
            "nodes": [column[ids] for column in self._columns],
            "heads": self._heads,
            "counts": self._counts,
            "busy": self._busy,
            "tail": self.tail,
            "stop": self.stop,
            "due": self._due,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.groups.restore(snapshot["groups"])
        for array, name in zip(self._of_keys, ("heads", "counts", "busy"), strict=True):
            array.set(snapshot[name])
        self.tail, self.stop, self._due = snapshot["tail"], snapshot["stop"], snapshot["due"]
        capacity = _SMALLEST
        while capacity < self.stop - self.tail:
            capacity *= 2
        self._make(capacity)
        ids = self.at(np.arange(self.tail, self.stop))
        for column, values in zip(self._columns, snapshot["nodes"], strict=True):
            column[ids] = values
