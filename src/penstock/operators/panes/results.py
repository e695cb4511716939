"""The evaluations of all windows of a family, shown as results: made in one go, and cut into those of each query.

    evaluated    window 3, 10:01 | window 7, 10:01 | window 3, 10:02 | ...
    in order     window 3, 10:01 | window 3, 10:02 | window 7, 10:01 | ...
    query        q3 ───────────────────────────────  q7 ──────────────

HAVING, the select list and the emission are computed together for queries that differ in their window alone
(`RowsTogether`). Queries that are the same in everything are not together.

Invariants:
1. What is gathered is shown before a group's slot can be given to another key.
2. R/I/DSTREAM of a window compares with what is kept under the window's number, which never changes.

Driven by `panes`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from penstock.aggregates.state import Emitted
from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.expressions.batch import Data
from penstock.lang.fingerprint import fingerprint
from penstock.operators.aggregation import EvaluatedGroups
from penstock.operators.chunk import Chunk
from penstock.operators.emitted_rows import EmittedRows
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.groups import GroupTable
from penstock.operators.outgoing import Outgoing
from penstock.operators.results import ResultShow
from penstock.operators.stage import Output
from penstock.plan.aggregations import state_key
from penstock.plan.nodes import AggregateNode, Answer
from penstock.rejects import Reject
from penstock.store.budget import Account


class PaneOutput(Output):
    """A query of a family: the number of its window, and its results of the call at work. `last_boundary` is the
    family's: where its window ends in a bounded run."""

    __slots__ = ("last_boundary", "made", "node", "window")

    def __init__(
        self, node: AggregateNode, window: int, reject: Reject, last_boundary: Callable[[int, int | None], int | None]
    ) -> None:
        super().__init__(reject)
        self.node = node
        self.window = window
        self.made = Outgoing()
        self.made.receiver = self.send_rows
        self.last_boundary = last_boundary

    def end(self, last_time: int | None) -> int | None:
        return self.last_boundary(self.window, last_time)


class Gathered(NamedTuple):
    """Evaluations as they were made: evaluation k is of `windows[k]`, over [starts[k], ends[k]), and has the next
    `sizes[k]` rows of groups, row counts and what the states said."""

    windows: Int64s
    starts: Int64s
    ends: Int64s
    sizes: Int64s
    groups: Slots
    counts: Int64s
    emitted: list[tuple[Emitted, ...]]

    def chosen(self, evaluations: Int64s) -> Gathered:
        """These evaluations, in this order."""
        if len(evaluations) == len(self.windows) and (evaluations == np.arange(len(evaluations))).all():
            return self
        upto = np.cumsum(self.sizes)
        sizes = self.sizes[evaluations]
        begins = (upto - self.sizes)[evaluations]
        rows = np.arange(int(sizes.sum())) + np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
        return Gathered(
            self.windows[evaluations],
            self.starts[evaluations],
            self.ends[evaluations],
            sizes,
            self.groups[rows],
            self.counts[rows],
            [tuple(_taken(result, rows) for result in results) for results in self.emitted],
        )


class RowsTogether:
    """Queries over different windows whose rows are made together."""

    def __init__(self, node: AggregateNode, answers: tuple[Answer, ...], compared: Account) -> None:
        self.shown = EmittedRows(node, answers)
        self.emitter = Emitter(node.emission, node.schema, self._reject, node.key_types, compared)
        self.outputs: dict[int, PaneOutput] = {}

    def _reject(self, reason: str, row: dict[str, Any]) -> None:
        next(iter(self.outputs.values())).reject(reason, row)

    def see(self, gathered: Gathered, groups: GroupTable) -> None:
        mine = np.flatnonzero(np.isin(gathered.windows, list(self.outputs)))
        if len(mine) == 0:
            return
        own = gathered.chosen(mine[np.argsort(gathered.windows[mine], kind="stable")])
        upto = np.cumsum(own.sizes)
        played = EvaluatedGroups(own.groups, upto, own.counts, own.emitted, [None] * len(own.emitted))
        rows = self.shown.rows(groups.keys(own.groups), played)
        failed = played.failed(self.shown.answers)
        chunk, sizes = self.emitter.emit_each(Evaluations(rows, upto, own.starts, own.ends, own.windows, failed))
        if chunk.rows == 0:
            return
        # Where each window's rows begin among those that came out.
        begins = np.flatnonzero(np.diff(own.windows, prepend=own.windows[0] - 1))
        edges = np.append(0, np.cumsum(sizes))[np.append(begins, len(sizes))].tolist()
        batch, times = chunk.arrow, chunk.times
        for window, (begin, end) in zip(own.windows[begins].tolist(), pairwise(edges), strict=True):
            if end > begin:
                self.outputs[window].made.put(Chunk(times[begin:end], batch.slice(begin, end - begin)))


