"""A program for rows that come as columns: registers of the call are stretches of whole columns, or scratch.

    inputs: columns of the chunk ─▶ scratch: what the instructions compute ─▶ outputs: columns of the results

A chunk is taken in calls of at most `most_rows` rows. `at` moves the addresses of inputs and outputs to the rows of
the next call; scratch registers stay where they are, so that they stay in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.aggregates.state import AggregateState
from penstock.arrays import Int64s
from penstock.lane.memory import address_of
from penstock.lane.row_program import RowPlan, RowProgram
from penstock.plan.nodes import StateSpec
from penstock.windows.spec import Extent


class ColumnProgram(RowProgram):
    """The parameters are those of `RowProgram`."""

    def __init__(
        self,
        extent: Extent,
        states: Sequence[AggregateState],
        specs: Sequence[StateSpec],
        columns: Sequence[int],
        plan: RowPlan,
        *,
        by_group: bool,
        most_rows: int,
    ) -> None:
        super().__init__(extent, states, specs, columns, plan, by_group=by_group, most_rows=most_rows)
        self.most_rows = most_rows
        self._flat = self._code.reshape(-1)
        own = [(word, register) for memory, word, register in self._moved if memory is self._instructions]
        shared = [(word, register) for memory, word, register in self._moved if memory is self.words]
        self._own = np.array(own, np.int64).reshape(-1, 2).T.copy()
        self._shared = np.array(shared, np.int64).reshape(-1, 2).T.copy()
        self._scratch = address_of(self.cells) + 8 * most_rows * np.arange(self.registers)
        for register, value in self._constants.items():
            self.register_cells(register).view(np.float64)[:] = value
        self._bases, self._widths = self._scratch.copy(), np.zeros(self.registers, np.int64)
        self._columns: dict[int, NDArray[Any]] = {}
        self._first = 0

    def register_cells(self, register: int) -> Int64s:
        """The scratch of a register."""
        return self.cells[self.most_rows * register : self.most_rows * (register + 1)]

    def take(self, columns: Mapping[int, NDArray[Any]]) -> None:
        """The next calls are for rows of these inputs, and write to these outputs, by register."""
        self._columns = dict(columns)
        self._bases[:], self._widths[:] = self._scratch, 0
        for register, column in columns.items():
            self._bases[register], self._widths[register] = address_of(column), column.itemsize
            if register in self._constants:
                column.view(np.float64)[:] = self._constants[register]

    def at(self, row: int, rows: int) -> None:
        """The next call is for so many rows from a row on."""
        places = self._bases + row * self._widths
        self._flat[self._own[0]] = places[self._own[1]]
        self.context[self._shared[0]] = places[self._shared[1]]
        self.limit(rows)
        self._first = row

    def register(self, register: int) -> Int64s:
        """The values of a register, for the results of the last call."""
        column = self._columns.get(register)
        if column is None:
            return self.register_cells(register)[: self.emitted]
        return column[self._first : self._first + self.emitted]
