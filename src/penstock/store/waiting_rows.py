"""Rows that wait to be read, first in, first out: Arrow batches in memory while there is room, and else on a device.

    put ─▶ in memory, on the account ─▶ spilled: one Arrow IPC stream over several blocks ─▶ take

Rows that come one by one wait loose, as tuples of Python values, until there are some of them for a batch or they are
wanted.

Invariants:
1. Rows leave in the order in which they came. Those on the device came before those in memory, and batches before
   loose rows.
2. Rows in memory are on the account, and take at most `most` bytes. When the budget has no room, for these rows or for
   another account (`page_out`), they go to the device.
3. The device is made when the first rows go there: rows that are read in time cost no file.

A batch keeps no more memory alive than it is charged for: a slice of a much larger batch is copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.components import component
from penstock.errors import StorageError
from penstock.expressions.batch import Batch, Row, columns_of_tuples, row_getter
from penstock.store.batches import copied
from penstock.store.budget import Account
from penstock.store.device import BlockDevice
from penstock.store.fifo import StoreMetrics
from penstock.types import SqlType

_BATCH_BYTES = 1024
"""What a batch takes besides its columns, about."""

_SMALL = 4096
"""Of batches up to so many bytes it is not looked at whether they are slices of others."""


_LOOSE = 1024
"""So many loose rows become a batch."""

_AHEAD = 16
"""So many loose rows are charged together."""

Pack = Callable[[Batch], pa.RecordBatch]
"""Makes an Arrow batch of rows that were loose."""


class _Spilled(NamedTuple):
    """Batches of one schema on the device; `addresses` are the blocks of their stream."""

    rows: int
    nbytes: int
    addresses: list[int]


@component("WaitingRows")
class WaitingRows:
    """
    >>> from penstock.store.budget import Budget
    >>> from penstock.store.memory_device import MemoryDevice
    >>> waiting = WaitingRows(lambda: MemoryDevice(4096), Budget(10_000).account("results"), 5_000)
    >>> for n in range(8):
    ...     waiting.put(pa.RecordBatch.from_arrays([pa.array([n])], ["n"]))
    >>> waiting.rows, waiting.spilled_rows
    (8, 5)
    >>> waiting.forget(2)
    >>> [value for batch in waiting.take() for value in batch.column("n").to_pylist()]
    [2, 3, 4, 5, 6, 7]
    """

    def __init__(self, make_device: Callable[[], BlockDevice], account: Account, most: int) -> None:
        self._make_device = make_device
        self.device: BlockDevice | None = None
        self._account = account
        self._most = most
        self._spilled: deque[_Spilled] = deque()
        self._skip = 0
        """So many of the oldest spilled rows have been forgotten."""
        self._held: deque[pa.RecordBatch] = deque()
        self._sizes: deque[int] = deque()
        self._loose: list[tuple[Any, ...]] = []
        self._kinds: Mapping[str, SqlType] = {}
        """Of the loose rows; `_get` gets their values."""
        self._row_bytes = 0
        """What each of them takes; 0 where they have texts, and differ in that."""
        self._loose_bytes = 0
        """On the account for loose rows, some of it ahead of them."""
        self._loose_left = 0
        """What of it is left."""
        self._pack: Pack | None = None
        self.rows = 0
        self.spilled_rows = 0
        self.metrics = StoreMetrics()

    @property
    def nbytes_total(self) -> int:
        """Bytes in memory and on the device."""
        return self._account.nbytes + sum(spilled.nbytes for spilled in self._spilled)

    def put_row(self, row: Row, pack: Pack) -> None:
        """One row, which `pack` makes a batch of together with others of its kinds."""
        if row.kinds is not self._kinds:
            self._pack_loose()
            self._kinds, self._get, self._pack = row.kinds, row_getter(row.kinds), pack
            self._row_bytes = 0 if SqlType.STRING in row.kinds.values() else row.nbytes
        elif len(self._loose) >= _LOOSE:
            self._pack_loose()
        self._loose.append(self._get(row.values))
        self.rows += 1
        size = self._row_bytes or row.nbytes
        if size > self._loose_left and not self._charge_loose(size * _AHEAD) and not self._charge_loose(size):
            self._pack_loose()
        else:
            self._loose_left -= size

    def _charge_loose(self, nbytes: int) -> bool:
        held = self._account.nbytes + nbytes
        if held > self._most or not self._account.try_resize(held):
            return False
        self._loose_bytes += nbytes
        self._loose_left += nbytes
        return True

    def _pack_loose(self) -> None:
        """Loose rows become a batch."""
        if not self._loose:
            return
        assert self._pack is not None
        loose, self._loose = self._loose, []
        self._account.resize(self._account.nbytes - self._loose_bytes)
        self._loose_bytes = self._loose_left = 0
        self.rows -= len(loose)
        self.put(self._pack(columns_of_tuples(loose, self._kinds)))

    def put(self, batch: pa.RecordBatch) -> None:
        self._pack_loose()
        size = batch.get_total_buffer_size()
        if size > _SMALL:
            exact = batch.nbytes
            if size > 2 * exact:
                batch = copied(batch)
            size = exact
        size += _BATCH_BYTES
        self._held.append(batch)
        self._sizes.append(size)
        self.rows += batch.num_rows
        held = self._account.nbytes + size
        if held <= self._most and size <= self._account.free:
            self._account.resize(held)
        else:
            self.page_out()

    def forget(self, count: int) -> None:
        """The oldest rows are not wanted any more."""
        self.rows -= count
        while count and self._spilled:
            left = self._spilled[0].rows - self._skip
            if count < left:
                self._skip += count
                self.spilled_rows -= count
                return
            count -= left
            self._drop_spilled()
        while count:
            if not self._held:
                self._pack_loose()
            batch = self._held[0]
            if count < batch.num_rows:
                self._held[0] = batch.slice(count)
                return
            count -= batch.num_rows
            self._held.popleft()
            self._account.resize(self._account.nbytes - self._sizes.popleft())

    def take(self) -> Iterator[pa.RecordBatch]:
        """All rows; they leave as they are read."""
        self._pack_loose()
        while self._spilled:
            skip = self._skip
            for batch in self._read(self._spilled[0]):
                if skip < batch.num_rows:
                    part = batch.slice(skip)
                    skip = 0
                    yield part
                else:
                    skip -= batch.num_rows
            self.rows -= self._spilled[0].rows - self._skip
            self._drop_spilled()
        while self._held:
            batch = self._held.popleft()
            self.rows -= batch.num_rows
            self._account.resize(self._account.nbytes - self._sizes.popleft())
            yield batch

    def page_out(self) -> bool:
        """Brings what is in memory to the device; answers whether that was anything."""
        self._pack_loose()
        if not self._held:
            return False
        for table in self._tables():
            self._spill(table)
        self._held.clear()
        self._sizes.clear()
        self._account.resize(0)
        return True

    def _tables(self) -> list[pa.Table]:
        """What is in memory: rows that follow each other and have the same columns are one table."""
        runs = [list(run) for _, run in groupby(self._held, key=lambda batch: batch.schema)]
        return [pa.Table.from_batches(run).combine_chunks() for run in runs]

    def _spill(self, table: pa.Table) -> None:
        if self.device is None:
            self.device = self._make_device()
        sink = _BlockSink(self.device)
        try:
            _write(table, sink)
            sink.finish()
        except StorageError:
            sink.undo()
            raise
        self._spilled.append(_Spilled(table.num_rows, sink.nbytes, sink.addresses))
        self.spilled_rows += table.num_rows
        self.metrics.blocks_written += len(sink.addresses)
        self.metrics.bytes_written += sink.nbytes

    def _read(self, spilled: _Spilled) -> Iterator[pa.RecordBatch]:
        assert self.device is not None
        data = b"".join(self.device.read(address) for address in spilled.addresses)
        self.metrics.blocks_read += len(spilled.addresses)
        self.metrics.bytes_read += len(data)
        with pa.ipc.open_stream(data) as reader:
            yield from reader

    def _drop_spilled(self) -> None:
        """The oldest rows on the device have been read, or are not wanted."""
        assert self.device is not None
        spilled = self._spilled.popleft()
        self.spilled_rows -= spilled.rows - self._skip
        self._skip = 0
        for address in spilled.addresses:
            self.device.free(address)

    def snapshot(self) -> dict[str, Any]:
        """Rows on the device stay there, and its own snapshot has them; rows in memory travel inside this one."""
        self._pack_loose()
        return {
            "held": [_stream(table) for table in self._tables()],
            "spilled": [list(spilled) for spilled in self._spilled],
            "skip": self._skip,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._spilled = deque(_Spilled(*spilled) for spilled in snapshot["spilled"])
        self._skip = snapshot["skip"]
        self.rows = self.spilled_rows = sum(spilled.rows for spilled in self._spilled) - self._skip
        if self._spilled:
            self.device = self._make_device()
        for data in snapshot["held"]:
            with pa.ipc.open_stream(data) as reader:
                for batch in reader:
                    self.put(batch)

    def close(self) -> None:
        """Gives everything back but the device, which is its maker's."""
        self._held.clear()
        self._sizes.clear()
        self._loose.clear()
        self._spilled.clear()
        self._account.close()


class _BlockSink:
    """A file to write to that is cut into blocks."""

    closed = False

    def __init__(self, device: BlockDevice) -> None:
        self._device = device
        self._waiting = bytearray()
        self.addresses: list[int] = []
        self.nbytes = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._waiting += data
        self.nbytes += size
        capacity = self._device.capacity
        full = len(self._waiting) // capacity * capacity
        for begin in range(0, full, capacity):
            self.addresses.append(self._device.write(bytes(self._waiting[begin : begin + capacity])))
        del self._waiting[:full]
        return size

    def flush(self) -> None:
        """Nothing is to be done before the end."""

    def close(self) -> None:
        """Nothing is to be done after the end."""

    def finish(self) -> None:
        if self._waiting:
            self.addresses.append(self._device.write(bytes(self._waiting)))

    def undo(self) -> None:
        for address in self.addresses:
            self._device.free(address)


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    _write(table, sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _write(table: pa.Table, sink: Any) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
