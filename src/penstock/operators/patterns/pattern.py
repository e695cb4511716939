"""Patterns: matches of events of one or several streams (`docs/patterns.md` says what they mean).

    rows -> intake -> candidates -> searches, one per order of elements -> sorted, consumed -> matches
            filters   ring of nodes   backwards from events that complete    ONE: oldest first
            and keys  with links      a match, or whose time is over

Nothing is done for an event but to link it, until one completes a match: then what came before is found by links.

Invariants:
1. Matches come out in the order of their times; those of one time first as events complete them, then those whose time
   is over; those of one event in the order of their elements' events, oldest first.
2. Whether an event has served (ONE) is decided in that order.
3. How many matches are looked for at a time follows the memory there is, and is no part of the answer (`ends`).
4. Events wait for those of other inputs (`ports`), so that all are seen in the order of (time, input, sequence).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.components import component
from penstock.errors import BudgetError
from penstock.expressions.tree import Column
from penstock.operators.chunk import CHUNK_ROWS, NO_EVENTS, Chunk, concat
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Outgoing, Receive
from penstock.operators.patterns.aggregates import RepeatAggregates
from penstock.operators.patterns.candidates import Arrivals, Candidates, joined
from penstock.operators.patterns.ends import Ends, Rejects
from penstock.operators.patterns.intake import InputIntake
from penstock.operators.patterns.matches import Found, View
from penstock.operators.patterns.rows import PatternRows
from penstock.operators.patterns.search import Search
from penstock.operators.ports import Due, Ports
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.plan.patterns.columns import kept_columns
from penstock.plan.patterns.nodes import PatternNode

_END = np.int64(2**62)
"""After all times, with room for durations to be added."""

_MANY = 1 << 18
"""Events that join in one stretch before stretches become shorter."""

_FIRST, _SHORTEST, _LONGEST = 1024, 64, 4 * CHUNK_ROWS
"""Events of a stretch: at first, at least and at most. Where few match, long ones read fewer blocks."""

_BYTES_FOR_AN_EVENT = 1024
"""A stretch has one event for so many bytes of the memory: what is made of them takes about an eighth of it."""


@component("Pattern")
class Pattern(Operator):
    def __init__(self, name: str, node: PatternNode, resources: Resources) -> None:
        inputs = range(len(node.inputs))
        self._schemas = [below.schema.arrow for below in node.inputs]
        self._ports: Ports | None = None
        if len(node.inputs) > 1:
            self._ports = Ports(len(inputs), resources.account(f"{name}: rows that wait for the other inputs"))
        self._candidates = Candidates(name, node, resources)
        self._rows: list[PatternRows | None] = []
        for number in inputs:
            kept = kept_columns(node, number)
            schema = node.inputs[number].schema
            self._rows.append(PatternRows(f"{name}-{number}", schema, kept, resources) if kept else None)
        self._intakes = [
            InputIntake(number, node.elements, self._candidates.groups, self._rows[number], resources)
            for number in inputs
        ]
        self._completes = np.zeros(len(node.elements), np.bool_)
        self._completes[[order.plain[-1] for order in node.orders if not order.waits]] = True
        self._ones = [i for i, element in enumerate(node.elements) if element.one]
        self._within = node.within
        self._rejects = Rejects(resources.reject, resources.account(f"{name}: rejects of matches"))
        self._view = View(node, self._candidates, self._rows, self._rejects)
        aggregates = {r.element: RepeatAggregates(name, r, self._view, resources, self._rejects) for r in node.repeats}
        self._searches = [
            Search(
                order,
                len(node.elements),
                node.within,
                self._candidates,
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
        self._longest = max(_FIRST, min(_LONGEST, self._candidates.budget // _BYTES_FOR_AN_EVENT))
        self._stride = _FIRST
        self._seen = 0
        self._left = np.zeros(len(inputs), np.int64)
        self._outgoing = Outgoing()

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        if self._ports is None:
            for parts, reached in self._stretches([chunk], watermark):
                self._advance(parts, reached)
            return Progress(self._outgoing.take(), watermark)
        reached = self._ports.put(port, chunk, watermark)
        self._take(self._ports.take_due(), reached)
        return Progress(self._outgoing.take(), reached)

    def send_to(self, receive: Receive) -> None:
        self._outgoing.receiver = receive

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        """No more events come: everything that waits for its time is decided."""
        if self._ports is None:
            self._advance([NO_EVENTS], int(_END))
        else:
            self._take(self._ports.take(-START), int(_END))
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
        if count <= self._stride:
            yield due, limit
            return
        times = np.concatenate([chunk.times for chunk in due])
        of = np.repeat(np.arange(len(due)), [chunk.rows for chunk in due])
        order = np.argsort(times, kind="stable") if len(due) > 1 else np.arange(count)
        taken, start = [0] * len(due), 0
        while start < count:
            stretch = order[start : start + self._stride]
            start += len(stretch)
            upto = np.array(taken) + np.bincount(of[stretch], minlength=len(due))
            parts = [chunk.slice(a, int(b)) for chunk, a, b in zip(due, taken, upto, strict=True)]
            taken = upto.tolist()
            yield parts, limit if start == count else min(limit, int(times[stretch[-1]]))

    def _advance(self, parts: list[Chunk], limit: int) -> None:
        """Takes the next events, some of each input; all before `limit` have come then."""
        arrivals = self._arrivals(parts)
        first = self._candidates.stop
        due = self._candidates.add(arrivals, limit)
        self._emit(Ends(first + np.flatnonzero(self._completes[arrivals.elements]), due))
        joined = max(search.joined() for search in self._searches)
        if joined > _MANY:
            self._stride = max(_SHORTEST, self._stride // 2)
        elif joined < _MANY // 8:
            self._stride = min(self._longest, self._stride * 2)
        self._candidates.expire(limit, self._left)
        for rows, left in zip(self._rows, self._left, strict=True):
            if rows is not None:
                rows.release(int(left))

    def _arrivals(self, parts: list[Chunk]) -> Arrivals:
        """The events in the places of elements, in order."""
        count = sum(part.rows for part in parts)
        if len(parts) == 1:
            positions = [self._seen + np.arange(count)]
        else:
            order = np.argsort(np.concatenate([part.times for part in parts]), kind="stable")
            rank = np.empty(count, np.int64)
            rank[order] = np.arange(count)
            positions = np.split(self._seen + rank, np.cumsum([part.rows for part in parts])[:-1])
        self._seen += count
        found: list[Arrivals] = []
        for intake, part, where in zip(self._intakes, parts, positions, strict=True):
            if part.rows:
                found += intake.take(part, where)
        if not found:
            nothing = np.empty(0, np.int64)
            return Arrivals(nothing, nothing, nothing, nothing.astype(np.int32), nothing)
        if len(found) == 1:
            return found[0]
        return joined(found)

    # Matches

    def _emit(self, ends: Ends) -> None:
        try:
            with self._rejects.held():
                found = self._found(ends)
        except BudgetError:
            self._release_matches()
            halves = ends.halves(self._candidates, self._within)
            if halves is not None:
                for half in halves:
                    self._emit(half)
                return
            found = self._found(ends)
        if found:
            order = self._sorted(found)
            if self._apart:
                order = order[self._taken_apart(found, order)]
            if self._ones:
                order = order[self._consumed(found, order)]
            self._show(found, order)
        self._release_matches()

    def _found(self, ends: Ends) -> list[tuple[Search, Found]]:
        candidates = self._candidates
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

    def _sorted(self, found: list[tuple[Search, Found]]) -> Int64s:
        """The order in which matches come out, as numbers among all that were found."""
        candidates = self._candidates
        nodes = np.concatenate([matches.nodes for _, matches in found])
        positions = np.where(nodes >= 0, candidates.positions[candidates.at(nodes)], _END)
        keys: list[Int64s] = [positions[:, e] for e in range(nodes.shape[1] - 1, -1, -1)]
        completed = [
            np.full(len(matches), -1, np.int64)
            if search.order.waits
            else candidates.positions[candidates.at(matches.nodes[:, search.order.plain[-1]])]
            for search, matches in found
        ]
        waits = [np.full(len(matches), search.order.waits) for search, matches in found]
        times = [search.times(matches) for search, matches in found]
        keys += [np.concatenate(completed), np.concatenate(waits), np.concatenate(times)]
        return np.lexsort(keys)

    def _taken_apart(self, found: list[tuple[Search, Found]], order: Int64s) -> Bools:
        """Which of the matches, in this order, share no event with one before."""
        firsts = [matches.nodes[:, search.order.plain[0]] for search, matches in found]
        lasts = [matches.nodes[:, search.order.plain[-1]] for search, matches in found]
        return self._candidates.take_apart(np.concatenate(firsts)[order], np.concatenate(lasts)[order])

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
        return self._candidates.take_once(upto, node[by_match])

    def _show(self, found: list[tuple[Search, Found]], order: Int64s) -> None:
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
            order = np.argsort(np.concatenate(places))
            self._outgoing.put(Chunk(together.times[order], together.arrow.take(pa.array(order))))

    def snapshot(self) -> dict[str, Any]:
        return {
            "ports": None if self._ports is None else self._ports.snapshot(),
            "candidates": self._candidates.snapshot(),
            "rows": [None if rows is None else rows.snapshot() for rows in self._rows],
            "seen": self._seen,
            "left": self._left,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        if self._ports is not None:
            self._ports.restore(snapshot["ports"])
        self._candidates.restore(snapshot["candidates"])
        for rows, saved in zip(self._rows, snapshot["rows"], strict=True):
            if rows is not None:
                rows.restore(saved)
        self._seen, self._left = snapshot["seen"], snapshot["left"].copy()
