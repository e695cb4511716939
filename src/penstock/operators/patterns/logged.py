"""What of the events of a pattern goes to logs, and how it comes back.

    of an input      time | #0, #1, ... the key | $column, ... what is kept | the elements | the position
    of what served   time | #0, #1, ... the key |                             the elements | the position

The elements are a bit each: those that the event may stand for, or those in whose places it has served (ONE). The bit
`LAST` says that a match which shares no event with another (`PatternNode.apart`) ended with the event.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s, Slots, UInt64s
from penstock.expressions.batch import Batch, Data
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Column
from penstock.operators.chunk import Chunk
from penstock.operators.groups import GroupTable
from penstock.operators.paged.hashing import key_hashes
from penstock.operators.patterns.candidates import Candidates
from penstock.operators.patterns.intake import Passing
from penstock.operators.patterns.rows import PatternRows
from penstock.plan.patterns.columns import kept_columns
from penstock.plan.patterns.nodes import PatternNode
from penstock.types import SqlType

MOST_ELEMENTS = 62
"""So many elements have a bit."""

LAST = 1 << MOST_ELEMENTS

_POSITION = [pa.field("elements", pa.int64()), pa.field("@", pa.int64())]


class LoggedKey:
    """The key that all elements of a pattern have."""

    def __init__(self, node: PatternNode) -> None:
        self.types = tuple(key.type for key in node.elements[0].keys)
        self.names = [f"#{i}" for i in range(len(self.types))]
        self._columns = [
            compile_expression(Column(name, kind)) for name, kind in zip(self.names, self.types, strict=True)
        ]

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(name, kind.arrow) for name, kind in zip(self.names, self.types, strict=True)]

    @property
    def served_schema(self) -> pa.Schema:
        """Of a log of events that have served."""
        return pa.schema([*self.fields, *_POSITION])

    def of_slots(self, groups: GroupTable, slots: Slots) -> list[pa.Array]:
        """The keys of slots of the ring."""
        keys = groups.keys(slots - 1)
        return [as_column(data, kind, len(slots)) for data, kind in zip(keys, self.types, strict=True)]

    def slots_of(self, groups: GroupTable, chunk: Chunk) -> Slots:
        """The slots of the ring that rows out of a log have."""
        slots: Slots = groups.assign([column(chunk.columns) for column in self._columns], chunk.rows, None) + 1
        return slots

    def places(self, batch: pa.RecordBatch, count: int) -> UInt64s:
        """Which of so many places, a power of two, each row has by its key. They go by other bits than shards."""
        keys = batch.columns[1 : 1 + len(self.types)]
        places: UInt64s = key_hashes(keys, self.types, batch.num_rows) & np.uint64(count - 1)
        return places


class LoggedInput:
    """One input of a pattern. `completes` and `waits` are the bits of its elements that complete a match, and of those
    with which a match begins that is decided when its time is over."""

    def __init__(self, node: PatternNode, number: int, key: LoggedKey) -> None:
        self.number = number
        self.elements = [i for i, element in enumerate(node.elements) if element.input == number]
        ends = {order.plain[-1] for order in node.orders if not order.waits}
        begins = {order.plain[0] for order in node.orders if order.waits}
        self.completes = sum(1 << element for element in self.elements if element in ends)
        self.waits = sum(1 << element for element in self.elements if element in begins)
        self._key = key
        kinds = {field.name: field.type for field in node.inputs[number].schema}
        self._kinds: dict[str, SqlType] = {name: kinds[name] for name in kept_columns(node, number)}
        self._columns = [compile_expression(Column(name, kind)) for name, kind in self._kinds.items()]

    @property
    def log_schema(self) -> pa.Schema:
        kept = [pa.field(f"${name}", kind.arrow) for name, kind in self._kinds.items()]
        return pa.schema([*self._key.fields, *kept, *_POSITION])

    def of(self, chunk: Chunk, passing: Passing, positions: Int64s) -> tuple[Chunk, list[pa.Array]]:
        """The events that are kept, and their columns in the log."""
        elements = np.zeros(chunk.rows, np.int64)
        for number, _, keep in passing.places:
            elements |= keep.astype(np.int64) << number
        kept = chunk.filter(passing.kept)
        [(keys, _)] = passing.keys
        chosen = pa.array(passing.kept)
        columns = [key.values.filter(chosen) for key in keys]
        columns += [column(kept.columns).values for column in self._columns]
        return kept, [*columns, pa.array(elements[passing.kept]), pa.array(positions[passing.kept])]

    def of_nodes(
        self, candidates: Candidates, nodes: Int64s, store: PatternRows | None
    ) -> tuple[Int64s, list[pa.Array]] | None:
        """The times and the columns in the log of events that have been in memory; None if there is none of this input.
        All nodes of an event are among these."""
        at = candidates.at(nodes)
        at = at[np.isin(candidates.elements[at], self.elements)]
        if not len(at):
            return None
        first, elements = by_event(candidates.positions[at], np.int64(1) << candidates.elements[at].astype(np.int64))
        at = at[first]
        columns = self._key.of_slots(candidates.groups, candidates.slots[at])
        if store is not None:
            values = store.gather(candidates.rows[at], list(self._kinds))
            kinds = self._kinds.values()
            columns += [as_column(data, kind, len(at)) for data, kind in zip(values, kinds, strict=True)]
        return candidates.times[at], [*columns, pa.array(elements), pa.array(candidates.positions[at])]

    def chunk(self, batch: pa.RecordBatch) -> Chunk:
        """Rows out of the log."""
        names = [*self._key.names, *self._kinds]
        times: Int64s = batch.column(0).to_numpy()
        return Chunk(times, pa.RecordBatch.from_arrays(batch.columns[1:-2], names=names))


def elements_of(batch: pa.RecordBatch) -> Int64s:
    """The elements of rows of a log, a bit each."""
    elements: Int64s = batch.column(batch.num_columns - 2).to_numpy()
    return elements


def positions_of(batch: pa.RecordBatch) -> Int64s:
    positions: Int64s = batch.column(batch.num_columns - 1).to_numpy()
    return positions


def by_event(positions: Int64s, elements: Int64s) -> tuple[Int64s, Int64s]:
    """The first row of each event, of rows in the order of their positions, and all elements of its rows."""
    first = np.flatnonzero(np.append(True, positions[1:] != positions[:-1])[: len(positions)])
    return first, np.bitwise_or.reduceat(elements, first) if len(first) else elements


def as_column(data: Data, kind: SqlType, rows: int) -> pa.Array:
    return Batch({"": kind}, {"": data}, rows).column("")
