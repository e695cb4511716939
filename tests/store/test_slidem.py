"""The pool's transfers against the fewest possible, and against formula 3.1 of the SlideM paper."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.plan import cost
from penstock.store.fifo import FifoStore
from penstock.store.memory_device import MemoryDevice
from penstock.store.slidem import NEVER, farthest
from penstock_bench.benches.belady import fewest_requests, references

from .rows import batch, make_store, read_all

Event = tuple[str, int]


def transfers(store: FifoStore) -> int:
    return store.metrics.blocks_written + store.metrics.blocks_read


def play(store: FifoStore, halves: str) -> list[Event]:
    """Appends ('a') and reads and releases ('r') half blocks; returns what happened to which block."""
    half = store.block_rows // 2
    assert half * 2 == store.block_rows
    cursor = store.cursor()
    events: list[Event] = []
    for step in halves:
        if step == "a":
            if store.head % store.block_rows == 0:
                events.append(("begin", store.head // store.block_rows))
            store.append(batch(store.head, half))
        elif cursor.position < store.head:
            block = cursor.position // store.block_rows
            events.append(("use", block))
            read_all(cursor, cursor.position + half)
            store.release(cursor.position)
            if cursor.position % store.block_rows == 0:
                events.append(("release", block))
    return events


def fewest_transfers(events: list[Event], frames: int) -> int:
    """Tries every victim at every turn. A state is (blocks in memory, blocks on disk), with the least cost to it."""
    states: dict[tuple[frozenset[int], frozenset[int]], int] = {(frozenset(), frozenset()): 0}
    recent = -1
    for kind, block in events:
        following: dict[tuple[frozenset[int], frozenset[int]], int] = {}
        if kind == "begin":
            recent = block
        for (memory, disk), paid in states.items():
            if kind == "release":
                options = [(memory - {block}, disk - {block}, paid)]
            elif block in memory:
                options = [(memory, disk, paid)]
            else:
                read = kind == "use"
                options = [
                    (kept | {block}, now_on_disk, paid + written + read)
                    for kept, now_on_disk, written in with_room(memory, disk, frames, recent)
                ]
            for now_memory, now_disk, now_cost in options:
                key = (now_memory, now_disk)
                following[key] = min(now_cost, following.get(key, now_cost))
        states = following
    return min(states.values())


def with_room(
    memory: frozenset[int], disk: frozenset[int], frames: int, recent: int
) -> Iterator[tuple[frozenset[int], frozenset[int], int]]:
    if len(memory) < frames:
        yield memory, disk, 0
        return
    for victim in memory - {recent}:
        yield memory - {victim}, disk | {victim}, int(victim not in disk)


def even_store(pool_blocks: int) -> FifoStore:
    store = make_store(MemoryDevice(248), pool_blocks, block_size=248)
    assert store.block_rows % 2 == 0
    return store


@settings(max_examples=60, deadline=None)
@given(
    warmup=st.integers(0, 16),
    steps=st.text("ar", max_size=36),
    pool_blocks=st.integers(2, 5),
)
def test_no_choice_of_victims_needs_fewer_transfers(warmup: int, steps: str, pool_blocks: int) -> None:
    store = even_store(pool_blocks)
    drain = "r" * (warmup + len(steps))  # a block that is never read would cost its writer more than a clairvoyant
    events = play(store, "a" * warmup + steps + drain)
    assert transfers(store) == fewest_transfers(events, pool_blocks)


def test_a_steadily_sliding_window_needs_what_formula_3_1_says() -> None:
    """Two transfers for every block that arrives: one to write it, one to read it when its rows expire."""
    store = even_store(2)
    window_blocks, arriving_blocks = 12, 50
    play(store, "a" * 2 * window_blocks)
    before = transfers(store)
    rows = store.block_rows
    cursor = store.cursor()
    for step in range(arriving_blocks * 2):
        store.append(batch(store.head, rows // 2))
        read_all(cursor, (step + 1) * rows // 2)
        store.release(cursor.position)
    # The oldest block was still in memory when the window began to slide.
    assert transfers(store) - before == 2 * arriving_blocks - 1


@pytest.mark.parametrize("pool_blocks", [3, 5, 8])
def test_a_larger_pool_needs_fewer_transfers_and_none_if_the_window_fits(pool_blocks: int) -> None:
    counts = []
    for window_blocks in (40, pool_blocks - 1):
        store = even_store(pool_blocks)
        play(store, "aa" * window_blocks)
        before = transfers(store)
        play(store, "ar" * 200)
        counts.append(transfers(store) - before)
    assert counts[0] < 2 * 100
    assert counts[1] == 0


def test_two_windows_over_one_store_transfer_less_than_two_stores() -> None:
    shared, *unshared = (even_store(6), even_store(3), even_store(3))
    rows = shared.block_rows
    short, long = 5 * rows, 16 * rows
    readers = [(shared, shared.cursor(), short), (shared, shared.cursor(), long)]
    readers += [(store, store.cursor(), size) for store, size in zip(unshared, (short, long), strict=True)]
    for first in range(0, 100 * rows, rows // 2):
        for store in (shared, *unshared):
            store.append(batch(first, rows // 2))
        for store, cursor, size in readers:
            read_all(cursor, store.head - size)
            if store is not shared or size == long:
                store.release(cursor.position)
    assert shared.metrics.blocks_written <= 100, "a block is written at most once, however many windows read it"
    assert transfers(shared) < transfers(unshared[0]) + transfers(unshared[1])


def slide(store: FifoStore, windows: list[int], blocks: int) -> None:
    """So many blocks enter a store that windows of these sizes (in blocks) share, and leave all of them in turn."""
    rows = store.block_rows
    cursors = [store.cursor() for _ in windows]
    for _ in range(blocks):
        store.append(batch(store.head, rows))
        for cursor, size in zip(cursors, windows, strict=True):
            read_all(cursor, store.head - size * rows)
        store.release(min(cursor.position for cursor in cursors))


@pytest.mark.parametrize("seed", range(4))
def test_shared_windows_need_what_belady_needs_and_less_than_formula_4_1(seed: int) -> None:
    chance = random.Random(seed)
    needed = best = 0
    for _ in range(4):
        count = chance.choice((2, 3, 4, 6, 9))
        windows = sorted(chance.sample(range(4, 60), count))
        frames = chance.randint(count + 2, windows[-1])
        blocks = 5 * windows[-1]
        store = even_store(frames)
        slide(store, windows, blocks)
        events = list(references(windows, block_rows=1, turn_rows=1, rows=blocks + 2 * windows[-1]))
        needed += transfers(store)
        best += sum(fewest_requests(events, frames, 0, blocks))
        metrics = store.metrics
        hit_rate = metrics.pool_hits / (metrics.pool_hits + metrics.pool_misses)
        assert transfers(store) <= blocks * cost.shared_io(count, hit_rate)
    assert needed <= 1.03 * best


def test_blocks_that_stay_until_all_windows_have_passed_are_not_on_disk_as_well() -> None:
    """The space is that of the largest window, though most of it was on disk once; a snapshot needs it there again."""
    store = even_store(50)
    slide(store, [60, 64, 68, 72, 76, 80], 400)
    block = store.metrics.bytes_written // store.metrics.blocks_written

    def blocks_held() -> int:
        return len(store.pool.frames) + (store.nbytes_total - store.pool.nbytes) // block

    assert 80 <= blocks_held() <= 82
    assert store.metrics.blocks_read > 100, "blocks come back"
    assert store.metrics.blocks_written < 400, "and are written once at most"
    store.snapshot()
    assert blocks_held() > 125


def test_victims() -> None:
    #          reader    reader
    #            v         v
    # blocks  2  4  5 . .  8  9 . . 12
    assert farthest([2, 4, 5, 8, 9, 12], [4, 8]) == (0, NEVER), "a block behind every reader is needed no more"
    assert farthest([4, 5, 8, 9, 12], [4, 8]) == (4, 4), "12 is 4 ahead of the second reader"
    assert farthest([4, 5, 8, 9], [4, 8]) in ((1, 1), (3, 1)), "5 and 9 are each one ahead"
    assert farthest([4, 7, 8, 9], [4, 8]) == (1, 3)
    assert farthest([4, 8], [4, 8]).distance == 0
    assert farthest([5], []).place == 0
    assert farthest([5], [5]) == (0, 0)
    assert farthest([], [5]).place == -1


@given(
    resident=st.sets(st.integers(0, 40), min_size=1, max_size=12).map(sorted),
    readers=st.sets(st.integers(0, 40), min_size=1, max_size=4).map(sorted),
)
def test_the_victim_has_the_farthest_next_reference(resident: list[int], readers: list[int]) -> None:
    def next_reference(block: int) -> float:
        return min((block - reader for reader in readers if reader <= block), default=NEVER)

    victim, distance = farthest(resident, readers)
    assert next_reference(resident[victim]) == distance == max(map(next_reference, resident))
