"""State written by differences: what is read is what was written, whatever changed in between."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BudgetError, CheckpointError, StorageError
from penstock.expressions.vector import ColumnView
from penstock.operators.groups import GroupTable
from penstock.store import state
from penstock.store.budget import Budget
from penstock.store.changes import ChangedSlots, Changing, by_slot
from penstock.store.charged import UNLIMITED
from penstock.store.differences import PAGE, Differences, joined
from penstock.types import SqlType
from store.checked_differences import assert_same

TYPES = (np.int64, np.float64, np.uint8, np.bool_, np.int32)


def written(log: Differences, tree: dict[str, Any]) -> bytes:
    """A part that is kept."""
    part = log.part(tree)
    log.keep()
    return part.data


class Story:
    """A tree that changes: slots with their arrays, large and small arrays, bytes, and values."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.changes = ChangedSlots(UNLIMITED)
        self.slots = 0
        self.counts, self.words = np.zeros(0, np.int64), np.zeros(0, np.uint64)
        self.pool = np.zeros(0, np.int64)
        self.text = b""
        self.extra: list[Any] = []

    def step(self) -> None:
        random = self.random
        for _ in range(random.integers(0, 4)):
            getattr(self, str(random.choice(["_grow", "_touch", "_pool", "_bytes", "_more"])))()

    def _grow(self) -> None:
        self.slots += int(self.random.integers(1, 3000))
        self.changes.fit(self.slots)
        self.counts = np.concatenate([self.counts, np.zeros(self.slots - len(self.counts), np.int64)])
        self.words = np.concatenate([self.words, np.zeros(3 * self.slots - len(self.words), np.uint64)])

    def _touch(self) -> None:
        if self.slots:
            slots = self.random.integers(-1, self.slots, self.random.integers(0, 40)).astype(np.int32)
            self.changes.mark(slots)
            slots = slots[slots >= 0]
            self.counts[slots] += 1
            self.words.reshape(-1, 3)[slots] = self.random.integers(0, 9, (len(slots), 3))

    def _pool(self) -> None:
        length = int(self.random.choice([0, 5, 1024, 4096, len(self.pool), len(self.pool) // 2, 3000]))
        self.pool = np.resize(self.pool, length) if len(self.pool) else np.zeros(length, np.int64)
        if length:
            self.pool[self.random.integers(0, length, 3)] += 1

    def _bytes(self) -> None:
        text = bytearray(self.text[: int(self.random.integers(0, len(self.text) + 1))])
        text += bytes(int(self.random.choice([0, 1, PAGE, 3 * PAGE])))
        if text:
            text[int(self.random.integers(0, len(text)))] ^= 1
        self.text = bytes(text)

    def _more(self) -> None:
        kind = TYPES[int(self.random.integers(0, len(TYPES)))]
        self.extra = [*self.extra[-3:], self.random.integers(0, 2, int(self.random.integers(0, 9000))).astype(kind)]

    def tree(self) -> dict[str, Any]:
        by_slots = {"counts": by_slot(self.counts), "more": {"words": by_slot(self.words, 3)}, "own": self.pool}
        return {
            "slots": self.slots,
            "groups": [Changing(self.changes, by_slots)],
            "pool": self.pool,
            "text": self.text,
            "extra": self.extra,
            "nothing": None,
            "share": 0.5,
        }


@given(seed=st.integers(0, 10**6), steps=st.integers(1, 9), unkept=st.sets(st.integers(0, 8), max_size=2))
def test_parts_together_are_the_state(seed: int, steps: int, unkept: set[int]) -> None:
    story, log, parts = Story(seed), Differences(), []
    for step in range(steps):
        story.step()
        expected = state.decode(state.encode(story.tree()))
        part = log.part(story.tree())
        assert part.is_whole or step not in {0, *unkept}
        parts = [part.data] if part.is_whole else [*parts, part.data]
        if step + 1 not in unkept:
            log.keep()
        assert_same(joined(parts), expected)


def test_a_difference_is_as_large_as_what_has_changed() -> None:
    changes, log = ChangedSlots(UNLIMITED), Differences()
    changes.fit(1_000_000)
    counts = np.zeros(1_000_000, np.int64)
    whole = written(log, Changing(changes, {"counts": by_slot(counts)}))
    slots = np.arange(0, 1_000_000, 100, dtype=np.int32)
    counts[slots] = 7
    changes.mark(slots)
    difference = written(log, Changing(changes, {"counts": by_slot(counts)}))
    assert len(difference) < 10_000 * 12 + 1000 < len(whole) / 50
    assert joined([whole, difference])["counts"].sum() == 70_000
    assert len(written(log, Changing(changes, {"counts": by_slot(counts)}))) < 1000


def test_a_missing_mark_is_seen_by_the_check_of_all_tests() -> None:
    changes, log = ChangedSlots(UNLIMITED), Differences()
    changes.fit(10_000)
    counts = np.zeros(10_000, np.int64)
    written(log, Changing(changes, {"counts": by_slot(counts)}))
    counts[3] = 1
    with pytest.raises(AssertionError, match="counts"):
        written(log, Changing(changes, {"counts": by_slot(counts)}))


def test_without_memory_for_the_marks_arrays_are_written_whole() -> None:
    changes, log = ChangedSlots(Budget(100).account("slots")), Differences()
    changes.fit(10_000)
    counts = np.zeros(10_000, np.int64)
    parts = [written(log, Changing(changes, {"counts": by_slot(counts)}))]
    counts[3] = 1
    changes.mark(np.array([3], np.int32))
    parts.append(written(log, Changing(changes, {"counts": by_slot(counts)})))
    assert joined(parts)["counts"][3] == 1
    assert len(parts[1]) > counts.nbytes


def test_changes_that_another_took_are_not_missed() -> None:
    changes, log = ChangedSlots(UNLIMITED), Differences()
    changes.fit(10_000)
    counts = np.zeros(10_000, np.int64)
    tree = Changing(changes, {"counts": by_slot(counts)})
    parts = [written(log, tree)]
    counts[3] = 1
    changes.mark(np.array([3], np.int32))
    written(Differences(), tree)
    parts.append(written(log, tree))
    assert joined(parts)["counts"][3] == 1


def test_a_missing_part_is_noticed() -> None:
    log, rest = Differences(), np.zeros(5000)
    parts = [written(log, {"x": at, "rest": rest}) for at in range(3)]
    assert joined(parts)["x"] == 2
    with pytest.raises(CheckpointError, match="missing"):
        joined([parts[0], parts[2]])
    with pytest.raises(CheckpointError, match="missing"):
        joined(parts[1:])
    with pytest.raises(CheckpointError, match="part of saved state"):
        state.decode(parts[1])


@pytest.mark.parametrize("at", [9, 70, -1])
def test_a_damaged_part_is_noticed(at: int) -> None:
    log = Differences()
    parts = [written(log, {"x": step, "rest": np.arange(9000)}) for step in range(2)]
    damaged = bytearray(parts[1])
    damaged[at] ^= 1
    with pytest.raises((StorageError, CheckpointError)):
        joined([parts[0], bytes(damaged)])


@given(seed=st.integers(0, 10**6), steps=st.integers(1, 4), others=st.booleans())
def test_after_a_restart_differences_go_on(seed: int, steps: int, others: bool) -> None:
    """Another log follows the parts with what was restored; the slots may be those of something else."""
    story, log = Story(seed), Differences()
    for _ in range(3):
        story.step()
    parts = [written(log, story.tree())]
    if others:
        story.counts, story.words = np.zeros_like(story.counts), np.ones_like(story.words)
    story.changes = ChangedSlots(UNLIMITED)
    story.changes.fit(story.slots)
    log, saved = Differences(), joined(parts)
    log.remember(parts, saved)
    saved["pool"][:] = -1  # what restores may take arrays for its own
    log.follow(story.tree)
    for _ in range(steps):
        story.step()
        expected = state.decode(state.encode(story.tree()))
        part = log.part(story.tree())
        log.keep()
        parts = [part.data] if part.is_whole else [*parts, part.data]
        assert_same(joined(parts), expected)


def test_paths_of_different_parts_differ() -> None:
    one, other = np.zeros(3 * PAGE, np.uint8), np.zeros(3 * PAGE, np.uint8)
    log = Differences()
    parts = [written(log, {"q": {"x": one}, "q.x": other})]
    one[0] = other[1] = 1
    parts.append(written(log, {"q": {"x": one}, "q.x": other}))
    assert_same(joined(parts), {"q": {"x": one}, "q.x": other})


def fill(groups: GroupTable) -> None:
    for count in itertools.count(1):
        groups.assign([ColumnView(pa.array(range(count)), SqlType.BIGINT)], count, None)


@pytest.mark.parametrize("total", [9_000, 20_000, 50_000])
def test_flags_are_given_up_before_groups_are_refused(total: int) -> None:
    reached = []
    for is_tracked in (False, True):
        groups = GroupTable((SqlType.BIGINT,), Budget(total).account("groups"))
        if is_tracked:
            groups.changes.take()
            assert groups.changes.is_tracked
        with pytest.raises(BudgetError):
            fill(groups)
        reached.append(groups.size)
    assert reached[0] == reached[1]


def test_an_only_group_is_marked_though_its_first_row_is_left_out() -> None:
    groups = GroupTable((), UNLIMITED)
    groups.changes.take()
    groups.assign([], 2, np.array([False, True]))
    slots = groups.changes.take().slots
    assert slots is not None
    assert slots.tolist() == [0]
