"""A program that does all for the rows of a call: their columns are in registers, and so are the results.

    registers: times | slots | columns | ... | starts | results | outputs

`SheetProgram` is for rows that come as Python values, `ColumnProgram` for rows that come as columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.aggregates.state import Emitted
from penstock.aggregates.sums import SumState
from penstock.arrays import Bools, Int64s
from penstock.expressions.tree import Column
from penstock.lane import counts, extremes, sums, words
from penstock.lane.expressions import Instruction, Registers
from penstock.lane.memory import address_of
from penstock.lane.program import PlayedStates, Program
from penstock.types import SqlType


@dataclass
class RowPlan:
    """Register 0 is the time. If the lane finds slots itself, register 1 is the `key`. The next ones are the `columns`
    of the stream. The values of the registers up to here have `formats`, as in `struct`. `outputs` are the registers of
    the select list; -1 is the first key, -2 the second and so on. `find_at` is the place of the instruction that finds
    slots, -1 if there is none. `values` are the registers of the states' arguments. `answers` has the register of each
    state's results by function; `tally` that of the groups' row counts, or None. `starts` is the register of windows'
    beginnings, and `slots` that of slots."""

    registers: Registers
    key: Column | None
    columns: dict[str, int]
    formats: list[str]
    slots: int
    starts: int
    front: list[Instruction] = field(default_factory=list)
    back: list[Instruction] = field(default_factory=list)
    find_at: int = -1
    values: list[int | None] = field(default_factory=list)
    answers: list[dict[str, int]] = field(default_factory=list)
    tally: int | None = None
    outputs: list[tuple[int, SqlType]] = field(default_factory=list)


class RowProgram(Program):
    """For the rows of a plan. A register has cells of 8 bytes for `most_rows` rows."""

    def __init__(self, played: PlayedStates, plan: RowPlan, *, most_rows: int) -> None:
        front, back, registers = plan.front, plan.back, plan.registers
        super().__init__(played, front=[one.operation for one in front], back=[one.operation for one in back])
        self.cells: Int64s = np.zeros(max(1, registers.count) * most_rows, np.int64)
        self.registers = registers.count
        self.most_rows = most_rows
        self._constants = registers.constants
        self._answers = plan.answers
        self._counted = plan.tally
        self._moved: list[tuple[memoryview, int, int]] = []
        """Words that hold the addresses of registers."""
        self._failures: list[tuple[int, Bools]] = []
        """Words that hold the addresses of what says which sums do not fit."""
        width = words.INSTRUCTION_WORDS
        places = [*range(len(front)), *range(self._tally_at + 1, len(self._code))]
        for at, one in zip(places, [*front, *back], strict=True):
            for word, register in one.registers.items():
                self._moved.append((self._instructions, at * width + word, register))
            for word, plain in one.plain.items():
                self._code[at, word] = plain
        for member, value, named in zip(self._members, plan.values, plan.answers, strict=True):
            code, at = self._instructions, member.at * width
            if isinstance(member.state, SumState):
                assert value is not None
                self._moved.append((code, at + sums.VALUES, value))
                for function, word in (("SUM", sums.SUMS), ("AVG", sums.AVERAGES), ("COUNT", sums.COUNTS)):
                    if function in named:
                        self._moved.append((code, at + word, named[function]))
                if member.check >= 0:
                    self._moved.append((code, member.check * width + sums.VALUES, value))
                else:
                    assert member.type is not None
                    code[at + sums.WIDTH] = member.type.storage.itemsize
                    member.failed = np.zeros(most_rows, np.bool_)
                    code[at + sums.FAILED] = address_of(member.failed)
                    self._failures.append((at + sums.FAILED, member.failed))
            elif value is not None and member.type is not None and "VALUE" in named:
                self._moved.append((code, at + extremes.VALUES, value))
                self._moved.append((code, at + extremes.RESULTS, named["VALUE"]))
                code[at + extremes.WIDTH] = member.type.storage.itemsize
                code[at + extremes.FLOATING] = member.type.is_floating
            else:
                self._moved.append((code, at + counts.RESULTS, named["COUNT"]))
        if plan.tally is not None:
            self._moved.append((self._instructions, self._tally_at * width + counts.RESULTS, plan.tally))
        self._moved += [(self.words, words.TIMES, 0), (self.words, words.STARTS, plan.starts)]
        if played.by_group:
            self._moved.append((self.words, words.SLOTS, plan.slots))

    def limit(self, rows: int) -> None:
        """The next call is for so many rows."""
        self.words[words.ROWS] = self.row + rows

    def set_word(self, instruction: int, word: int, value: int) -> None:
        """A word of an instruction of the front."""
        self._instructions[instruction * words.INSTRUCTION_WORDS + word] = value

    def open(self, address: int, rows: int, limit: int) -> None:
        """Rows go into the open block at this address, which can have `limit` rows. It had so many before row 0; less
        than 0 if it was begun behind that."""
        context = self.words
        context[words.OPEN], context[words.OPEN_ROWS], context[words.OPEN_LIMIT] = address, rows, limit

    @property
    def is_plain(self) -> bool:
        """Whether all results are as the instructions have them: none failed, none is rejected."""
        return self.words[words.MET] == 0

    def register(self, register: int) -> Int64s:
        """The values of a register, for the results there are."""
        return self.column(register)[self.row : self.row + self.emitted]

    def column(self, register: int) -> Int64s:
        """The cells of a register."""
        return self.cells[self.most_rows * register : self.most_rows * (register + 1)]

    def results(self) -> list[tuple[Emitted, ...]]:
        """What each state answered; copies, for the registers are used again."""
        found = []
        for member, named in zip(self._members, self._answers, strict=True):
            columns = []
            for want in member.wants:
                values = self.register(named.get(want.function, named.get("VALUE", -1))).copy()
                if want.function == "AVG" or (want.function == "SUM" and member.check >= 0):
                    columns.append(Emitted(values.view(np.float64), None))
                elif want.function == "SUM":
                    assert member.failed is not None
                    columns.append(Emitted(values, None, member.failed[self.row : self.row + len(values)].copy()))
                else:
                    columns.append(Emitted(self._typed(member, values), None))
            found.append(tuple(columns))
        return found

    def tally(self) -> Int64s:
        """How many rows the groups of results have; empty if that is not wanted."""
        return self.register(self._counted).copy() if self._counted is not None else self.cells[:0]
