"""COUNT_DISTINCT and MODE against counting the window."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from checks import Draw, History, Player, Step, Window, check_history, check_state, make_history
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aggregates import value_table as table
from penstock.aggregates.distinct import DistinctState
from penstock.aggregates.state import Argument, Want
from penstock.errors import BudgetError
from penstock.store.budget import Budget
from penstock.types import SqlType

BOTH = (Want("COUNT_DISTINCT"), Want("MODE"))


def state(type_: SqlType, wants: tuple[Want, ...] = BOTH, budget: int = 1 << 26) -> DistinctState:
    return DistinctState(wants, type_, Budget(budget).account("test"))


def same(value: Any) -> Any:
    """NaN is one value and -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def count_and_mode(window: Window) -> list[object]:
    """A dict keeps its keys in the order of their first rows, and max the first of equals."""
    counts: dict[Any, int] = {}
    for (value,) in window:
        if value is not None:
            counts[same(value)] = counts.get(same(value), 0) + 1
    mode = max(counts, key=counts.__getitem__) if counts else None
    return [len(counts), math.nan if mode == "NaN" else mode]


def draw(type_: SqlType) -> Draw:
    def column(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        if type_.is_floating:
            values = rng.choice([1.5, -2.5, 0.0, -0.0, np.nan, -np.nan, np.inf, 1e-3], count)
        else:
            values = rng.integers(0, int(rng.choice([2, 5, 100])), count)
        return (Argument(values.astype(type_.storage), rng.random(count) < 0.8 if rng.random() < 0.6 else None),)

    return column


@pytest.mark.parametrize("type_", [SqlType.DOUBLE, SqlType.FLOAT, SqlType.TINYINT, SqlType.STRING, SqlType.BIGINT])
def test_both(type_: SqlType) -> None:
    check_state(lambda: state(type_), draw(type_), count_and_mode, rounds=8)


@pytest.mark.parametrize("type_", [SqlType.DOUBLE, SqlType.DATE])
def test_counting_alone(type_: SqlType) -> None:
    wants = (Want("COUNT_DISTINCT"),)
    check_state(lambda: state(type_, wants), draw(type_), lambda window: count_and_mode(window)[:1], rounds=8)


def test_mode_alone_has_the_type_of_the_argument() -> None:
    wants = (Want("MODE"),)
    check_state(
        lambda: state(SqlType.INT, wants), draw(SqlType.INT), lambda window: count_and_mode(window)[1:], rounds=4
    )


@settings(deadline=None, max_examples=80)
@given(
    values=st.lists(st.one_of(st.none(), st.integers(0, 6), st.integers()), min_size=1, max_size=120),
    slots=st.integers(1, 4),
    seed=st.integers(0, 1 << 30),
)
def test_any_integers(values: list[int | None], slots: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    argument = Argument(
        np.array([(v or 0) % (1 << 63) for v in values], dtype=np.int64),
        np.array([v is not None for v in values], dtype=np.bool_),
    )
    check_history(lambda: state(SqlType.BIGINT), make_history(rng, (argument,), slots), count_and_mode, rng)


@pytest.mark.parametrize("wants", [BOTH, BOTH[:1]])
def test_many_values_and_a_sliding_window(wants: tuple[Want, ...]) -> None:
    rng = np.random.default_rng(2)
    count, width = 30_000, 8_000
    values = np.where(rng.random(count) < 0.4, rng.integers(0, 50, count), rng.integers(-(1 << 62), 1 << 62, count))
    slots = rng.integers(0, 2, count).astype(np.int32)
    player = Player(state(SqlType.BIGINT, wants), History(slots, (Argument(values, None),), np.arange(count), ()))
    left = 0
    for entered in range(1000, count + 1, 1000):
        leave = max(0, entered - width - left)
        left += leave
        player.play([Step(1000, leave, (0, 1))])
        for slot, answer in zip((0, 1), player.answers[-2:], strict=True):
            window = [(v,) for v in values[left:entered][slots[left:entered] == slot].tolist()]
            assert list(answer) == count_and_mode(window)[: len(wants)]
    held = player.state.nbytes
    player.play([Step(0, count - left, (0, 1))])
    assert player.answers[-2:] == [(0, None)[: len(wants)]] * 2
    assert held < 3_000_000


@pytest.mark.parametrize("wants", [BOTH, BOTH[:1]])
def test_slots_that_are_reset_again_and_again_do_not_fill_memory(wants: tuple[Want, ...]) -> None:
    made = state(SqlType.BIGINT, wants, budget=400_000)
    values = np.arange(300_000) % 1500
    history = History(np.zeros(len(values), np.int32), (Argument(values, None),), np.arange(len(values)), ())
    player = Player(made, history)
    for _ in range(200):
        player.play([Step(1500, 0, (0,))])
        assert player.answers[-1][0] == 1500
        made.reset(np.zeros(1, np.int32))
    player.play([Step(0, 0, (0,))])
    assert player.answers[-1] == (0, None)[: len(wants)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9), st.booleans()), max_size=200))
def test_the_table_is_a_dict(steps: list[tuple[int, int, bool]]) -> None:
    cells = table.empty_table(64)
    model: dict[tuple[int, int], int] = {}
    for number, (owner, value, add) in enumerate(steps):
        cell = table.find(cells, owner, value)
        assert (cells[cell, table.OWNER] != table.EMPTY) == ((owner, value) in model)
        if add:
            cells[cell] = owner, value, number
            model[owner, value] = number
        elif (owner, value) in model:
            table.erase(cells, cell)
            del model[owner, value]
        for (o, v), load in model.items():
            assert cells[table.find(cells, o, v), table.LOAD] == load


@pytest.mark.parametrize(("wants", "words"), [(BOTH, "every row"), (BOTH[:1], "every distinct value")])
def test_a_full_budget_is_an_error_that_changes_nothing(wants: tuple[Want, ...], words: str) -> None:
    budget = Budget(300_000)
    made = DistinctState(wants, SqlType.BIGINT, budget.account("distinct"))
    count = 60_000
    history = History(np.zeros(count, np.int32), (Argument(np.arange(count), None),), np.arange(count), ())
    player = Player(made, history)

    def fill() -> None:
        while True:
            player.play([Step(300, 0, (0,))])

    with pytest.raises(BudgetError, match=rf"COUNT_DISTINCT.* must keep {words}(.*\n)*.*memory budget of at least"):
        fill()
    assert player.entered >= 1200
    assert made.nbytes == budget.used <= budget.total
    player.play([Step(0, 0, (0,))])
    assert player.answers[-1] == player.answers[-2] == (player.entered, 0)[: len(wants)]
    player.play([Step(0, player.entered, (0,))])
    assert player.answers[-1] == (0, None)[: len(wants)]
