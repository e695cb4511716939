"""Disk full and other failures at any moment: a clear error, nothing lost, and it goes on when the cause is gone."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import StorageError
from penstock.store import file_device
from penstock.store.file_device import FileDevice
from penstock.store.memory_device import MemoryDevice

from .rows import batch, expected, make_store, read_all, rows_of


@contextlib.contextmanager
def files_up_to(nbytes: int) -> Iterator[None]:
    """The kernel refuses to let any file grow beyond this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_store_as_it_was_and_space_lets_it_go_on(tmp_path: Path) -> None:
    store = make_store(FileDevice(tmp_path / "blocks", 4096), block_size=4096)
    cursor = store.cursor()
    rows = store.block_rows
    store.append(batch(0, 3 * rows))
    with files_up_to(6 * 4096 + 100):
        store.append(batch(store.head, 4 * rows))
        accepted = store.head
        with pytest.raises(StorageError, match="blocks: block 6 cannot be written: the disk is full; make room"):
            store.append(batch(accepted, 3 * rows // 2))
        assert store.head == accepted
        assert [r for view in store.scan(0, accepted) for r in rows_of(view)] == expected(0, accepted)
        for stop in (rows, 2 * rows):
            assert read_all(cursor, stop) == expected(stop - rows, stop)
            store.release(stop)
        store.append(batch(store.head, rows))
        assert store.head == accepted + rows, "released blocks make room"
    store.append(batch(store.head, 5 * rows))
    assert read_all(cursor, store.head) == expected(2 * rows, store.head)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_and_no_quota_are_both_a_full_disk(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    store = make_store(FileDevice(tmp_path / "blocks", 256))
    monkeypatch.setattr(os, "pwritev", fail)
    with pytest.raises(StorageError, match="the disk is full"):
        store.append(batch(0, 100))
    assert store.head == 0
    monkeypatch.undo()
    store.append(batch(0, 100))
    assert [r for view in store.scan(0, 100) for r in rows_of(view)] == expected(0, 100)


def test_a_write_cut_short_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwritev

    def short(file: int, parts: list[bytes], offset: int) -> int:
        return whole(file, [b"".join(parts)[:100]], offset)

    monkeypatch.setattr(os, "pwritev", short)
    store = make_store(FileDevice(tmp_path / "blocks", 256))
    store.append(batch(0, 100))
    assert store.metrics.blocks_written > 2
    assert [r for view in store.scan(0, 100) for r in rows_of(view)] == expected(0, 100)


def test_a_failing_read_can_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(FileDevice(tmp_path / "blocks", 256))
    store.append(batch(0, 100))
    cursor = store.cursor()

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(StorageError, match=r"cannot be read: Input/output error\n.*window's rows"):
        read_all(cursor, 100)
    monkeypatch.undo()
    start = cursor.position
    assert read_all(cursor, 100) == expected(start, 100)


def test_an_unusable_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be opened for blocks: No such file or directory"):
        file_device.FileDevice(tmp_path / "missing" / "blocks")


class Unreliable(MemoryDevice):
    """Fails when told to."""

    failures: Iterator[bool] = iter(())

    def write(self, payload: bytes | memoryview) -> int:
        if next(self.failures, False):
            raise StorageError("the disk is full")
        return super().write(payload)


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from("arsx"), st.integers(1, 50)), max_size=40),
    failures=st.lists(st.booleans(), max_size=60),
    pool_blocks=st.integers(2, 4),
)
def test_failures_at_any_write(steps: list[tuple[str, int]], failures: list[bool], pool_blocks: int) -> None:
    """Whatever step fails is simply done again, as an operator under back-pressure would."""
    device = Unreliable(256)
    device.failures = iter(failures)
    store = make_store(device, pool_blocks)
    cursors = [store.cursor(), store.cursor()]
    for action, number in steps:
        done = False
        while not done:
            before = store.head
            with contextlib.suppress(StorageError):
                if action == "a":
                    store.append(batch(before, number))
                elif action == "r":
                    cursor = cursors[number % 2]
                    start, stop = cursor.position, min(store.head, cursor.position + number)
                    assert read_all(cursor, stop) == expected(start, stop)
                elif action == "s":
                    store.release(min(cursor.position for cursor in cursors))
                else:
                    store.snapshot()
                done = True
            assert done or store.head == before
        assert [r for view in store.scan(store.tail, store.head) for r in rows_of(view)] == expected(
            store.tail, store.head
        )