class WindowShow(ResultShow):
    """The same queries as those that have their rows together, for one window: what it sees is of this window alone."""

    def __init__(self, together: RowsTogether, window: int) -> None:
        self._shown, self._emitter = together.shown, together.emitter
        self.outgoing = together.outputs[window].made
        self._window = window

    def see(
        self,
        keys: list[Data],
        played: EvaluatedGroups,
        upto: Int64s | None,
        starts: Int64s,
        ends: Int64s,
        partitions: Int64s | None = None,
    ) -> None:
        super().see(keys, played, upto, starts, ends, np.full(len(ends), self._window))


@component("PaneResults")
class PaneResults:
    """Rows that the next evaluation is compared with are on the account `compared`."""

    def __init__(self, groups: GroupTable, compared: Account) -> None:
        self._groups = groups
        self._compared = compared
        self._together: dict[tuple[str, int], RowsTogether] = {}
        self._parts: list[Gathered] = []
        self.rows = 0

    def join(self, output: PaneOutput, answers: tuple[Answer, ...]) -> None:
        base, number = _what_is_shown(output.node), 0
        while (own := self._together.get((base, number))) is not None and output.window in own.outputs:
            number += 1
        if own is None:
            own = self._together[base, number] = RowsTogether(output.node, answers, self._compared)
        own.outputs[output.window] = output

    def leave(self, output: PaneOutput) -> None:
        for name, own in list(self._together.items()):
            if own.outputs.get(output.window) is output:
                del own.outputs[output.window]
                own.emitter.forget(output.window)
                if not own.outputs:
                    del self._together[name]

    def gather(self, gathered: Gathered) -> None:
        self._parts.append(gathered)
        self.rows += len(gathered.groups)

    def show(self) -> None:
        """Makes results of what was gathered."""
        if self._parts:
            gathered = _joined(self._parts)
            self._parts, self.rows = [], 0
            for own in self._together.values():
                own.see(gathered, self._groups)

    def shows_of(self, window: int) -> list[ResultShow]:
        """What shows a window that is by itself, by its number."""
        return [WindowShow(own, window) for own in self._together.values() if window in own.outputs]

    def page(self, groups: GroupTable) -> None:
        """The groups are elsewhere from now on."""
        self._groups = groups

    def snapshot(self) -> dict[str, Any]:
        """What is kept of a window is the same for queries that are the same: it is saved once."""
        saved: dict[str, Any] = {}
        for (base, _), own in self._together.items():
            saved.setdefault(base, {"before": {}})["before"] |= own.emitter.kept()
        return saved

    def restore(self, snapshot: dict[str, Any]) -> None:
        for (base, _), own in self._together.items():
            kept = snapshot[base]["before"]
            own.emitter.keep({w: kept[w] for w in kept if int(w) in own.outputs})


def _what_is_shown(node: AggregateNode) -> str:
    """A name for what is made of each window, whichever other queries there are."""
    states = [node.states[answer.state] if answer.state >= 0 else None for answer in node.answers]
    answers = [
        None if state is None else (state_key(state), state.wants[answer.want])
        for state, answer in zip(states, node.answers, strict=True)
    ]
    return fingerprint((node.emission, node.schema, tuple(answers)))


def _joined(parts: list[Gathered]) -> Gathered:
    if len(parts) == 1:
        return parts[0]
    *columns, emitted = zip(*parts, strict=True)
    results = [tuple(map(_joined_result, zip(*own, strict=True))) for own in zip(*emitted, strict=True)]
    windows, starts, ends, sizes, groups, counts = map(np.concatenate, columns)
    return Gathered(windows, starts, ends, sizes, groups, counts, results)


def _joined_result(parts: tuple[Emitted, ...]) -> Emitted:
    valid = failed = None
    if any(part.valid is not None for part in parts):
        valid = np.concatenate([np.ones(len(p.values), np.bool_) if p.valid is None else p.valid for p in parts])
    if any(part.failed is not None for part in parts):
        failed = np.concatenate([np.zeros(len(p.values), np.bool_) if p.failed is None else p.failed for p in parts])
    return Emitted(np.concatenate([part.values for part in parts]), valid, failed)


def _taken(result: Emitted, rows: Int64s) -> Emitted:
    values, valid, failed = result
    return Emitted(values[rows], None if valid is None else valid[rows], None if failed is None else failed[rows])
