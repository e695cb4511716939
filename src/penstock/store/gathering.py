"""Values from anywhere in many blocks that are in memory, in one loop.

A loop over arrays would have to go block by block, hence sort what is asked for. This one is given the addresses of the
blocks and reads from there: with 200 blocks it takes a third of the time.

The caller keeps the blocks alive, and asks only for rows that they have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from penstock.columns import Values
from penstock.jit import intrinsic, kernel, prefetch

_AHEAD = 24

WORDS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
"""What values of a width are read as."""


@intrinsic
def _load(typing: Any, address: Any, like: Any) -> Any:
    """The word at an address, of the type of `like`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = context.get_value_type(signature.return_type)
        return builder.load(builder.inttoptr(arguments[0], word.as_pointer()))

    return like(types.int64, like), generate


@kernel
def gather(
    addresses: NDArray[np.int64], blocks: NDArray[np.int64], first: int, rows: NDArray[np.int64], found: Values
) -> None:
    """Row `rows[i]` of block `blocks[i]` for all i; `addresses` are where the column begins in block `first` and those
    after it, and `found` has the width of the column."""
    width = found.itemsize
    ahead = len(rows) - _AHEAD
    for at in range(len(rows)):
        if at < ahead:
            prefetch(addresses[blocks[at + _AHEAD] - first] + rows[at + _AHEAD] * width)
        found[at] = _load(addresses[blocks[at] - first] + rows[at] * width, found[at])
