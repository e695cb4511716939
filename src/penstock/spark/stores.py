"""The storage manager of one bucket: segment files beside the checkpoint, or a scratch directory for static data."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from penstock.spark.segment_device import SegmentDevice
from penstock.store.budget import Budget
from penstock.store.device import BlockDevice
from penstock.store.manager import StoreManager, read_device
from penstock.store.scratch import Scratch

BLOCK_BYTES = 65536


class SegmentStores(StoreManager):
    """`place` is a path or URI that no other bucket has; every store has a directory there. `batch` is the number of
    the micro-batch in which the bucket comes to this worker.

    Stores that the restored snapshot names and that are not made again belonged to queries that are gone. Their
    segments are retired like any others: Spark may still roll back to a state that names them.
    """

    def __init__(self, budget: Budget, place: str, batch: int, *, retain: int = 100) -> None:
        super().__init__(budget, None, BLOCK_BYTES)
        self._place = place
        self._retain = retain
        self._batch = batch
        self._gone: dict[str, SegmentDevice] = {}

    def begin(self, batch: int) -> None:
        """A micro-batch begins."""
        self._batch = batch
        for device in (*self._devices.values(), *self._gone.values()):
            if isinstance(device, SegmentDevice):
                device.begin(batch)
        self._gone = {name: device for name, device in self._gone.items() if device.has_files}

    @property
    def bytes_read(self) -> int:
        """Bytes of segments read since the bucket came to this worker."""
        return sum(device.bytes_read for device in self._devices.values() if isinstance(device, SegmentDevice))

    def snapshot(self) -> dict[str, Any]:
        gone = {name: {"device": device.snapshot()} for name, device in self._gone.items()}
        return {**gone, **super().snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        super().restore(snapshot)
        for name in snapshot.keys() - self._devices.keys():
            device = self._new_device(name)
            device.restore(read_device(snapshot[name]))
            device.retire_all()
            self._gone[name] = device

    def _device(self, name: str) -> BlockDevice:
        return self._new_device(name)

    def _new_device(self, name: str) -> SegmentDevice:
        place = f"{self._place}/{quote(name, safe='')}"
        return SegmentDevice(place, block_bytes=BLOCK_BYTES, retain=self._retain, batch=self._batch)


class ScratchStores(StoreManager):
    """Blocks in a directory of the worker, which goes with the stores, also if they are dropped without a word."""

    def __init__(self, budget: Budget) -> None:
        self._scratch = Scratch()
        super().__init__(budget, self._scratch.path, BLOCK_BYTES)

    def close(self) -> None:
        super().close()
        self._scratch.close()
