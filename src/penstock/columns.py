"""A column of values as every stateful part sees it: numpy values of fixed width and, beside them, which are NULL."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from penstock.arrays import Bools, Int64s, Slots

Values = NDArray[Any]


class Argument(NamedTuple):
    """One column: `values` has the numpy dtype of its storage type; `valid` None means no NULL."""

    values: Values
    valid: Bools | None

    def at(self, rows: slice | Int64s | Slots | Bools) -> Argument:
        """Some of its rows."""
        return Argument(self.values[rows], None if self.valid is None else self.valid[rows])
