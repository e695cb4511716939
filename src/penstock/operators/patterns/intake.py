"""From the rows of a pattern's inputs to events in the places of elements: filters, keys, and the values to keep."""

from __future__ import annotations

from collections.abc import Sequence

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


class InputIntake:
    """One input of a pattern; its elements and their keys."""

    def __init__(
        self,
        number: int,
        elements: Sequence[ElementPlan],
        groups: GroupTable,
        rows: PatternRows | None,
        resources: Resources,
    ) -> None:
        keys: dict[tuple[Expression, ...], int] = {}
        self._places = [
            _Place(i, e, keys.setdefault(e.keys, len(keys)) if e.keys else -1, resources)
            for i, e in enumerate(elements)
            if e.input == number
        ]
        self._keys = [_Key(key) for key in keys]
        self._groups = groups
        self._rows = rows

    def take(self, chunk: Chunk, positions: Int64s) -> list[Arrivals]:
        """For each element the events of the chunk that may stand for it. Events that fit no element are not kept."""
        keys = [key.evaluated(chunk) for key in self._keys]
        wanted: list[Bools | None] = [None] * len(keys)
        passing: list[tuple[_Place, Bools]] = []
        kept = np.zeros(chunk.rows, np.bool_)
        for place in self._places:
            keep = place.filter.passes(chunk)
            known = keys[place.key][1] if place.key >= 0 else None
            if keep is None:
                keep = np.ones(chunk.rows, np.bool_) if known is None else known
            elif known is not None:
                keep = keep & known
            passing.append((place, keep))
            kept |= keep
            if place.key >= 0:
                before = wanted[place.key]
                wanted[place.key] = keep if before is None else before | keep
        if not kept.any():
            return []
        rows = np.zeros(chunk.rows, np.int64) if self._rows is None else self._rows.append(chunk, kept)
        slots: list[Slots] = []
        for (columns, _), mine in zip(keys, wanted, strict=True):
            every = mine is None or mine.all()
            slots.append(self._groups.assign(columns, chunk.rows, None if every else mine) + 1)
        slots.append(np.zeros(chunk.rows, np.int32))  # for key -1
        found = []
        for place, keep in passing:
            if keep.all():
                own = (chunk.times, positions, slots[place.key], rows)
            else:
                at = np.flatnonzero(keep)
                if not len(at):
                    continue
                own = (chunk.times[at], positions[at], slots[place.key][at], rows[at])
            element = np.full(len(own[0]), place.number, np.int64)
            found.append(Arrivals(own[0], own[1], element, own[2], own[3]))
        return found
