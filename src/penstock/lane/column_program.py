"""A program for rows that come as columns: registers are whole columns, or scratch for the strip at work.

    inputs: columns of the chunk ─▶ scratch: what the instructions compute ─▶ outputs: columns of the results

One call takes a chunk, whatever blocks its rows go to. Every row of a chunk gives one result. Scratch registers have
room for a strip, so that they stay in the cache: `place_scratch`, the first instruction, moves their addresses back by
the rows before the strip.

Why: docs/decisions/runs-across-blocks.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Int64s
from penstock.jit import tight
from penstock.lane import words
from penstock.lane.expressions import Instruction
from penstock.lane.memory import address_of, int64s
from penstock.lane.program import PlayedStates
from penstock.lane.row_program import RowPlan, RowProgram
from penstock.lane.words import DONE, GOES_ON, STRIP_ROWS

PLACES, COUNT = 1, 2
"""The words of `place_scratch`: where the list of scratch registers is, and how many there are."""


@tight
def place_scratch(context: int, instruction: int) -> int:
    """Entries of the list: the address of a word that names a register, where the register is, and the width of its
    values."""
    words, own = int64s(context), int64s(instruction)
    places, done = int64s(own[PLACES]), words[DONE]
    for entry in range(own[COUNT]):
        int64s(places[3 * entry])[0] = places[3 * entry + 1] - done * places[3 * entry + 2]
    return GOES_ON


class ColumnProgram(RowProgram):
    """The parameters are those of `RowProgram`. `columns` in `take` are for the registers `given`."""

    def __init__(self, played: PlayedStates, plan: RowPlan, given: Sequence[int]) -> None:
        plan.front.insert(0, Instruction(place_scratch))
        super().__init__(played, plan, most_rows=STRIP_ROWS)
        self.context[words.STOPS_AT_MARKS] = 1
        self._given = {register: [one for one in self._moved if one[2] == register] for register in given}
        for register, value in self._constants.items():
            self.column(register).view(np.float64)[:] = value
        code, context = address_of(self._code), address_of(self.context)
        scratch = [
            ((code if memory is self._instructions else context) + 8 * word, address_of(self.column(register)), 8)
            for memory, word, register in self._moved
            if register not in self._given
        ]
        scratch += [(code + 8 * word, address_of(failed), 1) for word, failed in self._failures]
        self._scratch: Int64s = np.array(scratch, np.int64).reshape(-1)
        self._code[0, PLACES], self._code[0, COUNT] = address_of(self._scratch), len(scratch)
        self._columns: dict[int, NDArray[Any]] = {}

    def take(self, columns: Mapping[int, NDArray[Any]], rows: int) -> None:
        """The next call is for so many rows of these inputs, and writes to these outputs, by register."""
        self._columns = dict(columns)
        for register, column in columns.items():
            address = address_of(column)
            for memory, word, _ in self._given[register]:
                memory[word] = address
            if register in self._constants:
                column.view(np.float64)[:] = self._constants[register]
        self.limit(rows)

    @property
    def marked_from(self) -> int:
        """The first row of the strip at which the run was marked."""
        return self.words[words.STRIP_FIRST]

    def clear_marks(self) -> None:
        """What was marked has been seen to."""
        self.words[words.MET] = 0

    def register(self, register: int) -> Int64s:
        """The values of a register, for the strip at which the run was marked."""
        column = self._columns.get(register)
        if column is None:
            return self.column(register)[: self.done - self.marked_from]
        return column[self.marked_from : self.done]
