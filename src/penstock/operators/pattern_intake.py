"""From the rows of a pattern's inputs to events in the places of elements: filters, keys, and the values to keep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.aggregates.state import Bools, Int64s, Slots
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Expression
from penstock.operators.candidates import Arrivals
from penstock.operators.chunk import Chunk
from penstock.operators.columns import validity
from penstock.operators.grouping import Grouping
from penstock.operators.groups import GroupTable
from penstock.operators.pattern_rows import PatternRows
from penstock.operators.resources import Resources
from penstock.plan.pattern_nodes import ElementPlan
from penstock.plan.reads import GroupingKey
from penstock.types import SqlType


class _Place:
    """An element that an input's events may stand for."""

    def __init__(self, number: int, element: ElementPlan, resources: Resources) -> None:
        self.number = number
        self.keys = element.keys
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
        self._places = [_Place(i, e, resources) for i, e in enumerate(elements) if e.input == number]
        self._keys = {
            place.keys: [compile_expression(key) for key in place.keys] for place in self._places if place.keys
        }
        self._groups = groups
        self._rows = rows

    def take(self, chunk: Chunk, positions: Int64s) -> list[Arrivals]:
        """Of each element the events of the chunk that may stand for it; events that may for none are not kept."""
        passing: list[tuple[_Place, Bools]] = []
        valid: dict[tuple[Expression, ...], Bools | None] = {}
        evaluated = {keys: [key(chunk.columns) for key in compiled] for keys, compiled in self._keys.items()}
        for keys, columns in evaluated.items():
            known: Bools | None = None
            for column, key in zip(columns, keys, strict=True):
                own = validity(column.values) if key.type is SqlType.STRING else column.columns[1]
                known = own if known is None else known if own is None else known & own
            valid[keys] = known
        everything = np.ones(chunk.rows, np.bool_)
        kept = np.zeros(chunk.rows, np.bool_)
        for place in self._places:
            keep = place.filter.passes(chunk)
            keep = everything if keep is None else keep
            known = valid.get(place.keys)
            keep = keep if known is None else keep & known
            passing.append((place, keep))
            kept |= keep
        if not kept.any():
            return []
        rows = np.zeros(chunk.rows, np.int64) if self._rows is None else self._rows.append(chunk, kept)
        slots: dict[tuple[Expression, ...], Slots] = {(): np.zeros(chunk.rows, np.int32)}
        for keys, columns in evaluated.items():
            wanted = np.logical_or.reduce([keep for place, keep in passing if place.keys == keys])
            slots[keys] = self._groups.assign(columns, chunk.rows, None if wanted.all() else wanted) + 1
        found = []
        for place, keep in passing:
            at = np.flatnonzero(keep)
            element = np.full(len(at), place.number, np.int64)
            found.append(Arrivals(chunk.times[at], positions[at], element, slots[place.keys][at], rows[at]))
        return found
