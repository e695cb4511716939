"""What groups hold, as columns of a log: where no row leaves a window, that is all there is to know of its rows.

    #0, #1, ... the keys | rows: how many rows the group has | $0, $1, ... what each state holds of it

What a state holds of a group is a partial (`aggregates.partials`). Texts are texts here, and codes in states.

Why: docs/decisions/landmarks-keep-groups.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.aggregates.kinds import Partial
from penstock.aggregates.partials import entry_type, partial_type
from penstock.aggregates.state import Argument
from penstock.arrays import Slots
from penstock.expressions.batch import Batch
from penstock.expressions.vector import ColumnView, Evaluated
from penstock.operators.aggregation import Aggregation
from penstock.operators.arguments import codes_in_use
from penstock.operators.columns import to_data, validity
from penstock.operators.interner import Interner
from penstock.plan.nodes import StateSpec
from penstock.types import SqlType

ROWS = "rows"

_MOST_ROWS = 1 << 14
"""So many groups are put into columns together at most."""

_MARK, _KEY, _PAYLOAD = range(3)
"""The fields of a row that answers."""

_VALUE = 3
"""The mark of a row that has a value."""


def have_columns(states: Sequence[StateSpec]) -> bool:
    """Whether what these states hold can be columns. Others need their rows."""
    return all(state.traits.partial is not None for state in states)


class GroupColumns:
    """Those of groups with keys of these types, which have these states. A shard is in a log by all keys."""

    def __init__(self, key_types: tuple[SqlType, ...], states: tuple[StateSpec, ...]) -> None:
        self.key_types = key_types
        self._kinds = {f"#{i}": kind for i, kind in enumerate(key_types)}
        self._states = states

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field(name, kind.arrow) for name, kind in self._kinds.items()]
        states = [pa.field(f"${i}", _logged_type(state)) for i, state in enumerate(self._states)]
        return pa.schema([*fields, pa.field(ROWS, pa.int64()), *states])

    def parts(self, aggregation: Aggregation, most_bytes: int) -> Iterator[list[pa.Array]]:
        """The groups that have rows, so many at a time that the columns take about so many bytes."""
        slots = np.flatnonzero(aggregation.counts).astype(np.int32)
        group_bytes = max(1, aggregation.nbytes // max(1, len(slots)))
        step = min(max(1, most_bytes // group_bytes), _MOST_ROWS)
        for begin in range(0, len(slots), step):
            yield self._of(aggregation, slots[begin : begin + step])

    def _of(self, aggregation: Aggregation, slots: Slots) -> list[pa.Array]:
        keys = dict(zip(self._kinds, aggregation.groups.keys(slots), strict=True))
        batch = Batch(self._kinds, keys, len(slots))
        columns = [batch.column(name) for name in self._kinds]
        columns.append(pa.array(aggregation.counts[slots]))
        for i, partials in enumerate(aggregation.export(slots)):
            columns.append(self._with_texts(i, partials, aggregation))
        return columns

    def enter(self, aggregation: Aggregation, rows: pa.RecordBatch) -> None:
        """The groups of some rows, whose columns begin with a time, come to be in memory. None of them is there."""
        keys, reading = len(self._kinds), aggregation.intake
        views: list[Evaluated] = [ColumnView(rows.column(1 + i), kind) for i, kind in enumerate(self.key_types)]
        slots = reading.groups.assign(views, rows.num_rows, None)
        reading.counts[slots] = rows.column(1 + keys).to_numpy()
        partials = rows.columns[2 + keys :]
        aggregation.absorb(slots, [self._with_codes(i, own, aggregation) for i, own in enumerate(partials)])

    # Texts

    def _texts(self, state: int, aggregation: Aggregation) -> dict[int, Interner]:
        """The fields of a partial that are codes of texts, and whose; a partial that is no row has the one field 0."""
        intake, partial = aggregation.intake, self._states[state].traits.partial
        arguments = [intake.interners[at] for at in intake.state_columns[state].arguments]
        found: dict[int, Interner | None] = {}
        if partial is Partial.VALUE:
            found = {0: arguments[0]}
        elif partial is Partial.ENTRY:
            found = {_PAYLOAD: arguments[0], _KEY: arguments[1] if len(arguments) > 1 else None}
        return {field: interner for field, interner in found.items() if interner is not None}

    def _with_texts(self, state: int, partials: pa.Array, aggregation: Aggregation) -> pa.Array:
        texts = self._texts(state, aggregation)
        if not texts:
            return partials
        if not pa.types.is_struct(partials.type):
            codes = partials.fill_null(0).to_numpy(zero_copy_only=False)
            return to_data(codes, validity(partials), SqlType.STRING, texts[0])
        fields = partials.flatten()
        marks = fields[_MARK].to_numpy()
        for field, interner in texts.items():
            valid = marks == _VALUE if field == _PAYLOAD else marks > 0
            codes = fields[field].to_numpy().astype(np.int32)
            fields[field] = to_data(codes, valid, SqlType.STRING, interner)
        return pa.StructArray.from_arrays(fields, fields=list(_logged_type(self._states[state])))

    def _with_codes(self, state: int, partials: pa.Array, aggregation: Aggregation) -> pa.Array:
        texts = self._texts(state, aggregation)
        if not texts:
            return partials
        if not pa.types.is_struct(partials.type):
            valid = validity(partials)
            return pa.array(_codes(partials, texts[0]), mask=None if valid is None else ~valid)
        fields = partials.flatten()
        for field, interner in texts.items():
            fields[field] = pa.array(_codes(fields[field], interner).astype(np.int64))
        return pa.StructArray.from_arrays(fields, fields=list(entry_type(pa.int64(), pa.int64())))


def _codes(texts: pa.Array, interner: Interner) -> Slots:
    """The codes of texts, which are in use from here on."""
    codes = interner.encode(texts)
    interner.use(codes_in_use(Argument(codes, validity(texts)), None))
    interner.sweep()
    return codes


def _logged_type(state: StateSpec) -> pa.DataType:
    types, partial = tuple(arg.type for arg in state.args), state.traits.partial
    if partial is Partial.VALUE and types[0] is SqlType.STRING:
        return pa.string()
    if partial is Partial.ENTRY:
        has_text_key = len(types) > 1 and types[1] is SqlType.STRING
        return entry_type(
            pa.string() if has_text_key else pa.int64(), pa.string() if types[0] is SqlType.STRING else pa.int64()
        )
    return partial_type(state.traits, types)
