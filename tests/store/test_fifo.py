"""The FIFO store against a plain list, with pools and blocks so small that every path is taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.columns import Argument
from penstock.errors import BudgetError, StorageError
from penstock.store.budget import Budget
from penstock.store.fifo import FifoStore
from penstock.store.file_device import FileDevice
from penstock.store.memory_device import MemoryDevice

from .rows import COLUMNS, batch, expected, make_store, read_all, rows_of

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 60)),
        st.tuples(st.just("read"), st.integers(0, 2), st.integers(1, 40)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("scan"), st.integers(0, 100), st.integers(0, 100)),
        st.tuples(st.just("snapshot"), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=STEPS,
    pool_blocks=st.integers(2, 5),
    cursors=st.integers(1, 3),
    on_disk=st.booleans(),
    compression=st.sampled_from([None, "lz4", "zstd"]),
)
def test_behaves_like_a_list(
    steps: list[tuple[str, int, int]],
    pool_blocks: int,
    cursors: int,
    on_disk: bool,
    compression: str | None,
    tmp_path: Path,
) -> None:
    device = FileDevice(tmp_path / "blocks", 256, compression) if on_disk else MemoryDevice(256)
    budget = Budget(1 << 20)
    store = FifoStore(COLUMNS, device, budget.account("window"), block_size=256, pool_blocks=pool_blocks)
    readers = [store.cursor() for _ in range(cursors)]
    tail = head = 0
    for action, *numbers in steps:
        if action == "append":
            assert store.append(batch(head, numbers[0])) == head
            head += numbers[0]
        elif action == "read":
            reader = readers[numbers[0] % cursors]
            start = reader.position
            stop = min(head, start + numbers[1])
            assert read_all(reader, stop) == expected(start, stop)
        elif action == "release":
            tail = min(reader.position for reader in readers)
            store.release(tail)
        elif action == "scan":
            low, high = sorted(tail + (head - tail) * number // 100 for number in numbers)
            assert [r for view in store.scan(low, high) for r in rows_of(view)] == expected(low, high)
        else:
            store.snapshot()
            device.commit()
        assert (store.tail, store.head) == (tail, head)
        assert budget.used <= pool_blocks * (256 + 2 * store.block_rows)
    for reader in readers:
        start = reader.position
        assert read_all(reader, head) == expected(start, head)
    device.close()


def test_a_view_keeps_its_rows_whatever_happens_to_the_store(tmp_path: Path) -> None:
    store = make_store(FileDevice(tmp_path / "blocks", 256))
    store.append(batch(0, 5))
    cursor = store.cursor()
    seen = [cursor.view(5)]
    position = 5
    while position < 200:
        store.append(batch(position, 3))
        position += 3
        cursor.advance(seen[-1].count)
        store.release(cursor.position)
        seen.append(cursor.view(position))
    for view in seen:
        assert rows_of(view) == expected(view.first, view.first + view.count)


def test_views_are_writable_contiguous_arrays_from_memory_and_from_disk(tmp_path: Path) -> None:
    """Kernels are compiled once per kind of array, so there must be only one kind."""
    for compression in (None, "zstd"):
        store = make_store(FileDevice(tmp_path / f"{compression}", 256, compression))
        store.append(batch(0, 100))
        cursor = store.cursor()
        while cursor.position < 100:
            view = cursor.view(100)
            for values, _ in view.columns:
                assert values.flags.writeable
                assert values.flags.c_contiguous
                assert values.flags.aligned
            cursor.advance(view.count)


def test_a_view_at_the_head_is_empty() -> None:
    store = make_store(MemoryDevice(256))
    cursor = store.cursor()
    assert cursor.view(10).count == 0
    assert [argument.values.dtype for argument in cursor.view(10).columns] == [spec.dtype for spec in COLUMNS]
    store.append(batch(0, store.block_rows))
    assert cursor.view(10**9).count == store.block_rows
    cursor.advance(store.block_rows)
    assert cursor.view(10**9).count == 0


def test_a_cursor_shows_the_columns_it_was_made_for(tmp_path: Path) -> None:
    store = make_store(FileDevice(tmp_path / "blocks", 256))
    assert not store.is_paged
    whole, some = store.cursor(), store.cursor(columns=(2, 0))
    assert [argument.values.dtype for argument in some.view(1).columns] == [COLUMNS[2].dtype, COLUMNS[0].dtype]
    store.append(batch(0, 5 * store.block_rows))
    assert store.is_paged
    while some.position < store.head:
        every, chosen = whole.view(store.head), some.view(store.head)
        assert (chosen.first, chosen.count) == (every.first, every.count)
        for mine, theirs in zip(chosen.columns, (every.columns[2], every.columns[0]), strict=True):
            np.testing.assert_array_equal(mine.values, theirs.values)
            assert (mine.valid is None) == (theirs.valid is None)
        whole.advance(every.count)
        some.advance(chosen.count)


def test_a_column_without_nulls_has_no_validity(tmp_path: Path) -> None:
    store = make_store(FileDevice(tmp_path / "blocks", 256))
    rows = store.block_rows
    data = [Argument(np.zeros(rows * 4, spec.dtype), np.ones(rows * 4, np.bool_)) for spec in COLUMNS]
    data[0] = Argument(data[0].values, None)
    data[2] = Argument(data[2].values, None)
    store.append(data)
    assert all(argument.valid is None for view in store.scan(0, rows * 4) for argument in view.columns)


def test_released_slots_are_used_again(tmp_path: Path) -> None:
    store = make_store(FileDevice(tmp_path / "blocks", 256))
    cursor = store.cursor()
    window = 20 * store.block_rows
    for first in range(0, 100 * window, store.block_rows):
        store.append(batch(first, store.block_rows))
        read_all(cursor, store.head - window)
        store.release(cursor.position)
    assert (tmp_path / "blocks").stat().st_size <= 22 * 256
    assert store.nbytes_total <= 24 * 256


def test_everything_can_leave_and_come_again() -> None:
    store = make_store(MemoryDevice(256))
    cursor = store.cursor()
    for first in range(0, 1000, 50):
        store.append(batch(first, 50))
        assert read_all(cursor, first + 50) == expected(first, first + 50)
        store.release(store.head)
    assert store.tail == store.head == 1000


def test_too_small_a_budget_is_refused_at_once() -> None:
    with pytest.raises(BudgetError, match=r"window needs 5.. bytes, but only 300"):
        make_store(MemoryDevice(256), budget=300)


def test_a_pool_stays_small_when_the_budget_has_no_more() -> None:
    budget = Budget(256 * 4)
    store = FifoStore(COLUMNS, MemoryDevice(256), budget.account("window"), block_size=256, pool_blocks=100)
    cursor = store.cursor()
    store.append(batch(0, 500))
    assert budget.used <= budget.total
    assert read_all(cursor, 500) == expected(0, 500)


def test_a_row_larger_than_a_block_is_refused() -> None:
    with pytest.raises(StorageError, match="use larger blocks"):
        make_store(MemoryDevice(16))


def test_closing_gives_the_memory_back() -> None:
    budget = Budget(1 << 20)
    store = FifoStore(COLUMNS, MemoryDevice(256), budget.account("window"), block_size=256)
    store.append(batch(0, 100))
    store.close()
    assert budget.used == 0
