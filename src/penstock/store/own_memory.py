"""Large arrays in memory of their own, which goes back to the system as soon as the array is gone.

The allocator keeps memory that is freed in the middle of its heap. An array that grows leaves such holes behind, one
after the other, and the process then holds much more memory than its arrays need. An array with a mapping of its own
leaves no hole.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_LARGE = 1 << 19
"""Bytes from which on an array has memory of its own."""

_HUGE = 1 << 22
"""Bytes from which on it asks for huge pages, as numpy does."""


_PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
"""A process that is forked has a copy. What is shared would also outlive `give_back`."""


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array of zeros; its memory is taken as it is written to.

    >>> large = zeros((1 << 17, 2), np.int64)
    >>> large.shape, int(large.sum()), large.flags.writeable
    ((131072, 2), 0, True)
    """
    kind = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    nbytes = count * kind.itemsize
    if nbytes < _LARGE:
        return np.zeros(shape, kind)
    memory = mmap.mmap(-1, nbytes, **_PRIVATE)
    if nbytes >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, kind, count).reshape(shape)


def give_back(part: NDArray[Any]) -> None:
    """The system takes the memory of a part of such an array back, as far as it is whole pages. The part is zero again.

    >>> large = zeros(1 << 17, np.int64)
    >>> large[:] = 1
    >>> give_back(large[: 1 << 16])
    >>> int(large[512]), int(large[-1])
    (0, 1)
    """
    memory = part.base
    while isinstance(memory, np.ndarray):
        memory = memory.base
    if isinstance(memory, memoryview):
        memory = memory.obj
    if not isinstance(memory, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    begin = part.ctypes.data - np.frombuffer(memory, np.uint8, 1).ctypes.data
    first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (begin + part.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if length > 0:
        memory.madvise(mmap.MADV_DONTNEED, first, length)
