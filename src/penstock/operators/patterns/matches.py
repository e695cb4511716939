"""Matches as they are found, and the columns that conditions and outputs see of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.expressions.batch import Batch, Data
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Column, Expression, walk
from penstock.expressions.vector import Vector, constant
from penstock.operators.emitter import as_row
from penstock.operators.patterns.candidates import Candidates
from penstock.operators.patterns.rows import PatternRows
from penstock.plan.patterns.nodes import PatternNode
from penstock.rejects import Reject
from penstock.types import SqlType


@dataclass(frozen=True)
class Repeats:
    """The events of a repeated element: event i belongs to match `owners[i]`; in the order of (match, event)."""

    owners: Int64s
    nodes: Int64s

    def of(self, keep: Bools) -> Repeats:
        """Those of the matches that are kept, which are numbered anew."""
        mine = keep[self.owners]
        return Repeats((np.cumsum(keep) - 1)[self.owners[mine]], self.nodes[mine])

    def bounds(self, matches: int) -> tuple[Int64s, Int64s]:
        """The first and the last event of each match; every match has some."""
        first = np.searchsorted(self.owners, np.arange(matches))
        last = np.searchsorted(self.owners, np.arange(matches), "right") - 1
        return self.nodes[first], self.nodes[last]


@dataclass(frozen=True)
class Found:
    """Matches or parts of them, one per row. `nodes[:, e]` is the node of plain element e, or -1; `origins` says from
    which anchor each was found; `repeats` has the events of repeated elements."""

    nodes: Int64s
    origins: Int64s
    repeats: Mapping[int, Repeats]

    def __len__(self) -> int:
        return len(self.nodes)

    def where(self, keep: Bools) -> Found:
        if keep.all():
            return self
        return Found(self.nodes[keep], self.origins[keep], {e: r.of(keep) for e, r in self.repeats.items()})


class Condition:
    """A compiled condition and the columns it reads."""

    def __init__(self, expression: Expression) -> None:
        self.compiled = compile_expression(expression)
        self.columns = list(dict.fromkeys(node for node in walk(expression) if isinstance(node, Column)))


class View:
    """What expressions see: `element.column` of the events that nodes stand for."""

    def __init__(
        self, node: PatternNode, candidates: Candidates, rows: Sequence[PatternRows | None], reject: Reject
    ) -> None:
        self.elements = len(node.elements)
        self._elements = {element.name: (i, element.input) for i, element in enumerate(node.elements)}
        self._candidates = candidates
        self._rows = rows
        self._reject = reject

    def batch(self, nodes: Int64s, columns: Sequence[Column], given: Mapping[str, Data] | None = None) -> Batch:
        """The columns of these matches; nodes[:, e] is that of element e, or -1. Aggregates are `given`, or NULL where
        the matches do not have their element."""
        kinds = {column.name: column.type for column in columns}
        data: dict[str, Data] = {}
        by_element: dict[int, list[str]] = {}
        for name in kinds:
            if given is not None and name in given:
                data[name] = given[name]
            elif name.startswith("$"):
                data[name] = _nothing(kinds[name], len(nodes))
            else:
                by_element.setdefault(self._elements[name.partition(".")[0]][0], []).append(name)
        for element, names in by_element.items():
            data |= zip(names, self._gather(element, names, nodes[:, element], kinds), strict=True)
        return Batch(kinds, data, len(nodes))

    def _gather(self, element: int, names: list[str], nodes: Int64s, kinds: Mapping[str, SqlType]) -> list[Data]:
        there = nodes >= 0
        if not there.any():
            return [_nothing(kinds[name], len(nodes)) for name in names]
        rows = self._rows[next(i for e, i in self._elements.values() if e == element)]
        assert rows is not None, "a column that is read is kept"
        at = self._candidates.at(nodes if there.all() else nodes[there])
        found = rows.gather(self._candidates.rows[at], [name.partition(".")[2] for name in names])
        return found if there.all() else [_spread(data, there) for data in found]

    def holds(self, condition: Condition, nodes: Int64s, given: Mapping[str, Data] | None = None) -> Bools:
        """For which rows the condition is true; those on which it fails are rejected."""
        if not len(nodes):
            return np.empty(0, np.bool_)
        rows = self.batch(nodes, condition.columns, given)
        result = condition.compiled(rows)
        errors = result.errors
        if errors is not None:
            for row in errors.rows:
                self._reject(errors.reasons[errors.codes[row] - 1], as_row(rows, int(row)))
        return result.true


def _nothing(kind: SqlType, rows: int) -> Data:
    if kind is SqlType.STRING:
        return pa.nulls(rows, pa.string())
    vector = constant(None, kind)
    return Vector(np.repeat(vector.values, rows), np.zeros(rows, np.bool_))


def _spread(data: Data, there: Bools) -> Data:
    """The values in their rows among others that are NULL."""
    place = np.cumsum(there) - 1
    if isinstance(data, Vector):
        values = data.values[np.where(there, place, 0)]
        return Vector(values, there if data.valid is None else there & data.valid[np.where(there, place, 0)])
    assert isinstance(data, pa.Array)
    return data.take(pa.array(place, mask=~there))
