"""Windows that are made of panes answer as if they had seen the rows themselves, to the bit.

rows      a b . | . | a a b |          panes are separated by bars
window 0        | 1 | 2     |          the last pane, the last two, ...: each pane enters all windows
window 1    1   | 2 | 3     |          and leaves each when it is too old
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import History, answers
from hypothesis import given, settings
from hypothesis import strategies as st
from test_moments import ONE, TWO

from penstock.aggregates.factory import create_state
from penstock.aggregates.panes import PanedState, PaneRows
from penstock.aggregates.state import Argument, Schedule, Want
from penstock.store.budget import Budget
from penstock.store.memory_device import MemoryDevice
from penstock.store.state import decode, encode
from penstock.types import SqlType

GROUPS, PANES = 3, 7
WILD = [1e300, -1e300, 5e-324, math.nan, math.inf, -math.inf, 1e16, 1.0, 1e-16, -1e16, -1.0, 0.0, -0.0, 0.1]
TAME = [0.01, 12.34, 999.99, -5.5, 1e6, 0.25, -0.125, 0.0]
HUGE = [2**62, -(2**62), 2**63 - 1, -(2**63), 1, 0]

KINDS: dict[str, tuple[tuple[SqlType, ...], tuple[str, ...]]] = {
    "COUNT": ((SqlType.DOUBLE,), ("COUNT",)),
    "SUM": ((SqlType.DOUBLE,), ("SUM", "AVG", "COUNT")),
    "SUM of integers": ((SqlType.BIGINT,), ("SUM", "AVG", "COUNT")),
    "MOMENTS": ((SqlType.DOUBLE,), tuple(ONE)),
    "MOMENTS of integers": ((SqlType.BIGINT,), tuple(ONE)),
    "COMOMENTS": ((SqlType.DOUBLE, SqlType.DOUBLE), tuple(TWO)),
    "COMOMENTS of an integer": ((SqlType.BIGINT, SqlType.DOUBLE), tuple(TWO)),
    "MIN": ((SqlType.DOUBLE,), ("MIN",)),
    "MAX": ((SqlType.BIGINT,), ("MAX",)),
    "FIRST": ((SqlType.DOUBLE,), ("FIRST",)),
    "LAST": ((SqlType.BIGINT,), ("LAST",)),
    "ARG_MIN": ((SqlType.BIGINT, SqlType.DOUBLE), ("ARG_MIN",)),
    "ARG_MAX": ((SqlType.DOUBLE, SqlType.DOUBLE), ("ARG_MAX",)),
}


def maker(name: str) -> Callable[[], PanedState]:
    types, functions = KINDS[name]

    def make() -> PanedState:
        state = create_state(
            name.split()[0],
            types,
            tuple(map(Want, functions)),
            account=Budget(1 << 26).account("test"),
            device=MemoryDevice(),
        )
        assert isinstance(state, PanedState)
        return state

    return make


def draw_arguments(name: str, rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
    pool = [TAME, WILD, [0.0, -0.0]][rng.integers(0, 3)]
    arguments = []
    for kind in KINDS[name][0]:
        values = rng.choice(pool, count) if kind is SqlType.DOUBLE else rng.choice(HUGE, count).astype(np.int64)
        arguments.append(Argument(values, rng.random(count) < 0.8 if rng.random() < 0.5 else None))
    return tuple(arguments)


def shown(state: PanedState, history: History, slots: np.ndarray) -> list[Any]:
    none = history.rows(np.arange(0))
    zero = np.zeros(1, np.int64)
    return answers(state.advance(none, none, Schedule(zero, zero, zero + len(slots), slots)))


def played(state: PanedState, history: History, enters: np.ndarray, leaves: np.ndarray) -> None:
    one = np.ones(1, np.int64)
    schedule = Schedule(one * len(enters), one * len(leaves), one * 0, np.zeros(0, np.int32))
    state.advance(history.rows(enters), history.rows(leaves), schedule)


class Windows:
    """Windows of the last 1, 2, ... panes, by panes; `kept` are the pane rows that the longest still holds."""

    def __init__(self, make: Callable[[], PanedState], lengths: list[int]) -> None:
        self.make = make
        self.lengths = lengths
        self.pane, self.totals = make(), make()
        self.pane.ensure(GROUPS)
        self.totals.ensure(GROUPS * len(lengths))
        self.kept: list[tuple[int, np.ndarray, np.ndarray, dict[int, np.ndarray]]] = []
        self.rows = 0

    def close(self, groups: np.ndarray) -> None:
        words = np.zeros((len(groups), self.pane.pane_words + 2), np.uint64)
        extras = self.pane.to_panes(groups, words, 1)
        self.pane.reset(groups)
        self.totals.take_units(self.pane)
        positions = np.arange(self.rows, self.rows + len(groups))
        self.totals.enter(PaneRows(positions, words, 1, extras), groups, len(self.lengths))
        self.kept.append((self.rows, groups, words, extras))
        self.rows += len(groups)
        for window, length in enumerate(self.lengths):
            if len(self.kept) > length:
                first, gone, words, extras = self.kept[-1 - length]
                positions = np.arange(first, first + len(gone))
                slots = gone * np.int32(len(self.lengths)) + np.int32(window)
                self.totals.leave(PaneRows(positions, words, 1, extras), slots)

    def restarted(self) -> None:
        for name in ("pane", "totals"):
            state = self.make()
            state.restore(decode(encode(getattr(self, name).snapshot())))
            setattr(self, name, state)

    def without(self, window: int) -> None:
        many = len(self.lengths)
        slots = np.arange(GROUPS * many, dtype=np.int32)
        self.totals.reset(slots[slots % many == window])
        self.totals.rearrange(slots[slots % many != window])
        del self.lengths[window]


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_windows_of_panes_are_windows_of_rows(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    make = maker(name)
    count = int(rng.integers(0, 80))
    history = History(
        rng.integers(-1, GROUPS, count).astype(np.int32), draw_arguments(name, rng, count), np.arange(count), ()
    )
    edges = [0, *np.sort(rng.integers(0, count + 1, PANES)).tolist(), count]
    windows = Windows(make, sorted(rng.integers(1, PANES, int(rng.integers(1, 5))).tolist()))
    whole: list[tuple[PanedState, list[int]]] = []
    for length in windows.lengths:
        state = make()
        state.ensure(GROUPS)
        whole.append((state, [length]))
    for pane in range(len(edges) - 1):
        rows = np.arange(edges[pane], edges[pane + 1])
        for part in np.array_split(rows, 3):
            played(windows.pane, history, part, rows[:0])
        groups = np.unique(history.slots[rows])
        windows.close(groups[groups >= 0].astype(np.int32))
        if rng.random() < 0.2:
            windows.restarted()
        for window, (state, (length,)) in enumerate(whole):
            old = pane - length
            played(state, history, rows, np.arange(edges[old], edges[old + 1]) if old >= 0 else rows[:0])
            slots = np.arange(GROUPS, dtype=np.int32)
            expected = shown(state, history, slots)
            assert shown(windows.totals, history, slots * np.int32(len(whole)) + np.int32(window)) == expected
        if len(whole) > 1 and rng.random() < 0.1:
            gone = int(rng.integers(0, len(whole)))
            windows.without(gone)
            del whole[gone]
