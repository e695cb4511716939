"""Every function in the list of signatures is answered by the state that its kind names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.aggregates.factory import create_state
from penstock.aggregates.signatures import SIGNATURES, kind_of
from penstock.aggregates.state import Argument, Rows, Schedule, Want
from penstock.aggregates.user import UserAggregate
from penstock.store.budget import Budget
from penstock.types import SqlType

VALUES = [4.0, 1.0, 4.0, 7.0]
WEIGHTS = [1.0, 2.0, 3.0, 5.0]

ANSWERS = {
    "COUNT": 4,
    "SUM": 16.0,
    "AVG": 4.0,
    "VAR_POP": 4.5,
    "VAR_SAMP": 6.0,
    "STDDEV_POP": 4.5**0.5,
    "STDDEV_SAMP": 6.0**0.5,
    "COVAR_POP": 2.25,
    "COVAR_SAMP": 3.0,
    "CORR": 9.0 / (18.0 * 8.75) ** 0.5,
    "MIN": 1.0,
    "MAX": 7.0,
    "FIRST": 4.0,
    "LAST": 7.0,
    "ARG_MIN": 4.0,
    "ARG_MAX": 7.0,
    "MEDIAN": 4.0,
    "PERCENTILE_CONT": 5.5,
    "PERCENTILE_DISC": 4.0,
    "COUNT_DISTINCT": 3,
    "MODE": 4.0,
}
PARAMETERS = {"PERCENTILE_CONT": 5 / 6, "PERCENTILE_DISC": 0.75}


class Longest(UserAggregate):
    name = "LONGEST"
    argument_types = (SqlType.DOUBLE,)
    result_type = SqlType.BIGINT
    state_schema = pa.schema([("rows", pa.int64())])

    def create(self) -> dict[str, int]:
        return {"rows": 0}

    def add(self, state: dict[str, int], *values: object) -> None:
        state["rows"] += 1

    def result(self, state: dict[str, int]) -> int:
        return state["rows"]


def evaluated(function: str, arity: int, user: UserAggregate | None = None) -> object:
    budget = Budget(1 << 24)
    types = (SqlType.DOUBLE,) * arity
    kind = kind_of(function).name
    state = create_state(
        kind, types, [Want(function, PARAMETERS.get(function))], account=budget.account(function), user=user
    )
    state.ensure(1)
    arguments = tuple(Argument(np.array(column), None) for column in (VALUES, WEIGHTS)[:arity])
    rows = Rows(np.arange(4), np.zeros(4, np.int32), arguments)
    none = Rows(rows.positions[:0], rows.slots[:0], tuple(Argument(a.values[:0], None) for a in arguments))
    whole = Schedule(np.array([4]), np.array([0]), np.array([1]), np.zeros(1, np.int32))
    (column,) = state.advance(rows, none, whole)
    assert budget.used == state.nbytes
    return column.values[0].item()


@pytest.mark.parametrize("function", SIGNATURES)
def test_every_function_has_a_state(function: str) -> None:
    assert evaluated(function, SIGNATURES[function].arity) == pytest.approx(ANSWERS[function], rel=1e-15)


def test_user_defined_functions_have_one_too() -> None:
    assert evaluated("LONGEST", 1, Longest()) == 4
