"""Which events of a shard have served: in the places of ONE elements, or as the last ones of matches that share none.

It is what rows alone do not say. A shard is told of it before its waiting events are played, and says afterwards what
has been added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.operators.chunk import CHUNK_ROWS
from penstock.operators.patterns.candidates import Candidates
from penstock.operators.patterns.logged import LAST, LoggedKey, by_event, elements_of, positions_of
from penstock.plan.patterns.nodes import PatternNode
from penstock.store.budget import Account

_EVENT_BYTES = 32
"""What is known of an event that has served takes, while it is put in order as well."""


def is_noted(node: PatternNode) -> bool:
    """Whether events of a pattern can have served."""
    return node.apart or any(element.one for element in node.elements)


class Served:
    """`batches` are rows of the log of events that have served. They are on the account until that is closed."""

    def __init__(self, batches: Iterable[pa.RecordBatch], account: Account) -> None:
        positions, elements = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for batch in batches:
            account.charge(_EVENT_BYTES * batch.num_rows)
            positions.append(positions_of(batch))
            elements.append(elements_of(batch))
        where, which = np.concatenate(positions), np.concatenate(elements)
        order = np.argsort(where, kind="stable")
        first, self._elements = by_event(where[order], which[order])
        self._positions: Int64s = where[order][first]

    def note(self, candidates: Candidates, first: int) -> None:
        """Tells what is known of the nodes from the first one on."""
        if not len(self._positions):
            return
        nodes = np.arange(first, candidates.stop)
        at = candidates.at(nodes)
        known = self._known(candidates.positions[at])
        candidates.note_served(nodes[_has(known, candidates.elements[at])], nodes[(known & LAST) != 0])

    def added(self, candidates: Candidates, key: LoggedKey, apart: bool) -> Iterator[list[pa.Array]]:
        """Columns of the log, for what has been added of the events that are still there."""
        for nodes in candidates.runs(CHUNK_ROWS):
            at = candidates.at(nodes)
            elements = np.where(candidates.used[at], np.int64(1) << candidates.elements[at].astype(np.int64), 0)
            if apart:
                elements[candidates.end_matches(nodes)] |= LAST
            elements &= ~self._known(candidates.positions[at])
            some = elements != 0
            if some.any():
                at = at[some]
                first, together = by_event(candidates.positions[at], elements[some])
                keys = key.of_slots(candidates.groups, candidates.slots[at[first]])
                yield [*keys, pa.array(together), pa.array(candidates.positions[at[first]])]

    def _known(self, positions: Int64s) -> Int64s:
        """The elements in whose places events have served, a bit each."""
        if not len(self._positions):
            return np.zeros(len(positions), np.int64)
        place = np.minimum(np.searchsorted(self._positions, positions), len(self._positions) - 1)
        return np.where(self._positions[place] == positions, self._elements[place], 0)


def _has(elements: Int64s, which: Int64s) -> Bools:
    """Which of these sets have the element."""
    found: Bools = (elements >> which.astype(np.int64)) & 1 == 1
    return found
