"""MIN, MAX, FIRST, LAST, ARG_MIN and ARG_MAX against a scan of the window, in memory and paged."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import Draw, History, Oracle, Player, Step, Window, check_history, check_state, make_history
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aggregates.selective import SelectiveState
from penstock.aggregates.state import Argument, Rows, Schedule
from penstock.columns import Values
from penstock.errors import BudgetError, StorageError
from penstock.store.budget import Budget
from penstock.store.device import BlockDevice
from penstock.types import SqlType

ORDER_OF_CODES = np.array([3, 0, 5, 1, 4, 2], dtype=np.int64)


class Shelf(BlockDevice):
    """Keeps every block it was given, and what was freed."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.freed: list[int] = []

    @property
    def capacity(self) -> int:
        return 64 << 10

    def write(self, payload: bytes | memoryview) -> int:
        assert 0 < len(payload) <= self.capacity
        self.blocks.append(bytes(payload))
        return len(self.blocks) - 1

    def read(self, address: int, room: Values | None = None) -> memoryview:
        return memoryview(self.blocks[address])

    def free(self, address: int) -> None:
        self.freed.append(address)

    def sync(self) -> None: ...

    def commit(self) -> None: ...

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, snapshot: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


def state(
    function: str,
    types: tuple[SqlType, ...],
    *,
    budget: int = 1 << 24,
    device: BlockDevice | None = None,
    ranks: Callable[[], Any] | None = None,
) -> SelectiveState:
    return SelectiveState(function, types, account=Budget(budget).account("test"), device=device, ranks=ranks)


def sort_key(value: Any, type_: SqlType) -> tuple[bool, Any]:
    if type_ is SqlType.STRING:
        return (False, ORDER_OF_CODES[value])
    return (isinstance(value, float) and math.isnan(value), 0.0 if value != value else value)


def oracle(function: str, types: tuple[SqlType, ...]) -> Oracle:
    """Python's min and max return the earliest of equals. For MIN and MAX -0.0 is less than 0.0."""

    def answer(window: Window) -> list[object]:
        if function in ("FIRST", "LAST"):
            return [window[0 if function == "FIRST" else -1][0] if window else None]
        rows = [row for row in window if row[-1] is not None]
        if not rows:
            return [None]
        choose = min if function in ("MIN", "ARG_MIN") else max
        if function in ("MIN", "MAX") and types[0].is_floating:
            return [choose(rows, key=lambda row: (*sort_key(row[0], types[0]), math.copysign(1.0, row[0])))[0]]
        return [choose(rows, key=lambda row: sort_key(row[-1], types[-1]))[0]]

    return answer


def column(rng: np.random.Generator, count: int, type_: SqlType) -> Argument:
    if type_.is_floating:
        values = rng.choice([1.5, -2.5, 0.0, -0.0, np.nan, np.inf, -np.inf, 1e-3], count)
    else:
        values = rng.integers(0, 6, count) - (0 if type_ in (SqlType.STRING, SqlType.BOOLEAN) else 3)
    valid = rng.random(count) < 0.7 if rng.random() < 0.6 else None
    return Argument(values.astype(type_.storage), valid)


def draw(types: tuple[SqlType, ...]) -> Draw:
    return lambda rng, count: tuple(column(rng, count, type_) for type_ in types)


@pytest.mark.parametrize("function", ["MIN", "MAX", "FIRST", "LAST"])
@pytest.mark.parametrize("type_", [SqlType.DOUBLE, SqlType.FLOAT, SqlType.BIGINT, SqlType.DATE, SqlType.TINYINT])
def test_one_argument(function: str, type_: SqlType) -> None:
    check_state(lambda: state(function, (type_,)), draw((type_,)), oracle(function, (type_,)), rounds=6)


@pytest.mark.parametrize("function", ["ARG_MIN", "ARG_MAX"])
@pytest.mark.parametrize(
    "types", [(SqlType.DOUBLE, SqlType.INT), (SqlType.SMALLINT, SqlType.DOUBLE), (SqlType.BIGINT, SqlType.FLOAT)]
)
def test_two_arguments(function: str, types: tuple[SqlType, ...]) -> None:
    check_state(lambda: state(function, types), draw(types), oracle(function, types), rounds=6)


@pytest.mark.parametrize(
    ("function", "types"),
    [
        ("MIN", (SqlType.STRING,)),
        ("MAX", (SqlType.STRING,)),
        ("FIRST", (SqlType.STRING,)),
        ("ARG_MIN", (SqlType.INT, SqlType.STRING)),
        ("ARG_MAX", (SqlType.STRING, SqlType.STRING)),
    ],
)
def test_strings_are_compared_by_ranks_that_may_be_renumbered(function: str, types: tuple[SqlType, ...]) -> None:
    rng = np.random.default_rng(3)

    def ranks() -> Any:
        return (ORDER_OF_CODES * int(rng.integers(1, 9)) + int(rng.integers(-5, 5))).astype(np.int64)

    check_state(lambda: state(function, types, ranks=ranks), draw(types), oracle(function, types), rounds=6)


