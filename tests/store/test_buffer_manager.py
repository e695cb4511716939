"""One budget for the pools of many stores and for everything else: kept, not refused in vain, and where it gains most.

budget  |-- other accounts --|-- pool --|---- pool ----|-- pool --|
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BudgetError
from penstock.store.budget import Budget
from penstock.store.buffer_manager import Demand, divide
from penstock.store.fifo import Cursor, FifoStore
from penstock.store.manager import StoreManager
from penstock.store.slidem import BufferPool

from .rows import COLUMNS, batch, expected, read_all

BLOCK = 256
FRAME = StoreManager(Budget(1 << 20), None, BLOCK).create_fifo("one", COLUMNS).pool.frame_bytes


class Window:
    """A store with readers at fixed distances behind its head, and what they have read."""

    def __init__(self, store: FifoStore, sizes: list[int]) -> None:
        self.store = store
        self.sizes = sizes
        self.cursors = [store.cursor() for _ in sizes]

    def push(self, rows: int) -> None:
        """Rows enter, and each reader reads those that leave its window."""
        self.store.append(batch(self.store.head, rows))
        for cursor, size in zip(self.cursors, self.sizes, strict=True):
            check(cursor, max(cursor.position, self.store.head - size))
        self.store.release(min(cursor.position for cursor in self.cursors))

    @property
    def frames(self) -> int:
        return len(self.store.pool.frames)


def check(cursor: Cursor, stop: int) -> None:
    start = cursor.position
    assert read_all(cursor, stop) == expected(start, stop)


SIZES = st.lists(st.integers(0, 400), min_size=1, max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 3), st.integers(0, 60)),
        st.tuples(st.just("take"), st.integers(0, 1), st.integers(0, 6000)),
        st.tuples(st.just("drop"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("snapshot"), st.just(0), st.just(0)),
    ),
    max_size=50,
)


@settings(max_examples=120, deadline=None)
@given(windows=st.lists(SIZES, min_size=1, max_size=4), frames=st.integers(0, 40), steps=STEPS)
def test_any_budget_is_kept_and_every_row_comes_back(
    windows: list[list[int]], frames: int, steps: list[tuple[str, int, int]]
) -> None:
    budget = Budget((2 * len(windows) + frames) * FRAME)
    stores = StoreManager(budget, None, BLOCK)
    others = [budget.account("groups"), budget.account("states")]
    held = {i: Window(stores.create_fifo(str(i), COLUMNS), sizes) for i, sizes in enumerate(windows)}
    for action, which, number in steps:
        if action == "push" and which in held:
            held[which].push(number)
        elif action == "take":
            account = others[which]
            rest = sum(other.nbytes for other in others) - account.nbytes + 2 * FRAME * len(held)
            if number + rest <= budget.total or number <= account.nbytes:
                account.resize(number)
                assert account.nbytes == number
            else:
                before = [window.frames for window in held.values()]
                with pytest.raises(BudgetError):
                    account.resize(number)
                assert before == [window.frames for window in held.values()], "a refusal changes nothing"
        elif action == "drop" and which in held and len(held) > 1:
            del held[which]
            stores.drop(str(which))
        elif action == "snapshot":
            stores.snapshot()
            stores.commit()
        assert budget.used <= budget.total
        for window in held.values():
            pool = window.store.pool
            assert pool.granted >= 2 * FRAME
            assert pool.granted == max(2 * FRAME, window.frames * FRAME)
    for window in held.values():
        for cursor in window.cursors:
            check(cursor, window.store.head)


def saved(demand: Demand, frames: int) -> float:
    """Transfers saved by so many frames, two of which come and go: one frame after the other, the best ones first."""
    newest = len(demand.gaps) - 1
    each = [(2 if at == newest else 1) / gap for at, gap in enumerate(demand.gaps) for _ in range(gap)]
    return demand.rate * sum(sorted(each, reverse=True)[: frames - 2])


@settings(max_examples=100, deadline=None)
@given(
    demands=st.lists(
        st.builds(
            Demand,
            st.integers(1, 9).map(float),
            st.just(10),
            st.lists(st.integers(1, 6), min_size=1, max_size=3),
            st.just(0),
        ),
        min_size=1,
        max_size=3,
    ),
    frames=st.integers(0, 20),
)
def test_no_division_saves_more_transfers(demands: list[Demand], frames: int) -> None:
    total = 2 * len(demands) + frames
    fair, left = divide(demands, 10 * total)
    assert min(fair) >= 2
    assert 10 * sum(fair) + left == 10 * total
    others = (each for each in product(range(2, total + 1), repeat=len(demands)) if sum(each) <= total)
    best = max(sum(map(saved, demands, each)) for each in others)
    assert sum(map(saved, demands, fair)) == pytest.approx(best)


def two_streams(first: int, second: int, rounds: int, windows: list[Window]) -> None:
    for _ in range(rounds):
        windows[0].push(first)
        windows[1].push(second)


def test_memory_moves_to_the_stream_that_becomes_faster() -> None:
    stores = StoreManager(Budget(60 * FRAME), None, BLOCK)
    rows = stores.create_fifo("other", COLUMNS).block_rows
    stores.drop("other")
    windows = [Window(stores.create_fifo(name, COLUMNS), [100 * rows]) for name in ("a", "b")]
    two_streams(rows, 4 * rows, 150, windows)
    assert windows[0].frames < 15 < 45 < windows[1].frames
    two_streams(4 * rows, rows, 150, windows)
    assert windows[1].frames < 15 < 45 < windows[0].frames
    assert sum(window.frames for window in windows) > 50, "nothing lies idle"


def test_equal_streams_keep_what_they_have() -> None:
    """What is worth the same does not move to and fro: a window that loses its frames would have to read them back."""
    stores = StoreManager(Budget(64 * FRAME), None, BLOCK)
    windows = [Window(stores.create_fifo(name, COLUMNS), [1000]) for name in ("a", "b", "c")]
    rows = windows[0].store.block_rows
    for _ in range(100):
        for window in windows:
            window.push(rows)
    before = [window.frames for window in windows]
    for _ in range(200):
        for window in windows:
            window.push(rows)
    assert [abs(now.frames - then) <= 5 for now, then in zip(windows, before, strict=True)] == [True] * 3


def test_a_store_with_close_readers_gains_more_than_one_with_a_single_window() -> None:
    stores = StoreManager(Budget(60 * FRAME), None, BLOCK)
    probe = stores.create_fifo("probe", COLUMNS).block_rows
    stores.drop("probe")
    single = Window(stores.create_fifo("single", COLUMNS), [100 * probe])
    shared = Window(stores.create_fifo("shared", COLUMNS), [size * probe for size in (100, 105, 110, 115, 120, 125)])
    two_streams(probe, probe, 400, [single, shared])
    assert shared.frames > 25
    metrics = shared.store.metrics
    assert metrics.pool_hits / (metrics.pool_hits + metrics.pool_misses) > 0.8


def test_a_growing_account_takes_frames_back_down_to_two_of_each_pool() -> None:
    budget = Budget(40 * FRAME)
    stores = StoreManager(budget, None, BLOCK)
    windows = [Window(stores.create_fifo(name, COLUMNS), [2000]) for name in ("a", "b")]
    for window in windows:
        window.push(1500)
    assert budget.unused < FRAME
    assert budget.free >= 35 * FRAME
    groups = budget.account("groups")
    groups.resize(36 * FRAME)
    assert [window.frames for window in windows] == [2, 2]
    with pytest.raises(BudgetError, match=f"memory budget of at least {40 * FRAME + 1:,} bytes"):
        groups.resize(36 * FRAME + 1)
    groups.resize(0)
    for window in windows:
        window.push(1500)
    assert sum(window.frames for window in windows) > 35, "what is given back is lent again"


def test_a_new_store_finds_room_where_others_have_taken_all() -> None:
    budget = Budget(10 * FRAME)
    stores = StoreManager(budget, None, BLOCK)
    first = Window(stores.create_fifo("first", COLUMNS), [3000])
    first.push(2000)
    assert budget.unused < FRAME
    second = Window(stores.create_fifo("second", COLUMNS), [3000])
    second.push(2000)
    assert budget.used <= budget.total
    stores.drop("second")
    first.push(2000)
    assert first.frames == 10


def test_a_pool_of_stated_size_is_left_alone() -> None:
    stores = StoreManager(Budget(40 * FRAME), None, BLOCK)
    fixed, free = (
        Window(stores.create_fifo("fixed", COLUMNS, 3), [900]),
        Window(stores.create_fifo("f", COLUMNS), [900]),
    )
    for _ in range(50):
        fixed.push(50)
        free.push(50)
        assert fixed.frames <= 3
    pool: BufferPool = free.store.pool
    assert len(pool.frames) > 3
