"""Events of a pattern in memory, and the matches that they make.

    arrivals -> candidates -> searches, one per order of elements -> sorted, consumed -> rows of matches
                ring of nodes  backwards from events that complete    ONE: oldest first
                with links     a match, or whose time is over

Invariants:
1. Matches come out in the order of their times; those of one time first as events complete them, then those whose time
   is over; those of one event in the order of their elements' events, oldest first.
2. Whether an event has served (ONE) is decided in that order.
3. How many matches are looked for at a time follows the memory there is, and is no part of the answer (`ends`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.components import component
from penstock.errors import BudgetError
from penstock.expressions.tree import Column
from penstock.operators.chunk import CHUNK_ROWS, Chunk, concat
from penstock.operators.patterns.aggregates import RepeatAggregates
from penstock.operators.patterns.candidates import Arrivals, Candidates
from penstock.operators.patterns.ends import Ends, Rejects
from penstock.operators.patterns.matches import Found, View
from penstock.operators.patterns.rows import PatternRows
from penstock.operators.patterns.search import Search
from penstock.operators.resources import Resources
from penstock.plan.patterns.columns import kept_columns
from penstock.plan.patterns.nodes import PatternNode

END = np.int64(2**62)
"""After all times, with room for durations to be added, and after all positions."""

_MANY = 1 << 18
"""Events that join in one stretch before stretches become shorter."""

_FIRST, _SHORTEST, _LONGEST = 1024, 64, 4 * CHUNK_ROWS
"""Events of a stretch: at first, at least and at most. Where few match, long ones read fewer blocks."""

_BYTES_FOR_AN_EVENT = 1024
"""A stretch has one event for so many bytes of the memory: what is made of them takes about an eighth of it."""

Order = Callable[[], list[Int64s]]
"""Gives the columns by which matches are in order, the most significant first."""

Show = Callable[[Chunk, Order], None]
"""Takes matches, in order."""


@component("Matcher")
class Matcher:
    """`resources` are its own: what it takes goes back with them."""

    def __init__(self, name: str, node: PatternNode, resources: Resources, show: Show) -> None:
        self.candidates = Candidates(name, node, resources)
        self.rows: list[PatternRows | None] = []
        """The values of each input's events; None where none are kept."""
        for number, below in enumerate(node.inputs):
            kept = kept_columns(node, number)
            self.rows.append(PatternRows(f"{name}-{number}", below.schema, kept, resources) if kept else None)
        self._show_matches = show
        self._resources = resources
        self._completes = np.zeros(len(node.elements), np.bool_)
        self._completes[[order.plain[-1] for order in node.orders if not order.waits]] = True
        self._ones = [i for i, element in enumerate(node.elements) if element.one]
        self._within = node.within
        self._rejects = Rejects(resources.reject, resources.account(f"{name}: rejects of matches"))
        self._view = View(node, self.candidates, self.rows, self._rejects)
        aggregates = {r.element: RepeatAggregates(name, r, self._view, resources, self._rejects) for r in node.repeats}
        self._searches = [
            Search(
                order,
                len(node.elements),
                node.within,
                self.candidates,
                self._view,
                aggregates,
                self._ones,
                resources.account(f"{name}: matches of order {i}"),
            )
            for i, order in enumerate(node.orders)
        ]
        self._apart = node.apart
        self._schema = node.schema.arrow
        self._columns = [Column(field.name, field.type) for field in node.schema]
        self._longest = max(_FIRST, min(_LONGEST, self.candidates.budget // _BYTES_FOR_AN_EVENT))
        self.stretch = _FIRST
        """How many events should be taken together."""
        self._left = np.zeros(len(node.inputs), np.int64)

    @property
    def nbytes(self) -> int:
        """What is on the accounts for it, blocks of values aside."""
        return self._resources.nbytes

    # Events come

    def advance(self, arrivals: Arrivals, limit: int) -> None:
        """Takes the next events; all before `limit` have come then."""
        first = self.candidates.stop
        due = self.candidates.add(arrivals, limit)
        self._emit(Ends(first + np.flatnonzero(self._completes[arrivals.elements]), due))
        joined = max(search.joined() for search in self._searches)
        if joined > _MANY:
            self.stretch = max(_SHORTEST, self.stretch // 2)
        elif joined < _MANY // 8:
            self.stretch = min(self._longest, self.stretch * 2)
        self._expire(limit)

    def hold(self, arrivals: Arrivals, limit: int) -> None:
        """Takes events whose matches have been found before."""
        self.candidates.add(arrivals, limit)
        self._expire(limit)

    def _expire(self, limit: int) -> None:
        self.candidates.expire(limit, self._left)
        for rows, left in zip(self.rows, self._left, strict=True):
            if rows is not None:
                rows.release(int(left))

    # Matches

    def _emit(self, ends: Ends) -> None:
        try:
            with self._rejects.held():
                found = self._found(ends)
        except BudgetError:
            self._release_matches()
            halves = ends.halves(self.candidates, self._within)
            if halves is not None:
                for half in halves:
                    self._emit(half)
                return
            found = self._found(ends)
        if found:
            keys = self._keys(found)
            order = np.lexsort(keys[::-1])
            if self._apart:
                order = order[self._taken_apart(found, order)]
            if self._ones:
                order = order[self._consumed(found, order)]
            self._show(found, order, keys)
        self._release_matches()

    def _found(self, ends: Ends) -> list[tuple[Search, Found]]:
        candidates = self.candidates
        completing = candidates.elements[candidates.at(ends.nodes)]
        waiting = candidates.elements[candidates.at(ends.due.nodes)]
        found: list[tuple[Search, Found]] = []
        for search in self._searches:
            if search.order.waits:
                mine = waiting == search.order.plain[0]
                matches = search.find(ends.due.nodes[mine], ends.due.heads[mine]) if mine.any() else None
            else:
                anchors = ends.nodes[completing == search.order.plain[-1]]
                matches = search.find(anchors, None) if len(anchors) else None
            if matches is not None and len(matches):
                found.append((search, matches))
        return found

    def _release_matches(self) -> None:
        for search in self._searches:
            search.release()

    def _keys(self, found: list[tuple[Search, Found]]) -> list[Int64s]:
        """By what all that were found come out in order: the time, the event that completes it, and the events of the
        elements as they are written."""
        candidates = self.candidates
        nodes = np.concatenate([matches.nodes for _, matches in found])
        positions = np.where(nodes >= 0, candidates.positions[candidates.at(nodes)], END)
        completed = [
            np.full(len(matches), END)
            if search.order.waits
            else candidates.positions[candidates.at(matches.nodes[:, search.order.plain[-1]])]
            for search, matches in found
        ]
        times = [search.times(matches) for search, matches in found]
        return [np.concatenate(times), np.concatenate(completed), *positions.T]

    def _taken_apart(self, found: list[tuple[Search, Found]], order: Int64s) -> Bools:
        """Which of the matches, in this order, share no event with one before."""
        firsts = [matches.nodes[:, search.order.plain[0]] for search, matches in found]
        lasts = [matches.nodes[:, search.order.plain[-1]] for search, matches in found]
        return self.candidates.take_apart(np.concatenate(firsts)[order], np.concatenate(lasts)[order])

    def _consumed(self, found: list[tuple[Search, Found]], order: Int64s) -> Bools:
        """Which of the matches, in this order, may have their events in ONE places."""
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        owners, nodes = [], []
        begin = 0
        for _, matches in found:
            mine = rank[begin : begin + len(matches)]
            begin += len(matches)
            for element in self._ones:
                if element in matches.repeats:
                    owners.append(mine[matches.repeats[element].owners])
                    nodes.append(matches.repeats[element].nodes)
                else:
                    there = matches.nodes[:, element] >= 0
                    owners.append(mine[there])
                    nodes.append(matches.nodes[there, element])
        owner, node = np.concatenate(owners), np.concatenate(nodes)
        by_match = np.argsort(owner, kind="stable")
        upto = np.searchsorted(owner[by_match], np.arange(len(order)), "right")
        return self.candidates.take_once(upto, node[by_match])

    def _show(self, found: list[tuple[Search, Found]], order: Int64s, keys: list[Int64s]) -> None:
        """The columns of matches, in this order. Matches that are not in the order were not chosen."""
        ranks = np.full(sum(len(matches) for _, matches in found), -1, np.int64)
        ranks[order] = np.arange(len(order))
        shown: list[Chunk] = []
        places: list[Int64s] = []
        begin = 0
        for search, matches in found:
            rank = ranks[begin : begin + len(matches)]
            begin += len(matches)
            kept = matches.where(rank >= 0)
            fine, data = search.aggregates(kept)
            batch = self._view.batch(kept.nodes, self._columns, data).to_arrow()
            chunk = Chunk(search.times(kept), batch)
            shown.append(chunk if fine.all() else chunk.filter(fine))
            places.append(rank[rank >= 0][fine])
        together = concat(shown, self._schema)
        if together.rows:
            place = np.concatenate(places)
            rows = np.argsort(place)
            chunk = Chunk(together.times[rows], together.arrow.take(pa.array(rows)))
            self._show_matches(chunk, lambda: [key[order[place[rows]]] for key in keys])

    # Durability

    def close(self) -> None:
        """Gives everything back; it is not used any more."""
        self._resources.close()

    def snapshot(self) -> dict[str, Any]:
        return {
            "candidates": self.candidates.snapshot(),
            "rows": [None if rows is None else rows.snapshot() for rows in self.rows],
            "left": self._left,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.candidates.restore(snapshot["candidates"])
        for rows, saved in zip(self.rows, snapshot["rows"], strict=True):
            if rows is not None:
                rows.restore(saved)
        self._left = snapshot["left"].copy()
