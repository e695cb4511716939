"""The history of a table against a list of its entries: appended, asked, forgotten and restored in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aggregates.state import Argument
from penstock.errors import BudgetError
from penstock.operators.tables.history import Entries, History, Stamps
from penstock.store import state as state_format
from penstock.store.blocks import ColumnSpec
from penstock.store.budget import Budget

COLUMNS = (ColumnSpec("x", np.dtype(np.int64), True), ColumnSpec("y", np.dtype(np.float64), True))


def entries(rows: list[tuple[int, int, int | None]], sequence: int = 0) -> Entries:
    """Rows are (time, key, value), numbered from `sequence` on; a key below 0 did not exist before."""
    times, keys = (np.array([row[at] for row in rows], np.int64) for at in (0, 1))
    values = np.array([row[2] or 0 for row in rows], np.int64)
    valid = None if all(row[2] is not None for row in rows) else np.array([row[2] is not None for row in rows])
    stamps = Stamps(times, np.zeros(len(rows), np.int64), sequence + np.arange(len(rows), dtype=np.int64))
    return Entries(stamps, keys.reshape(-1, 1), keys >= 0, [Argument(values, valid), Argument(values * 0.5, None)])


def held(history: History) -> list[tuple[int, int, int | None]]:
    every = np.arange(len(history))
    x, y = history.column(0, every), history.column(1, every)
    assert y.values.tolist() == [value * 0.5 for value in x.values.tolist()]
    assert history.existed(every).tolist() == [key >= 0 for key in history.keys_of(every)[:, 0].tolist()]
    valid = [True] * len(every) if x.valid is None else x.valid.tolist()
    found = [value if there else None for value, there in zip(x.values.tolist(), valid, strict=True)]
    return list(zip(history._stamps.times.tolist(), history.keys_of(every)[:, 0].tolist(), found, strict=True))


changes = st.lists(st.tuples(st.integers(0, 9), st.integers(-2, 5), st.none() | st.integers(1, 99)), min_size=1)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        changes
        | st.integers(0, 60)
        | st.tuples(st.integers(0, 60), st.integers(0, 20))
        | st.sampled_from(["restart", "ask"]),
        max_size=12,
    )
)
def test_entries_stay_as_they_were_until_they_are_forgotten(steps: list[Any]) -> None:
    budget = Budget(1 << 24)
    history, kept, now, gone = History(1, COLUMNS, budget.account("past")), [], 0, 0
    for step in steps:
        if isinstance(step, list):
            rows = []
            for later, key, value in step:
                now += later
                rows.append((now, key, value))
            differ = len({key for _, key, _ in rows}) == len(rows)
            history.append(entries(rows, gone + len(kept))._replace(differ=differ))
            kept += rows
        elif isinstance(step, int):
            forgotten = history.collect(step)
            count = 0 if forgotten is None else len(forgotten.existed)
            assert all(time < step for time, _, _ in kept[:count])
            kept, gone = kept[count:], gone + count
        elif isinstance(step, tuple):
            time, sequence = step
            forgotten = history.collect(time, (0, sequence))
            count = 0 if forgotten is None else len(forgotten.existed)
            before = [(row[0], gone + number) < step for number, row in enumerate(kept)]
            assert all(before[:count])
            assert count == 0 or not any(before[count:])
            kept, gone = kept[count:], gone + count
        elif step == "ask" and kept:
            for key in range(-2, 6):
                for number in range(len(kept) + 1):
                    (found,) = history.as_of(np.array([[key]]), np.array([number]))
                    after = [at for at, row in enumerate(kept) if at >= number and row[1] == key]
                    assert found == (after[0] if after else -1)
        elif step == "restart":
            saved = state_format.decode(state_format.encode(history.snapshot()))
            budget = Budget(1 << 24)
            history = History(1, COLUMNS, budget.account("past"))
            history.restore(saved)
        assert held(history) == kept
        assert history.first == gone
        assert budget.used >= 41 * len(history)


def test_entries_are_on_the_account_before_they_are_kept() -> None:
    budget = Budget(100_000)
    history = History(1, COLUMNS, budget.account("past"))
    history.append(entries([(i, i, None) for i in range(1000)]))
    used, before = budget.used, held(history)
    assert used >= 1000 * 50
    with pytest.raises(BudgetError, match="past needs"):
        history.append(entries([(i, i, 1) for i in range(10_000)]))
    assert budget.used <= 100_000
    assert held(history) == before
    with pytest.raises(BudgetError, match="past needs"):
        history.as_of(np.array([[1]]), np.array([0]))


@pytest.mark.parametrize(("memory", "at_once"), [(1 << 26, True), (1 << 30, False)])
def test_what_is_forgotten_goes_back_to_the_budget(memory: int, at_once: bool) -> None:
    """What takes a small part of the memory goes back when there was less than that for many bursts."""
    budget = Budget(memory)
    history = History(1, COLUMNS, budget.account("past"))
    history.append(entries([(i, i, None) for i in range(100_000)]))
    assert history.as_of(np.array([[5]]), np.array([0])).tolist() == [5]
    assert budget.used > 100_000 * 100
    gone = history.collect(1 << 40)
    assert gone is not None
    assert gone.keys[:, 0].tolist() == gone.stamps.times.tolist() == list(range(100_000))
    assert (budget.used < 4096 * 64) == at_once
    for burst in range(300):
        assert burst or (budget.used < 4096 * 64) == at_once
        history.append(entries([((1 << 41) + burst, 1, None)]))
        history.collect(1 << 42)
    assert budget.used < 4096 * 64
