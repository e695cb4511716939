"""Values of every storage type as int64, so that one compiled kernel serves them all.

The *image* of a value keeps all of it (integers widened, doubles bit for bit, floats widened to double first); its
*key* orders as the language orders the values: NaN is greatest, -0.0 equals 0.0. Used by the selective and the
holistic states.

Kernels see contiguous, writable arrays only, so that numba compiles one variant: `images` copies what is not.
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates.state import Values
from penstock.arrays import Int64s
from penstock.jit import tight

Word = int | np.int64
"""An int64 inside a kernel, where Python's int and numpy's are the same."""

_DOUBLE = np.dtype(np.float64)
_INT64 = np.dtype(np.int64)
_GREATEST = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_INFINITY = np.int64(0x7FF0_0000_0000_0000)


def images(values: Values) -> Int64s:
    """
    >>> images(np.array([-1, 7], dtype=np.int8))
    array([-1,  7])
    """
    dtype = values.dtype
    if not values.flags.carray:
        values = np.array(values)
    if dtype is _DOUBLE:
        return values.view(_INT64)
    if dtype is _INT64:
        return values
    if dtype.kind == "f":
        return values.astype(_DOUBLE).view(_INT64)
    return values.astype(_INT64)


def from_images(found: Int64s, storage: np.dtype[np.generic]) -> Values:
    """The inverse of `images`.

    >>> from_images(images(np.array([0.5, -0.0], dtype=np.float32)), np.dtype(np.float32))
    array([ 0.5, -0. ], dtype=float32)
    """
    if storage is _DOUBLE:
        return found.view(_DOUBLE)
    if storage is _INT64:
        return found
    return (found.view(_DOUBLE) if storage.kind == "f" else found).astype(storage)


@tight
def ordering_key(image: Word, floating: bool) -> Word:
    """The key of an image: keys compare as integers exactly as the values compare."""
    if not floating:
        return image
    magnitude = image & _GREATEST
    if magnitude > _INFINITY:
        return _GREATEST
    if magnitude == 0:
        return np.int64(0)
    return image if image > 0 else image ^ _GREATEST


@tight
def total_key(image: Word, floating: bool) -> Word:
    """A finer key that tells -0.0 from 0.0 (and puts it before), so that `image_of_key` gives every value back."""
    if not floating:
        return image
    if image & _GREATEST > _INFINITY:
        return _GREATEST
    return image if image >= 0 else image ^ _GREATEST


@tight
def image_of_key(key: Word, floating: bool) -> Word:
    """The image of a total key; all NaN are one."""
    return key ^ _GREATEST if floating and key < 0 else key
