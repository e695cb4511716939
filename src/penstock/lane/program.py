"""From the states of an aggregation to a program, and from their arrays to its addresses.

A `Program` is made once. Before each run `link` writes the addresses of the states' arrays, which may have moved, and
`feed` those of the rows that enter and of the results. `stand` writes those of the tail's block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.aggregates.count import CountState
from penstock.aggregates.exact_sum import LEAST_BASE
from penstock.aggregates.extremes import ExtremeState
from penstock.aggregates.signatures import Want
from penstock.aggregates.state import AggregateState, Emitted
from penstock.aggregates.sums import SumState
from penstock.arrays import Bools, Int64s, Slots
from penstock.lane import counts, extremes, sums, words
from penstock.lane.leaving import leave_by_position, leave_by_time
from penstock.lane.limbs import sum_in_limbs
from penstock.lane.machine import Operation, entry, run, start
from penstock.lane.memory import address_of
from penstock.plan.nodes import StateSpec
from penstock.windows.spec import Extent

_NO_VALUES = np.zeros(0, np.int64)
_NO_LIMIT = 1 << 62
"""The rows of the open block of a program that stores none."""


class _Member:
    """One state in a program: its instructions, the column of its argument and its last results."""

    def __init__(self, state: AggregateState, spec: StateSpec, column: int) -> None:
        self.state = state
        self.column = column
        self.wants: Sequence[Want] = spec.wants
        self.type = spec.args[0].type if spec.args else None
        self.at = 0
        self.check = -1
        self.linked: NDArray[Any] | None = None
        self.base = 0
        self.results: list[NDArray[Any]] = []
        self.failed: Bools | None = None


@dataclass(frozen=True)
class PlayedStates:
    """What a program plays: the states of windows of an extent. `columns` says for each state which column of the rows
    its argument is, -1 for none. Without `by_group` all rows are of slot 0."""

    extent: Extent
    states: Sequence[AggregateState]
    specs: Sequence[StateSpec]
    columns: Sequence[int]
    by_group: bool


class Program:
    """`front` are operations before those of the states, and `back` operations behind them."""

    def __init__(
        self, played: PlayedStates, *, front: Sequence[Operation] = (), back: Sequence[Operation] = ()
    ) -> None:
        extent, by_group = played.extent, played.by_group
        self.context: Int64s = np.zeros(words.CONTEXT_WORDS, np.int64)
        self.row = 0
        """The row of the columns that the next call begins with."""
        self._by_group = by_group
        self._left = np.zeros(words.STRIP_ROWS, np.int64)
        self._kept = np.zeros(words.KEPT_WORDS * words.STRIP_ROWS, np.int64)
        self._members = [_Member(*each) for each in zip(played.states, played.specs, played.columns, strict=True)]
        self._held: list[Any] = []
        self._tally: Int64s | None = None
        self._changed: Bools | None = None
        code = list(front)
        for member in self._members:
            if isinstance(member.state, SumState) and member.type is not None and not member.type.is_integer:
                member.check = len(code)
                code.append(sums.stop_at_wide)
        code.append(leave_by_time if extent.length is not None else leave_by_position)
        for member in self._members:
            member.at = len(code)
            code.append(_operation(member, by_group=by_group))
        self._tally_at = len(code)
        code += [_counting(by_group=by_group), *back]
        self._operations = code
        self._code = np.zeros((len(code), words.INSTRUCTION_WORDS), np.int64)
        self._code[:, words.OPERATION] = [entry(operation) for operation in code]
        self.words, self._instructions = self.context.data, self._code.reshape(-1).data
        """The context and the instructions, word by word: Python reads and writes them sooner than arrays."""
        self._tail_values = [
            (m.at * words.INSTRUCTION_WORDS + sums.TAIL_VALUES, m.column)
            for m in self._members
            if isinstance(m.state, SumState)
        ]
        """Where the addresses of arguments in the tail's block go, and which column each is."""
        context = self.context
        context[words.CODE], context[words.INSTRUCTIONS] = address_of(self._code), len(code)
        context[words.LEFT], context[words.KEPT] = address_of(self._left), address_of(self._kept)
        context[words.OPEN_LIMIT] = _NO_LIMIT
        context[words.EXTENT] = extent.length if extent.length is not None else (extent.limit or 0)
        self._address = address_of(context)

    @property
    def is_ready(self) -> bool:
        """Whether all states are such that a run can begin: doubles have a base, and none is wide."""
        for member in self._members:
            state = member.state
            if member.check >= 0 and isinstance(state, SumState) and not (state.base and state.is_narrow):
                return False
        return True

    def link(self, tally: Int64s, changed: Bools) -> None:
        """The arrays of the states are where they are now; `tally` has the rows of each group. It is noted in `changed`
        which groups change, unless that is empty."""
        for member in self._members:
            self._link(member)
        if tally is not self._tally:
            self._code[self._tally_at, counts.COUNTS] = address_of(tally)
            self._tally = tally
        if changed is not self._changed:
            self._code[self._tally_at, counts.CHANGED] = address_of(changed) if len(changed) else 0
            self._changed = changed

    def _link(self, member: _Member) -> None:
        state = member.state
        if isinstance(state, SumState):
            if state.words is not member.linked or state.base != member.base:
                member.linked, member.base = state.words, state.base
                own = self._code[member.at]
                own[sums.WORDS], own[sums.BASE] = address_of(state.words), state.base or LEAST_BASE
                if member.check >= 0:
                    self._code[member.check, sums.BASE] = own[sums.BASE]
        elif isinstance(state, CountState):
            if state.counts is not member.linked:
                member.linked = state.counts
                self._code[member.at, counts.COUNTS] = address_of(state.counts)
        else:
            assert isinstance(state, ExtremeState)
            pool, directory, control = state.chains
            own = self._code[member.at]
            own[extremes.POOL], own[extremes.DIRECTORY] = address_of(pool), address_of(directory)
            own[extremes.CONTROL], own[extremes.FLIP] = address_of(control), state.flip

    def feed(self, times: Int64s, slots: Slots, columns: Sequence[NDArray[Any]], starts: Int64s, tally: Int64s) -> None:
        """These rows enter next; `columns` are those that arguments name. `starts` gets where
        windows by position begin, and `tally` how many rows groups have; they may be empty if that is not wanted."""
        context, rows = self.words, len(times)
        context[words.ROWS], context[words.TIMES] = rows, address_of(times)
        context[words.SLOTS] = address_of(slots) if self._by_group else 0
        context[words.STARTS] = address_of(starts)
        self._code[self._tally_at, counts.RESULTS] = address_of(tally) if len(tally) else 0
        self._held = [times, slots, columns, starts, tally]
        for member in self._members:
            self._feed(member, columns[member.column] if member.column >= 0 else _NO_VALUES, rows)

    def _feed(self, member: _Member, values: NDArray[Any], rows: int) -> None:
        own = self._code[member.at]
        if isinstance(member.state, SumState):
            functions = [want.function for want in member.wants]
            dtype = np.dtype(np.float64 if member.check >= 0 else np.int64)
            totals = np.empty(rows, dtype)
            averages = np.empty(rows) if "AVG" in functions else None
            found = np.empty(rows, np.int64) if "COUNT" in functions else None
            own[sums.VALUES], own[sums.SUMS] = address_of(values), address_of(totals)
            own[sums.AVERAGES] = 0 if averages is None else address_of(averages)
            own[sums.COUNTS] = 0 if found is None else address_of(found)
            if member.check >= 0:
                self._code[member.check, sums.VALUES] = own[sums.VALUES]
            else:
                member.failed = np.empty(rows, np.bool_)
                own[sums.WIDTH], own[sums.FAILED] = values.itemsize, address_of(member.failed)
            by_name: dict[str, Any] = {"SUM": totals, "AVG": averages, "COUNT": found}
            member.results = [by_name[function] for function in functions]
            self._held.append(totals)
        else:
            member.results = [np.empty(rows, np.int64)]
            if isinstance(member.state, CountState):
                own[counts.RESULTS] = address_of(member.results[0])
            else:
                own[extremes.RESULTS], own[extremes.VALUES] = address_of(member.results[0]), address_of(values)
                own[extremes.WIDTH] = values.itemsize
                own[extremes.FLOATING] = member.type is not None and member.type.is_floating

    def stand(
        self, times: int, slots: int, columns: Sequence[int], first: int, at: int, rows: int, *, is_last: bool
    ) -> None:
        """The tail is at row `at` of a block of so many rows, of which the first has position `first`; its columns are
        at these addresses. `is_last` says whether it is the last block of the store."""
        context = self.words
        context[words.TAIL_TIMES], context[words.TAIL_SLOTS], context[words.TAIL_FIRST] = times, slots, first
        context[words.TAIL_AT], context[words.TAIL_ROWS], context[words.TAIL_IS_LAST] = at, rows, is_last
        for place, column in self._tail_values:
            self._instructions[place] = columns[column]

    def run(self) -> int:
        """Goes on; returns what a run ends with (`words`). What a state needs, it is given."""
        status = run(self._address)
        return status if status < words.NEEDS else self._supplied(status)

    def start(self, head: int) -> int:
        """Begins: see `machine.start`. The rest is as for `run`."""
        status = start(self._address, self.row, head)
        return status if status < words.NEEDS else self._supplied(status)

    def _supplied(self, status: int) -> int:
        while status >= words.NEEDS:
            if status == words.VIOLATED:
                from penstock.lane.checked_memory import violation

                raise violation(self._operations[self.context[words.NEXT_INSTRUCTION]])
            member = next(m for m in self._members if m.at == self.context[words.NEXT_INSTRUCTION])
            assert isinstance(member.state, ExtremeState)
            member.state.supply(status - words.NEEDS)
            self._link(member)
            status = run(self._address)
        return status

    @property
    def done(self) -> int:
        """How many rows are in."""
        return self.words[words.DONE] - self.row

    @property
    def reached(self) -> tuple[int, int]:
        """How many rows are in, and the row of the tail's block at which the tail is."""
        return self.words[words.DONE] - self.row, self.words[words.TAIL_AT]

    @property
    def emitted(self) -> int:
        """How many results there are."""
        return self.words[words.EMITTED] - self.row

    def results(self) -> list[tuple[Emitted, ...]]:
        """What each state answered."""
        count, failures = self.emitted, bool(self.context[words.MET] & words.FAILURES)
        found = []
        for member in self._members:
            failed = member.failed[:count] if failures and member.failed is not None else None
            columns = [self._typed(member, values[:count]) for values in member.results]
            named = zip(member.wants, columns, strict=True)
            found.append(tuple(Emitted(c, None, failed if want.function == "SUM" else None) for want, c in named))
        return found

    def _typed(self, member: _Member, values: NDArray[Any]) -> NDArray[Any]:
        """Results of extremes are images."""
        return member.state.of_images(values) if isinstance(member.state, ExtremeState) else values


def _operation(member: _Member, *, by_group: bool) -> Operation:
    if isinstance(member.state, CountState):
        return _counting(by_group=by_group)
    if isinstance(member.state, ExtremeState):
        return extremes.extreme if by_group else extremes.extreme_of_all
    if member.check < 0:
        return sums.sum_integers
    return sums.sum_doubles if by_group else sum_in_limbs


def _counting(*, by_group: bool) -> Operation:
    return counts.count_rows if by_group else counts.count_all
