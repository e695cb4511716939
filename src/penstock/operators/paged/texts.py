"""COUNT(DISTINCT x) of texts that are beyond memory, in a window without groups: the texts go to shards by their hash.

    texts of x ─▶ log, by shard ─▶ an evaluation is due: each shard counts its own texts ─┐ added up
    texts of y ─▶ log, by shard ─▶ the same                                              ─┤
    rows, without the texts ─▶ the states in memory, with a `CountedApart` for each count ─┴▶ results

In a shard the texts are groups, so two texts are compared byte by byte, and how many there are is how many groups have
rows. Texts that are equal are in the same shard. What else the query asks for stays in the states, which have the rows
of the window as before: in place of a text these rows have a zero.

Invariants:
1. What is logged for a count are the rows of the window that it counts: those that pass WHERE and FILTER and have a
   text.
2. Before states play the steps of a call, `play` has counted for all evaluations among them.
3. Counts are those of `aggregates.distinct`.

`operators.shared_aggregation` goes over to it when memory is short, and never back. `operators.shared_window` decides,
for all readers of a column at once.

Why: docs/decisions/texts-in-shards.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.aggregates.counted_apart import CountedApart
from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.expressions.vector import Vector
from penstock.jit import kernel
from penstock.operators.aggregation import Aggregation, EvaluatedGroups
from penstock.operators.arguments import OwnColumns
from penstock.operators.paged.shard import POSITION, EnteringRows, LoggedColumns
from penstock.operators.paged.shards import Shards
from penstock.operators.paged.sweeps import Due, Sweeps, Turn, due_at, due_at_rows
from penstock.operators.resources import Resources
from penstock.plan.nodes import AggregateNode, Answer, StateSpec
from penstock.store.charged import ChargedArray
from penstock.types import SqlType
from penstock.windows.steps import Steps

_NOTHING_READ = OwnColumns((), (), (), ())


def may_leave(state: StateSpec) -> bool:
    """Whether a state over texts can do without them: it counts rows, or different texts."""
    return state.kind == "COUNT" or is_counted_apart(state)


def is_counted_apart(state: StateSpec) -> bool:
    return state.kind == "DISTINCT" and not state.keeps_order and state.args[0].type is SqlType.STRING


@component("PagedTexts")
class PagedTexts:
    """The counts of one aggregation, whose columns are `own`; other states than these are none of its business."""

    def __init__(self, name: str, node: AggregateNode, own: OwnColumns, resources: Resources) -> None:
        self._name = name
        self._node = node
        self._own = own
        self._resources = resources
        self._counts: dict[str, TextCount] = {}
        """By the names of the column and of the FILTER."""
        self._of_state: dict[int, TextCount] = {}
        self._is_at_rows = node.window.time_slide is None
        """Whether rows are looked at, and not boundaries of time."""
        self._done = 0
        """How many of the evaluations that were counted for have been played."""

    def begin(self, column: str, aggregation: Aggregation) -> list[TextCount]:
        """From now on the texts of a column are counted here."""
        begun = {}
        for i, (state, columns) in enumerate(zip(self._node.states, self._own.state_columns, strict=True)):
            if is_counted_apart(state) and self._own.names[columns.arguments[0]] == column:
                key = self._key(column, columns.filter)
                if key not in begun:
                    name, at_rows = f"{self._name}-{key}", self._is_at_rows
                    begun[key] = TextCount(name, column, columns.filter, self._resources, at_rows=at_rows)
                self._of_state[i] = begun[key]
                aggregation.replace(i, CountedApart(state.wants))
        self._counts |= begun
        return list(begun.values())

    def _key(self, column: str, by: int) -> str:
        parts = [column] if by < 0 else [column, self._own.names[by]]
        return "-".join(part.split()[-1][:12] for part in parts)

    # Rows come

    def add(
        self,
        counts: Sequence[TextCount],
        times: Int64s,
        first: int,
        slots: Slots,
        columns: Sequence[Argument],
        texts: Mapping[str, pa.Array],
    ) -> None:
        """Rows behind all others, for some of the counts: the times, the position of the first one, and what there is
        of them. `texts` are those of the columns by name."""
        for count in counts:
            keep = slots >= 0
            valid = columns[self._own.names.index(count.column)].valid
            if valid is not None:
                keep &= valid
            if count.filter >= 0:
                keep &= columns[count.filter].values != 0
            if keep.any():
                count.add(times[keep], first + np.flatnonzero(keep), texts[count.column].filter(pa.array(keep)))

    @property
    def counts(self) -> Sequence[TextCount]:
        return tuple(self._counts.values())

    # Evaluations

    def play(self, steps: Steps, first: int) -> None:
        """Counts at the evaluations among the steps of rows that have been added, of which the first has this
        position."""
        due = due_at_rows(steps, first) if self._is_at_rows else due_at(steps)
        self._done = 0
        if due is not None:
            for count in self._counts.values():
                count.play(due)

    def give(self, played: EvaluatedGroups, answers: Sequence[Answer], steps: Int64s, evaluates: Bools) -> None:
        """Puts the counts into evaluations that were played: each row is of one of these steps of a turn."""
        which = self._done - 1 + np.cumsum(evaluates)[steps]
        for answer in answers:
            if answer.state in self._of_state:
                played.give(answer, Vector(self._of_state[answer.state].found[which], None))

    def end_turn(self, evaluates: Bools) -> None:
        """The steps of a turn have been played."""
        self._done += int(evaluates.sum())

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {"counts": {key: count.snapshot() for key, count in self._counts.items()}}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """After `begin`."""
        for key, count in self._counts.items():
            count.restore(snapshot["counts"][key])


@component("TextCount")
class TextCount:
    """How many different texts a window has in a column, among the rows that pass a filter; -1 for none."""

    def __init__(self, name: str, column: str, filter: int, resources: Resources, *, at_rows: bool) -> None:
        self.column = column
        self.filter = filter
        columns = LoggedColumns((SqlType.STRING,), (), *([POSITION] if at_rows else []))
        self._shards = Shards(name, (), _NOTHING_READ, resources, columns)
        self._sweeps = Sweeps(self._shards)
        self._texts = ChargedArray(self._shards.account, np.int64)
        """How many texts each shard had when it was saved last."""
        self.found: Int64s = np.empty(0, np.int64)
        """The count at each of the evaluations that were played last."""

    def add(self, times: Int64s, positions: Int64s, texts: pa.Array) -> None:
        self._shards.add(EnteringRows(times, positions, [texts], (), ()))

    def play(self, due: Due) -> None:
        gathered = _Gathered(len(due.ends))

        def look(turn: Turn) -> None:
            self._texts.fit(turn.number + 1)[turn.number] = gathered.count(turn)

        def rest(number: int) -> None:
            gathered.rest(self._texts.array[number])

        self._sweeps.sweep(due, gathered, look, rest)
        self.found = gathered.total()

    def snapshot(self) -> dict[str, Any]:
        known = min(len(self._texts), self._shards.log.shards)
        return {**self._sweeps.saved, "upto": self._sweeps.upto, "texts": self._texts.array[:known].copy()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._sweeps.take_saved(snapshot)
        self._sweeps.upto = snapshot["upto"]
        self._texts.set(snapshot["texts"])


class _Gathered:
    """The counts of all shards, added up."""

    def __init__(self, evaluations: int) -> None:
        self._sum = np.zeros(evaluations, np.int64)
        self._own = np.zeros(evaluations, np.int64)

    def begin_shard(self) -> None:
        self._sum += self._own
        self._own[:] = 0

    def undo_shard(self) -> None:
        self._own[:] = 0

    def count(self, turn: Turn) -> int:
        """The texts of a shard at each evaluation of a turn; returns those at the last one."""
        counts = turn.shard.reading.counts
        own = self._own[turn.first : turn.first + len(turn.add_upto)]
        _count(turn.added.slots, turn.removed.slots, turn.add_upto, turn.remove_upto, counts, own)
        return int(own[-1])

    def rest(self, texts: int) -> None:
        """A shard has so many at all evaluations."""
        self._own[:] = texts

    def total(self) -> Int64s:
        self.begin_shard()
        return self._sum


@kernel
def _count(added: Slots, removed: Slots, add_upto: Int64s, remove_upto: Int64s, counts: Int64s, found: Int64s) -> None:
    """Plays the rows of groups; says how many groups have rows at each step."""
    alive = 0
    for count in counts:
        alive += count > 0
    entered = left = 0
    for step in range(len(add_upto)):
        while entered < add_upto[step]:
            slot = added[entered]
            alive += counts[slot] == 0
            counts[slot] += 1
            entered += 1
        while left < remove_upto[step]:
            slot = removed[left]
            counts[slot] -= 1
            alive -= counts[slot] == 0
            left += 1
        found[step] = alive
