"""Groups of a window that have been in memory since before its other groups went to shards.

They stay there until the window closes. Then each shard has its part of them: those whose keys would be in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Slots, UInt64s
from penstock.expressions.vector import ColumnView, Evaluated, Vector, to_arrow
from penstock.operators.groups import GroupTable
from penstock.operators.paged.hashing import key_hashes
from penstock.store.budget import Account
from penstock.types import SqlType

_SLOT_BITS = np.uint64(32)

_AT_ONCE = 1 << 14
"""So many keys are hashed together."""


def keys_of(groups: GroupTable, slots: Slots, types: Sequence[SqlType]) -> list[pa.Array]:
    """The last keys of groups, which have these types."""
    keys = groups.keys(slots)[-len(types) :]
    return [
        to_arrow(key, kind, len(slots)) if isinstance(key, Vector) else key
        for key, kind in zip(keys, types, strict=True)
    ]


def keys_or_null(groups: GroupTable, slots: Slots, types: Sequence[SqlType]) -> list[pa.Array]:
    """The same of rows; NULL for those without a slot."""
    there: Bools = slots >= 0
    if not there.any():
        return [pa.nulls(len(slots), kind.arrow) for kind in types]
    columns = keys_of(groups, np.where(there, slots, slots[there][0]), types)
    if there.all():
        return columns
    places = pa.array(np.arange(len(slots)), mask=~there)
    return [column.take(places) for column in columns]


class HeldGroups:
    """The groups that have these slots. The last of their keys have these `types`; before them may be the window."""

    def __init__(self, groups: GroupTable, slots: Slots, types: Sequence[SqlType], account: Account) -> None:
        self._groups = groups
        self._types = tuple(types)
        self._account = account
        account.charge(8 * len(slots))
        self._places: UInt64s = np.empty(len(slots), np.uint64)
        """The upper half of each group's hash, and its slot, in order."""
        for begin in range(0, len(slots), _AT_ONCE):
            own = slots[begin : begin + _AT_ONCE]
            hashes = key_hashes(keys_of(groups, own, self._types), self._types, len(own))
            self._places[begin : begin + len(own)] = hashes >> _SLOT_BITS << _SLOT_BITS | own.astype(np.uint64)
        self._places.sort()

    def __len__(self) -> int:
        return len(self._places)

    def of(self, prefix: int, bits: int) -> Slots:
        """Those whose hashes begin with these upper bits, of which there are no more than 32."""
        first = int(np.searchsorted(self._places, np.uint64(prefix << 64 - bits)))
        last = len(self)
        if prefix + 1 < 1 << bits:
            last = int(np.searchsorted(self._places, np.uint64(prefix + 1 << 64 - bits)))
        return self._places[first:last].astype(np.uint32).astype(np.int32)

    def begin(self, groups: GroupTable, slots: Slots) -> None:
        """These come first in a new table: what has a slot there below their number is one of them."""
        for begin in range(0, len(slots), _AT_ONCE):
            own = slots[begin : begin + _AT_ONCE]
            keys = keys_of(self._groups, own, self._types)
            views: list[Evaluated] = [ColumnView(key, kind) for key, kind in zip(keys, self._types, strict=True)]
            groups.assign(views, len(own), None)

    def close(self) -> None:
        self._account.release(self._places.nbytes)
