"""What sessions show in a sweep: groups of all shards, put in the order of (window_end, partition key, group key).

    end | keys, those of the partition first | start | number of the session | what `merged` has behind the keys

The number tells the sessions of a sweep apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s, Slots
from penstock.operators.aggregation import EMITTED_AT_ONCE, Aggregation
from penstock.operators.paged.merged import MergedGroups, ShownGroups
from penstock.operators.paged.runs import OrderedRuns
from penstock.operators.results import ResultShow
from penstock.plan.nodes import AggregateNode
from penstock.store.batches import kept_bytes
from penstock.store.budget import Account
from penstock.types import SqlType

_END, _START, _SESSION = "end", "start", "session"

_SHARD_BITS = 32

_SHOWN = 16
"""Results of such a part of the memory are shown together."""


class SessionResults:
    """`order` are the places of the keys in the order of the results."""

    def __init__(self, node: AggregateNode, show: ResultShow, order: Sequence[int], account: Account) -> None:
        self._show = show
        self._shown = ShownGroups(node, [show])
        self._order = order
        self._account = account
        self.key_types = (SqlType.BIGINT, *(node.key_types[i] for i in order))

    def keep(
        self,
        number: int,
        aggregation: Aggregation,
        slots: Slots,
        ranks: Int64s,
        extents: tuple[Int64s, Int64s],
        runs: OrderedRuns,
    ) -> None:
        """Keeps what the query may have of groups, which are in order: of a shard with this number, with the ranks of
        their sessions and the starts and ends of these. Their first key is of no interest."""
        starts, ends = extents
        keys = len(self._order)
        for begin in range(0, len(slots), EMITTED_AT_ONCE):
            own, rank = slots[begin : begin + EMITTED_AT_ONCE], ranks[begin : begin + EMITTED_AT_ONCE]
            played = aggregation.evaluate(own, np.full(1, len(own), np.int64))
            shown, keep = self._shown.rows(aggregation.groups.keys(own)[1:], played, None)
            columns = {_END: pa.array(ends[rank])}
            columns |= {f"#{i}": shown.column(i) for i in self._order}
            columns |= {_START: pa.array(starts[rank]), _SESSION: pa.array(rank | number << _SHARD_BITS)}
            columns |= dict(zip(shown.schema.names[keys:], shown.columns[keys:], strict=True))
            rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
            runs.add(0, rows if keep is None else rows.filter(pa.array(keep)))

    def show(self, runs: OrderedRuns) -> None:
        """Hands on what was kept, in parts. If the query needs all rows of a session together, they are in one part."""
        waiting: list[pa.RecordBatch] = []
        rows = nbytes = 0
        for batch in runs.merged(0):
            waiting.append(batch)
            rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
            if rows >= EMITTED_AT_ONCE or nbytes * _SHOWN >= self._account.total:
                waiting = self._see(waiting, is_last=False)
                rows, nbytes = sum(part.num_rows for part in waiting), sum(part.nbytes for part in waiting)
        if waiting:
            self._see(waiting, is_last=True)

    def _see(self, batches: list[pa.RecordBatch], *, is_last: bool) -> list[pa.RecordBatch]:
        """Shows rows; returns those of the last session if more of it may follow and all must be together."""
        batch = pa.concat_batches(batches)
        with self._account.borrowed(kept_bytes(batch)):
            sessions = batch.column(_SESSION).to_numpy()
            begins = np.flatnonzero(np.diff(sessions, prepend=-1))
            end = batch.num_rows
            if self._show.needs_whole_evaluations and not is_last:
                end, begins = int(begins[-1]), begins[:-1]
            if end:
                own = batch.slice(0, end)
                starts, ends = own.column(_START).to_numpy()[begins], own.column(_END).to_numpy()[begins]
                shown = own.select(self._shown.names)
                groups = MergedGroups(shown, self._shown.answers, np.append(begins[1:], end))
                self._show.see(self._shown.keys(shown), groups, groups.upto, starts, ends)
        return [batch.slice(end)] if end < batch.num_rows else []
