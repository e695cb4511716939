"""A keyed store on a block device: of a checkpoint, the partitions that have changed since the last one are written.

Invariants:
1. `_pages[p]` are the addresses of partition p's bytes, in order; a partition that has changed has new ones, and the
   old ones are freed, which the device honours after the next commit.
2. A snapshot holds the shape of the store and addresses, and no rows.

Why: docs/decisions/table-partitions-are-pages.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.arrays import Int64s
from penstock.columns import Argument, Values
from penstock.components import component
from penstock.errors import CheckpointError
from penstock.store.device import BlockDevice
from penstock.store.keyed import KeyedStore


@component("KeyedPages")
class KeyedPages:
    def __init__(self, store: KeyedStore, device: BlockDevice) -> None:
        self._store = store
        self._device = device
        self._pages: list[list[int]] = []

    def snapshot(self) -> dict[str, Any]:
        store = self._store
        if len(self._pages) != store.partitions:
            self._free(self._pages)
            self._pages = [[] for _ in range(store.partitions)]
        for partition in np.flatnonzero(store.dirty).tolist():
            self._free([self._pages[partition]])
            self._pages[partition] = self._written(partition)
        store.dirty[:] = False
        lengths = np.array([len(page) for page in self._pages], np.int64)
        addresses = np.array([address for page in self._pages for address in page], np.int64)
        return {**store.shape(), "lengths": lengths, "addresses": addresses}

    def _written(self, partition: int) -> list[int]:
        payload = b"".join(array.tobytes() for array in self._store.page(partition))
        size = self._device.capacity
        return [self._device.write(payload[at : at + size]) for at in range(0, len(payload), size)]

    def _free(self, pages: list[list[int]]) -> None:
        for page in pages:
            for address in page:
                self._device.free(address)

    def restore(self, snapshot: dict[str, Any]) -> None:
        store = self._store
        store.reshape(snapshot)
        self._take_pages(snapshot)
        for partition, page in enumerate(self._pages):
            self._read(page, store.page(partition))
        store.refilled()

    def parts(self, snapshot: dict[str, Any]) -> Iterator[tuple[Int64s, tuple[Argument, ...]]]:
        """The keys and the columns of each partition of a snapshot, which stays where it is."""
        self._take_pages(snapshot)
        for page, count in zip(self._pages, snapshot["counts"].tolist(), strict=True):
            keys = np.empty((count, self._store.words), self._store.key_type)
            specs = self._store.specs[: len(snapshot["masked"])]  # a column may have been added since
            columns = [np.empty(count, spec.dtype) for spec in specs]
            valid = [np.empty(count, np.bool_) if masked else None for masked in snapshot["masked"]]
            arrays: list[Values] = [keys]
            for values, mask in zip(columns, valid, strict=True):
                arrays += [values] if mask is None else [values, mask]
            self._read(page, arrays)
            yield keys.astype(np.int64), tuple(map(Argument, columns, valid))

    def _take_pages(self, snapshot: dict[str, Any]) -> None:
        addresses, ends = snapshot["addresses"].tolist(), np.cumsum(snapshot["lengths"]).tolist()
        self._pages = [
            addresses[end - length : end] for end, length in zip(ends, snapshot["lengths"].tolist(), strict=True)
        ]

    def _read(self, page: list[int], arrays: Sequence[Values]) -> None:
        payload = b"".join(bytes(self._device.read(address)) for address in page)
        at = 0
        for array in arrays:
            if at + array.nbytes > len(payload):
                raise CheckpointError("a page of a table is shorter than its rows")
            array[...] = np.frombuffer(payload, array.dtype, array.size, at).reshape(array.shape)
            at += array.nbytes
