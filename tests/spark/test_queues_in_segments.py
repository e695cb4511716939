"""Queues of rows over segment files: what a micro-batch committed is there for the next attempt, on another worker."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import numpy as np

from penstock.columns import Argument
from penstock.spark.segment_device import SegmentDevice
from penstock.store.blocks import ColumnSpec
from penstock.store.budget import Budget
from penstock.store.queues import RowQueues
from penstock.store.state import decode, encode

COLUMNS = [ColumnSpec("time", np.dtype(np.int64), False)]


def opened(directory: Path) -> RowQueues:
    device = SegmentDevice(str(directory), block_bytes=512, retain=2)
    return RowQueues(COLUMNS, device, Budget(20_000).account("rows"))


def test_a_failed_attempt_is_repeated_by_another_worker(tmp_path: Path) -> None:
    chance = np.random.default_rng(2)
    model: dict[int, deque[int]] = {}
    state = encode(opened(tmp_path).snapshot())
    for batch in range(20):
        ids = chance.integers(0, 5, 700).astype(np.int32)
        times = np.arange(batch * 700, (batch + 1) * 700)
        expected = []
        for queue, time in zip(ids.tolist(), times.tolist(), strict=True):
            held = model.setdefault(queue, deque())
            held.append(time)
            if len(held) > 500:
                expected.append(held.popleft())
        for attempt in range(1 + batch % 2):
            store = opened(tmp_path)
            store.restore(decode(state))
            assert isinstance(store.device, SegmentDevice)
            store.device.begin(batch)
            moved = store.enter(ids, [Argument(times, None)], limits=500)
            assert moved.left[0].values.tolist() == expected, f"attempt {attempt} of batch {batch}"
            saved = store.snapshot()
            store.device.close()
        state = encode(saved)
    assert store.metrics.blocks_read > 0
    assert len(list(tmp_path.rglob("*.segment"))) > 1
