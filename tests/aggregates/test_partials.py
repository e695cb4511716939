"""Rows that are spread over several states and merged give the answer of the rows, to the bit.

part 0   a . . a     export ─┐
part 1   . b . .     export ─┼─ absorb, in any order, in one call or many, over any number of stages ─▶ answers
part 2   . . . .     export ─┘
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checks import History, Oracle, Window, answers, canonical
from hypothesis import given, settings
from hypothesis import strategies as st
from test_moments import ONE, TWO, comoments_oracle, moments_oracle
from test_sums import float_oracle, integer_oracle

from penstock.aggregates.factory import create_mergeable
from penstock.aggregates.kinds import KINDS
from penstock.aggregates.partials import pack, partial_type, unpack
from penstock.aggregates.state import Argument, MergeableState, Schedule, Want
from penstock.store.budget import Budget
from penstock.types import SqlType

SUMS = (Want("SUM"), Want("AVG"), Want("COUNT"))

WILD = [1e300, -1e300, 1e-300, -1e-300, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308, 1.0, -1.0, 0.0, -0.0]
SPECIAL = [math.nan, math.inf, -math.inf, 1.0, 1e16, 1e-16, -1e16, -0.0, 0.1]
ZEROS = [0.0, -0.0]
TAME = [0.01, 12.34, 999.99, -5.5, 1e6, 0.25, -0.125]
PLACES = [2.0**e for e in range(-120, 121, 7)]

SLOTS = 3


def wants(kind: str) -> tuple[Want, ...]:
    functions = {"MOMENTS": ONE, "COMOMENTS": TWO}.get(kind)
    return SUMS if kind == "SUM" else tuple(map(Want, functions or (kind,)))


def maker(kind: str, *types: SqlType) -> Callable[[], MergeableState]:
    return lambda: create_mergeable(kind, types, wants(kind), account=Budget(1 << 26).account("test"))


def played(state: MergeableState, history: History, enters: Any, leaves: Any, shown: int = 0) -> list[Any]:
    one = np.ones(1, np.int64)
    schedule = Schedule(one * len(enters), one * len(leaves), one * shown, np.arange(shown, dtype=np.int32))
    return answers(state.advance(history.rows(enters), history.rows(leaves), schedule))


def deal(
    make: Callable[[], MergeableState], rng: np.random.Generator, arguments: tuple[Argument, ...], count: int
) -> tuple[list[MergeableState], list[Window]]:
    """Rows dealt out to one to five states in some chunks; of each state's rows the oldest may have left again.
    Returns the states (there may be some without a row) and the rows that each slot holds now."""
    history = History(rng.integers(-1, SLOTS, count).astype(np.int32), arguments, np.arange(count), ())
    owner = rng.integers(0, int(rng.integers(1, 6)), count)
    states: list[MergeableState] = []
    windows: list[Window] = [[] for _ in range(SLOTS)]
    for part in range(5):
        mine = np.flatnonzero(owner == part)
        gone = mine[: int(rng.integers(0, len(mine) + 1)) if rng.random() < 0.5 else 0]
        states.append(make())
        states[-1].ensure(SLOTS)
        for at in range(0, len(mine), 7):
            played(states[-1], history, mine[at : at + 7], mine[:0])
        played(states[-1], history, mine[:0], gone)
        for row in mine[len(gone) :].tolist():
            if history.slots[row] >= 0:
                windows[int(history.slots[row])].append(history.row(row))
    return states, windows


def merged(
    make: Callable[[], MergeableState], rng: np.random.Generator, states: list[MergeableState]
) -> MergeableState:
    """All states in one: in one call, one by one, or in stages, in any order."""
    every = np.arange(SLOTS, dtype=np.int32)
    how = int(rng.integers(0, 3))
    target = make()
    target.ensure(SLOTS)
    if how == 0:
        slots = np.concatenate([every] * len(states))
        partials = pa.concat_arrays([state.export(every) for state in states])
        order = rng.permutation(len(slots))
        target.absorb(slots[order], partials.take(pa.array(order)))
        return target
    if how == 1 or len(states) < 3:
        for index in rng.permutation(len(states)):
            target.absorb(every, states[index].export(every))
        return target
    middle = int(rng.integers(1, len(states)))
    for group in (states[:middle], states[middle:]):
        target.absorb(every, merged(make, rng, group).export(every))
    return target


def check_merging(
    make: Callable[[], MergeableState], rng: np.random.Generator, arguments: tuple[Argument, ...], oracle: Oracle
) -> None:
    count = len(arguments[0].values) if arguments else int(rng.integers(0, 50))
    states, windows = deal(make, rng, arguments, count)
    nothing = History(np.zeros(0, np.int32), tuple(Argument(a.values[:0], None) for a in arguments), np.arange(0), ())
    none = np.arange(0)
    before = [played(state, nothing, none, none, SLOTS) for state in states]
    whole = merged(make, rng, states)
    want = [tuple(canonical(value) for value in oracle(window)) for window in windows]
    assert played(whole, nothing, none, none, SLOTS) == want
    assert [played(state, nothing, none, none, SLOTS) for state in states] == before, "an export changed a state"
    whole.reset(np.arange(SLOTS, dtype=np.int32))
    empty = tuple(canonical(value) for value in oracle([]))
    assert played(whole, nothing, none, none, SLOTS) == [empty] * SLOTS, "what was absorbed was not forgotten"


def some_null(rng: np.random.Generator, count: int) -> np.ndarray | None:
    share = rng.choice([None, 0.7, 0.0])
    return None if share is None else rng.random(count) < share


def extreme_oracle(choose: Any) -> Oracle:
    """NaN is greatest, and -0.0 comes before 0.0."""

    def key(value: Any) -> tuple[bool, Any, float]:
        return (value != value, 0.0 if value != value else value, math.copysign(1.0, value))

    def answer(window: Window) -> list[object]:
        values = [v for (v,) in window if v is not None]
        return [choose(values, key=key) if values else None]

    return answer


FLOATS = {
    "SUM": (maker("SUM", SqlType.DOUBLE), float_oracle, 1),
    "MOMENTS": (maker("MOMENTS", SqlType.DOUBLE), moments_oracle, 1),
    "COMOMENTS": (maker("COMOMENTS", SqlType.DOUBLE, SqlType.DOUBLE), comoments_oracle, 2),
    "MIN": (maker("MIN", SqlType.DOUBLE), extreme_oracle(min), 1),
    "MAX": (maker("MAX", SqlType.DOUBLE), extreme_oracle(max), 1),
}


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(
    "pool", [WILD, SPECIAL, ZEROS, TAME, PLACES], ids=["wild", "special", "zeros", "tame", "places"]
)
def test_adversarial_floats(kind: str, pool: list[float]) -> None:
    make, oracle, columns = FLOATS[kind]
    rng = np.random.default_rng(len(kind) + len(pool))
    for _ in range(30):
        count = int(rng.integers(0, 40))
        arguments = tuple(Argument(rng.choice(np.array(pool), count), some_null(rng, count)) for _ in range(columns))
        check_merging(make, rng, arguments, oracle)


@pytest.mark.parametrize("kind", FLOATS)
def test_any_floats(kind: str) -> None:
    make, oracle, columns = FLOATS[kind]

    @settings(max_examples=80, deadline=None)
    @given(
        st.lists(st.tuples(*[st.one_of(st.floats(), st.floats(-1e3, 1e3))] * columns), max_size=30),
        st.integers(0, 2**32),
    )
    def holds(rows: list[tuple[float, ...]], seed: int) -> None:
        values = np.array(rows, dtype=np.float64).reshape(-1, columns)
        rng = np.random.default_rng(seed)
        check_merging(make, rng, tuple(Argument(values[:, i].copy(), None) for i in range(columns)), oracle)

    holds()


def test_parts_whose_values_are_far_apart() -> None:
    """Each part chooses its own base, from very small to very large; some of their sums cancel."""
    rng = np.random.default_rng(5)
    every = np.zeros(1, np.int32)
    for _ in range(100):
        scales = [10.0 ** int(rng.integers(-300, 300)) for _ in range(4)]
        parts = [rng.choice([scale, -scale, 3 * scale], 5).tolist() for scale in scales]
        for kind, oracle in (("SUM", float_oracle), ("MOMENTS", moments_oracle)):
            make = maker(kind, SqlType.DOUBLE)
            whole = make()
            whole.ensure(1)
            for part in parts:
                state = make()
                state.ensure(1)
                argument = (Argument(np.array(part), None),)
                history = History(np.zeros(5, np.int32), argument, np.arange(5), ())
                played(state, history, np.arange(5), np.arange(0))
                whole.absorb(every, state.export(every))
            window: Window = [(value,) for part in parts for value in part]
            got = played(whole, history, np.arange(0), np.arange(0), 1)
            assert got == [tuple(canonical(v) for v in oracle(window))]


@pytest.mark.parametrize("type_", [SqlType.BIGINT, SqlType.INT, SqlType.TINYINT])
def test_integers_whose_parts_overflow(type_: SqlType) -> None:
    limits = np.iinfo(type_.storage)
    rng = np.random.default_rng(3)
    pool = np.array([limits.min, limits.max, limits.max - 1, -1, 0, 1], dtype=type_.storage)
    for _ in range(60):
        count = int(rng.integers(0, 40))
        argument = (Argument(rng.choice(pool, count), some_null(rng, count)),)
        check_merging(maker("SUM", type_), rng, argument, integer_oracle)
        check_merging(maker("MOMENTS", type_), rng, argument, moments_oracle)
        floats = (*argument, Argument(rng.choice(np.array(TAME), count), some_null(rng, count)))
        check_merging(maker("COMOMENTS", type_, SqlType.DOUBLE), rng, floats, comoments_oracle)
        check_merging(maker("MIN", type_), rng, argument, extreme_oracle(min))
        check_merging(maker("COUNT", type_), rng, argument, lambda w: [sum(v is not None for (v,) in w)])
        check_merging(maker("COUNT"), rng, (), lambda w: [len(w)])


def test_an_overflow_of_a_part_is_none_of_the_whole() -> None:
    greatest = 2**63 - 1
    make = maker("SUM", SqlType.BIGINT)
    one = np.zeros(1, np.int32)
    total = make()
    total.ensure(1)
    for values in ([greatest, greatest], [-greatest, -greatest, 5]):
        state = make()
        state.ensure(1)
        argument = (Argument(np.array(values), None),)
        history = History(np.zeros(len(values), np.int32), argument, np.arange(len(values)), ())
        ((alone, _, _),) = played(state, history, np.arange(len(values)), np.arange(0), 1)
        assert alone == "failed"
        total.absorb(one, state.export(one))
    assert played(total, history, np.arange(0), np.arange(0), 1) == [(5, canonical(1.0), 5)]


def test_codes_of_strings_are_compared_by_rank() -> None:
    order = np.array([2, 0, 1], dtype=np.int64)
    state = create_mergeable(
        "MIN", (SqlType.STRING,), (Want("MIN"),), account=Budget(1 << 20).account("test"), ranks=lambda: order
    )
    state.ensure(2)
    state.absorb(np.array([0, 0, 1, 1], np.int32), pa.array([0, 2, None, 0], pa.int32()))
    assert state.export(np.arange(3, dtype=np.int32)[:2]).to_pylist() == [2, 0]


def test_partials_have_the_type_that_is_promised() -> None:
    types = {"COMOMENTS": (SqlType.DOUBLE, SqlType.DOUBLE), "MIN": (SqlType.SMALLINT,), "COUNT": ()}
    for kind in (kind for kind in KINDS.values() if kind.is_mergeable):
        given = types.get(kind.name, (SqlType.DOUBLE,))
        state = maker(kind.name, *given)()
        state.ensure(2)
        assert state.export(np.arange(2, dtype=np.int32)).type == partial_type(kind, given)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 20), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2**32))
def test_packing_and_unpacking(count: int, width: int, more: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    regular = rng.integers(0, 2**63, (count, width), dtype=np.uint64)
    which = np.flatnonzero(rng.random(count) < 0.4)
    extra = rng.integers(0, 2**63, (len(which), more), dtype=np.uint64)
    packed = pack(regular, which, extra)
    skipped = int(rng.integers(0, count + 1))
    words, starts, sizes = unpack(packed.slice(skipped))
    expected = [row.tolist() for row in regular]
    for row, at in enumerate(which.tolist()):
        expected[at] += extra[row].tolist()
    got = [words[start : start + size].tolist() for start, size in zip(starts, sizes, strict=True)]
    assert got == expected[skipped:]
