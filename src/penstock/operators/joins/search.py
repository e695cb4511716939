"""Which rows go together: from rows of one side, step by step, to rows of all sides.

The search works on many rows of many evaluations at once. An evaluation says for each side which positions are in its
window; what is found are positions, and values are read only for conditions and results.

Invariants:
1. What is found is in the order of the evaluations, at every step.
2. Rows that may match are looked at some at a time: what is held at once are those that do. If these are many they are
   on the account, so that a relation that does not fit into the memory is refused and not built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.arrays import Bools, Int64s
from penstock.expressions.batch import Batch, Data
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Expression, columns
from penstock.expressions.vector import RowErrors
from penstock.operators.emitter import as_row
from penstock.operators.joins.kernels import spread
from penstock.operators.joins.key_index import ANSWERS_AT_ONCE
from penstock.operators.joins.odd import ODD, Pairs, with_odd
from penstock.operators.joins.rows import JoinRows
from penstock.operators.stretches import stretches
from penstock.plan.joins.steps import Lookup, Step, certain_steps, inner_steps
from penstock.plan.nodes import Band, JoinNode
from penstock.rejects import Reject
from penstock.store.budget import Account

NO_ROW = -1
"""Where a side has no row in a result of an outer join."""

_FEW = 4096
"""Matches that are not worth a look at the account."""

_UNBOUND = np.empty(0, np.int64)


@dataclass(slots=True)
class Windows:
    """For each evaluation and side the rows in its window: positions from `low` to `high`."""

    low: list[Int64s]
    high: list[Int64s]

    def part(self, start: int, stop: int) -> Windows:
        return Windows([low[start:stop] for low in self.low], [high[start:stop] for high in self.high])


@dataclass(slots=True)
class Found:
    """Rows of the join, as far as it is known: the evaluation of each, and the position on each side that is bound.
    `origin` is the place in what the search began with."""

    evaluation: Int64s
    at: list[Int64s]
    origin: Int64s

    def __len__(self) -> int:
        return len(self.evaluation)

    def take(self, which: Int64s | Bools) -> Found:
        at = [positions[which] if len(positions) == len(self) else positions for positions in self.at]
        return Found(self.evaluation[which], at, self.origin[which])

    def bind(self, side: int, positions: Int64s) -> Found:
        at = list(self.at)
        at[side] = positions
        return Found(self.evaluation, at, self.origin)


def rows_of(evaluation: Int64s, side: int, positions: Int64s, sides: int) -> Found:
    """Rows of one side, to begin with."""
    at = [_UNBOUND] * sides
    at[side] = positions
    return Found(evaluation, at, np.arange(len(evaluation)))


def one_after_the_other(parts: Sequence[Found], sides: int) -> Found:
    """Finds of the same sides that follow each other as one."""
    parts = [part for part in parts if len(part)] or list(parts[:1])
    if len(parts) < 2:
        return parts[0] if parts else Found(_UNBOUND, [_UNBOUND] * sides, _UNBOUND)
    at = [np.concatenate([part.at[side] for part in parts]) for side in range(sides)]
    origin = np.concatenate([part.origin for part in parts])
    return Found(np.concatenate([part.evaluation for part in parts]), at, origin)


def together(parts: Sequence[Found], sides: int) -> Found:
    """Several finds of the same sides as one, in the order of the evaluations."""
    found = one_after_the_other(parts, sides)
    if sum(len(part) > 0 for part in parts) < 2:
        return found
    return found.take(np.argsort(found.evaluation, kind="stable"))


def _spread(low: Int64s, high: Int64s, rows: JoinRows) -> Iterator[tuple[Int64s, Int64s]]:
    """All rows in [low, high) that take part."""
    for first, last in stretches(high - low, ANSWERS_AT_ONCE):
        origins, positions = spread(low[first:last], high[first:last], int((high - low)[first:last].sum()))
        passing = rows.passing(positions)
        if passing is not None:
            origins, positions = origins[passing], positions[passing]
        yield origins + first, positions


class Search:
    """The search of one query over the rows of the sides."""

    def __init__(self, node: JoinNode, sides: Sequence[JoinRows], reject: Reject, account: Account) -> None:
        self.node = node
        self.sides = sides
        self.account = account
        self._reject = reject
        self.count = len(sides)
        # Positions, as parts and as a whole; then the columns of a result, as they are read and as they are shown.
        self._bytes_of_match = 8 * (2 * (self.count + 2) + 2 * max(1, len(node.emission.outputs)))
        self.looked_at = 0
        """How many rows were compared with others so far."""
        self.before: list[tuple[int, Int64s]] = []
        """Rows of the join with these rows of sides, one for each evaluation, were looked at before."""
        self.all_before = False
        """All rows were looked at before. Such rows are not rejected again."""
        self._steps = inner_steps(node) if node.is_inner else []
        self._certain_steps = certain_steps(node) if node.is_inner else None
        self._kinds = {field.name: field.type for field in node.columns}
        self._conditions = {
            condition: compile_expression(condition)
            for steps in (*self._steps, *(self._certain_steps or ()))
            for step in steps
            if (condition := step.condition) is not None
        }

    def containing(self, side: int, found: Found, windows: Windows) -> Found:
        """The rows of the join that have these rows of a side."""
        certain = self._certain_steps is not None and not any(rows.has_odd for rows in self.sides)
        steps = self._certain_steps if certain and self._certain_steps is not None else self._steps
        for step in steps[side]:
            found = self.extend(step, found, windows)
        return found

    def all_rows(self, evaluations: Int64s, windows: Windows) -> Found:
        """All rows of the join at these evaluations."""
        return self.containing(0, self.window_rows(0, evaluations, windows), windows)

    def window_rows(self, side: int, evaluations: Int64s, windows: Windows) -> Found:
        """The rows in the window of a side that take part."""
        low, high = windows.low[side][evaluations], windows.high[side][evaluations]
        origins, positions = spread(low, high, int(np.maximum(high - low, 0).sum()))
        passing = self.sides[side].passing(positions)
        if passing is not None:
            origins, positions = origins[passing], positions[passing]
        return rows_of(evaluations[origins], side, positions, self.count)

    def extend(self, step: Step, found: Found, windows: Windows) -> Found:
        """One more side, INNER."""
        parts: list[Found] = []
        held = 0
        for origins, positions in self.candidates(step, found, windows):
            parts.append(self.checked(step, found.take(origins).bind(step.side, positions)))
            held += len(parts[-1])
            if held > _FEW:
                self.account.resize(max(self.account.nbytes, held * self._bytes_of_match))
        return one_after_the_other(parts, self.count)

    def candidates(self, step: Step, found: Found, windows: Windows) -> Iterator[tuple[Int64s, Int64s]]:
        """The rows of a side that may match what was found, in parts: the places in `found` and the positions."""
        rows = self.sides[step.side]
        reach = windows.high[step.side][found.evaluation]
        low, high = windows.low[step.side][found.evaluation], reach
        for band in step.bands:
            low, high = self._within(band, step.side, found, low, high)
        parts: Iterator[Pairs]
        if step.narrowed is not None:
            parts = self._narrowed(step.narrowed, rows, found, low, high, reach)
        elif step.lookup is not None:
            asked = self.sides[step.lookup.from_side].slots(step.lookup.from_keys, found.at[step.lookup.from_side])
            parts = rows.find(step.lookup.keys, asked, low, high, reach)
        else:
            parts = _spread(low, np.maximum(high, low), rows)
        for origins, positions in parts:
            self.looked_at += len(positions)
            yield origins, positions

    def _narrowed(
        self, lookup: Lookup, rows: JoinRows, found: Found, low: Int64s, high: Int64s, reach: Int64s
    ) -> Iterator[Pairs]:
        """The rows that may match what was found, by keys that can fail."""
        asked = self.sides[lookup.from_side].slots(lookup.from_keys, found.at[lookup.from_side])
        parts = rows.find(lookup.keys, asked, low, high, reach)
        odd, asks_all = rows.odd(lookup.keys), asked == ODD
        if not len(odd) and not asks_all.any():
            return parts
        return with_odd(parts, asks_all, low, high, odd, rows.passing, ANSWERS_AT_ONCE)

    def checked(self, step: Step, found: Found) -> Found:
        """Those that pass what the search for candidates left out."""
        for check in step.checks:
            one = self.sides[check.from_side].slots(check.from_keys, found.at[check.from_side])
            other = self.sides[step.side].slots(check.keys, found.at[step.side])
            found = found.take((one == other) & (one >= 0))
        if step.condition is None or not len(found):
            return found
        return self.filtered(step.condition, found)

    def filtered(self, condition: Expression, found: Found) -> Found:
        """Those for which a condition is true; a row on which it cannot be computed is rejected."""
        compiled = self._conditions.setdefault(condition, compile_expression(condition))
        rows = self.batch(found, sorted(columns(condition)))
        result = compiled(rows)
        if result.errors is not None:
            self._rejected(rows, result.errors, self.fresh(found))
        return found.take(result.true)

    def fresh(self, found: Found) -> Bools:
        """Which rows were not looked at before."""
        fresh = np.full(len(found), not self.all_before)
        for side, own in self.before:
            if len(found.at[side]) == len(found):
                of_evaluation = own[found.evaluation]
                fresh &= (of_evaluation < 0) | (found.at[side] != of_evaluation)
        return fresh

    def _rejected(self, rows: Batch, errors: RowErrors, fresh: Bools) -> None:
        for row in errors.rows:
            if fresh[row]:
                self._reject(errors.reason(int(row)) or "", as_row(rows, int(row)))

    def batch(self, found: Found, names: Sequence[str]) -> Batch:
        """Columns of what was found, named `alias.column`."""
        data: dict[str, Data] = {}
        for place, side in enumerate(self.node.sides):
            own = [name.partition(".")[2] for name in names if name.partition(".")[0] == side.alias]
            values = self.sides[place].values(own, found.at[place])
            data |= {f"{side.alias}.{name}": column for name, column in values.items()}
        return Batch(self._kinds, data, len(found))

    def _within(self, band: Band, side: int, found: Found, low: Int64s, high: Int64s) -> tuple[Int64s, Int64s]:
        """The part of the windows that a band leaves, if its columns follow the times of the rows."""
        searched = band.side == side
        name, other, other_name = (
            (band.column, band.other, band.other_column) if searched else (band.other_column, band.side, band.column)
        )
        least, most = (band.low, band.high) if searched else _opposite(band)
        shift, other_shift = self.sides[side].shifts.get(name), self.sides[other].shifts.get(other_name)
        at = found.at[other]
        if shift is None or other_shift is None or (len(at) and at.min() < 0):
            return low, high
        about = self.sides[other].times(at) + (other_shift - shift)
        first, times = self.sides[side].rows
        if least is not None:
            low = np.maximum(low, first + np.searchsorted(times, about + least, side="left"))
        if most is not None:
            high = np.minimum(high, first + np.searchsorted(times, about + most, side="right"))
        return low, high


def _opposite(band: Band) -> tuple[int | None, int | None]:
    return None if band.high is None else -band.high, None if band.low is None else -band.low
