"""Arrays by their addresses, for the operations of the lane.

An address is an int64. The owner of an array keeps it alive and in its place while a program names its address.
Operations check no bounds, so an array that is named by its address has no length. In the checked build they do: it is
chosen by PENSTOCK_CHECKED_LANE=1 in the environment, and `checked_memory` is what it has in place of this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from penstock.aggregates.images import Word
from penstock.arrays import Bools, Floats, Int32s, Int64s, UInt64s
from penstock.jit import inline, intrinsic, numba_types
from penstock.store.blocks import Frame

IS_CHECKED = os.environ.get("PENSTOCK_CHECKED_LANE") == "1"


def _array_at(name: str, *width: int) -> Callable[[Any, Any], Any]:
    """What makes an array of an address: its rows have the lengths of `width`."""

    def typed(typing: Any, address: Any) -> Any:
        types = numba_types()
        kind = getattr(types, name)
        array = types.Array(kind, 1 + len(width), "C")

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            from numba.np.arrayobj import populate_array

            made = context.make_array(array)(context, builder)
            item = context.get_abi_sizeof(context.get_data_type(kind))
            shape = (0, *width)  # numba adds the length to an index below 0: 0 leaves nothing of that
            strides = [item * int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
            cast(Any, populate_array)(
                made,
                data=builder.inttoptr(arguments[0], context.get_data_type(kind).as_pointer()),
                shape=[context.get_constant(types.intp, length) for length in shape],
                strides=[context.get_constant(types.intp, stride) for stride in strides],
                itemsize=context.get_constant(types.intp, item),
                meminfo=None,
            )
            return made._getvalue()

        return array(types.int64), generate

    return typed


def address_of(array: NDArray[Any]) -> int:
    """Where an array begins."""
    address: int = array.__array_interface__["data"][0]
    return address


def parts_of(array: NDArray[Any], words: int) -> Sequence[int]:
    """Where the parts of an array begin that have so many words each."""
    address = address_of(array)
    return range(address, address + array.nbytes, 8 * words)


def block_at(frame: Frame) -> tuple[int, Sequence[int]]:
    """The address of a block, and what is added to it for each column."""
    return frame.address, frame.offsets


def offset_of(place: int, offset: int) -> int:
    """What is added to the address of a block for a column that begins at this offset."""
    return offset


if IS_CHECKED:
    from penstock.lane import checked_memory

    _array_at, address_of, parts_of = checked_memory.array_at, checked_memory.address_of, checked_memory.parts_of
    block_at, offset_of = checked_memory.block_at, checked_memory.offset_of

int64s: Callable[[int], Int64s] = intrinsic(_array_at("int64"))
uint64s: Callable[[int], UInt64s] = intrinsic(_array_at("uint64"))
doubles: Callable[[int], Floats] = intrinsic(_array_at("float64"))
int32s: Callable[[int], Int32s] = intrinsic(_array_at("int32"))
int16s: Callable[[int], NDArray[np.int16]] = intrinsic(_array_at("int16"))
int8s: Callable[[int], NDArray[np.int8]] = intrinsic(_array_at("int8"))
bools: Callable[[int], Bools] = intrinsic(_array_at("boolean"))
pairs: Callable[[int], Int64s] = intrinsic(_array_at("int64", 2))


@inline
def whole_at(address: int, index: Word, width: int) -> Word:
    """The integer of so many bytes at a place of a column."""
    if width == 8:
        value = np.int64(int64s(address)[index])
    elif width == 4:
        value = np.int64(int32s(address)[index])
    elif width == 2:
        value = np.int64(int16s(address)[index])
    else:
        value = np.int64(int8s(address)[index])
    return value
