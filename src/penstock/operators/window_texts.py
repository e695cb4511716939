"""Which strings the rows of open windows have, where rows are not kept: they are let go when their window closes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s, Slots
from penstock.expressions.vector import ColumnView
from penstock.operators.groups import GroupTable
from penstock.operators.interner import Interner
from penstock.store.budget import Account
from penstock.types import SqlType

_PAIR = (SqlType.BIGINT, SqlType.BIGINT)


class WindowTexts:
    """The distinct pairs (instance of a window, code) of one column of strings. Each is one use of the code."""

    def __init__(self, interner: Interner, account: Account) -> None:
        self._interner = interner
        self._pairs = GroupTable(_PAIR, account)

    def enter(self, instances: Int64s, column: Argument, among: Bools) -> None:
        """Rows enter windows; the strings of those that are not `among` them are not used."""
        if column.valid is not None:
            among = among & column.valid
        codes: Slots = column.values[among]
        pairs = [ColumnView(pa.array(part), SqlType.BIGINT) for part in (instances[among], codes.astype(np.int64))]
        found = np.unique(self._pairs.assign(list(pairs), len(codes), None))
        fresh = found[self._pairs.counts[found] == 0]
        self._pairs.counts[fresh] = 1
        self._interner.use(self._pairs.words(fresh, 1).astype(np.int32))
        self._interner.sweep()

    def close(self, instances: Int64s) -> None:
        """These windows are over."""
        used = np.flatnonzero(self._pairs.counts).astype(np.int32)
        gone = used[np.isin(self._pairs.words(used), instances)]
        self._interner.release(self._pairs.words(gone, 1).astype(np.int32))
        self._pairs.counts[gone] = 0
        self._pairs.collect(len(gone))

    def snapshot(self) -> dict[str, Any]:
        return self._pairs.snapshot()

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._pairs.restore(snapshot)
