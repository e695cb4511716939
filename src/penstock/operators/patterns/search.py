"""Finds the matches of one order of elements, from the events that complete it or whose time is over.

Plain elements are joined one after the other, for all anchors together: each step follows the links of `candidates` and
drops at once what fails a condition that can be decided. Then repeated elements are collected and absent ones looked
for, between the events that they lie between.

What joins is looked at in parts, each through all steps before the next: only matches are in memory together.

Why: docs/decisions/patterns-backwards.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.expressions.batch import Data
from penstock.expressions.evaluate import is_total
from penstock.expressions.vector import Vector
from penstock.operators.patterns.aggregates import RepeatAggregates
from penstock.operators.patterns.candidates import Candidates
from penstock.operators.patterns.kernels import NO_CEILING, expand
from penstock.operators.patterns.matches import Condition, Found, Repeats, View
from penstock.plan.patterns.nodes import Between, OrderPlan
from penstock.store.budget import Account

_ROOM = 1 << 16
"""How many events join in one go."""

_ALWAYS = np.int64(-(2**63))
"""Before all times."""


class _Reach(NamedTuple):
    """How far back each anchor looks: to positions and times after these. With `heads` it is a match's first event."""

    heads: Int64s | None
    floors: Int64s
    after: Int64s


class Search:
    def __init__(
        self,
        order: OrderPlan,
        elements: int,
        within: int,
        candidates: Candidates,
        view: View,
        aggregates: Mapping[int, RepeatAggregates],
        ones: Sequence[int],
        account: Account,
    ) -> None:
        self.order = order
        self._elements = elements
        self._within = within
        self._candidates = candidates
        self._view = view
        self._account = account
        self._made = 0
        self._aggregates = [aggregates[b.element] for b in order.repeated if b.element in aggregates]
        # What an event of a repeated element takes up: its owner and its node, put in order, and what is made of it.
        self._event_bytes = {
            b.element: 64 + (aggregates[b.element].event_bytes if b.element in aggregates else 0)
            for b in order.repeated
        }
        self._steps = [(step.place, [Condition(c) for c in step.conditions]) for step in order.steps]
        between = (*order.repeated, *order.absent)
        self._between = {b.element: [Condition(c) for c in b.conditions] for b in between}
        self._last = [Condition(c) for c in order.last]
        read = [c for cs in (*self._between.values(), self._last) for condition in cs for c in condition.columns]
        self._compares_aggregates = any(column.name.startswith("$") for column in read)
        # Events consumed by a ONE element cannot match again. Skip them early, but only if no condition can fail: a
        # skipped event produces no reject.
        decided = [c for step in order.steps for c in step.conditions] + [c for b in between for c in b.conditions]
        total = all(map(is_total, (*decided, *order.last))) and not self._compares_aggregates
        self._served_once = frozenset(ones if total else ()) & frozenset(order.plain)

    def find(self, anchors: Int64s, heads: Int64s | None) -> Found:
        """The matches of these anchors: events that complete one or, with the `heads` at their deadlines, events whose
        time is over."""
        found = self._joined(anchors, heads)
        for between in self.order.repeated:
            found = self._collected(found, between, heads)
        given: dict[str, Data] = {}
        if self._compares_aggregates:
            fine, given = self.aggregates(found)
            if not fine.all():
                found, given = found.where(fine), _among(given, fine)
        keep = np.ones(len(found), np.bool_)
        for between in self.order.absent:
            keep &= ~self._present(found, between, heads, given)
        for condition in self._last:
            keep[keep] = self._view.holds(condition, found.nodes[keep], _among(given, keep))
        return found.where(keep)

    def aggregates(self, found: Found) -> tuple[Bools, dict[str, Data]]:
        """For which matches the aggregates can be computed (others are rejected), and what they are."""
        data: dict[str, Data] = {}
        fine = np.ones(len(found), np.bool_)
        for aggregates in self._aggregates:
            own, computed = aggregates.columns(found)
            data |= own
            fine &= computed
        return fine, data

    def release(self) -> None:
        """The matches that were found have been shown."""
        self._account.resize(0)

    def joined(self) -> int:
        """How many events had to be joined since the last time."""
        made, self._made = self._made, 0
        return made

    def times(self, found: Found) -> Int64s:
        """When matches come out."""
        times, plain = self._candidates.times, self.order.plain
        if self.order.waits:
            return times[self._candidates.at(found.nodes[:, plain[0]])] + (self._within - 1)
        ends: Int64s = times[self._candidates.at(found.nodes[:, plain[-1]])]
        return ends

    def _joined(self, anchors: Int64s, heads: Int64s | None) -> Found:
        """The plain elements of matches."""
        candidates = self._candidates
        nodes = np.full((len(anchors), self._elements), -1, np.int64)
        first_place, conditions = self._steps[0]
        nodes[:, self.order.plain[first_place]] = anchors
        begun = self._checked(Found(nodes, np.arange(len(anchors)), {}), conditions)
        if heads is None:
            after = candidates.times[candidates.at(anchors)] - self._within
            reach = _Reach(None, np.full(len(anchors), -1, np.int64), after)
        else:
            reach = _Reach(heads, candidates.positions[candidates.at(anchors)], np.full(len(anchors), _ALWAYS))
        parts = [begun.where(np.zeros(len(begun), np.bool_)), *self._further(begun, 1, reach)]
        return Found(
            np.concatenate([part.nodes for part in parts]), np.concatenate([part.origins for part in parts]), {}
        )

    def _further(self, found: Found, step: int, reach: _Reach) -> Iterator[Found]:
        """Completes partial matches that have come to a step."""
        if not len(found):
            return
        if step == len(self._steps):
            self._hold_bytes(2 * (found.nodes.nbytes + found.origins.nbytes))
            yield found
            return
        plain = self.order.plain
        place, conditions = self._steps[step]
        element = plain[place]
        if reach.heads is not None and place == len(plain) - 1:
            starts = reach.heads[found.origins, element]
        else:
            starts = self._candidates.linked(found.nodes[:, plain[place + 1]], element)
        ceilings = np.full(len(found), NO_CEILING)
        bounds = (starts, reach.floors[found.origins], ceilings, reach.after[found.origins])
        for parents, joining in self._expanded(*bounds, element):
            part = self._checked(self._with(found, parents, element, joining), conditions)
            yield from self._further(part, step + 1, reach)

    def _hold_bytes(self, more: int) -> None:
        self._account.resize(self._account.nbytes + more)

    def _with(self, found: Found, parents: Int64s, element: int, joining: Int64s) -> Found:
        nodes = found.nodes[parents]
        nodes[:, element] = joining
        return Found(nodes, found.origins[parents], {})

    def _checked(self, found: Found, conditions: list[Condition]) -> Found:
        for condition in conditions:
            found = found.where(self._view.holds(condition, found.nodes))
        return found

    def _expanded(
        self, starts: Int64s, floors: Int64s, ceilings: Int64s, after: Int64s, element: int
    ) -> Iterator[tuple[Int64s, Int64s]]:
        """Pairs of a parent and a node of the element, newest first, in parts."""
        candidates = self._candidates
        parent, node = 0, -1
        while parent < len(starts):
            parents, nodes = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
            parent, node, count = expand(
                starts, floors, ceilings, after, element, candidates.times, candidates.positions, candidates.links,
                candidates.used, element in self._served_once, candidates.tail, parent, node, parents, nodes,
            )  # fmt: skip
            self._made += count
            yield parents[:count], nodes[:count]

    def _collected(self, found: Found, between: Between, heads: Int64s | None) -> Found:
        """With all events of a repeated element; matches without any are gone."""
        bounds = self._bounds(found, between, heads)
        owners, nodes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for parents, joining in self._expanded(*bounds, between.element):
            pairs = self._with(found, parents, between.element, joining)
            keep = self._hold(pairs.nodes, between)
            self._hold_bytes(int(np.count_nonzero(keep)) * self._event_bytes[between.element])
            owners.append(parents[keep])
            nodes.append(joining[keep])
        owner, node = np.concatenate(owners), np.concatenate(nodes)
        order = np.lexsort((node, owner))
        repeats = Repeats(owner[order], node[order])
        some = np.bincount(repeats.owners, minlength=len(found)) > 0
        return Found(found.nodes, found.origins, {**found.repeats, between.element: repeats}).where(some)

    def _hold(self, nodes: Int64s, between: Between, given: Mapping[str, Data] | None = None) -> Bools:
        keep = np.ones(len(nodes), np.bool_)
        for condition in self._between[between.element]:
            keep[keep] = self._view.holds(condition, nodes[keep], None if given is None else _among(given, keep))
        return keep

    def _present(self, found: Found, between: Between, heads: Int64s | None, given: Mapping[str, Data]) -> Bools:
        """Which matches have an event of an absent element where there must be none."""
        bounds = self._bounds(found, between, heads)
        if not self._between[between.element]:
            return self._candidates.exist(*bounds, between.element)
        present = np.zeros(len(found), np.bool_)
        for parents, joining in self._expanded(*bounds, between.element):
            pairs = self._with(found, parents, between.element, joining)
            taken = {name: _taken(data, parents) for name, data in given.items()}
            present[parents[self._hold(pairs.nodes, between, taken)]] = True
        return present

    def _bounds(self, found: Found, between: Between, heads: Int64s | None) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """Where to begin, and the positions and the time between which an element that is not plain lies."""
        candidates, plain = self._candidates, self.order.plain
        count = len(found)
        if between.upper < len(plain):
            starts = candidates.linked(found.nodes[:, plain[between.upper]], between.element)
        else:
            assert heads is not None, "an order that is open at its end waits"
            starts = heads[found.origins, between.element]
        floors = np.full(count, -1, np.int64)
        ceilings = np.full(count, NO_CEILING)
        after = np.full(count, _ALWAYS)
        if between.after >= 0:
            floors = self._position(found.repeats[between.after].bounds(count)[1])
        elif between.lower >= 0:
            floors = self._position(found.nodes[:, plain[between.lower]])
        else:
            after = self._end(found) - self._within
        if between.before >= 0:
            ceilings = self._position(found.repeats[between.before].bounds(count)[0])
        return starts, floors, ceilings, after

    def _position(self, nodes: Int64s) -> Int64s:
        positions: Int64s = self._candidates.positions[self._candidates.at(nodes)]
        return positions

    def _end(self, found: Found) -> Int64s:
        """The time of the last event of each match."""
        plain = self.order.plain
        last = found.nodes[:, plain[-1]]
        for between in self.order.repeated:
            if between.upper == len(plain):
                last = found.repeats[between.element].bounds(len(found))[1]
        times: Int64s = self._candidates.times[self._candidates.at(last)]
        return times


def _taken(data: Data, rows: Int64s) -> Data:
    if isinstance(data, Vector):
        return Vector(data.values[rows], None if data.valid is None else data.valid[rows])
    assert isinstance(data, pa.Array)
    return data.take(pa.array(rows))


def _among(given: Mapping[str, Data], keep: Bools) -> dict[str, Data]:
    rows = np.flatnonzero(keep)
    return {name: _taken(data, rows) for name, data in given.items()}
