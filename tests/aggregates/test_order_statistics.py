"""MEDIAN and the percentiles against sorting the window, and against values that Spark 4.3 computed."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from checks import Draw, History, Oracle, Player, Step, Window, canonical, check_history, check_state, make_history
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aggregates import order_statistics
from penstock.aggregates import order_tree as tree
from penstock.aggregates import order_tree_nodes as layout
from penstock.aggregates.order_statistics import OrderState
from penstock.aggregates.state import Argument, Rows, Schedule, Want
from penstock.errors import BudgetError
from penstock.store.budget import Budget
from penstock.types import SqlType

WANTS = (
    Want("MEDIAN"),
    Want("PERCENTILE_CONT", 0.9),
    Want("PERCENTILE_DISC", 0.0),
    Want("PERCENTILE_DISC", 0.07),
    Want("PERCENTILE_DISC", 1.0),
)


def state(type_: SqlType, wants: tuple[Want, ...] = WANTS, budget: int = 1 << 26) -> OrderState:
    return OrderState(wants, type_, Budget(budget).account("test"))


def in_order(value: Any) -> tuple[bool, Any, bool]:
    """NaN last, -0.0 before 0.0."""
    nan = isinstance(value, float) and math.isnan(value)
    return (nan, 0.0 if nan else value, math.copysign(1.0, value) > 0)


def percentile(want: Want, values: list[Any]) -> object:
    if not values:
        return None
    fraction = 0.5 if want.parameter is None else want.parameter
    if want.function == "PERCENTILE_DISC":
        return values[max(1, math.ceil(len(values) * fraction)) - 1]
    position = (len(values) - 1) * fraction
    low, high = float(values[math.floor(position)]), float(values[math.ceil(position)])
    if low == high:
        return low
    return low + (high - low) * (position - math.floor(position))


def oracle(wants: tuple[Want, ...] = WANTS) -> Oracle:
    def answer(window: Window) -> list[object]:
        values = sorted((row[0] for row in window if row[0] is not None), key=in_order)
        return [percentile(want, values) for want in wants]

    return answer


def draw(type_: SqlType) -> Draw:
    def column(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        if type_.is_floating:
            values = rng.choice([1.5, -2.5, 0.0, -0.0, np.nan, np.inf, -np.inf, 1e-3, 0.1, 0.3], count)
        else:
            values = rng.integers(-50, 50, count)
        return (Argument(values.astype(type_.storage), rng.random(count) < 0.8 if rng.random() < 0.6 else None),)

    return column


@pytest.mark.parametrize("type_", [SqlType.DOUBLE, SqlType.FLOAT, SqlType.INT, SqlType.BIGINT])
def test_small_windows(type_: SqlType) -> None:
    check_state(lambda: state(type_), draw(type_), oracle(), rounds=8)


def test_discrete_percentiles_of_times_have_their_type() -> None:
    wants = (Want("PERCENTILE_DISC", 0.5),)
    check_state(lambda: state(SqlType.DATE, wants), draw(SqlType.DATE), oracle(wants), rounds=4)
    made = state(SqlType.DATE, wants)
    history = make_history(np.random.default_rng(1), draw(SqlType.DATE)(np.random.default_rng(1), 5), 1, drain=False)
    made.ensure(1)
    nothing = history.rows(np.arange(0))
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    (column,) = made.advance(nothing, nothing, Schedule(zero, zero, one, np.zeros(1, np.int32)))
    assert column.values.dtype == np.int32


@pytest.mark.parametrize(
    ("count", "picked"),
    [
        (1, [1, 1, 1, 1, 1, 1, 1, 1]),
        (7, [1, 1, 1, 2, 4, 5, 7, 7]),
        (10, [1, 1, 2, 3, 6, 7, 9, 10]),
        (30, [1, 3, 5, 9, 17, 21, 27, 30]),
        (50, [1, 4, 8, 15, 28, 35, 45, 50]),
        (100, [1, 8, 15, 29, 56, 70, 90, 100]),
    ],
)
def test_discrete_percentiles_are_sparks(count: int, picked: list[int]) -> None:
    wants = tuple(Want("PERCENTILE_DISC", f) for f in (0.0, 0.07, 0.14, 0.28, 0.55, 0.7, 0.9, 1.0))
    values = Argument(np.random.default_rng(count).permutation(count).astype(np.int64) + 1, None)
    history = History(np.zeros(count, np.int32), (values,), np.arange(count), ())
    player = Player(state(SqlType.BIGINT, wants), history)
    player.play([Step(count, 0, (0,))])
    assert list(player.answers[0]) == picked


@pytest.mark.parametrize(
    ("values", "percentiles"),
    [
        (
            [0.1, 0.2, 0.7, -3.3, 1e16, 1.0000000000000002, 5e-324],
            [-3.3, -1.3199999999999996, 0.07999999999999999, 0.2, 4000000000000004.0, 1e16],
        ),
        ([0.1, 0.2, 0.7, -3.3], [-3.3, -2.28, -0.2400000000000002, 0.15000000000000002, 0.55, 0.7]),
        ([math.inf, 1.0, 2.0], [1.0, 1.2, 1.6, 2.0, math.inf, math.inf]),
        ([math.nan, 1.0, 2.0, 3.0], [1.0, 1.3, 1.9, 2.5, math.nan, math.nan]),
        ([-math.inf, 1.0], [-math.inf, math.nan, math.nan, math.nan, math.nan, 1.0]),
        ([-1.7e308, 1.7e308], [-1.7e308, math.inf, math.inf, math.inf, math.inf, 1.7e308]),
        ([-0.0, 0.0], [-0.0, -0.0, -0.0, -0.0, -0.0, 0.0]),
        ([-0.0, 0.0, 1.0], [-0.0, -0.0, -0.0, 0.0, 0.8, 1.0]),
        (
            [2**53 + 1, 2**53 + 2, 7, -(2**62)],
            [
                -4.611686018427388e18,
                -3.2281802128991713e18,
                -4.611686018427392e17,
                4503599627370500.0,
                9007199254740994.0,
                9007199254740994.0,
            ],
        ),
    ],
)
def test_interpolated_percentiles_are_sparks(values: list[Any], percentiles: list[float]) -> None:
    wants = tuple(Want("PERCENTILE_CONT", f) for f in (0.0, 0.1, 0.3, 0.5, 0.9, 1.0))
    column = np.array(values)
    count = len(values)
    history = History(np.zeros(count, np.int32), (Argument(column, None),), np.arange(count), ())
    player = Player(state(SqlType.DOUBLE if column.dtype.kind == "f" else SqlType.BIGINT, wants), history)
    player.play([Step(count, 0, (0,))])
    assert player.answers == [tuple(canonical(value) for value in percentiles)]


@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, 1.0])), min_size=1, max_size=100),
    fraction=st.floats(0, 1),
    slots=st.integers(1, 4),
    seed=st.integers(0, 1 << 30),
)
def test_any_doubles_and_fractions(values: list[float | None], fraction: float, slots: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    wants = (Want("PERCENTILE_CONT", fraction), Want("PERCENTILE_DISC", fraction))
    argument = Argument(
        np.array([0.0 if v is None else v for v in values]), np.array([v is not None for v in values], dtype=np.bool_)
    )
    check_history(lambda: state(SqlType.DOUBLE, wants), make_history(rng, (argument,), slots), oracle(wants), rng)


def check_tree(made: OrderState) -> None:
    """The invariants of the tree, from the root down."""
    control, nodes = made._control, made._nodes
    seen = {"leaves": 0, "nodes": 0}

    def below(node: int, level: int) -> list[tuple[int, int]]:
        if level == 0:
            seen["leaves"] += 1
            size = int(made._sizes[node])
            return list(zip(made._slots[node, :size].tolist(), made._keys[node, :size].tolist(), strict=True))
        seen["nodes"] += 1
        entries = []
        assert 1 <= nodes[node, layout.SIZE] <= layout.FAN
        for place in range(int(nodes[node, layout.SIZE])):
            mine = below(int(nodes[node, layout.CHILDREN + place]), level - 1)
            assert len(mine) == nodes[node, layout.WEIGHTS + place] > 0
            assert mine[0] == (nodes[node, layout.SLOTS + place], nodes[node, layout.KEYS + place])
            entries += mine
        return entries

    entries = below(int(control[layout.ROOT]), int(control[layout.HEIGHT]))
    assert entries == sorted(entries)
    assert np.bincount([s for s, _ in entries], minlength=len(made._counts)).tolist() == made._counts.tolist()
    assert (seen["leaves"], seen["nodes"]) == (control[layout.LEAVES_USED], control[layout.NODES_USED])
    assert control[layout.UNTOUCHED_LEAF] <= len(made._sizes)
    assert control[layout.UNTOUCHED_NODE] <= len(made._nodes)


@pytest.mark.parametrize("shape", ["random", "rising", "falling", "few values"])
def test_a_tall_tree_stays_in_order_and_shrinks_again(shape: str) -> None:
    rng = np.random.default_rng(5)
    count, slots = 40_000, 3
    values = {
        "random": rng.integers(-(1 << 62), 1 << 62, count),
        "rising": np.arange(count),
        "falling": -np.arange(count),
        "few values": rng.integers(0, 3, count),
    }[shape]
    history = History(rng.integers(-1, slots, count).astype(np.int32), (Argument(values, None),), np.arange(count), ())
    player = Player(state(SqlType.BIGINT), history)
    player.state.ensure(slots)
    left = 0
    for entered in range(0, count, 500):
        leave = max(0, entered - 25_000 - left)
        left += leave
        player.play([Step(500, leave, tuple(range(slots)))])
        if entered % 8000 == 0:
            check_tree(player.state)
            inside = [history.row(i) for i in range(left, entered + 500) if history.slots[i] == 1]
            assert list(player.answers[-2]) == [
                value if not isinstance(value, float) else np.float64(value).tobytes() for value in oracle()(inside)
            ]
    assert player.state._control[layout.HEIGHT] == 2
    while left < count:
        leave = min(count - left, 700)
        left += leave
        player.play([Step(0, leave, (0,))])
    check_tree(player.state)
    assert player.state._control[layout.LEAVES_USED] == 1
    assert player.answers[-1] == (None,) * len(WANTS)


@pytest.mark.parametrize("batch", [1, 7, 500])
def test_no_order_of_inserts_outgrows_the_room_made_for_it(batch: int) -> None:
    """Pairs that close in on a full leaf from above, each rising, each below the pair before."""
    low, pairs = 127, 4000
    values = np.concatenate([np.arange(low), 1_000_000 - np.arange(pairs).repeat(2) * 2 + np.tile([0, 1], pairs)])
    count = len(values)
    history = History(np.zeros(count, np.int32), (Argument(values, None),), np.arange(count), ())
    player = Player(state(SqlType.BIGINT), history)
    while player.entered < count:
        control, sizes = player.state._control, player.state._sizes
        leaves, nodes = tree.needed(control, batch, tree.most_filled(sizes, control, batch))
        player.play([Step(min(batch, count - player.entered), 0, ())])
        assert player.state._control[layout.LEAVES_USED] <= leaves
        assert player.state._control[layout.NODES_USED] <= nodes
    check_tree(player.state)
    assert player.state._control[layout.LEAVES_USED] <= 2 + count // (layout.LEAF // 2 - 1)


def test_a_full_budget_is_an_error_that_changes_nothing() -> None:
    budget = Budget(200_000)
    made = OrderState((Want("MEDIAN"),), SqlType.BIGINT, budget.account("median of q"))
    count = 60_000
    history = History(np.zeros(count, np.int32), (Argument(np.arange(count), None),), np.arange(count), ())
    player = Player(made, history)

    def fill() -> None:
        while True:
            player.play([Step(300, 0, (0,))])

    with pytest.raises(BudgetError, match=r"MEDIAN must keep every value(.*\n)*.*memory budget of at least"):
        fill()
    assert player.entered > 3000
    assert made.nbytes == budget.used <= budget.total
    player.play([Step(0, 0, (0,))])
    assert player.answers[-1] == player.answers[-2] == (np.float64((player.entered - 1) / 2).tobytes(),)
    player.play([Step(0, player.entered, (0,))])
    assert player.answers[-1] == (None,)


@pytest.mark.parametrize("type_", [SqlType.DOUBLE, SqlType.FLOAT, SqlType.INT, SqlType.BIGINT])
def test_on_a_line(type_: SqlType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call that may makes a line."""
    monkeypatch.setattr(order_statistics, "_LEAST_ROWS", 1)
    monkeypatch.setattr(order_statistics, "_VALUES_PER_ROW", 1 << 30)
    check_state(lambda: state(type_), draw(type_), oracle(), rounds=8)


