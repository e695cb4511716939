"""The evaluations of all windows of a family, shown as results: made in one go, and cut into those of each query.

    evaluated    window 3, 10:01 | window 7, 10:01 | window 3, 10:02 | ...
    in order     window 3, 10:01 | window 3, 10:02 | window 7, 10:01 | ...
    query        q3 ───────────────────────────────  q7 ──────────────

Queries that differ in their window alone are an *audience*: HAVING, the select list and the emission are computed for
all of them together. Queries that are the same in everything are in audiences of their own.

Invariants:
1. What is gathered is shown before a group's slot can be given to another key.
2. R/I/DSTREAM of a window compares with what is kept under the window's number, which never changes.

Driven by `panes`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from penstock.aggregates.state import Emitted
from penstock.arrays import Int64s, Slots
from penstock.lang.fingerprint import fingerprint
from penstock.operators.aggregation import Played
from penstock.operators.chunk import Chunk
from penstock.operators.emitter import Emitter, Evaluations
from penstock.operators.groups import GroupTable
from penstock.operators.outgoing import Inbox, Outgoing
from penstock.operators.shown import Shown
from penstock.plan.aggregations import state_key
from penstock.plan.nodes import AggregateNode, Answer
from penstock.rejects import Reject
from penstock.store.budget import Account


class PaneReader:
    """A query of a family: the number of its window, and its results that wait until it asks."""

    def __init__(self, node: AggregateNode, window: int, reject: Reject) -> None:
        self.node = node
        self.window = window
        self.reject = reject
        self.inbox = Inbox()
        self.made = Outgoing()
        self.made.receiver = self.inbox.receive

    def hand_over(self) -> None:
        """A call is done."""
        self.inbox.hand_over(self.made.take())


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


class Audience:
    """Queries over different windows whose rows are made together."""

    def __init__(self, node: AggregateNode, answers: tuple[Answer, ...], compared: Account) -> None:
        self.shown = Shown(node, answers)
        self.emitter = Emitter(node.emission, node.schema, self._reject, node.key_types, compared)
        self.readers: dict[int, PaneReader] = {}

    def _reject(self, reason: str, row: dict[str, Any]) -> None:
        next(iter(self.readers.values())).reject(reason, row)

    def see(self, gathered: Gathered, groups: GroupTable) -> None:
        mine = np.flatnonzero(np.isin(gathered.windows, list(self.readers)))
        if len(mine) == 0:
            return
        own = gathered.chosen(mine[np.argsort(gathered.windows[mine], kind="stable")])
        upto = np.cumsum(own.sizes)
        played = Played(own.groups, upto, own.counts, own.emitted, [None] * len(own.emitted))
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
                self.readers[window].made.put(Chunk(times[begin:end], batch.slice(begin, end - begin)))


class PaneResults:
    """Rows that the next evaluation is compared with are on the account `compared`."""

    def __init__(self, groups: GroupTable, compared: Account) -> None:
        self._groups = groups
        self._compared = compared
        self._audiences: dict[tuple[str, int], Audience] = {}
        self._parts: list[Gathered] = []
        self.rows = 0

    def join(self, reader: PaneReader, answers: tuple[Answer, ...]) -> None:
        base, number = _what_is_shown(reader.node), 0
        while (audience := self._audiences.get((base, number))) is not None and reader.window in audience.readers:
            number += 1
        if audience is None:
            audience = self._audiences[base, number] = Audience(reader.node, answers, self._compared)
        audience.readers[reader.window] = reader

    def leave(self, reader: PaneReader) -> None:
        for name, audience in list(self._audiences.items()):
            if audience.readers.get(reader.window) is reader:
                del audience.readers[reader.window]
                audience.emitter.forget(reader.window)
                if not audience.readers:
                    del self._audiences[name]

    def gather(self, gathered: Gathered) -> None:
        self._parts.append(gathered)
        self.rows += len(gathered.groups)

    def show(self) -> None:
        """Makes results of what was gathered; each reader's go on where they were."""
        if self._parts:
            gathered = _joined(self._parts)
            self._parts, self.rows = [], 0
            for audience in self._audiences.values():
                audience.see(gathered, self._groups)

    def snapshot(self) -> dict[str, Any]:
        """What is kept of a window is the same for queries that are the same: it is saved once."""
        saved: dict[str, Any] = {}
        for (base, _), audience in self._audiences.items():
            saved.setdefault(base, {"before": {}})["before"] |= audience.emitter.snapshot()["before"]
        return saved

    def restore(self, snapshot: dict[str, Any]) -> None:
        for (base, _), audience in self._audiences.items():
            kept = snapshot[base]["before"]
            audience.emitter.restore({"before": {w: kept[w] for w in kept if int(w) in audience.readers}})


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
