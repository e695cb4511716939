"""A shard of a pattern in memory: those of its events that matches of waiting events may have, and the waiting events.

It is made anew each time, filled with rows of the logs, given the waiting ones, and closed. How matches are found is
the same as where all events are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.operators.patterns.candidates import NO_ARRIVALS, Arrivals, joined
from penstock.operators.patterns.logged import LoggedInput, LoggedKey, elements_of, positions_of
from penstock.operators.patterns.matcher import Matcher, Show
from penstock.operators.patterns.served import Served
from penstock.operators.resources import Resources
from penstock.plan.patterns.nodes import PatternNode


class PatternShard:
    """`served` are rows of the log of events that have served. If there is no room for it, nothing of it stays."""

    def __init__(
        self,
        name: str,
        node: PatternNode,
        inputs: Sequence[LoggedInput],
        key: LoggedKey,
        served: Iterable[pa.RecordBatch],
        resources: Resources,
        show: Show,
    ) -> None:
        self._inputs, self._key, self._apart = inputs, key, node.apart
        self._resources = resources
        try:
            self._served = Served(served, resources.account(f"{name}: events that have served"))
            self._matcher = Matcher(f"{name}: shard", node, resources, show)
        except BaseException:
            resources.close()
            raise

    @property
    def nbytes(self) -> int:
        return self._resources.nbytes

    def hold(self, batches: Sequence[pa.RecordBatch | None]) -> None:
        """Rows of each input that have been played."""
        arrivals = self._arrivals(batches)
        first = self._matcher.candidates.stop
        self._matcher.hold(arrivals, int(arrivals.times[-1]))
        self._served.note(self._matcher.candidates, first)

    def hold_upto(self, reached: int) -> None:
        """Matches whose time was over by then have been found."""
        self._matcher.hold(NO_ARRIVALS, reached)

    def play(self, batches: Sequence[pa.RecordBatch | None]) -> None:
        """Rows of each input that wait."""
        positions = np.sort(np.concatenate([positions_of(batch) for batch in batches if batch is not None]))
        begin = 0
        while begin < len(positions):
            end = min(begin + self._matcher.stretch, len(positions))
            parts = [_between(batch, int(positions[begin]), int(positions[end - 1])) for batch in batches]
            arrivals = self._arrivals(parts)
            self._matcher.advance(arrivals, int(arrivals.times[-1]))
            begin = end

    def play_upto(self, reached: int) -> None:
        """Matches whose time is over by then are found."""
        self._matcher.advance(NO_ARRIVALS, reached)

    def served(self) -> Iterator[list[pa.Array]]:
        """What has been added to the events that have served, as columns of their log."""
        return self._served.added(self._matcher.candidates, self._key, self._apart)

    def _arrivals(self, batches: Sequence[pa.RecordBatch | None]) -> Arrivals:
        found: list[Arrivals] = []
        for own, store, batch in zip(self._inputs, self._matcher.rows, batches, strict=True):
            if batch is None or batch.num_rows == 0:
                continue
            chunk = own.chunk(batch)
            every = np.ones(chunk.rows, np.bool_)
            rows = np.zeros(chunk.rows, np.int64) if store is None else store.append(chunk, every)
            slots = self._key.slots_of(self._matcher.candidates.groups, chunk)
            elements, positions = elements_of(batch), positions_of(batch)
            for element in own.elements:
                at: Int64s = np.flatnonzero((elements >> element) & 1)
                if len(at):
                    which = np.full(len(at), element, np.int64)
                    found.append(Arrivals(chunk.times[at], positions[at], which, slots[at], rows[at]))
        return joined(found)

    def close(self) -> None:
        self._resources.close()


def _between(batch: pa.RecordBatch | None, first: int, last: int) -> pa.RecordBatch | None:
    """The rows at positions from the first to the last."""
    if batch is None:
        return None
    begin, end = np.searchsorted(positions_of(batch), (first, last + 1)).tolist()
    return batch.slice(begin, end - begin)
