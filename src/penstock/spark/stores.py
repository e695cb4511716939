"""The storage manager of one bucket: closed blocks in segment files, a directory per bucket and store."""

from __future__ import annotations

from urllib.parse import quote

from penstock.spark.segment_device import SegmentDevice
from penstock.store.budget import Budget
from penstock.store.device import BlockDevice
from penstock.store.manager import StoreManager

BLOCK_BYTES = 65536


class BucketStores(StoreManager):
    """`directory` is a path or URI; without one the blocks are in memory and travel inside the committed state."""

    def __init__(self, budget: Budget, directory: str | None, bucket: int, *, retain: int = 100) -> None:
        super().__init__(budget, None, BLOCK_BYTES)
        self._place = None if directory is None else f"{directory.rstrip('/')}/bucket-{bucket}"
        self._retain = retain
        self._batch = 0

    def begin(self, batch: int) -> None:
        """A micro-batch begins."""
        self._batch = batch
        for device in self._devices.values():
            if isinstance(device, SegmentDevice):
                device.begin(batch)

    def _device(self, name: str) -> BlockDevice:
        if self._place is None:
            return super()._device(name)
        device = SegmentDevice(f"{self._place}/{quote(name, safe='')}", block_bytes=BLOCK_BYTES, retain=self._retain)
        device.begin(self._batch)
        return device
