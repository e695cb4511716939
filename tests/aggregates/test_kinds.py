"""Every line of the table of kinds has a state that is as the line says, and that passes the checks of all states.

What a state must answer is what a new state of its kind answers for the rows in the window alone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from checks import FAILED, Oracle, Window, answers, check_state

from penstock.aggregates.factory import MAKERS, create_state
from penstock.aggregates.kinds import KINDS, USER, Kind
from penstock.aggregates.panes import PanedState
from penstock.aggregates.partials import partial_type
from penstock.aggregates.signatures import SIGNATURES
from penstock.aggregates.state import (
    AggregateState,
    Argument,
    Emitted,
    MergeableState,
    PartialState,
    Rows,
    Schedule,
    Want,
)
from penstock.aggregates.user import UserAggregate
from penstock.store.budget import Budget
from penstock.store.memory_device import MemoryDevice
from penstock.types import SqlType

ALL = list(KINDS.values())


class Total(UserAggregate):
    name = "TOTAL"
    argument_types = (SqlType.DOUBLE,)
    result_type = SqlType.DOUBLE
    state_schema = pa.schema([("sum", pa.float64())])

    def create(self) -> dict[str, float]:
        return {"sum": 0.0}

    def add(self, state: dict[str, float], *values: object) -> None:
        (value,) = values
        state["sum"] += value if isinstance(value, float) else 0.0

    def remove(self, state: dict[str, float], *values: object) -> None:
        (value,) = values
        state["sum"] -= value if isinstance(value, float) else 0.0

    def result(self, state: dict[str, float]) -> float:
        return state["sum"]


def functions(kind: Kind) -> list[str]:
    return ["TOTAL"] if kind is USER else [name for name, found in SIGNATURES.items() if found.kind is kind]


def arity(kind: Kind) -> int:
    return 1 if kind is USER else SIGNATURES[functions(kind)[0]].arity


def want(name: str) -> Want:
    return Want(name, 0.25 if name in SIGNATURES and SIGNATURES[name].takes_fraction else None)


def make(kind: Kind, names: list[str] | None = None) -> AggregateState:
    return create_state(
        kind.name,
        (SqlType.DOUBLE,) * arity(kind),
        [want(name) for name in names or functions(kind)],
        account=Budget(1 << 26).account("test"),
        device=MemoryDevice() if kind.is_paged else None,
        user=Total() if kind is USER else None,
    )


def draw(kind: Kind) -> tuple[Argument, ...]:
    return drawn(np.random.default_rng(5), 60, arity(kind))


def drawn(rng: np.random.Generator, count: int, columns: int) -> tuple[Argument, ...]:
    """Few values, so that there are ties, and exact in any order of adding."""
    return tuple(Argument(rng.integers(-4, 5, count) / 4, rng.random(count) < 0.8) for _ in range(columns))


def evaluated(state: AggregateState, arguments: tuple[Argument, ...], positions: bool = True) -> tuple[Emitted, ...]:
    """All rows enter one slot, which is evaluated then."""
    count = len(arguments[0].values)
    numbers = np.arange(count if positions else 0)
    none = Rows(numbers[:0], np.zeros(0, np.int32), tuple(Argument(a.values[:0], None) for a in arguments))
    rows = Rows(numbers, np.zeros(count, np.int32), arguments)
    state.ensure(1)
    return state.advance(rows, none, Schedule(np.array([count]), np.array([0]), np.array([1]), np.zeros(1, np.int32)))


def anew(kind: Kind) -> Oracle:
    def oracle(window: Window) -> list[object]:
        columns = list(zip(*window, strict=True)) if window else [()] * arity(kind)
        arguments = tuple(
            Argument(
                np.array([0.0 if value is None else value for value in column], np.float64),
                np.array([value is not None for value in column], np.bool_),
            )
            for column in columns
        )
        found: list[object] = []
        for column in evaluated(make(kind), arguments):
            assert column.failed is None or not column.failed[0], FAILED
            found.append(None if column.valid is not None and not column.valid[0] else column.values[0].item())
        return found

    return oracle


def test_every_kind_has_a_maker_and_every_maker_a_kind() -> None:
    assert set(MAKERS) == set(KINDS)
    assert {signature.kind for signature in SIGNATURES.values()} | {USER} == set(KINDS.values())


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_states_pass_the_checks(kind: Kind) -> None:
    check_state(lambda: make(kind), lambda rng, n: drawn(rng, n, arity(kind)), anew(kind), rounds=2, rows=40)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_states_can_do_what_the_table_says(kind: Kind) -> None:
    state = make(kind)
    assert isinstance(state, MergeableState) == kind.is_mergeable
    assert isinstance(state, PartialState) == (kind.partial is not None)
    assert isinstance(state, PanedState) == (kind.pane_bytes is not None)


@pytest.mark.parametrize("kind", [k for k in ALL if k.partial is not None], ids=lambda kind: kind.name)
def test_another_state_goes_on_with_partials(kind: Kind) -> None:
    """Positions begin anew there, which is later than all that was absorbed."""
    types = (SqlType.DOUBLE,) * arity(kind)
    for cut in range(0, 60, 7):
        rows = draw(kind)
        first = tuple(Argument(a.values[:cut], a.valid[:cut]) for a in rows if a.valid is not None)
        then = tuple(Argument(a.values[cut:], a.valid[cut:]) for a in rows if a.valid is not None)
        before, after = make(kind), make(kind)
        evaluated(before, first)
        assert isinstance(before, PartialState)
        assert isinstance(after, PartialState)
        partials = before.export(np.zeros(1, np.int32))
        assert partials.type == partial_type(kind, types)
        after.ensure(1)
        after.absorb(np.zeros(1, np.int32), partials)
        assert answers(evaluated(after, then)) == answers(evaluated(make(kind), rows)), cut


@pytest.mark.parametrize("kind", [k for k in ALL if not k.needs_positions], ids=lambda kind: kind.name)
def test_without_positions_the_answers_are_the_same(kind: Kind) -> None:
    rows = draw(kind)
    assert answers(evaluated(make(kind), rows, positions=False)) == answers(evaluated(make(kind), rows))


@pytest.mark.parametrize("kind", [k for k in ALL if k.is_order_free], ids=lambda kind: kind.name)
def test_in_another_order_the_answers_are_the_same(kind: Kind) -> None:
    rows = draw(kind)
    names = [name for name in functions(kind) if not SIGNATURES[name].keeps_order]
    turned = tuple(Argument(a.values[::-1].copy(), None if a.valid is None else a.valid[::-1].copy()) for a in rows)
    assert answers(evaluated(make(kind, names), turned)) == answers(evaluated(make(kind, names), rows))


@pytest.mark.parametrize("kind", [k for k in ALL if k.answers_newest], ids=lambda kind: kind.name)
def test_the_newest_row_is_the_answer(kind: Kind) -> None:
    ((value, valid, _),) = evaluated(make(kind), (Argument(np.array([3.0, 1.0, 2.0]), None),))
    assert value.tolist() == [2.0]
    assert valid is None or valid.all()


@pytest.mark.parametrize("kind", [k for k in ALL if k.counts_values], ids=lambda kind: kind.name)
def test_values_are_counted(kind: Kind) -> None:
    (counted,) = evaluated(make(kind, ["COUNT"]), (Argument(np.ones(3), np.array([True, False, True])),))
    assert counted.values.tolist() == [2]


@pytest.mark.parametrize("function", SIGNATURES)
def test_the_answer_of_nothing_is_the_one_said(function: str) -> None:
    kind = SIGNATURES[function].kind
    (found,) = evaluated(make(kind, [function]), tuple(Argument(np.zeros(0), None) for _ in range(arity(kind))))
    assert answers([found]) == [(SIGNATURES[function].of_nothing,)]
