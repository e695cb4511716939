"""What the checked build finds. Each of these accesses is to memory that the test holds, so that it does no harm in a
build that does not find it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.lane import counts, records, words
from penstock.lane.counts import count_all
from penstock.lane.memory import IS_CHECKED, address_of, block_at, offset_of, parts_of
from penstock.lane.program import PlayedStates, Program
from penstock.lane.records import store_column
from penstock.store.blocks import BlockLayout, ColumnSpec, Frame
from penstock.windows.spec import Range

pytestmark = pytest.mark.xfail(not IS_CHECKED, reason="this build checks nothing", strict=True)

REFUSED = "memory that its owner does not have"


def play(rows: int = 5, *, times: Any = None, tail: int = 0, tail_rows: int = 0, results: Any = None) -> None:
    """Counts rows, one per microsecond; `times` and `tail` are addresses in place of the usual ones."""
    program = Program(PlayedStates(Range(10), [], [], [], by_group=False))
    entering = np.arange(100, 100 + rows)
    program.link(np.zeros(1, np.int64), np.zeros(0, np.bool_))
    program.feed(entering, np.zeros(rows, np.int32), [], np.zeros(0, np.int64), np.zeros(0, np.int64))
    if times is not None:
        program.words[words.TIMES] = times
    if results is not None:
        program._code[-1, counts.RESULTS] = address_of(results)
    program.stand(tail or address_of(entering), 0, [], 0, 0, tail_rows or rows, is_last=True)
    assert program.start(0) == words.FINISHED


def test_a_write_behind_the_results() -> None:
    whole = np.zeros(8, np.int64)
    with pytest.raises(
        IndexError, match="operation count_all of the lane accesses byte 24 of memory that has 24 bytes"
    ):
        play(results=whole[:3])
    assert whole.tolist() == [1, 2, 3, 0, 0, 0, 0, 0]


def count(results: int, *, emitted: int = 0) -> None:
    """Calls an operation that writes four results to an address."""
    context, instruction = np.zeros(words.CONTEXT_WORDS, np.int64), np.zeros(words.INSTRUCTION_WORDS, np.int64)
    left, tally = np.zeros(4, np.int64), np.zeros(1, np.int64)
    context[words.UPTO], context[words.LEFT], context[words.EMITTED] = 4, address_of(left), emitted
    instruction[counts.COUNTS], instruction[counts.RESULTS] = address_of(tally), results
    with pytest.raises(IndexError, match=REFUSED):
        count_all(address_of(context), address_of(instruction))


def test_a_write_behind_one_of_many_registers() -> None:
    registers = np.zeros(9, np.int64)
    count(parts_of(registers, 3)[1])
    assert registers.tolist() == [0, 0, 0, 1, 2, 3, 0, 0, 0]


def test_a_write_ahead_of_the_results() -> None:
    whole = np.zeros(8, np.int64)
    count(address_of(whole[4:]), emitted=-1)
    assert not whole.any()


def block() -> Frame:
    """Times of 4 rows, and as much again."""
    layout = BlockLayout([ColumnSpec("t", np.dtype(np.int64), False), ColumnSpec("x", np.dtype(np.int64), False)], 64)
    assert layout.rows == 4
    return Frame(np.zeros(64, np.uint8), layout)


def test_a_read_behind_a_column_of_the_tail() -> None:
    frame = block()
    address, offsets = block_at(frame)
    with pytest.raises(IndexError, match="operation leave_by_time of the lane accesses byte 32 of memory that has 32"):
        play(tail=address + offsets[0], tail_rows=5)


def test_a_write_behind_a_column_of_the_open_block() -> None:
    frame, values = block(), np.arange(1, 4)
    context, instruction = np.zeros(words.CONTEXT_WORDS, np.int64), np.zeros(words.INSTRUCTION_WORDS, np.int64)
    context[words.UPTO], context[words.OPEN], context[words.OPEN_ROWS] = 3, block_at(frame)[0], 2
    instruction[records.COLUMN_FROM], instruction[records.COLUMN_WIDTH] = address_of(values), 8
    instruction[records.COLUMN_OFFSET] = offset_of(0, frame.offsets[0])
    with pytest.raises(IndexError, match=REFUSED):
        store_column(address_of(context), address_of(instruction))
    assert frame.payload.view(np.int64).tolist() == [0, 0, 1, 2, 0, 0, 0, 0]


def test_an_address_that_nothing_has() -> None:
    times = np.arange(100, 105)
    with pytest.raises(
        IndexError, match="operation leave_by_time of the lane accesses memory that is empty, gone or was"
    ):
        play(times=times.ctypes.data)


def test_memory_that_is_gone() -> None:
    """The bytes stay, but the array that was registered does not."""
    held = bytearray(40)
    times = address_of(np.frombuffer(held, np.int64))
    with pytest.raises(
        IndexError, match="operation leave_by_time of the lane accesses memory that is empty, gone or was"
    ):
        play(times=times)
