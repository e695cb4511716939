"""Bytes of any length on a block device: as many blocks as they take, in order.

The caller keeps the addresses and the length, and frees the blocks when it needs the bytes no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from penstock.arrays import Int64s
from penstock.errors import StorageError
from penstock.store.device import BlockDevice


class Blob(NamedTuple):
    """Where bytes stand, and how many they are."""

    addresses: Int64s
    nbytes: int


def write_blob(device: BlockDevice, data: bytes | memoryview) -> Blob:
    """If that fails, none of its blocks stays on the device."""
    view, step = memoryview(data).cast("B"), device.capacity
    addresses: list[int] = []
    try:
        for start in range(0, len(view), step):
            addresses.append(device.write(view[start : start + step]))
    except StorageError:
        free_blob(device, addresses)
        raise
    return Blob(np.array(addresses, np.int64), len(view))


def read_blob(device: BlockDevice, blob: Blob) -> memoryview:
    if len(blob.addresses) == 1:
        return device.read(int(blob.addresses[0]))
    whole, end = memoryview(bytearray(blob.nbytes)), 0
    for address in blob.addresses.tolist():
        block = device.read(address)
        whole[end : end + len(block)] = block
        end += len(block)
    return whole


def free_blob(device: BlockDevice, addresses: Iterable[int]) -> None:
    for address in addresses:
        device.free(int(address))
