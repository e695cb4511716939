"""The one way to compile a hot loop: numba, cached on disk, without the GIL.

A kernel has a fixed signature (plain numpy arrays and scalars), so nothing is compiled per query. Write kernels as
module-level functions; numba's cache is keyed on the source file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """Compiles on first use and caches; wraparound and bounds checks are off, division by zero does not raise."""
    return cast(Function, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def inline(function: Function) -> Function:
    """A kernel that is always inlined into its callers."""
    return cast(Function, numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")(function))


def tight(function: Function) -> Function:
    """A kernel that allocates nothing and calls only tight kernels.

    Numba then counts no references to its arrays. Those counts are atomic, and in a loop that calls helpers they cost
    more than the work (a monotonic deque: 18 M events/s with them, 45 M without).
    """
    return cast(Function, numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)(function))