@pytest.mark.parametrize("function", ["MIN", "MAX", "FIRST", "LAST", "ARG_MIN"])
def test_values_come_back_in_the_type_of_the_argument(function: str) -> None:
    types = (SqlType.SMALLINT, SqlType.DOUBLE)[: 2 if function == "ARG_MIN" else 1]
    made = state(function, types)
    made.ensure(1)
    rows = Rows(
        np.zeros(1, np.int64), np.zeros(1, np.int32), tuple(Argument(np.ones(1, t.storage), None) for t in types)
    )
    nothing = Rows(rows.positions[:0], rows.slots[:0], tuple(Argument(a.values[:0], None) for a in rows.arguments))
    one = np.ones(1, np.int64)
    (emitted,) = made.advance(rows, nothing, Schedule(one, one * 0, one, np.zeros(1, np.int32)))
    assert emitted.values.dtype == np.int16
    assert emitted.values.tolist() == [1]


@settings(deadline=None, max_examples=60)
@given(
    function=st.sampled_from(["MIN", "MAX", "FIRST", "LAST"]),
    values=st.lists(st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, 1.0])), min_size=1, max_size=80),
    slots=st.integers(1, 4),
    seed=st.integers(0, 1 << 30),
)
def test_any_doubles(function: str, values: list[float | None], slots: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    argument = Argument(
        np.array([0.0 if v is None else v for v in values]), np.array([v is not None for v in values], dtype=np.bool_)
    )
    types = (SqlType.DOUBLE,)
    check_history(lambda: state(function, types), make_history(rng, (argument,), slots), oracle(function, types), rng)


def deep_column(rng: np.random.Generator, count: int, trend: float) -> Argument:
    """Values whose deques grow long and are now and then driven out in one go."""
    values = trend * np.arange(count) + rng.normal(size=count)
    values[rng.random(count) < 0.003] *= -3
    return Argument(values, None)


def long_history(rng: np.random.Generator, arguments: tuple[Argument, ...], slots: int) -> History:
    """A window that fills to 700 rows, slides and drains."""
    count = len(arguments[0].values)
    steps = []
    entered = left = 0
    while left < count:
        adds = min(count - entered, int(rng.integers(0, 60)))
        entered += adds
        removes = min(entered - left, max(0, entered - 700 - left) if entered < count else int(rng.integers(1, 80)))
        left += removes
        steps.append(Step(adds, removes, tuple(rng.integers(0, slots, 1).tolist())))
    return History(rng.integers(0, slots, count).astype(np.int32), arguments, np.arange(count), tuple(steps))


@pytest.mark.parametrize("function", ["MIN", "MAX", "FIRST", "ARG_MIN"])
@pytest.mark.parametrize("seed", range(4))
def test_long_deques_page_to_the_device(function: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    trend = -1.5 if function == "MAX" else 1.5
    types = (SqlType.DOUBLE,) * (2 if function == "ARG_MIN" else 1)
    arguments = tuple(deep_column(rng, 1500, trend) for _ in types)
    shelf = Shelf()
    budget = 16 * 16 + 20 * 256
    history = long_history(rng, arguments, int(rng.integers(1, 4)))
    check_history(lambda: state(function, types, budget=budget, device=shelf), history, oracle(function, types), rng)
    assert shelf.blocks, "the history was meant to be too long for the memory"
    assert set(range(len(shelf.blocks))) == set(shelf.freed), "a block outlived its rows"


def test_reset_frees_the_blocks_of_the_slot() -> None:
    shelf = Shelf()
    made = state("FIRST", (SqlType.BIGINT,), budget=16 * 16 + 20 * 256, device=shelf)
    history = make_history(np.random.default_rng(1), (Argument(np.arange(900), None),), 1, drain=False)
    history.slots[:] = 0
    player = Player(made, history)
    player.play([Step(900, 0, (0,))])
    assert shelf.blocks
    assert not shelf.freed
    made.reset(np.zeros(1, np.int32))
    assert sorted(shelf.freed) == list(range(len(shelf.blocks)))
    player.play([Step(0, 0, (0,))])
    assert player.answers[-1] == (None,)


@pytest.mark.parametrize("writes", range(6))
def test_a_device_that_fails_loses_nothing(writes: int) -> None:
    class FullOnce(Shelf):
        failed = False

        def write(self, payload: bytes | memoryview) -> int:
            if len(self.blocks) == writes and not self.failed:
                self.failed = True
                raise StorageError("the disk is full")
            return super().write(payload)

    made = state("FIRST", (SqlType.BIGINT,), budget=16 * 16 + 40 * 256, device=FullOnce())
    history = History(np.zeros(3000, np.int32), (Argument(np.arange(3000), None),), np.arange(3000), ())
    player = Player(made, history)
    with pytest.raises(StorageError):
        player.play([Step(3000, 0, ())])
    player.play([Step(0, 1, (0,)) for _ in range(3000)])
    entered = player.answers.index((None,)) + 1
    assert entered > 150
    assert player.answers == [(row,) for row in range(1, entered)] + [(None,)] * (3001 - entered)


def test_without_a_device_a_full_budget_is_an_error_that_leaves_every_deque_whole() -> None:
    budget = Budget(20_000)
    made = SelectiveState("FIRST", (SqlType.BIGINT,), account=budget.account("FIRST of q"))
    rng = np.random.default_rng(1)
    history = make_history(rng, (Argument(np.arange(5000), None),), 1, drain=False)
    history.slots[:] = 0
    player = Player(made, history)
    with pytest.raises(BudgetError, match=r"FIRST.*\n.*\n.*memory budget of at least"):
        player.play([Step(5000, 0, ())])
    assert made.nbytes == budget.used <= budget.total
    player.play([Step(0, 0, (0,))])
    assert player.answers == [(0,)]
    made.reset(np.zeros(1, np.int32))
    player.entered = 100
    player.play([Step(50, 0, (0,))])
    assert player.answers[-1] == (100,)
