"""Few rows that never were a batch: columns in registers, arithmetic on them, and their way into the open block.

A register is a column of one value of 8 bytes or less per row of the call. Operations before the states may cut the
strip; those behind them only mark in MET that some result is not for them.

The arithmetic is that of `expressions.arithmetic` for doubles: one IEEE operation per call, and a zero divisor fails.
"""

from __future__ import annotations

import numpy as np

from penstock.jit import tight
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
    to, width = doubles(own[TO]), own[WIDTH]
    for row in range(words[DONE], words[UPTO]):
        to[row] = np.float64(whole_at(own[FIRST], row, width))
    return GOES_ON


@tight
def results_to_doubles(context: int, instruction: int) -> int:
    """The same for results."""
    words, own = int64s(context), int64s(instruction)
    to, first = doubles(own[TO]), int64s(own[FIRST])
    for row in range(words[EMITTED], words[EMITTED_NEXT]):
        to[row] = np.float64(first[row])
    return GOES_ON


@tight
def compute(context: int, instruction: int) -> int:
    """A function of doubles, for the rows that enter. The strip is cut before a row that divides by zero."""
    words, own = int64s(context), int64s(instruction)
    function, to, first, second = own[FUNCTION], doubles(own[TO]), doubles(own[FIRST]), doubles(own[SECOND])
    for row in range(words[DONE], words[UPTO]):
        if function == MULTIPLY:
            to[row] = first[row] * second[row]
        elif function == ADD:
            to[row] = first[row] + second[row]
        elif function == SUBTRACT:
            to[row] = first[row] - second[row]
        elif function == NEGATE:
            to[row] = -first[row]
        elif second[row] == 0.0:
            words[UPTO] = row
            words[STOPPED] = 1
            break
        else:
            to[row] = first[row] / second[row]
    return GOES_ON


@tight
def compute_results(context: int, instruction: int) -> int:
    """The same for results. A result that divides by zero is rejected, not here."""
    words, own = int64s(context), int64s(instruction)
    function, to, first, second = own[FUNCTION], doubles(own[TO]), doubles(own[FIRST]), doubles(own[SECOND])
    for row in range(words[EMITTED], words[EMITTED_NEXT]):
        if function == MULTIPLY:
            to[row] = first[row] * second[row]
        elif function == ADD:
            to[row] = first[row] + second[row]
        elif function == SUBTRACT:
            to[row] = first[row] - second[row]
        elif function == NEGATE:
            to[row] = -first[row]
        else:
            to[row] = first[row] / second[row]
            if second[row] == 0.0:
                words[MET] |= REJECTS
    return GOES_ON


@tight
def begin_windows(context: int, instruction: int) -> int:
    """Where the windows by time of the rows that enter begin."""
    words, own = int64s(context), int64s(instruction)
    to, times = int64s(own[TO]), int64s(words[TIMES])
    length = words[EXTENT] if words[EXTENT] > 1 else 0
    for row in range(words[DONE], words[UPTO]):
        to[row] = times[row] - length
    return GOES_ON


@tight
def store_column(context: int, instruction: int) -> int:
    """The rows of the strip behind those that the open block has. They count when the caller says so."""
    words, own = int64s(context), int64s(instruction)
    source, to, width, at = own[COLUMN_FROM], words[OPEN] + own[COLUMN_OFFSET], own[COLUMN_WIDTH], words[OPEN_ROWS]
    for row in range(words[DONE], words[UPTO]):
        value = whole_at(source, row, width)
        if width == 8:
            int64s(to)[at + row] = value
        elif width == 4:
            int32s(to)[at + row] = np.int32(value)
        elif width == 2:
            int16s(to)[at + row] = np.int16(value)
        else:
            int8s(to)[at + row] = np.int8(value)
    return GOES_ON
