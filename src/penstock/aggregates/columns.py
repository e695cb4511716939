"""What the kernels are called with: columns of one fixed layout, so that each kernel is compiled once.

A column that comes from a block may be read-only, strided or of a narrower type; numba would compile another variant
for it. It is copied then; the common case costs a check.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.aggregates.state import Rows
from penstock.arrays import Bools

ALL_VALID: Bools = np.zeros(0, dtype=np.bool_)
NO_INTEGERS: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
NO_FLOATS: NDArray[np.float64] = np.zeros(0, dtype=np.float64)

FLOAT64 = np.dtype(np.float64)
INT64 = np.dtype(np.int64)
INT32 = np.dtype(np.int32)
BOOL = np.dtype(np.bool_)


def plain(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The array itself if it is contiguous, writable and of this type, else a copy that is."""
    return array if array.flags.carray and array.dtype is dtype else np.array(array, dtype=dtype, order="C")


def column(rows: Rows, index: int, dtype: np.dtype[Any]) -> tuple[NDArray[Any], Bools, bool]:
    """An argument's values, its validity and whether there is one (without NULLs the mask is a dummy)."""
    values, valid = rows.arguments[index]
    if valid is None:
        return plain(values, dtype), ALL_VALID, False
    return plain(values, dtype), plain(valid, BOOL), True
