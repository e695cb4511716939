"""User-defined aggregates: the calls they get, what failures do, and what a checkpoint keeps of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checks import FAILED, Draw, History, Player, Step, Window, check_state

from penstock.aggregates.state import Argument
from penstock.aggregates.user import UserAggregate, UserState
from penstock.errors import BudgetError, CheckpointError, QueryError
from penstock.store.budget import Budget
from penstock.types import SqlType


class WeightedTotal(UserAggregate):
    """The sum of value * weight over rows that have both, NULL if none has."""

    name = "WEIGHTED_TOTAL"
    argument_types = (SqlType.BIGINT, SqlType.BOOLEAN)
    result_type = SqlType.BIGINT
    state_schema = pa.schema([("total", pa.int64()), ("count", pa.int64())])

    def create(self) -> dict[str, Any]:
        return {"total": 0, "count": 0}

    def add(self, state: dict[str, Any], *values: Any) -> None:
        self._move(state, 1, *values)

    def remove(self, state: dict[str, Any], *values: Any) -> None:
        self._move(state, -1, *values)

    def _move(self, state: dict[str, Any], sign: int, value: int | None, doubled: bool | None) -> None:
        assert doubled in (None, True, False)
        if value is not None and doubled is not None:
            state["total"] += sign * value * (2 if doubled is True else 1)
            state["count"] += sign

    def result(self, state: dict[str, Any]) -> Any:
        return state["total"] if state["count"] else None


class Recomputed(WeightedTotal):
    """The same without `remove`."""

    remove = UserAggregate.remove


class Fussy(UserAggregate):
    """Cannot bear a 13; answers with the largest value as text above 90."""

    name = "FUSSY"
    argument_types = (SqlType.BIGINT,)
    result_type = SqlType.INT
    state_schema = pa.schema([("values", pa.list_(pa.int64()))])

    def create(self) -> dict[str, Any]:
        return {"values": []}

    def add(self, state: dict[str, Any], *values: Any) -> None:
        if values[0] == 13:
            raise RuntimeError("13")
        state["values"].append(values[0])

    def remove(self, state: dict[str, Any], *values: Any) -> None:
        state["values"].remove(values[0])

    def result(self, state: dict[str, Any]) -> Any:
        largest = max(state["values"])
        return str(largest) if largest > 90 else largest


def state(aggregate: UserAggregate, budget: int = 1 << 24) -> UserState:
    return UserState(aggregate, Budget(budget).account("test"))


def draw() -> Draw:
    def columns(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        return (
            Argument(rng.integers(-9, 10, count), rng.random(count) < 0.7),
            Argument(
                rng.integers(0, 2, count).astype(np.int8), rng.random(count) < 0.8 if rng.random() < 0.5 else None
            ),
        )

    return columns


def weighted_total(window: Window) -> list[object]:
    rows = [(v, d) for v, d in window if v is not None and d is not None]
    return [sum(v * (2 if d else 1) for v, d in rows) if rows else None]  # type: ignore[operator]


@pytest.mark.parametrize("aggregate", [WeightedTotal(), Recomputed()])
def test_every_row_is_added_and_removed(aggregate: UserAggregate) -> None:
    check_state(lambda: state(aggregate), draw(), weighted_total, rounds=8)


def played(aggregate: UserAggregate, values: list[int], slots: list[int]) -> Player:
    history = History(
        np.array(slots, np.int32),
        (Argument(np.array(values), None),),
        np.arange(len(values)),
        first_position=0,
        steps=(),
    )
    return Player(state(aggregate), history)


def test_a_failure_stays_in_its_group_until_the_group_is_empty() -> None:
    player = played(Fussy(), [5, 13, 7, 8], [0, 0, 1, 0])
    player.play([Step(3, 0, (0, 1))])
    assert player.answers == [(FAILED,), (7,)]
    restored = state(Fussy())
    restored.restore(player.state.snapshot())
    player.state = restored
    player.play([Step(0, 2, (0, 1)), Step(1, 0, (0,))])
    assert player.answers[2:] == [(None,), (7,), (8,)]


def test_a_result_of_another_type_is_a_failure_of_that_evaluation_alone() -> None:
    player = played(Fussy(), [95, 3, 1], [0, 0, 0])
    player.play([Step(2, 0, (0,)), Step(0, 1, (0,)), Step(1, 0, (0,))])
    assert player.answers == [(FAILED,), (3,), (3,)]


def test_a_state_outside_its_schema_cannot_be_stored() -> None:
    class Misdeclared(Fussy):
        state_schema = pa.schema([("values", pa.int64())])

    player = played(Misdeclared(), [1], [0])
    player.play([Step(1, 0, (0,))])
    with pytest.raises(CheckpointError, match=r"FUSSY does not fit its state_schema(.*\n)*.*hint"):
        player.state.snapshot()


def test_strings_are_refused() -> None:
    class Texts(Fussy):
        argument_types = (SqlType.STRING,)

    with pytest.raises(QueryError, match=r"STRING(.*\n)*.*hint"):
        state(Texts())


def test_kept_rows_count_against_the_budget() -> None:
    made = state(Recomputed(), budget=20_000)
    count = 1000
    arguments = (Argument(np.arange(count), None), Argument(np.zeros(count, np.int8), None))
    player = Player(made, History(np.zeros(count, np.int32), arguments, np.arange(count), ()))
    player.play([Step(100, 0, (0,))])
    with pytest.raises(BudgetError):
        player.play([Step(500, 0, (0,))])
    player.play([Step(0, 50, (0,))])
    assert player.answers == [(sum(range(100)),), (sum(range(50, 100)),)]
