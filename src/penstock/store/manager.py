"""The storage manager of an app: one memory budget, one directory of block files, and the stores over them.

    directory/
      .lock                held by the process that owns the directory
      <store name>.blocks  one file per store

Invariants:
1. One process at a time owns a directory. It is for its user alone.
2. A file that the last committed checkpoint may name is not removed before the next commit. Files that no checkpoint
   names go when a checkpoint is restored or committed, and those of a run without checkpoints at its end.

3. Between a snapshot and its commit no device of the snapshot is closed, whatever is dropped.

Checkpoint, in this order: `snapshot()`, `sync()`, write the snapshot durably, `commit()`. Without a directory the
blocks are in memory and travel inside the snapshot. Called by the runtimes. `sync` may be called in another thread than
all else, which goes on with its work meanwhile.

Why: docs/decisions/stores-from-properties.md
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from penstock.components import name_of, read_by
from penstock.errors import CheckpointError, StorageError
from penstock.store.blocks import ColumnSpec
from penstock.store.budget import Budget
from penstock.store.buffer_manager import BufferManager
from penstock.store.compression import BlockCodec
from penstock.store.device import BlockDevice
from penstock.store.fifo import FifoStore, StoreMetrics
from penstock.store.file_device import FileDevice
from penstock.store.keyed import KeyedStore
from penstock.store.memory_device import MemoryDevice
from penstock.store.properties import Properties, ReadPattern, UpdatePattern
from penstock.store.queues import RowQueues
from penstock.store.runs import RunStore
from penstock.store.waiting_rows import WaitingRows

_SUFFIX = ".blocks"

WAITING_SHARE = 16
"""Rows that wait to be read take at most this part of the memory for each query, and the rest of them is on disk."""


@dataclass(frozen=True)
class StoreUse:
    """What a store has, in memory and on disk, and what it has done."""

    name: str
    nbytes: int
    metrics: StoreMetrics


_KNOWN_BY = {"head": "FifoStore", "rounds": "RowQueues", "runs": "RunStore"}
_DEVICES = {"file": "FileDevice", "memory": "MemoryDevice", "segments": "SegmentDevice"}


def read_store(saved: dict[str, Any]) -> dict[str, Any]:
    """The saved state of a store in the shape of today; that of a device alone is as it was."""
    known = name_of(saved) or next((name for key, name in _KNOWN_BY.items() if key in saved), "")
    return read_by(known, saved) if known in _KNOWN_BY.values() else saved


def read_device(saved: dict[str, Any]) -> dict[str, Any]:
    """The state of a device, by itself or in the saved state of its store, in the shape of today."""
    device = read_store(saved).get("device", saved)
    return read_by(name_of(device) or _DEVICES[device["kind"]], device)


class StoreManager:
    """Makes stores and takes them through checkpoints together. `compression` is None, "lz4" or "zstd" (see
    `compression.BlockCodec`) and may be another after a restart.

    >>> import numpy as np
    >>> manager = StoreManager(Budget(1 << 20), None)
    >>> window = manager.create_fifo("trades", [ColumnSpec("price", np.dtype(np.float64), nullable=False)])
    >>> manager.metrics.blocks_written
    0
    """

    def __init__(
        self, budget: Budget, directory: Path | None, block_size: int = 65536, compression: str | None = None
    ) -> None:
        BlockCodec(compression)  # refuses what it does not know, before there is a file
        self.budget = budget
        self._buffers = BufferManager(budget)
        self._directory = directory
        self.block_size = block_size
        self._compression = compression
        self._devices: dict[str, BlockDevice] = {}
        self._stores: dict[str, FifoStore | RunStore | RowQueues] = {}
        self._waiting: dict[str, WaitingRows] = {}
        self._saved: dict[str, Any] = {}
        budget.on_need(self._page_out)
        self._has_checkpoint = False
        """Whether there is a checkpoint, or soon will be."""
        self._named: dict[str, BlockDevice] = {}
        """Devices of the last snapshot, up to its commit."""
        self._dropped: list[BlockDevice] = []
        """Those of them that are no longer needed."""
        self._unlock = None if directory is None else weakref.finalize(self, os.close, _lock(directory))

    def create(
        self, name: str, properties: Properties, columns: Sequence[ColumnSpec] = (), *, time_column: str = "time"
    ) -> FifoStore | RowQueues | RunStore:
        """The columnar store that serves such properties: rows that leave in order, from anywhere in the order of their
        queues, or from anywhere in the order of a time column."""
        if properties.update in (UpdatePattern.FIFO, UpdatePattern.NO_UPDATE):
            return self.create_fifo(name, columns, by_row=ReadPattern.RANDOM in properties.read)
        if properties.update is UpdatePattern.RANDOM:
            if properties.read == (ReadPattern.SEQUENTIAL,):
                return self.create_runs(name, time_column)
            return self.create_queues(name, columns)
        raise StorageError(f"rows that change {properties.update.value} are found by a key; see create_keyed")

    def create_keyed(
        self, name: str, properties: Properties, words: int, narrow: bool, columns: Sequence[ColumnSpec]
    ) -> KeyedStore:
        """Rows that are changed in place, found by keys of so many words; `narrow` where 32 bits do for each."""
        assert properties.update is UpdatePattern.IN_PLACE
        return KeyedStore(words, narrow, columns, self.budget.account(name))

    def create_fifo(
        self, name: str, columns: Sequence[ColumnSpec], pool_blocks: int | None = None, *, by_row: bool = False
    ) -> FifoStore:
        """A window's store. Its name is unique in the app and the same in every run. A pool of unstated size is as
        large as the buffer manager finds best."""
        device = self._device(name)
        account = self.budget.account(name)
        try:
            size, pool = self.block_size, pool_blocks or 2
            store = FifoStore(columns, device, account, block_size=size, pool_blocks=pool, by_row=by_row)
        except Exception:
            account.close()
            self._discard(device)
            raise
        if pool_blocks is None:
            self._buffers.manage(store.pool)
        self._stores[name] = store
        self._devices[name] = store.device
        return store

    def create_runs(self, name: str, time_column: str) -> RunStore:
        """A store of sorted runs for a reorder buffer."""
        store = RunStore(self._device(name), self.budget.account(name, is_spare=True), time_column)
        self._stores[name] = store
        self._devices[name] = store.device
        return store

    def create_queues(self, name: str, columns: Sequence[ColumnSpec]) -> RowQueues:
        """A store of many queues, for windows per partition."""
        store = RowQueues(columns, self._device(name), self.budget.account(f"{name}: rows of partitions"))
        self._stores[name] = store
        self._devices[name] = store.device
        return store

    def create_device(self, name: str) -> BlockDevice:
        """Blocks for a state that pages by itself; their addresses are its own to save. It may be made after `restore`,
        up to the next checkpoint."""
        device = self._devices[name] = self._device(name)
        if name in self._saved:
            device.restore(read_device(self._saved.pop(name)))
        return device

    def create_waiting(self, name: str) -> WaitingRows:
        """Rows that wait to be read. There is a device only once some of them need it."""
        most = max(self.budget.total // WAITING_SHARE, 1)
        store = WaitingRows(lambda: self._waiting_device(name), self.budget.account(name, is_spare=True), most)
        self._waiting[name] = store
        return store

    def _waiting_device(self, name: str) -> BlockDevice:
        return self.create_device(name)

    def _page_out(self) -> bool:
        """Memory is needed that rows have that wait: to be read or, if there are none in memory, to be put in order."""
        paged_out = [store.page_out() for store in self._waiting.values()]
        return any(paged_out) or any(store.page_out() for store in self._stores.values() if isinstance(store, RunStore))

    def drop(self, name: str) -> None:
        """The store or device is no longer needed."""
        store = self._stores.pop(name, None) or self._waiting.pop(name, None)
        if store is not None:
            self._close(store)
        device = self._devices.pop(name, None)
        if device is not None:
            self._discard(device)

    @property
    def metrics(self) -> StoreMetrics:
        """Summed over all stores there are now, and what pages by itself."""
        total = StoreMetrics()
        for store in (*self._stores.values(), *self._waiting.values()):
            total.add(store.metrics)
        for device in self._alone.values():
            total.add(_metrics_of(device))
        return total

    @property
    def _alone(self) -> dict[str, BlockDevice]:
        """The devices of states that page by themselves."""
        devices = list(self._devices.items())
        return {name: device for name, device in devices if name not in self._stores and name not in self._waiting}

    @property
    def uses(self) -> tuple[StoreUse, ...]:
        """Of each store there is now, and of what pages by itself."""
        stores = [(name, store.nbytes_total, replace(store.metrics)) for name, store in list(self._stores.items())]
        alone = [(name, device.held, _metrics_of(device)) for name, device in self._alone.items()]
        return tuple(StoreUse(*use) for use in (*stores, *alone))

    @property
    def bytes_written(self) -> tuple[int, int]:
        """Bytes of all blocks written to devices there are now, and what they took there after compression."""
        devices = self._devices.values()
        return sum(device.written for device in devices), sum(device.stored for device in devices)

    @property
    def nbytes_total(self) -> int:
        """Bytes of all stores, in memory and on disk, and of what pages by itself on disk."""
        stores = (*self._stores.values(), *self._waiting.values())
        return sum(store.nbytes_total for store in stores) + sum(device.held for device in self._alone.values())

    @property
    def pool_bytes(self) -> int:
        """Bytes that the pools of windows have of the budget."""
        return sum(store.pool.granted for store in self._stores.values() if isinstance(store, FifoStore))

    def snapshot(self) -> dict[str, Any]:
        self._has_checkpoint = True
        self._named = dict(self._devices)
        return {name: self._stores.get(name, device).snapshot() for name, device in self._devices.items()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Stores and devices that the snapshot names continue from it, others are empty; other files are removed."""
        self._has_checkpoint = True
        for name, device in self._devices.items():
            if name in snapshot:
                self._stores.get(name, device).restore(snapshot[name])
        self._saved = {name: saved for name, saved in snapshot.items() if name not in self._devices}
        self._sweep(keep=snapshot)

    def sync(self) -> None:
        """Makes the blocks durable that the last snapshot names."""
        for device in self._named.values():
            device.sync()
        if self._directory is not None:
            descriptor = os.open(self._directory, os.O_RDONLY)
            try:
                os.fsync(descriptor)  # the files' names must be durable too
            finally:
                os.close(descriptor)

    def commit(self) -> None:
        """The last snapshot is durable."""
        self._saved = {}
        for device in self._devices.values():
            device.commit()
        self._sweep(keep=self._named)
        self._named = {}
        self._close_dropped()

    def close(self) -> None:
        """Gives memory and files back; blocks that a checkpoint names stay for the next process."""
        for store in (*self._stores.values(), *self._waiting.values()):
            self._close(store)
        for device in self._devices.values():
            self._discard(device)
        self._stores.clear()
        self._waiting.clear()
        self._devices.clear()
        self._close_dropped()
        if self._unlock is not None:
            self._unlock()

    def _close(self, store: FifoStore | RunStore | RowQueues | WaitingRows) -> None:
        if isinstance(store, FifoStore):
            self._buffers.forget(store.pool)
        store.close()

    def _device(self, name: str) -> BlockDevice:
        assert name not in self._devices
        if self._directory is None:
            return MemoryDevice(self.block_size)
        return FileDevice(self._directory / block_file(name), self.block_size, self._compression)

    def _close_dropped(self) -> None:
        while self._dropped:
            self._dropped.pop().close()

    def _discard(self, device: BlockDevice) -> None:
        if device in self._named.values():
            self._dropped.append(device)
            return
        device.close()
        if not self._has_checkpoint and isinstance(device, FileDevice) and device.is_scratch:
            device.path.unlink(missing_ok=True)

    def _sweep(self, keep: Sequence[str] | dict[str, Any] = ()) -> None:
        """Removes block files that belong to no store, except those of the names to keep."""
        if self._directory is None:
            return
        known = {block_file(name) for name in (*self._devices, *keep)}
        for path in self._directory.glob(f"*{_SUFFIX}"):
            if path.name not in known:
                with contextlib.suppress(OSError):
                    path.unlink()


def _metrics_of(device: BlockDevice) -> StoreMetrics:
    return StoreMetrics(blocks_written=device.writes, blocks_read=device.reads, bytes_written=device.written)


def block_file(name: str) -> str:
    """The name of a store's file."""
    return quote(name, safe=" ()[],=") + _SUFFIX


def _lock(directory: Path) -> int:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(
            f"{directory} cannot be used for blocks: {error.strerror}; choose a writable place"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise CheckpointError(
            f"{directory} is in use by another process; stop it or choose another directory"
        ) from error
    return descriptor
