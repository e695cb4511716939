"""Queues of rows against plain deques: whatever the budget, the blocks, the cuts and the restarts."""

from __future__ import annotations

import tempfile
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns import Argument
from penstock.errors import BudgetError, CheckpointError, StorageError
from penstock.store.budget import Budget
from penstock.store.fifo import View
from penstock.store.file_device import FileDevice
from penstock.store.memory_device import MemoryDevice
from penstock.store.queues import NO_LIMIT, RowQueues
from penstock.store.state import decode, encode

from .rows import COLUMNS, Row, batch, row, rows_of

ROW_BYTES = 8 + 8 + 4 + 1 + 2


def rows(columns: tuple[Argument, ...]) -> list[Row]:
    return rows_of(View(0, len(columns[0].values), columns))


class Model:
    """One deque of row numbers per queue."""

    def __init__(self) -> None:
        self.queues: dict[int, deque[int]] = {}
        self.made = 0

    def enter(self, ids: list[int], limit: int) -> tuple[list[int], list[int], list[int]]:
        left, upto, oldest = [], [], []
        for queue in ids:
            held = self.queues.setdefault(queue, deque())
            held.append(self.made)
            self.made += 1
            if len(held) > limit:
                left.append(held.popleft())
            upto.append(len(left))
            oldest.append(held[0])
        return left, upto, oldest


def enter(store: RowQueues, model: Model, ids: list[int], limit: int) -> None:
    first = model.made
    left, upto, oldest = model.enter(ids, limit)
    store.ensure(max(ids, default=0) + 1)
    moved = store.enter(np.array(ids, np.int32), batch(first, len(ids)), limit)
    assert rows(moved.left) == [row(number) for number in left]
    assert moved.left_upto.tolist() == upto
    assert moved.oldest.tolist() == [row(number)[0] for number in oldest]


def check(store: RowQueues, model: Model, account: Any) -> None:
    assert account.nbytes == store.nbytes
    for queue, held in model.queues.items():
        assert store.lengths[queue] == len(held)
        assert rows(store.read(np.array([queue], np.int32))[0]) == [row(number) for number in held]
        assert store.oldest[queue] == row(held[0])[0]


