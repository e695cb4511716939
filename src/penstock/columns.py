"""A column of values as every stateful part sees it: numpy values of fixed width and, beside them, which are NULL."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from penstock.arrays import Bools

Values = NDArray[Any]


class Argument(NamedTuple):
    """One column: `values` has the numpy dtype of its storage type; `valid` None means no NULL."""

    values: Values
    valid: Bools | None
