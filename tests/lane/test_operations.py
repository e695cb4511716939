"""Each operation of the lane against plain Python: sums as fractions, counts and extremes over lists."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aggregates.exact_sum import changed, choose_base, split
from penstock.aggregates.factory import create_state
from penstock.aggregates.state import AggregateState, Want
from penstock.expressions.tree import Call, Cast, Column
from penstock.lane import records, words
from penstock.lane.expressions import Instruction, Registers, compiled
from penstock.lane.memory import address_of
from penstock.lane.program import PlayedStates, Program
from penstock.lane.row_program import RowPlan
from penstock.lane.sheet_program import SheetProgram
from penstock.plan.nodes import StateSpec
from penstock.store.budget import Budget
from penstock.store.charged import UNLIMITED
from penstock.store.memory_device import MemoryDevice
from penstock.types import SqlType
from penstock.windows.spec import Range, Rows

WORD = (1 << 64) - 1


@given(
    held=st.integers(-(2**180), 2**180),
    mantissa=st.integers(0, 2**53 - 1),
    shift=st.integers(0, 97),
    negative=st.booleans(),
)
def test_three_words_plus_a_double(held: int, mantissa: int, shift: int, negative: bool) -> None:
    three = [np.uint64(held >> at & WORD) for at in (0, 64, 128)]
    low, middle, high = changed_words(*three, np.uint64(mantissa), np.uint64(shift), np.uint64(negative))
    expected = (held + (-1 if negative else 1) * (mantissa << shift)) & ((1 << 192) - 1)
    assert low | middle << 64 | high << 128 == expected


def changed_words(*arguments: Any) -> tuple[int, int, int]:
    low, middle, high = changed(*arguments)
    return int(low), int(middle), int(high)


class Window:
    """Rows in one block: all of them are stored before a program runs."""

    def __init__(self, times: list[int], slots: list[int]) -> None:
        self.times, self.slots = np.array(times), np.array(slots, np.int32)

    def run(self, program: Program, columns: list[Any], tally: Any, counted: Any) -> list[int]:
        """Plays all rows; returns where the window of each begins, for windows by position."""
        starts = np.zeros(len(self.times), np.int64)
        program.link(tally, np.zeros(0, np.bool_))
        program.feed(self.times, self.slots, columns, starts, counted)
        where = [address_of(array) for array in columns]
        program.stand(address_of(self.times), address_of(self.slots), where, 0, 0, len(self.times), is_last=True)
        assert program.start(0) == words.FINISHED
        return [int(start) for start in starts]


def states(integer: bool) -> tuple[list[AggregateState], list[StateSpec]]:
    kind = SqlType.INT if integer else SqlType.DOUBLE
    argument = (Column("x", kind),)
    wants = (Want("SUM"), Want("AVG"), Want("COUNT"))
    specs = [
        StateSpec("SUM", argument, None, wants),
        StateSpec("COUNT", (), None, (Want("COUNT"),)),
        StateSpec("MIN", argument, None, (Want("MIN"),)),
        StateSpec("MAX", argument, None, (Want("MAX"),)),
    ]
    made = [create_state(spec.kind, (kind,) * len(spec.args), spec.wants, account=UNLIMITED) for spec in specs]
    for state in made:
        state.ensure(8)
    return made, specs


rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-1, 5), st.floats(-1e6, 1e6).map(lambda x: round(x, 3))),
    min_size=1,
    max_size=80,
)


@given(drawn=rows, extent=st.sampled_from((Range(1), Range(5), Range(40), Rows(1), Rows(7), Rows(200))))
@settings(deadline=None)
def test_doubles_by_group(drawn: list[tuple[int, int, float]], extent: Any) -> None:
    check(drawn, extent, integer=False, by_group=True)


@given(drawn=rows, extent=st.sampled_from((Range(5), Range(40), Rows(7))), integer=st.booleans())
@settings(deadline=None)
def test_one_group(drawn: list[tuple[int, int, float]], extent: Any, integer: bool) -> None:
    check([(step, 0, value) for step, _, value in drawn], extent, integer=integer, by_group=False)


@given(drawn=rows, extent=st.sampled_from((Range(5), Range(40), Rows(7))))
@settings(deadline=None)
def test_integers_by_group(drawn: list[tuple[int, int, float]], extent: Any) -> None:
    check(drawn, extent, integer=True, by_group=True)


def check(drawn: list[tuple[int, int, float]], extent: Any, *, integer: bool, by_group: bool) -> None:
    times = np.cumsum([step for step, _, _ in drawn]).tolist()
    slots = [slot for _, slot, _ in drawn]
    values: list[Any] = [int(value) if integer else value for _, _, value in drawn]
    column = np.array(values, np.int32 if integer else np.float64)
    made, specs = states(integer)
    if not integer:
        base = choose_base(np.zeros(len(values), np.int32), column, np.zeros(0, np.bool_), False)
        made[0]._base = base or 1023  # type: ignore[attr-defined]
        assert all(split(bits, np.uint64(base or 1023))[2] for bits in column.view(np.uint64))
    program = Program(PlayedStates(extent, made, specs, [0, -1, 0, 0], by_group))
    tally, counted = np.zeros(8, np.int64), np.zeros(len(values), np.int64)
    starts = Window(times, slots).run(program, [column], tally, counted)
    sums, counts, least, greatest = program.results()
    emitted = 0
    for row, slot in enumerate(slots):
        if isinstance(extent, Range):
            inside = [at for at in range(row + 1) if times[at] > times[row] - extent.micros]
        else:
            inside = list(range(max(0, row + 1 - extent.count), row + 1))
            assert starts[row] == times[inside[0]]
        own = [values[at] for at in inside if slots[at] == slot]
        if slot < 0:
            continue
        total = sum(map(Fraction, own))
        assert sums[0].values[emitted] == (int(total) if integer else math.fsum(own))
        assert sums[1].values[emitted] == float(total) / len(own)
        assert sums[2].values[emitted] == counts[0].values[emitted] == counted[emitted] == len(own)
        assert least[0].values[emitted] == min(own)
        assert greatest[0].values[emitted] == max(own)
        emitted += 1
    assert emitted == program.emitted
    inside_last = [slot for at, slot in enumerate(slots) if at in inside]
    assert tally.tolist() == [inside_last.count(slot) for slot in range(8)]


@pytest.mark.parametrize("shape", ["random", "rising", "falling", "equal", "steps", "nan"])
@pytest.mark.parametrize("extent", [Rows(1), Rows(5), Rows(700), Rows(1024), Rows(2500), Range(1), Range(900)])
def test_extremes_of_all_rows(shape: str, extent: Any) -> None:
    """Windows shorter and longer than a strip, in a pool that spills."""
    count, rng = 4000, np.random.default_rng(3)
    made = {
        "random": rng.random(count),
        "rising": np.arange(count) * 1.0,
        "falling": np.arange(count) * -1.0,
        "equal": np.zeros(count),
        "steps": np.arange(count) // 300 % 3 * 1.0,
        "nan": np.where(rng.random(count) < 0.1, np.nan, rng.choice([0.0, -0.0, 1.5], count)),
    }
    column = made[shape]
    argument = (Column("x", SqlType.DOUBLE),)
    specs = [StateSpec(kind, argument, None, (Want(kind),)) for kind in ("MIN", "MAX")]
    devices = [MemoryDevice(4096), MemoryDevice(4096)]
    account = Budget(200_000).account
    made_states = [
        create_state(spec.kind, (SqlType.DOUBLE,), spec.wants, account=account(spec.kind), device=device)
        for spec, device in zip(specs, devices, strict=True)
    ]
    for state in made_states:
        state.ensure(1)
    times = np.cumsum(rng.integers(0, 3, count)).tolist()
    program = Program(PlayedStates(extent, made_states, specs, [0, 0], by_group=False))
    tally = np.zeros(1, np.int64)
    Window(times, [0] * count).run(program, [column], tally, np.zeros(0, np.int64))
    ((least,),), ((greatest,),) = ([found] for found in program.results())
    for row in range(0, count, 7):
        if isinstance(extent, Range):
            begin = int(np.searchsorted(times, times[row] - extent.micros, "right"))
        else:
            begin = max(0, row + 1 - extent.count)
        inside = column[begin : row + 1].tolist()
        order = sorted(inside, key=lambda x: (math.isnan(x), 0.0 if math.isnan(x) else x, math.copysign(1.0, x)))
        for found, expected in ((least, order[0]), (greatest, order[-1])):
            assert float(found.values[row]).hex() == expected.hex()


def test_arithmetic_of_few_rows() -> None:
    registers, front, back = Registers(), list[Instruction](), list[Instruction]()
    assert registers.of("time") == 0
    x, n = Column("x", SqlType.DOUBLE), Column("n", SqlType.INT)
    registers.of("x"), registers.of("n")
    product = compiled(_call("multiply", x, _double(n)), registers, front, of_results=False)
    quotient = compiled(_call("divide", x, _double(n)), registers, front, of_results=False)
    assert product is not None
    assert quotient is not None
    front.append(Instruction(records.begin_windows, {records.TO: registers.of("start")}))
    assert compiled(Column("unknown", SqlType.DOUBLE), registers, front, of_results=False) is None
    start = registers.of("start")
    plan = RowPlan(registers, None, {}, ["q", "d", "i"], -1, start, front, back)
    program = SheetProgram(PlayedStates(Range(10), [], [], [], by_group=False), plan, [start, 0])
    program.link(np.zeros(1, np.int64), np.zeros(0, np.bool_))
    found: list[tuple[float, float]] = []
    for first in (0, 5):  # the first call of a sheet, and one behind others
        program.begin_sheet(np.zeros(2 * program.most_rows, np.int64))
        program.row = first
        for cells, values in zip(program.inputs, ((1, 2, 3, 4), (0.5, -3.0, 7.25, 1.0), (3, 2, 0, 1)), strict=True):
            for row, value in enumerate(values, first):
                cells[row] = value
        program.stand(address_of(program.column(0)), 0, [], 0, 0, first + 4, is_last=True)
        program.limit(4)
        assert program.start(first) == words.STOPS  # the third row divides by zero
        assert program.done == 2
        columns = [program.column(register).view(np.float64)[first : first + 2] for register in (product, quotient)]
        found += zip(*(column.tolist() for column in columns), strict=True)
        assert program.register(start).tolist() == [-9, -8]
    assert found == [(1.5, 0.5 / 3), (-6.0, -1.5)] * 2


def _call(function: str, *args: Any) -> Any:
    return Call(function, args, SqlType.DOUBLE)


def _double(expression: Any) -> Any:
    return Cast(expression, SqlType.DOUBLE)
