"""Blocks in one local file of fixed-size slots. Invariants: see `device`; `slots` decides which slot is used next.

A slot starts with a header of 32 bytes:

    magic, codec, bytes stored, bytes of the block, the block's sequence number, checksum

The checksum (xxh3) covers the stored bytes and, through its seed, the header and the identity of the file. So a
flipped bit, a block at another slot's place, an older block of the same slot and a block of another file are all
told from the block that was written here, and end in `StorageError`.

Restoring under another block size keeps the old slots where they are, as a *region* of the file that is only read
and released; new blocks go behind it.
"""

from __future__ import annotations

import errno
import os
import struct
import weakref
from array import array
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from penstock.columns import Values
from penstock.components import component, read_as
from penstock.errors import CheckpointError, StorageError
from penstock.store.compression import BlockCodec
from penstock.store.device import BlockDevice
from penstock.store.slots import SlotMap

HEADER_SIZE = 32
_FIELDS = struct.Struct("<4sIIIQ")  # magic, codec, bytes stored, bytes of the block, sequence number
_CHECKSUM = struct.Struct("<Q")
_HEADER = struct.Struct("<4sIIIQQ")
_MAGIC = b"PSBK"
_digest = xxhash.xxh3_64_intdigest
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Region(NamedTuple):
    """Slots from number `first` on, each of `slot_size` bytes, start at `offset` in the file."""

    first: int
    offset: int
    slot_size: int


@component("FileDevice")
class FileDevice(BlockDevice):
    """`path` is made if need be, unless the device is `read_only`. Until `restore`, nothing in an existing file is
    taken as ours."""

    copies = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        block_size: int = 65536,
        compression: str | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        if block_size <= HEADER_SIZE:
            raise StorageError(f"a block of {block_size} bytes cannot hold its header; use at least 256 bytes")
        self.path = Path(path)
        self._block_size = block_size
        self._codec = BlockCodec(compression)
        self._identity = int.from_bytes(os.urandom(8), "little")
        self._regions = [Region(0, 0, block_size)]
        self._slots = SlotMap()
        self._stored = array("I")
        self._header = memoryview(bytearray(HEADER_SIZE))
        """Room for the header of a block that is read, and its fields without the checksum."""
        self._header_fields = self._header[: _FIELDS.size]
        try:
            access = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT
            self._file = os.open(self.path, access | os.O_CLOEXEC, 0o600)
            self._closing = weakref.finalize(self, os.close, self._file)
            self._closing.atexit = False
            self.is_scratch = os.fstat(self._file).st_size == 0
            """Whether nothing in the file was there before this device: no earlier checkpoint can name it."""
        except OSError as error:
            raise StorageError(f"{self.path} cannot be opened for blocks: {error.strerror}") from error

    @property
    def capacity(self) -> int:
        return self._block_size - HEADER_SIZE

    def write(self, payload: bytes | memoryview) -> int:
        size = len(payload)
        assert size <= self._block_size - HEADER_SIZE
        codec, stored = self._codec.compress(payload)
        slot, sequence = self._slots.take()
        fields = _FIELDS.pack(_MAGIC, codec, len(stored), size, sequence)
        header = fields + _CHECKSUM.pack(self._checksum(fields, stored))
        try:
            if slot == 0 and sequence == 0:
                os.ftruncate(self._file, 0)  # whatever a process before us left there
                self.is_scratch = True
            offset, total = self._offset(slot), len(header) + len(stored)
            written = os.pwritev(self._file, (header, stored), offset)
            if written < total:
                self._write_rest(b"".join((header, stored)), written, offset)
        except OSError as error:
            self._slots.undo_take(slot)
            if error.errno in _DISK_FULL:
                reason = "the disk is full; make room there, or point the directory for blocks to another disk"
            else:
                reason = os.strerror(error.errno or errno.EIO)
            raise StorageError(f"{self.path}: block {slot} cannot be written: {reason}") from error
        while len(self._stored) <= slot:
            self._stored.append(0)
        self._stored[slot] = len(stored)
        self.writes += 1
        self.written += size
        self.stored += len(stored)
        self.held += len(stored)
        return slot

    def read(self, address: int, room: Values | None = None) -> memoryview:
        sequence, header = self._slots.sequence(address), self._header
        expected = self._stored[address]
        # An array is not zeroed, unlike a bytearray.
        stored = room if room is not None and len(room) == expected else np.empty(expected, np.uint8)
        try:
            length = os.preadv(self._file, (header, stored.data), self._offset(address))
        except OSError as error:
            raise StorageError(f"{self.path}: block {address} cannot be read: {error.strerror}") from error
        if length < HEADER_SIZE + expected:
            raise StorageError(f"{self.path}: the file is truncated: block {address} ends after {length:,} bytes")
        magic, codec, stored_size, size, found, checksum = _HEADER.unpack(header)
        intact = self._checksum(self._header_fields, stored) == checksum
        if not intact or magic != _MAGIC or stored_size != expected:
            raise StorageError(f"{self.path}: block {address} is damaged: its checksum does not fit")
        if found != sequence:
            raise StorageError(f"{self.path}: block {address} holds another block ({found} instead of {sequence})")
        self.reads += 1
        return self._codec.decompress(codec, stored, size)

    def free(self, address: int) -> None:
        self._slots.release(address)
        self.held -= self._stored[address]

    def sync(self) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            raise StorageError(f"{self.path} cannot be made durable: {error.strerror}") from error

    def commit(self) -> None:
        self._slots.commit()

    def snapshot(self) -> dict[str, Any]:
        return {
            "kind": "file",
            "identity": self._identity,
            "regions": [list(region) for region in self._regions],
            "slots": self._slots.snapshot(),
            "stored": np.array(self._stored, np.uint32),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        if snapshot["kind"] != "file":
            raise CheckpointError("the saved state has its blocks in memory; restore it without a directory for blocks")
        self._identity = snapshot["identity"]
        self._regions = [Region(*region) for region in snapshot["regions"]]
        self._stored = array("I", snapshot["stored"].tobytes())
        slots = read_as(SlotMap, snapshot["slots"])
        if self._regions[-1].slot_size != self._block_size:
            count = len(slots["sequences"])
            end = -(-self._offset(count) // self._block_size) * self._block_size
            self._regions.append(Region(count, end, self._block_size))
        self._slots.restore(slots, reusable_from=self._regions[-1].first)
        taken = np.flatnonzero(slots["sequences"] >= 0)
        self.held = int(snapshot["stored"][taken].sum())
        if len(taken):
            last = int(taken[-1])
            needed = self._offset(last) + HEADER_SIZE + self._stored[last]
            size = os.fstat(self._file).st_size
            if size < needed:
                raise StorageError(
                    f"{self.path} is missing or truncated: it has {size:,} bytes, the checkpoint needs {needed:,}"
                )

    def close(self) -> None:
        self._closing()

    def _offset(self, slot: int) -> int:
        first, offset, slot_size = self._regions[-1]
        if slot < first:
            first, offset, slot_size = next(older for older in reversed(self._regions) if older.first <= slot)
        return offset + (slot - first) * slot_size

    def _checksum(self, fields: bytes | memoryview, stored: Any) -> int:
        return _digest(stored, _digest(fields, self._identity))

    def _write_rest(self, block: bytes, written: int, offset: int) -> None:
        """Only part of a block was written: the disk is nearly full, or a signal came."""
        while written < len(block):
            written += os.pwrite(self._file, memoryview(block)[written:], offset + written)
