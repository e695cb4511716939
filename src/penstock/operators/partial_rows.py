"""Partial rows: what a part of a window contributes to evaluations, one row per evaluation and group.

    window_start, window_end | #0, #1, ... the group's keys | rows: how many it has | $0, $1, ... a partial per state

A part writes them (`operators.parts`), `operators.merging` reads them. What a partial is, is said in
`aggregates.partials`; strings travel as strings. The schema carries the version of the partials.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.kinds import Partial
from penstock.aggregates.partials import VERSION, partial_type
from penstock.arrays import Int64s, Slots
from penstock.errors import CheckpointError
from penstock.expressions.batch import Batch
from penstock.operators.aggregation import EMITTED_AT_ONCE, Aggregation
from penstock.operators.chunk import Chunk
from penstock.operators.columns import to_data, validity
from penstock.operators.outgoing import Outgoing
from penstock.plan.nodes import WINDOW_COLUMNS, AggregateNode, StateSpec
from penstock.types import SqlType

_VERSION_KEY = b"penstock.partials"
_TIMESTAMP = SqlType.TIMESTAMP.arrow
ROWS = "rows"


def partial_schema(node: AggregateNode) -> pa.Schema:
    """The columns of an aggregation's partial rows."""
    fields = [pa.field(f.name, f.type.arrow, f.nullable) for f in WINDOW_COLUMNS]
    fields += [pa.field(f"#{i}", key.type.arrow) for i, key in enumerate(node.group_by)]
    fields.append(pa.field(ROWS, pa.int64(), False))
    fields += [pa.field(f"${i}", _travelling_type(state)) for i, state in enumerate(node.states)]
    return pa.schema(fields, {_VERSION_KEY: str(VERSION).encode()})


def check_version(schema: pa.Schema) -> None:
    """Refuses partial rows of another version."""
    found = (schema.metadata or {}).get(_VERSION_KEY, b"none").decode()
    if found != str(VERSION):
        raise CheckpointError(
            f"partial aggregates of version {found} reached a process that reads version {VERSION}: "
            "run the same version of Penstock on all workers"
        )


def _travelling_type(state: StateSpec) -> pa.DataType:
    types = tuple(arg.type for arg in state.args)
    if state.traits.partial is Partial.VALUE and types[0] is SqlType.STRING:
        return pa.string()
    return partial_type(state.traits, types)


class _Look(NamedTuple):
    slots: Slots
    starts: Int64s
    ends: Int64s
    counts: Int64s
    partials: list[pa.Array]


class PartialRows:
    """Collects the partial rows of consecutive evaluations for one query, whose states are those of the aggregation
    that `states` names. Between a `look` and the next `flush` no slot may be given to another group."""

    def __init__(self, node: AggregateNode, aggregation: Aggregation, states: Sequence[int]) -> None:
        self._aggregation = aggregation
        self._states = states
        self._schema = partial_schema(node)
        self._kinds = {f"#{i}": key.type for i, key in enumerate(node.group_by)}
        self._looks: list[_Look] = []
        self._pending = 0
        self.outgoing = Outgoing()

    def look(self, slots: Slots, starts: Int64s, ends: Int64s, partials: Sequence[pa.Array]) -> None:
        """Groups as they are now, with the partials of all states; the row of slots[i] is of the window [starts[i],
        ends[i])."""
        own = [partials[state] for state in self._states]
        self._looks.append(_Look(slots, starts, ends, self._aggregation.counts[slots], own))
        self._pending += len(slots)
        if self._pending >= EMITTED_AT_ONCE:
            self.flush()

    def chunks(self) -> list[Chunk]:
        """Everything looked at since the last call."""
        self.flush()
        return self.outgoing.take()

    def flush(self) -> None:
        """From here on slots may change hands."""
        looks, self._looks, self._pending = self._looks, [], 0
        if not looks:
            return
        slots, starts, ends, counts = (np.concatenate(column) for column in list(zip(*looks, strict=True))[:4])
        keys = self._aggregation.groups.keys(slots)
        # Groups of windows that close as a whole have the window as a first key.
        keys = keys[len(keys) - len(self._kinds) :]
        named = Batch(self._kinds, dict(zip(self._kinds, keys, strict=True)), len(slots))
        arrays = [pa.array(starts).view(_TIMESTAMP), pa.array(ends).view(_TIMESTAMP)]
        arrays += [named.column(name) for name in self._kinds]
        arrays.append(pa.array(counts))
        for i, pieces in enumerate(zip(*(look.partials for look in looks), strict=True)):
            arrays.append(self._travelling(i, pa.concat_arrays(pieces)))
        self.outgoing.put(Chunk(ends - 1, pa.RecordBatch.from_arrays(arrays, schema=self._schema)))

    def _travelling(self, state: int, partials: pa.Array) -> pa.Array:
        interner = self._aggregation.first_interners[self._states[state]]
        if interner is None or self._schema.field(f"${state}").type != pa.string():
            return partials
        codes = partials.fill_null(0).to_numpy(zero_copy_only=False)
        return to_data(codes, validity(partials), SqlType.STRING, interner)
