"""Closed blocks in segment files beside the checkpoint, on whatever file system that is (`pyarrow.fs`).

A segment is an immutable file of blocks, each with a small header: length, checksum. Every store of every bucket
has segments of its own.

Invariants:
1. A segment has a name of its own that no other attempt uses, so a failed or speculative attempt can do no harm.
2. Only a closed segment is named by a snapshot; `snapshot` closes the open one.
3. A segment without live blocks is *retired* in the micro-batch that freed its last block, and its file is deleted
   once Spark can no longer roll back to a state that names it: `retain` micro-batches later.
4. A file that the state does not name is an orphan of an attempt that failed or lost a race. The attempt may still
   be writing, and its state may still be the one that Spark loads next, since two attempts of one micro-batch write
   the same file of Spark's state store. So an orphan, too, is deleted only when Spark can no longer load a state of
   the micro-batch in which it was written. The file's name says which micro-batch that was, so the rule needs no clock
   and an attempt may take any time.
5. A closed segment is durable, its name included, before a state that names it is written.
6. A segment that is missing is noticed when its state is taken up, not when its rows are due.

An address is the segment's number in the upper bits and the block's offset in the lower.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import xxhash

from penstock.columns import Values
from penstock.components import component
from penstock.errors import StorageError
from penstock.spark.file_system import file_system, make_durable
from penstock.store.device import BlockDevice

SEGMENT_BYTES = 32 << 20
"""A segment is closed at this size; a smaller one frees its space sooner, a larger one makes fewer files."""

SUFFIX = ".segment"
_DEPTH = 4  # directories that a device may have to make: the store's, the bucket's, the query's, that of all segments
HEADER = struct.Struct("<IQ")  # length, checksum of the payload
OFFSET_BITS = 32
_OFFSET_MASK = (1 << OFFSET_BITS) - 1


@dataclass
class _Segment:
    name: str
    live: int = 0
    """Blocks written and not freed."""


class DamagedSegment(StorageError):
    """A segment of `store` cannot be read back as it was written."""

    def __init__(self, message: str, store: str) -> None:
        super().__init__(message)
        self.store = store


@component("SegmentDevice")
class SegmentDevice(BlockDevice):
    """The blocks of one store. `uri` is a directory of its own, see `file_system`; its last part is the quoted name of
    the store. `batch` is the micro-batch in which the device is made. What it does not know it takes for orphans: a
    state is restored before the first `begin`."""

    def __init__(self, uri: str, *, block_bytes: int = 64 << 10, retain: int = 100, batch: int = 0) -> None:
        self._files, self._directory = file_system(uri)
        self._store = unquote(uri.rpartition("/")[2])
        self._capacity = block_bytes
        self._retain = retain
        self._batch = batch
        self._segments: dict[int, _Segment] = {}
        self._next = 0
        self._retired: list[tuple[str, int]] = []
        self._next_sweep = 0
        self._has_durable_place = False
        self._open: pa.NativeFile | None = None
        self._readers: dict[int, pa.NativeFile] = {}
        self.bytes_written = self.bytes_read = 0

    @property
    def capacity(self) -> int:
        return self._capacity

    def begin(self, batch: int) -> None:
        """A micro-batch begins. Files that Spark can no longer roll back to are deleted; those in use must be there."""
        self._batch = batch
        expired = [name for name, retired in self._retired if retired + self._retain < batch]
        self._retired = [(name, retired) for name, retired in self._retired if name not in expired]
        for name in expired:
            self._delete(name)
        if batch >= self._next_sweep:
            self._next_sweep = batch + self._retain
            self._sweep()

    @property
    def has_files(self) -> bool:
        """Whether there are segments that are not yet deleted."""
        return bool(self._segments or self._retired)

    def retire_all(self) -> None:
        """These blocks will not be read any more."""
        for number in list(self._segments):
            self._retire(number)

    def write(self, payload: bytes | memoryview) -> int:
        try:
            if self._open is None:
                self._open = self._new_segment()
            offset: int = self._open.tell()
            self._open.write(HEADER.pack(len(payload), xxhash.xxh3_64_intdigest(payload)))
            self._open.write(payload)
        except OSError as error:
            raise StorageError(f"a block cannot be written under {self._directory}: {error}") from error
        number = self._next - 1
        self._segments[number].live += 1
        self.bytes_written += HEADER.size + len(payload)
        if offset + HEADER.size + len(payload) >= SEGMENT_BYTES:
            self.sync()
        return number << OFFSET_BITS | offset

    def read(self, address: int, room: Values | None = None) -> memoryview:
        number, offset = address >> OFFSET_BITS, address & _OFFSET_MASK
        if self._open is not None and number == self._next - 1:
            # Not every file system can read what is still being written.
            self.sync()
        segment = self._segments.get(number)
        if segment is None:
            raise self._damaged(f"block {address} is in no segment under {self._directory}")
        path = f"{self._directory}/{segment.name}"
        try:
            reader = self._readers.get(number)
            if reader is None:
                reader = self._readers[number] = self._files.open_input_file(path)
            data = memoryview(reader.read_at(HEADER.size + self._capacity, offset))
        except OSError as error:
            raise self._damaged(f"segment {path} cannot be read: {error}") from error
        self.bytes_read += len(data)
        if len(data) < HEADER.size:
            raise self._damaged(f"segment {path} is truncated at {offset}")
        length, checksum = HEADER.unpack_from(data)
        payload = data[HEADER.size : HEADER.size + length]
        if len(payload) != length or xxhash.xxh3_64_intdigest(payload) != checksum:
            raise self._damaged(f"segment {path} is corrupt at {offset}")
        return payload

    def free(self, address: int) -> None:
        number = address >> OFFSET_BITS
        segment = self._segments[number]
        segment.live -= 1
        if segment.live == 0 and not (self._open is not None and number == self._next - 1):
            self._retire(number)

    def sync(self) -> None:
        if self._open is None:
            return
        number = self._next - 1
        path = f"{self._directory}/{self._segments[number].name}"
        try:
            self._open.close()
            make_durable(self._files, path, 1 if self._has_durable_place else _DEPTH)
            self._has_durable_place = True
        except OSError as error:
            raise StorageError(f"segment {path} cannot be closed: {error}") from error
        finally:
            self._open = None
        if self._segments[number].live == 0:
            self._retire(number)

    def commit(self) -> None:
        """Nothing to do: the space of freed blocks comes back with their whole segment, see invariant 3."""

    def snapshot(self) -> dict[str, Any]:
        self.sync()
        return {
            "kind": "segments",
            "next": self._next,
            "segments": [[number, segment.name, segment.live] for number, segment in self._segments.items()],
            "retired": [[name, batch] for name, batch in self._retired],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        if snapshot["kind"] != "segments":
            raise StorageError(
                "the saved state has no segment files; restore it with the kind of blocks it was made with"
            )
        self.close()
        self._next = snapshot["next"]
        self._segments = {number: _Segment(name, live) for number, name, live in snapshot["segments"]}
        self._retired = [(name, batch) for name, batch in snapshot["retired"]]
        self._next_sweep = 0

    def close(self) -> None:
        for file in [*self._readers.values(), *([self._open] if self._open else [])]:
            file.close()
        self._readers.clear()
        self._open = None

    def _new_segment(self) -> pa.NativeFile:
        self._files.create_dir(self._directory, recursive=True)
        name = f"{self._batch}-{uuid.uuid4().hex}{SUFFIX}"
        stream = self._files.open_output_stream(f"{self._directory}/{name}")
        self._segments[self._next] = _Segment(name)
        self._next += 1
        return stream

    def _retire(self, number: int) -> None:
        segment = self._segments.pop(number)
        reader = self._readers.pop(number, None)
        if reader is not None:
            reader.close()
        self._retired.append((segment.name, self._batch))

    def _sweep(self) -> None:
        """Deletes orphans, and looks whether everything in use is there."""
        live = {segment.name for segment in self._segments.values()}
        known = live | {name for name, _ in self._retired}
        selector = pafs.FileSelector(self._directory, allow_not_found=True)
        try:
            found = {info.base_name for info in self._files.get_file_info(selector)}
        except OSError:
            return  # a later sweep will do
        for name in found - known:
            written = _batch_of(name)
            if written is not None and written + self._retain + 1 < self._batch:
                self._delete(name)
        for name in sorted(live - found):
            raise self._damaged(f"segment {self._directory}/{name} is missing")

    def _damaged(self, message: str) -> DamagedSegment:
        return DamagedSegment(message, self._store)

    def _delete(self, name: str) -> None:
        """A file that is gone was deleted by an attempt that failed afterwards; one that stays is swept later."""
        with contextlib.suppress(OSError):
            self._files.delete_file(f"{self._directory}/{name}")


def _batch_of(name: str) -> int | None:
    """The micro-batch in which a segment was written, by the name of its file."""
    batch = name.partition("-")[0]
    return int(batch) if batch.isdigit() and name.endswith(SUFFIX) else None