def shaped(shape: str, rng: np.random.Generator, count: int) -> Any:
    match shape:
        case "uniform":
            return rng.random(count) * 1000 - 300
        case "few":
            return rng.integers(0, 5, count) * 1.0
        case "constant":
            return np.full(count, -2.5)
        case "rising":
            return np.arange(count) + rng.random(count)
        case "falling":
            return -np.arange(count) * 1.0
        case _:  # from the least to the greatest magnitudes, and what is no number
            values = np.ldexp(rng.random(count) - 0.5, rng.integers(-1070, 1020, count))
            values[rng.random(count) < 0.05] = np.nan
            return values


@pytest.mark.parametrize("shape", ["uniform", "few", "constant", "rising", "falling", "wide"])
@pytest.mark.parametrize("slots", [1, 3, 3000])
def test_lines_of_many_rows_against_sorting(shape: str, slots: int) -> None:
    """Parts of many and of few rows in turns, so that lines and the tree take over from each other."""
    rng = np.random.default_rng(len(shape) + slots)
    count, window = 6000, 1500
    values, of = shaped(shape, rng, count), rng.integers(0, slots, count).astype(np.int32)
    wants = (Want("MEDIAN"), Want("PERCENTILE_DISC", 0.9))
    made = state(SqlType.DOUBLE, wants)
    made.ensure(slots)
    at, turn = 0, 0
    while at < count:
        end = min(count, at + (900, 40, 300, 2500)[turn % 4])
        turn += 1
        rows, left = np.arange(at, end), np.arange(max(0, at - window), max(0, end - window))
        steps = np.arange(1, end - at + 1)
        gone = np.maximum(0, rows + 1 - window) - max(0, at - window)
        median, high = made.advance(
            Rows(rows, of[rows], (Argument(values[rows], None),)),
            Rows(left, of[left], (Argument(values[left], None),)),
            Schedule(steps, gone, steps, of[rows]),
        )
        for row in [*rows[:: max(1, len(rows) // 30)], rows[-1]]:
            inside = np.arange(max(0, row + 1 - window), row + 1)
            own = sorted(values[inside[of[inside] == of[row]]].tolist(), key=in_order)
            found = [column.values[row - at].item() for column in (median, high)]
            assert [canonical(one) for one in found] == [canonical(percentile(want, own)) for want in wants]
        at = end


def test_a_line_is_on_the_account_and_gone_after_the_call() -> None:
    budget = Budget(1 << 26)
    made = OrderState(WANTS, SqlType.BIGINT, budget.account("test"))
    made.ensure(1)
    seen: list[int] = []
    play = order_statistics.line.play_line
    values = Argument(np.arange(5000), None)
    rows = Rows(np.arange(5000), np.zeros(5000, np.int32), (values,))
    none = Rows(np.arange(0), np.zeros(0, np.int32), (Argument(np.arange(0), None),))
    one = np.ones(1, np.int64)
    with patch.object(order_statistics.line, "play_line", lambda *a: (seen.append(budget.used), play(*a))):
        made.advance(rows, none, Schedule(5000 * one, 0 * one, one, np.zeros(1, np.int32)))
    assert seen[0] >= made.nbytes + 8 * 5000
    assert budget.used == made.nbytes
    tight = OrderState(WANTS, SqlType.BIGINT, Budget(300_000).account("test"))
    tight.ensure(1)
    with patch.object(order_statistics.line, "play_line", None):  # no room for a line: on the tree
        tight.advance(rows, none, Schedule(5000 * one, 0 * one, one, np.zeros(1, np.int32)))
    assert tight.snapshot()["keys"].tolist() == made.snapshot()["keys"].tolist()
