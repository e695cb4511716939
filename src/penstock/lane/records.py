"""Few rows that never were a batch: columns in registers, arithmetic on them, and their way into the open block.

A register is a column of one value of 8 bytes or less per row of the call. Operations before the states may cut the
strip; those behind them only mark in MET that some result is not for them.

The arithmetic is that of `expressions.arithmetic` for doubles: one IEEE operation per call, and a zero divisor fails.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Floats
from penstock.jit import inline, tight
from penstock.lane.memory import doubles, int8s, int16s, int32s, int64s, whole_at
from penstock.lane.words import (
    DONE,
    EMITTED,
    EMITTED_NEXT,
    EXTENT,
    GOES_ON,
    MET,
    OPEN,
    OPEN_ROWS,
    REJECTS,
    STOPPED,
    TIMES,
    UPTO,
)

TO, FIRST, SECOND, WIDTH, FUNCTION = range(1, 6)
"""The words of an instruction: registers, the width of the first one's integers, and the function."""

ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATE = range(5)

COLUMN_FROM, COLUMN_OFFSET, COLUMN_WIDTH = range(1, 4)
"""The words of `store_column`: a register, where the column begins in the block, and the width of its values."""


@tight
def to_doubles(context: int, instruction: int) -> int:
    """Integers of the rows that enter, as doubles."""
    words, own = int64s(context), int64s(instruction)
    to, source, width, done, upto = doubles(own[TO]), own[FIRST], own[WIDTH], words[DONE], words[UPTO]
    if width == 8:
        for row in range(done, upto):
            to[row] = np.float64(int64s(source)[row])
    elif width == 4:
        for row in range(done, upto):
            to[row] = np.float64(int32s(source)[row])
    else:
        for row in range(done, upto):
            to[row] = np.float64(whole_at(source, row, width))
    return GOES_ON


@tight
def results_to_doubles(context: int, instruction: int) -> int:
    """The same for results."""
    words, own = int64s(context), int64s(instruction)
    to, first = doubles(own[TO]), int64s(own[FIRST])
    for row in range(words[EMITTED], words[EMITTED_NEXT]):
        to[row] = np.float64(first[row])
    return GOES_ON


@inline
def _calculate(function: int, to: Floats, first: Floats, second: Floats, start: int, stop: int) -> bool:
    """A function of doubles. Returns whether one divides by zero. Each function has a loop of its own, so that it is
    vectorised."""
    divides_by_zero = False
    if function == MULTIPLY:
        for row in range(start, stop):
            to[row] = first[row] * second[row]
    elif function == ADD:
        for row in range(start, stop):
            to[row] = first[row] + second[row]
    elif function == SUBTRACT:
        for row in range(start, stop):
            to[row] = first[row] - second[row]
    elif function == NEGATE:
        for row in range(start, stop):
            to[row] = -first[row]
    else:
        for row in range(start, stop):
            to[row] = first[row] / second[row]
            divides_by_zero |= second[row] == 0.0
    return divides_by_zero


@tight
def compute(context: int, instruction: int) -> int:
    """A function of doubles, for the rows that enter. The strip is cut before a row that divides by zero."""
    words, own = int64s(context), int64s(instruction)
    to, first, second, done, upto = (
        doubles(own[TO]),
        doubles(own[FIRST]),
        doubles(own[SECOND]),
        words[DONE],
        words[UPTO],
    )
    if _calculate(own[FUNCTION], to, first, second, done, upto):
        row = done
        while second[row] != 0.0:
            row += 1
        words[UPTO] = row
        words[STOPPED] = 1
    return GOES_ON


@tight
def compute_results(context: int, instruction: int) -> int:
    """The same for results. A result that divides by zero is rejected, not here."""
    words, own = int64s(context), int64s(instruction)
    to, first, second = doubles(own[TO]), doubles(own[FIRST]), doubles(own[SECOND])
    if _calculate(own[FUNCTION], to, first, second, words[EMITTED], words[EMITTED_NEXT]):
        words[MET] |= REJECTS
    return GOES_ON


@tight
def begin_windows(context: int, instruction: int) -> int:
    """Where the windows by time of the rows that enter begin."""
    words, own = int64s(context), int64s(instruction)
    to, times, done, upto = int64s(own[TO]), int64s(words[TIMES]), words[DONE], words[UPTO]
    length = words[EXTENT] if words[EXTENT] > 1 else 0
    for row in range(done, upto):
        to[row] = times[row] - length
    return GOES_ON


@tight
def store_column(context: int, instruction: int) -> int:
    """The rows of the strip behind those that the open block has. They count when the caller says so."""
    words, own = int64s(context), int64s(instruction)
    source, width, done, upto = own[COLUMN_FROM], own[COLUMN_WIDTH], words[DONE], words[UPTO]
    to = words[OPEN] + own[COLUMN_OFFSET] + words[OPEN_ROWS] * width
    if width == 8:
        for row in range(done, upto):
            int64s(to)[row] = int64s(source)[row]
    elif width == 4:
        for row in range(done, upto):
            int32s(to)[row] = int32s(source)[row]
    elif width == 2:
        for row in range(done, upto):
            int16s(to)[row] = int16s(source)[row]
    else:
        for row in range(done, upto):
            int8s(to)[row] = int8s(source)[row]
    return GOES_ON
