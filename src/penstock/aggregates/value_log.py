"""Values that have entered and left slots and that no evaluation has looked for yet: on a device, by partition.

    operations ─▶ a buffer for each partition ── full ──▶ a block

A partition has some of the pages, and its owner knows which. So what waits for a page is found with what waits for
some others, and a page is read once for all of it.

Invariants:
1. The operations of a partition are those of its blocks, in their order, and then those of its buffer.
2. Blocks are freed once their operations have been played (`forget`).

Owned by `paged_values.PagedValues` or `paged_order.PagedOrder`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.aggregates import value_page_kernels as kernels
from penstock.aggregates.state import Snapshot
from penstock.arrays import Int64s
from penstock.components import component
from penstock.store.device import BlockDevice
from penstock.store.own_memory import zeros

OPERATION_BYTES = 16


@component("ValueLog")
class ValueLog:
    """The buffers take about so many bytes, which the owner has on its account."""

    def __init__(self, device: BlockDevice, partitions: int, nbytes: int) -> None:
        self._device = device
        most = device.capacity // OPERATION_BYTES
        self._room = max(1, min(most, nbytes // partitions // OPERATION_BYTES))
        self._set_partitions(partitions)

    def _set_partitions(self, partitions: int) -> None:
        self._buffers: Int64s = zeros((partitions, self._room, 2), np.int64)
        self._buffered: Int64s = np.zeros(partitions, np.int64)
        self._blocks: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        self._on_device: Int64s = np.zeros(partitions, np.int64)

    @property
    def partitions(self) -> int:
        return len(self._buffered)

    @property
    def nbytes(self) -> int:
        return self._buffers.nbytes

    @property
    def waiting(self) -> Int64s:
        """How many operations wait in each partition."""
        return self._on_device + self._buffered

    def append(self, operations: Int64s, partitions: Int64s) -> None:
        """Each of them to the partition that is named for it."""
        done = 0
        while (done := kernels.append(operations, partitions, done, self._buffers, self._buffered)) < len(operations):
            for partition in np.flatnonzero(self._buffered == self._room).tolist():
                self._write_out(partition)

    def _write_out(self, partition: int) -> None:
        count = int(self._buffered[partition])
        full = self._buffers[partition, :count]
        address = self._device.write((full if self._device.copies else full.copy()).data.cast("B"))
        self._blocks[partition].append((address, count))
        self._on_device[partition] += count
        self._buffered[partition] = 0

    def read(self, partition: int) -> Int64s:
        """What waits in a partition, in its order."""
        operations = np.empty((int(self.waiting[partition]), 2), np.int64)
        at = 0
        for address, count in self._blocks[partition]:
            operations[at : at + count] = np.frombuffer(self._device.read(address), np.int64).reshape(-1, 2)
            at += count
        operations[at:] = self._buffers[partition, : self._buffered[partition]]
        return operations

    def forget(self, partition: int) -> None:
        """What waited in a partition has been played."""
        for address, _ in self._blocks[partition]:
            self._device.free(address)
        self._blocks[partition] = []
        self._on_device[partition] = self._buffered[partition] = 0

    def snapshot(self) -> Snapshot:
        blocks = [(partition, *block) for partition, own in enumerate(self._blocks) for block in own]
        buffered = [self._buffers[partition, :count] for partition, count in enumerate(self._buffered.tolist())]
        return {
            "partitions": self.partitions,
            "blocks": np.array(blocks, np.int64).reshape(-1, 3),
            "buffered": np.concatenate(buffered),
        }

    def restore(self, snapshot: Snapshot, partitions_of: Callable[[Int64s], Int64s]) -> None:
        """Buffers may be of another size than they were; the owner knows the partitions of what is in them."""
        room = self._room * self.partitions // snapshot["partitions"]
        self._room = max(1, min(room, self._device.capacity // OPERATION_BYTES))
        self._set_partitions(snapshot["partitions"])
        for partition, address, count in snapshot["blocks"].tolist():
            self._blocks[partition].append((address, count))
            self._on_device[partition] += count
        self.append(snapshot["buffered"], partitions_of(snapshot["buffered"]))
