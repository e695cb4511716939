"""From the rows of a pattern's inputs to events in the places of elements: filters, keys, and the values to keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.arrays import Bools, Int64s, Slots
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Expression
from penstock.expressions.vector import Evaluated
from penstock.operators.chunk import Chunk
from penstock.operators.columns import validity
from penstock.operators.grouping import Grouping
from penstock.operators.groups import GroupTable
from penstock.operators.patterns.candidates import Arrivals
from penstock.operators.patterns.rows import PatternRows
from penstock.operators.resources import Resources
from penstock.plan.patterns.nodes import ElementPlan
from penstock.plan.reads import GroupingKey
from penstock.types import SqlType


class _Key:
    """A key that elements of the input have: what it is, and which of its events have it."""

    def __init__(self, keys: tuple[Expression, ...]) -> None:
        self._texts = [key.type is SqlType.STRING for key in keys]
        self._compiled = [compile_expression(key) for key in keys]

    def evaluated(self, chunk: Chunk) -> tuple[list[Evaluated], Bools | None]:
        """The key of each row, and the rows in which nothing of it is NULL; None for all."""
        columns = [compiled(chunk.columns) for compiled in self._compiled]
        known: Bools | None = None
        for column, is_text in zip(columns, self._texts, strict=True):
            own = validity(column.values) if is_text else column.columns[1]
            known = own if known is None else known if own is None else known & own
        return columns, known


class _Place:
    """An element that an input's events may stand for, and the number of its key; -1 for none."""

    def __init__(self, number: int, element: ElementPlan, key: int, resources: Resources) -> None:
        self.number = number
        self.key = key
        self.filter = Grouping(GroupingKey(element.filter, (), ()), [resources.reject])


class Passing(NamedTuple):
    """The events of a chunk that may stand for some element: those that are `kept`. `places` has the number of each
    element, the number of its key (-1 for none), and which events may stand for it; `keys` the keys by their numbers,
    with the events for which they are wanted (None for all)."""

    kept: Bools
    places: list[tuple[int, int, Bools]]
    keys: list[tuple[list[Evaluated], Bools | None]]


class InputIntake:
    """One input of a pattern; its elements and their keys."""

    def __init__(self, number: int, elements: Sequence[ElementPlan], resources: Resources) -> None:
        keys: dict[tuple[Expression, ...], int] = {}
        self._places = [
            _Place(i, e, keys.setdefault(e.keys, len(keys)) if e.keys else -1, resources)
            for i, e in enumerate(elements)
            if e.input == number
        ]
        self._keys = [_Key(key) for key in keys]

    def passing(self, chunk: Chunk) -> Passing | None:
        """What of the chunk passes the filters and has the keys; None if that is nothing."""
        keys = [key.evaluated(chunk) for key in self._keys]
        wanted: list[Bools | None] = [None] * len(keys)
        places: list[tuple[int, int, Bools]] = []
        kept = np.zeros(chunk.rows, np.bool_)
        for place in self._places:
            keep = place.filter.passes(chunk)
            known = keys[place.key][1] if place.key >= 0 else None
            if keep is None:
                keep = np.ones(chunk.rows, np.bool_) if known is None else known
            elif known is not None:
                keep = keep & known
            places.append((place.number, place.key, keep))
            kept |= keep
            if place.key >= 0:
                before = wanted[place.key]
                wanted[place.key] = keep if before is None else before | keep
        if not kept.any():
            return None
        some = [None if mine is None or mine.all() else mine for mine in wanted]
        return Passing(kept, places, [(columns, mine) for (columns, _), mine in zip(keys, some, strict=True)])

    def take(self, chunk: Chunk, positions: Int64s, groups: GroupTable, store: PatternRows | None) -> list[Arrivals]:
        """For each element the events of the chunk that may stand for it. Events that fit no element are not kept."""
        passing = self.passing(chunk)
        if passing is None:
            return []
        rows = np.zeros(chunk.rows, np.int64) if store is None else store.append(chunk, passing.kept)
        slots: list[Slots] = [groups.assign(columns, chunk.rows, wanted) + 1 for columns, wanted in passing.keys]
        slots.append(np.zeros(chunk.rows, np.int32))  # for key -1
        found = []
        for number, key, keep in passing.places:
            if keep.all():
                own = (chunk.times, positions, slots[key], rows)
            else:
                at = np.flatnonzero(keep)
                if not len(at):
                    continue
                own = (chunk.times[at], positions[at], slots[key][at], rows[at])
            element = np.full(len(own[0]), number, np.int64)
            found.append(Arrivals(own[0], own[1], element, own[2], own[3]))
        return found
