"""Checkpoint, crash, restore: the store is exactly what it was, whatever happened after the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.columns import Argument
from penstock.errors import CheckpointError, StorageError
from penstock.store.blocks import ColumnSpec
from penstock.store.budget import Budget
from penstock.store.fifo import FifoStore
from penstock.store.file_device import FileDevice
from penstock.store.memory_device import MemoryDevice
from penstock.store.state import decode, encode

from .rows import batch, expected, make_store, read_all, rows_of

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 60)),
        st.tuples(st.just("slide"), st.integers(1, 80)),
        st.tuples(st.just("checkpoint"), st.just(0)),
        st.tuples(st.just("failed checkpoint"), st.just(0)),
    ),
    max_size=25,
)
LIFE = st.tuples(STEPS, st.sampled_from([160, 256, 512, 1000]), st.integers(2, 5), st.sampled_from([None, "lz4"]))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives=st.lists(LIFE, min_size=2, max_size=5))
def test_lives_that_end_in_a_crash(lives: list[tuple[Any, int, int, str | None]], tmp_path: Path) -> None:
    """Each life restores the last committed checkpoint under its own block size, pool and compression."""
    path = tmp_path / "window.blocks"
    path.unlink(missing_ok=True)
    committed: bytes | None = None
    tail = head = 0
    for steps, block_size, pool_blocks, compression in lives:
        device = FileDevice(path, block_size, compression)
        store = make_store(device, pool_blocks, block_size)
        if committed is not None:
            snapshot = decode(committed)
            store.restore(snapshot["store"])
            assert (store.tail, store.head) == (tail, head) == tuple(snapshot["bounds"])
        else:
            assert (store.tail, store.head) == (0, 0)
        cursor = store.cursor()
        assert [row for view in store.scan(store.tail, store.head) for row in rows_of(view)] == expected(
            store.tail, store.head
        )
        for action, number in steps:
            if action == "append":
                store.append(batch(store.head, number))
            elif action == "slide":
                start, stop = cursor.position, min(store.head, cursor.position + number)
                assert read_all(cursor, stop) == expected(start, stop)
                store.release(stop)
            else:
                saved = encode({"store": store.snapshot(), "bounds": [store.tail, store.head]})
                device.sync()
                if action == "checkpoint":
                    committed = saved
                    tail, head = store.tail, store.head
                    device.commit()
        device.close()
        if committed is None:
            tail = head = 0


def test_work_between_snapshot_and_commit_does_not_harm_the_checkpoint(tmp_path: Path) -> None:
    """Slots that the snapshot names are freed before its commit and must survive the commit."""
    device = FileDevice(tmp_path / "blocks", 256)
    store = make_store(device)
    cursor = store.cursor()
    store.append(batch(0, 200))
    saved = encode(store.snapshot())
    read_all(cursor, 150)
    store.release(150)
    device.commit()
    store.append(batch(200, 500))
    device.close()
    restored = make_store(FileDevice(tmp_path / "blocks", 256))
    restored.restore(decode(saved))
    assert read_all(restored.cursor(), 200) == expected(0, 200)


def test_checkpoints_do_not_make_the_file_grow(tmp_path: Path) -> None:
    device = FileDevice(tmp_path / "blocks", 256)
    store = make_store(device)
    cursor = store.cursor()
    window = 30 * store.block_rows
    for step in range(2000):
        store.append(batch(store.head, store.block_rows // 2))
        read_all(cursor, store.head - window)
        store.release(cursor.position)
        if step % 10 == 0:
            store.snapshot()
            device.commit()
    assert (tmp_path / "blocks").stat().st_size <= 50 * 256


def test_a_snapshot_writes_each_block_once(tmp_path: Path) -> None:
    store = make_store(FileDevice(tmp_path / "blocks", 256), pool_blocks=20)
    store.append(batch(0, 10 * store.block_rows))
    store.snapshot()
    written = store.metrics.blocks_written
    assert written == 9
    store.snapshot()
    store.append(batch(store.head, 30 * store.block_rows))
    assert store.metrics.blocks_written <= 40 - 2


def test_cursors_are_put_to_the_tail_by_a_restore() -> None:
    store = make_store(MemoryDevice(256))
    cursor = store.cursor()
    store.append(batch(0, 100))
    read_all(cursor, 40)
    store.release(30)
    saved = encode(store.snapshot())
    read_all(cursor, 90)
    store.restore(decode(saved))
    assert cursor.position == 30
    cursor.seek(40)
    assert read_all(cursor, 100) == expected(40, 100)


def test_another_querys_window_is_refused() -> None:
    store = make_store(MemoryDevice(256))
    store.append(batch(0, 10))
    saved = decode(encode(store.snapshot()))
    other = FifoStore([ColumnSpec("time", np.dtype(np.int32), False)], MemoryDevice(256), Budget(10**6).account("w"))
    other.append([Argument(np.arange(5, dtype=np.int32), None)])
    with pytest.raises(CheckpointError, match="belongs to another query"):
        other.restore(saved)
    assert other.head == 5


def test_missing_blocks_are_noticed_before_the_first_row(tmp_path: Path) -> None:
    path = tmp_path / "blocks"
    store = make_store(FileDevice(path, 256))
    store.append(batch(0, 100))
    saved = decode(encode(store.snapshot()))
    content = path.read_bytes()
    for left in (content[:-1], b""):
        path.write_bytes(left)
        with pytest.raises(StorageError, match="missing or truncated"):
            make_store(FileDevice(path, 256)).restore(saved)


def test_the_wrong_kind_of_device_is_refused(tmp_path: Path) -> None:
    in_memory, on_disk = make_store(MemoryDevice(256)), make_store(FileDevice(tmp_path / "blocks", 256))
    for store, other in ((in_memory, on_disk), (on_disk, in_memory)):
        with pytest.raises((CheckpointError, StorageError), match=r"Device where .*Device is expected"):
            other.restore(decode(encode(store.snapshot())))
