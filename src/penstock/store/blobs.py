"""Bytes of any length on a block device.

    one block                      the bytes
    more   an index: the addresses of the blocks, which are bytes of any length themselves ─▶ the bytes, block by block

A blob is known by three numbers. The caller keeps them, and frees the blob when it needs the bytes no more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.arrays import Int64s
from penstock.errors import StorageError
from penstock.store.device import BlockDevice


class Blob(NamedTuple):
    """`address` is that of the only block, or of the index. There are so many bytes, `step` of them in a block: blocks
    may be of another size when the blob is read."""

    address: int
    nbytes: int
    step: int

    @property
    def _index(self) -> Blob | None:
        blocks = -(-self.nbytes // self.step)
        return Blob(self.address, 8 * blocks, self.step) if blocks > 1 else None

    def _blocks(self, device: BlockDevice) -> Int64s:
        index = self._index
        if index is None:
            return np.array([self.address])
        addresses: Int64s = np.frombuffer(index.read(device), np.int64)
        return addresses

    def read(self, device: BlockDevice) -> memoryview:
        if self._index is None:
            return device.read(self.address)
        whole, end = memoryview(bytearray(self.nbytes)), 0
        for address in self._blocks(device).tolist():
            block = device.read(address)
            whole[end : end + len(block)] = block
            end += len(block)
        return whole

    def free(self, device: BlockDevice) -> None:
        index = self._index
        if index is None:
            device.free(self.address)
            return
        for address in self._blocks(device).tolist():
            device.free(address)
        index.free(device)


def write_blob(device: BlockDevice, data: bytes | memoryview) -> Blob:
    """If that fails, none of its blocks stays on the device."""
    view, step = memoryview(data).cast("B"), device.capacity
    if len(view) <= step:
        return Blob(device.write(view), len(view), step)
    addresses: list[int] = []
    try:
        for start in range(0, len(view), step):
            addresses.append(device.write(view[start : start + step]))
        index = write_blob(device, np.array(addresses, np.int64).data)
    except StorageError:
        for address in addresses:
            device.free(address)
        raise
    return Blob(index.address, len(view), step)
