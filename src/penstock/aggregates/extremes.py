"""MIN and MAX: selective states whose answers can be merged, for the extreme of all is the extreme of the extremes.

Created by the factory; driven by the operator through `AggregateState`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.aggregates.columns import INT32, NO_INTEGERS, plain
from penstock.aggregates.selective import SelectiveState
from penstock.aggregates.state import Argument, MergeableState, Rows, Schedule
from penstock.arrays import Slots

_NO_SLOTS: Slots = np.zeros(0, dtype=np.int32)
_ZERO, _NOTHING = np.zeros(1, dtype=np.int64), pa.nulls(0, pa.int8())


class ExtremeState(SelectiveState, MergeableState):
    """MIN or MAX of one argument."""

    def export(self, slots: Slots) -> pa.Array:
        none = self._rows(_NO_SLOTS, _NOTHING)
        ((values, valid, _),) = self.advance(none, none, Schedule(_ZERO, _ZERO, _ZERO + len(slots), slots))
        return pa.array(values, mask=None if valid is None else ~valid)

    def absorb(self, slots: Slots, partials: pa.Array) -> None:
        """Each partial enters like a row."""
        none = self._rows(_NO_SLOTS, _NOTHING)
        entering = self._rows(plain(slots, INT32), partials)
        self.advance(entering, none, Schedule(_ZERO + len(slots), _ZERO, _ZERO, _NO_SLOTS))

    def _rows(self, slots: Slots, values: pa.Array) -> Rows:
        valid = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else None
        given = values.fill_null(0) if values.null_count else values
        argument = Argument(given.to_numpy(zero_copy_only=False).astype(self._storage, copy=False), valid)
        return Rows(np.arange(len(slots)) if len(slots) else NO_INTEGERS, slots, (argument,))
