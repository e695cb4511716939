"""Bytes of any length on a block device."""

from __future__ import annotations

import random

import pytest

from penstock.errors import StorageError
from penstock.store.blobs import Blob, write_blob
from penstock.store.memory_device import MemoryDevice


class Counted(MemoryDevice):
    """Knows which of its blocks are in use, and has room for some."""

    def __init__(self, block_size: int, room: int = 1 << 30) -> None:
        super().__init__(block_size)
        self.used: set[int] = set()
        self.room = room

    def write(self, payload: bytes | memoryview) -> int:
        if len(self.used) == self.room:
            raise StorageError("the disk is full")
        address = super().write(bytes(payload))
        self.used.add(address)
        return address

    def free(self, address: int) -> None:
        self.used.remove(address)
        super().free(address)


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 512, 513, 5_000, 100_000])
def test_bytes_come_back_and_leave_nothing_behind(nbytes: int) -> None:
    device, data = Counted(64), random.Random(nbytes).randbytes(nbytes)
    other = write_blob(device, b"beside")
    blob = write_blob(device, data)
    assert bytes(blob.read(device)) == data
    assert bytes(Blob(*tuple(blob)).read(device)) == data
    blob.free(device)
    assert device.used == {other.address}
    assert bytes(other.read(device)) == b"beside"


def test_blocks_may_have_another_size_when_a_blob_is_read() -> None:
    small, large = Counted(64), Counted(4096)
    data = random.Random(1).randbytes(20_000)
    blob = write_blob(small, data)
    for address in sorted(small.used):
        assert large.write(small.read(address)) == address
    assert bytes(blob.read(large)) == data
    blob.free(large)
    assert not large.used


@pytest.mark.parametrize("room", range(20))
def test_a_full_disk_keeps_none_of_the_blocks(room: int) -> None:
    device = Counted(64, room)
    with pytest.raises(StorageError, match="full"):
        write_blob(device, bytes(64 * 18))
    assert not device.used
