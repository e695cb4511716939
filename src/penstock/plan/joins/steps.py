"""In which order a join looks for the rows that go with a given one.

In an inner join a row of any side may be the first. The next side is the one with the most keys in common with the
sides already found, so that every step looks rows up by key if the conditions allow it. Outer joins keep the order of
the text, since rows without a match matter there: `operators.joins.outer` uses `outer_step`.

    x.id = y.id AND y.k = z.k, from z:    z, then y by k, then x by id
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence, Set
from dataclasses import dataclass

from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Expression, columns
from penstock.plan.joins.conditions import conjunction
from penstock.plan.nodes import Band, Equality, JoinNode, Narrowing

Keys = tuple[Expression, ...]


@dataclass(frozen=True)
class Lookup:
    """Rows of a side whose `keys` are what `from_keys` are in the row of side `from_side`."""

    from_side: int
    from_keys: Keys
    keys: Keys


@dataclass(frozen=True)
class Step:
    """Joins `side` to the sides that are there: rows are looked up (or all taken), the other lookups and the condition
    are checked. With `narrowed` rows are looked up by what can fail, and `lookup` is None: where it does all are
    taken."""

    side: int
    lookup: Lookup | None
    checks: tuple[Lookup, ...]
    bands: tuple[Band, ...]
    condition: Expression | None
    narrowed: Lookup | None = None


def inner_steps(node: JoinNode) -> list[tuple[Step, ...]]:
    """For each side the steps from a row of it on. Narrowings do not change their order: what is rejected depends on
    it."""
    links = _Links(node, node.equalities)
    return [links.steps(first) for first in range(len(node.sides))]


def certain_steps(node: JoinNode) -> list[tuple[Step, ...]] | None:
    """The steps while no key of a narrowing fails: these are equalities then, and nothing is rejected. None where other
    conditions can fail, or where there is no choice between several orders."""
    conditions = {condition for narrowing in node.narrowings for condition in narrowing.conditions}
    others = [c.expression for c in node.conditions if c.expression not in conditions]
    if not node.narrowings or len(node.sides) < 3 or not all(map(is_total, others)):
        return None
    links = _Links(node, [*node.equalities, *(narrowing.equality for narrowing in node.narrowings)])
    return [links.steps(first) for first in range(len(node.sides))]


def outer_step(node: JoinNode, side: int) -> Step:
    """How a side is joined to all before it, where what does not match matters."""
    found = [Lookup(e.left, e.left_keys, e.right_keys) for e in node.equalities if e.right == side]
    ready = dict.fromkeys(condition.expression for condition in node.conditions if condition.step == side)
    bands = [band for band in node.bands if band.side == side]
    return _step(side, found, bands, list(ready), node.narrowings, set(range(side)))


class _Links:
    """What connects the sides of an inner join, by side, so that a step looks at what its own side is connected with
    and not at the whole join."""

    def __init__(self, node: JoinNode, equalities: Sequence[Equality]) -> None:
        self._count = len(node.sides)
        self._narrowings = node.narrowings
        self._lookups: list[list[tuple[int, Lookup]]] = [[] for _ in node.sides]
        """Of each side those by which it is found from others, in the order of the text."""
        self._bands: list[list[tuple[int, Band]]] = [[] for _ in node.sides]
        for e in equalities:
            self._lookups[e.right].append((e.left, Lookup(e.left, e.left_keys, e.right_keys)))
            self._lookups[e.left].append((e.right, Lookup(e.right, e.right_keys, e.left_keys)))
        for band in node.bands:
            self._bands[band.side].append((band.other, band))
            self._bands[band.other].append((band.side, band))
        places = {side.alias: place for place, side in enumerate(node.sides)}
        self._conditions = list(dict.fromkeys(condition.expression for condition in node.conditions))
        read = [{places[name.partition(".")[0]] for name in columns(e)} for e in self._conditions]
        self._missing = [len(sides) for sides in read]
        """How many sides a condition reads."""
        self._readers: list[list[int]] = [[] for _ in node.sides]
        for number, sides in enumerate(read):
            for side in sides:
                self._readers[side].append(number)

    def steps(self, first: int) -> tuple[Step, ...]:
        there = {first}
        keys, bands = [0] * self._count, [0] * self._count
        """Of each side how many keys at most it has in common with one that is there, and how many bands with all."""
        missing = list(self._missing)
        ready = [number for number, sides in enumerate(missing) if not sides] + self._heard(first, missing)
        best = [(0, 0, side) for side in range(self._count) if side != first]
        newest, steps = first, []
        while len(there) < self._count:
            for other, lookup in self._lookups[newest]:
                keys[other] = max(keys[other], len(lookup.keys))
                heapq.heappush(best, (-keys[other], -bands[other], other))
            for other, _ in self._bands[newest]:
                bands[other] += 1
                heapq.heappush(best, (-keys[other], -bands[other], other))
            # Ranks only rise, so the first entry of a side is its present one.
            while newest in there:
                *_, newest = heapq.heappop(best)
            ready += self._heard(newest, missing)
            found = [lookup for other, lookup in self._lookups[newest] if other in there]
            between = [band for other, band in self._bands[newest] if other in there]
            checked = [self._conditions[number] for number in sorted(ready)]
            steps.append(_step(newest, found, between, checked, self._narrowings, there))
            ready = []
            there.add(newest)
        return tuple(steps)

    def _heard(self, side: int, missing: list[int]) -> list[int]:
        """The conditions that can be checked now that this side is there as well."""
        for number in self._readers[side]:
            missing[number] -= 1
        return [number for number in self._readers[side] if not missing[number]]


def _step(
    side: int,
    found: list[Lookup],
    bands: list[Band],
    ready: Sequence[Expression],
    narrowings: Sequence[Narrowing],
    there: Set[int],
) -> Step:
    found.sort(key=lambda lookup: -len(lookup.keys))
    narrowed = _narrowed(side, ready, narrowings, there)
    most = found[0] if found else None
    if narrowed is None or (most is not None and len(most.keys) >= len(narrowed.keys)):
        return Step(side, most, tuple(found[1:]), tuple(bands), conjunction(ready))
    return Step(side, None, tuple(found), tuple(bands), conjunction(ready), narrowed)


def _narrowed(
    side: int, ready: Sequence[Expression], narrowings: Sequence[Narrowing], there: Set[int]
) -> Lookup | None:
    """The look-up by the first of the conditions that can fail, if it is one."""
    failing = [condition for condition in ready if not is_total(condition)]
    for narrowing in narrowings:
        e = narrowing.equality
        if failing[: len(narrowing.conditions)] != list(narrowing.conditions):
            continue
        if e.right == side and e.left in there:
            return Lookup(e.left, e.left_keys, e.right_keys)
        if e.left == side and e.right in there:
            return Lookup(e.right, e.right_keys, e.left_keys)
    return None
