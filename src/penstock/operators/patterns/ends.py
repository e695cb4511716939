"""Where matches end, and what is rejected while they are looked for.

The matches that end in one stretch of events are looked for together. Where memory does not suffice for all of them,
they are looked for in parts, down to those of a single event: how much is found at a time is no part of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from penstock.arrays import Bools, Int64s
from penstock.operators.patterns.candidates import Candidates, Due
from penstock.rejects import Reject
from penstock.store.budget import Account

_REJECT_BYTES = 1024
"""What a reject that is held back is taken for."""


class Ends(NamedTuple):
    """Nodes that may complete a match, and nodes whose time is over."""

    nodes: Int64s
    due: Due

    def halves(self, candidates: Candidates, within: int) -> tuple[Ends, Ends] | None:
        """Two parts, all matches of the one before all of the other; None where they come out together."""
        nodes, due = candidates.at(self.nodes), candidates.at(self.due.nodes)
        times = np.concatenate([candidates.times[nodes], candidates.times[due] + (within - 1)])
        waits = np.repeat([0, 1], [len(nodes), len(due)])
        positions = np.concatenate([candidates.positions[nodes], np.full(len(due), -1)])
        order = np.lexsort((positions, waits, times))
        keys = np.stack([times, waits, positions])[:, order]
        turns = 1 + np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0))
        if not len(turns):
            return None
        middle = turns[min(int(np.searchsorted(turns, len(order) // 2)), len(turns) - 1)]
        first = np.zeros(len(order), np.bool_)
        first[order[:middle]] = True
        return self._where(first), self._where(~first)

    def _where(self, keep: Bools) -> Ends:
        own, due = keep[: len(self.nodes)], keep[len(self.nodes) :]
        return Ends(self.nodes[own], Due(self.due.nodes[due], self.due.heads[due]))


class Rejects:
    """Reports rejects: at once or, within `held`, at the end of the block."""

    def __init__(self, reject: Reject, account: Account) -> None:
        self._reject = reject
        self._account = account
        self._held: list[tuple[str, dict[str, Any]]] | None = None

    def __call__(self, reason: str, row: dict[str, Any]) -> None:
        if self._held is None:
            self._reject(reason, row)
        else:
            self._account.resize((len(self._held) + 1) * _REJECT_BYTES)
            self._held.append((reason, row))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps rejects back until the block ends. If an error ends it they are forgotten: the search is made again and
        finds them again."""
        held = self._held = []
        try:
            yield
        finally:
            self._held = None
            self._account.resize(0)
        for reason, row in held:
            self._reject(reason, row)
