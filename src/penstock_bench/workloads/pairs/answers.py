"""The comparison of a system's answers with the expected ones: correct, missing, undue and wrong, for each stream.

An answer is found by its strategy and inputTickTS, an order also by its type; where several have the same, they are
taken in their order. Then the values decide: those of orders must be equal, those of indicators within a relative
1e-9, since a system need not round as the validator does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock_bench.workloads.pairs.validator import Answers

TOLERANCE: Final = 1e-9
_INDICATOR_KEY, _ORDER_KEY = ("strategy", "inputTickTS"), ("strategy", "type", "inputTickTS")
_INDICATOR_VALUES, _ORDER_VALUES = ("ratio", "avgRatio", "upperBand", "lowerBand"), ("symbol", "price", "size")


@dataclass(frozen=True)
class StreamReport:
    """The counts of the thesis' Figure B.3, and the answers that are not correct."""

    name: str
    expected: int
    given: int
    correct: int
    missing: pa.Table
    undue: pa.Table
    wrong: pa.Table
    """The key, then val_ and sut_ of each value, as in the thesis' Figure B.5."""

    @property
    def passed(self) -> bool:
        return not (self.missing.num_rows or self.undue.num_rows or self.wrong.num_rows)

    def lines(self) -> list[str]:
        return [
            f"- {self.name}:",
            f"  # validator answers: {self.expected}",
            f"  # SUT answers: {self.given}",
            f"  # correct answers: {self.correct}",
            f"  # missing answers: {self.missing.num_rows}",
            f"  # undue answers: {self.undue.num_rows}",
            f"  # wrong answers: {self.wrong.num_rows}",
        ]


@dataclass(frozen=True)
class Report:
    """What the validator says of a run."""

    indicators: StreamReport
    orders: StreamReport
    closest: float
    stop_losses: int

    @property
    def passed(self) -> bool:
        return self.indicators.passed and self.orders.passed

    @property
    def bad_answers(self) -> int:
        """Missing, undue and wrong ones of both streams."""
        streams = (self.indicators, self.orders)
        return sum(part.num_rows for stream in streams for part in (stream.missing, stream.undue, stream.wrong))

    def text(self) -> str:
        verdict = "PASSED" if self.passed else "FAILED!"
        return "\n".join([f"Validation result: {verdict}", *self.indicators.lines(), *self.orders.lines()])


def compared(expected: Answers, given: Answers) -> Report:
    return Report(
        _stream("Indicators", expected.indicators, given.indicators, _INDICATOR_KEY, _INDICATOR_VALUES),
        _stream("Orders", expected.orders, given.orders, _ORDER_KEY, _ORDER_VALUES),
        expected.closest,
        expected.stop_losses,
    )


def _stream(name: str, expected: pa.Table, given: pa.Table, key: Sequence[str], values: Sequence[str]) -> StreamReport:
    count = expected.num_rows
    numbers = _numbered(pa.concat_tables([expected.select(key), given.select(key)]), count)
    mine, theirs = numbers[:count], numbers[count:]
    _, of_mine, of_theirs = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    order = np.argsort(of_mine)
    of_mine, of_theirs = of_mine[order], of_theirs[order]
    ours, sut = expected.take(pa.array(of_mine)), given.take(pa.array(of_theirs))
    same = np.ones(len(of_mine), np.bool_)
    for value in values:
        same &= _equal(ours[value], sut[value])
    differing = pa.array(~same)
    ours, sut = ours.filter(differing), sut.filter(differing)
    pairs = {f"{whose}_{value}": table[value] for value in values for whose, table in (("val", ours), ("sut", sut))}
    return StreamReport(
        name,
        count,
        given.num_rows,
        int(same.sum()),
        expected.filter(pa.array(_others(count, of_mine))),
        given.filter(pa.array(_others(given.num_rows, of_theirs))),
        pa.table({**{column: ours[column] for column in key}, **pairs}),
    )


def _numbered(keys: pa.Table, expected: int) -> NDArray[np.int64]:
    """A number for each row; an expected row (the first ones are) and a given one have the same if they are one answer.

    Rows with equal keys are told apart by how many came before them on their side.
    """
    columns = [_codes(keys[name]) for name in reversed(keys.column_names)]
    side = (np.arange(keys.num_rows) >= expected).astype(np.int64)
    order = np.lexsort((side, *columns))
    fresh = np.zeros(len(order), np.bool_)
    fresh[:1] = True
    for column in columns:
        fresh[1:] |= np.diff(column[order]) != 0
    group = np.cumsum(fresh)
    starts = fresh.copy()
    starts[1:] |= np.diff(side[order]) != 0
    within = np.arange(len(order)) - np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    numbers = np.empty(len(order), np.int64)
    numbers[order] = group * (int(within.max(initial=0)) + 1) + within
    return numbers


def _codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Whole numbers that are equal where the values are."""
    if pa.types.is_integer(column.type):
        return np.asarray(pc.fill_null(column, -1), np.int64)
    return np.asarray(column.combine_chunks().dictionary_encode("encode").indices, np.int64)


def _equal(ours: pa.ChunkedArray, sut: pa.ChunkedArray) -> NDArray[np.bool_]:
    if pa.types.is_floating(ours.type):
        mine, theirs = np.asarray(ours, np.float64), np.asarray(sut, np.float64)
        close: NDArray[np.bool_] = np.abs(mine - theirs) <= TOLERANCE * np.maximum(np.abs(mine), np.abs(theirs))
        return close
    return np.asarray(pc.fill_null(pc.equal(ours, sut), False), np.bool_)


def _others(count: int, taken: NDArray[np.int64]) -> NDArray[np.bool_]:
    rest = np.ones(count, np.bool_)
    rest[taken] = False
    return rest
