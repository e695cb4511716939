"""A program for a few rows that come as Python values: they are written into registers, and the program does the rest.

    sheet: the registers that are shown      row: rows before it have gone out as results, it and the others are free

Calls fill the rows of a *sheet* one after the other, so that results are shown where they are. When a sheet is full,
the registers that are shown get new memory, the next sheet. The other registers stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.arrays import Int64s
from penstock.lane.memory import parts_of
from penstock.lane.program import PlayedStates
from penstock.lane.row_program import RowPlan, RowProgram

SHEET_ROWS = 1024
"""So many rows has a sheet. A result keeps its sheet in memory."""


class SheetProgram(RowProgram):
    """The parameters are those of `RowProgram`. Registers of `shown` are in the sheet, in this order."""

    def __init__(self, played: PlayedStates, plan: RowPlan, shown: Sequence[int]) -> None:
        super().__init__(played, plan, most_rows=SHEET_ROWS)
        self._sheet = np.empty(0, np.int64)
        self._places = {register: place for place, register in enumerate(shown)}
        parts = parts_of(self.cells, self.most_rows)
        for memory, word, register in self._moved:
            memory[word] = parts[register]
        self._moved = [(memory, word, self._places[r]) for memory, word, r in self._moved if r in self._places]
        """Words that hold the addresses of registers in the sheet, and which parts of it these are."""
        for register, value in self._constants.items():
            self.column(register).view(np.float64)[:] = value
        self._constants = {register: value for register, value in self._constants.items() if register in self._places}
        self._formats = plan.formats
        self.inputs = [self._input(register) for register in range(len(plan.formats))]
        """The registers that rows are written into, as values of the plan's formats."""

    def begin_sheet(self, sheet: Int64s) -> None:
        """The next call begins with row 0 of this sheet."""
        self.row, self._sheet, parts = 0, sheet, parts_of(sheet, self.most_rows)
        for memory, word, place in self._moved:
            memory[word] = parts[place]
        for register, value in self._constants.items():
            self.column(register).view(np.float64)[:] = value
        for register in range(len(self.inputs)):
            if register in self._places:
                self.inputs[register] = self._input(register)

    def column(self, register: int) -> Int64s:
        place = self._places.get(register)
        if place is None or not len(self._sheet):
            return super().column(register)
        return self._sheet[self.most_rows * place : self.most_rows * (place + 1)]

    def _input(self, register: int) -> Any:
        return self.column(register).view(self._formats[register]).data[: self.most_rows]