BUDGETS = (44_000, 100_000, 1 << 20)
ids = st.one_of(
    st.lists(st.integers(0, 3), max_size=80),
    st.lists(st.integers(0, 40), max_size=80),
    st.lists(st.sampled_from((0, 0, 0, 0, 0, 0, 1, 2, 77)), max_size=80),
    st.integers(0, 100).map(lambda queue: [queue] * 50),
)
action = st.one_of(
    *[ids.map(lambda batch: ("enter", batch)) for _ in range(4)],
    st.integers(0, 100).map(lambda queue: ("take", queue)),
    st.sampled_from((512, 700, 2048)).map(lambda block: ("restart", block)),
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(action, max_size=60), st.sampled_from((1, 9, 60, NO_LIMIT)), st.sampled_from((44_000, 100_000, 1 << 20))
)
def test_queues_are_deques(actions: list[Any], limit: int, budget: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        model = Model()
        path = Path(directory) / "blocks"
        device = FileDevice(path, 512)
        account = Budget(budget).account("rows")
        store = RowQueues(COLUMNS, device, account)
        for what, value in actions:
            if what == "enter":
                enter(store, model, value, limit)
            elif what == "take":
                store.ensure(value + 1)
                assert rows(store.take(value)) == [row(number) for number in model.queues.pop(value, ())]
            else:
                state = encode(store.snapshot())
                device.commit()
                device.close()
                device, account = FileDevice(path, value), Budget(budget).account("rows")
                store = RowQueues(COLUMNS, device, account)
                store.restore(decode(state))
            check(store, model, account)
        device.close()


def uniform(chance: np.random.Generator, queues: int, count: int) -> np.ndarray[Any, Any]:
    return chance.integers(0, queues, count).astype(np.int32)


def skewed(chance: np.random.Generator, queues: int, count: int) -> np.ndarray[Any, Any]:
    return np.minimum(chance.zipf(1.3, count) - 1, queues - 1).astype(np.int32)


@pytest.mark.parametrize("draw", [uniform, skewed])
@pytest.mark.parametrize("queues", [3, 500])
def test_windows_many_times_their_memory(draw: Any, queues: int, tmp_path: Path) -> None:
    """A million bytes of rows in a tenth of it; every row that leaves is the right one, read back from its block."""
    chance = np.random.default_rng(7)
    count, limit = 120_000, 60_000 // queues
    budget = Budget(400_000)
    device = FileDevice(tmp_path / "blocks", 4096)
    store = RowQueues(COLUMNS, device, budget.account("rows"))
    store.ensure(queues)
    model: dict[int, deque[int]] = {queue: deque() for queue in range(queues)}
    all_ids = draw(chance, queues, count)
    done = 0
    while done < count:
        size = int(chance.choice((1, 700, 5_000)))
        part = all_ids[done : done + size]
        left = []
        for number, queue in enumerate(part.tolist(), done):
            model[queue].append(number)
            if len(model[queue]) > limit:
                left.append(model[queue].popleft())
        moved = store.enter(part, batch(done, len(part)), limit)
        assert moved.left[0].values.tolist() == [row(number)[0] for number in left]
        assert moved.left[2].values.tolist() == [row(number)[2] for number in left]
        done += size
    held = sum(map(len, model.values()))
    assert budget.peak <= 400_000
    assert store.metrics.blocks_read > 0 or held == int(store.lengths.sum()) < 20_000
    assert store.nbytes < held * ROW_BYTES / 2 or draw is skewed
    assert store.metrics.blocks_written * 4096 <= 2 * count * ROW_BYTES, "rows are written once"
    for queue in chance.choice(queues, 3).tolist():
        assert rows(store.read(np.array([queue], np.int32))[0]) == [row(number) for number in model[queue]]
    device.close()


def test_short_queues_share_blocks_and_reads() -> None:
    """Each of 400 queues has only a few rows in a round; one read brings them to all the queues of its block."""
    budget = Budget(300_000)
    store = RowQueues(COLUMNS, MemoryDevice(4096), budget.account("rows"))
    store.ensure(400)
    ids = np.tile(np.arange(400, dtype=np.int32), 200)
    for start in range(0, len(ids), 8_000):
        store.enter(ids[start : start + 8_000], batch(start, 8_000), limits=100)
    left = len(ids) - int(store.lengths.sum())
    assert left == 40_000
    assert store.nbytes < 400 * 100 * ROW_BYTES / 2
    assert store.metrics.blocks_read < left / 35, "queue by queue, a read would bring five rows"
    assert store.metrics.bytes_written < 1.5 * len(ids) * ROW_BYTES


def test_a_queue_that_stands_still_holds_only_its_own_block() -> None:
    """Blocks around it are freed and forgotten while others go on, however long."""
    device = MemoryDevice(512)
    account = Budget(60_000).account("rows")
    store = RowQueues(COLUMNS, device, account)
    store.ensure(2)
    store.enter(np.zeros(1, np.int32), batch(0, 1), 500)
    most = 0
    for start in range(1, 60_001, 2_000):
        store.enter(np.ones(2_000, np.int32), batch(start, 2_000), 500)
        most = max(most, account.nbytes)
    assert most < 60_000
    assert len(device.snapshot()["blocks"]) <= 500 * ROW_BYTES // 300 + 40
    assert rows(store.read(np.array([0], np.int32))[0]) == [row(0)]


class FullDisk(MemoryDevice):
    """Takes so many blocks and no more."""

    def __init__(self, blocks: int) -> None:
        super().__init__(512)
        self.left = blocks

    def write(self, payload: bytes | memoryview) -> int:
        if self.left == 0:
            raise StorageError("the disk is full")
        self.left -= 1
        return super().write(payload)


@pytest.mark.parametrize("blocks", [0, 1, 40, 41, 55])
def test_a_full_disk_loses_no_row_that_was_there(blocks: int) -> None:
    device = FullDisk(blocks)
    store = RowQueues(COLUMNS, device, Budget(20_000).account("rows"))
    done = 0

    def enter_on_and_on() -> None:
        nonlocal done
        while True:
            store.enter(np.arange(done, done + 10, dtype=np.int32) % 3, batch(done, 10))
            done += 10

    with pytest.raises(StorageError, match="full"):
        enter_on_and_on()
    held = int(store.lengths.sum())
    assert done <= held < done + 10
    for queue in range(3):
        assert rows(store.read(np.array([queue], np.int32))[0]) == [row(number) for number in range(queue, held, 3)]
    if blocks:
        saved = store.snapshot()
        kept = {block[0] for block in saved["device"]["blocks"]}
        assert kept == set(saved["rounds"]["blocks"][:, 0].tolist()), "blocks of the failed round are given back"


def test_more_queues_than_the_budget_can_have_are_refused() -> None:
    store = RowQueues(COLUMNS, MemoryDevice(512), Budget(60_000).account("rows of partitions"))
    store.ensure(256)
    store.enter(np.arange(2_000, dtype=np.int32) % 256, batch(0, 2_000))
    with pytest.raises(BudgetError, match=r"too many partitions .*: rows of partitions needs"):
        store.ensure(1_000)
    assert store.lengths.sum() == 2_000


def test_other_columns_are_refused() -> None:
    saved = RowQueues(COLUMNS, MemoryDevice(512), Budget(60_000).account("rows")).snapshot()
    with pytest.raises(CheckpointError, match="belong to another query"):
        RowQueues(COLUMNS[:2], MemoryDevice(512), Budget(60_000).account("rows")).restore(saved)
