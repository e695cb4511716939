"""The groups of evaluations on their way from runs to the queries.

    evaluation 0: a b c d ...  ─▶ queries that take parts: as they come
                               ─▶ queries that need all of it (ORDER BY, DISTINCT, ISTREAM): what may be shown, together

Evaluations with few groups are handed on together, one with many in parts. Of an evaluation that is needed as a whole,
only the groups wait that HAVING and LIMIT leave.

Invariant: what waits is on the account.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.operators.aggregation import EMITTED_AT_ONCE
from penstock.operators.paged.merged import MergedGroups, ShownGroups, may_show
from penstock.operators.results import ResultShow
from penstock.store.batches import kept_bytes
from penstock.store.budget import Account

_WAITING = 16
"""Groups of such a part of the memory are handed on together."""


def feed(
    shown: ShownGroups, evaluations: Iterable[Iterator[pa.RecordBatch]], starts: Int64s, ends: Int64s, account: Account
) -> None:
    """Hands evaluations of windows with these extents to the queries of `shown`."""
    with ExitStack() as feeds:
        own = []
        for whole in (False, True):
            shows = [show for show in shown.shows if show.needs_whole_evaluations is whole]
            if shows:
                own.append(feeds.enter_context(closing(_Feed(shown, shows, starts, ends, account, whole=whole))))
        for number, batches in enumerate(evaluations):
            for one in own:
                one.begin(number)
            for batch in batches:
                for one in own:
                    one.add(batch)
            for one in own:
                one.end()
        for one in own:
            one.hand_on()


class _Feed:
    def __init__(
        self,
        shown: ShownGroups,
        shows: Sequence[ResultShow],
        starts: Int64s,
        ends: Int64s,
        account: Account,
        *,
        whole: bool,
    ) -> None:
        self._shown = shown
        self._shows = shows
        self._starts, self._ends = starts, ends
        self._account = account
        self._is_whole = whole
        self._most_bytes = account.total // _WAITING
        self._begin()

    def _begin(self) -> None:
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._numbers: list[int] = []
        self._upto: list[int] = []
        self._own = self._own_rows = 0
        """How many of the batches, and of the rows, are of evaluations before the last one."""
        self._choose_at = 0
        """When the last one has so many rows, those that may be shown are chosen again."""

    def begin(self, number: int) -> None:
        """What is added from here on is of this evaluation."""
        self._numbers.append(number)
        self._upto.append(self._rows)
        self._own, self._own_rows, self._choose_at = len(self._waiting), self._rows, 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._keep(self._chosen(batch) if self._is_whole else batch)
        if not self._is_whole:
            if self._is_full:
                number = self._numbers[-1]
                self.hand_on()
                self.begin(number)
        elif self._rows - self._own_rows >= self._choose_at:
            batches, self._waiting = self._waiting[self._own :], self._waiting[: self._own]
            nbytes = sum(map(kept_bytes, batches))
            with self._account.borrowed(nbytes):
                chosen = self._chosen(self._shown.joined(batches))
            self._account.release(nbytes)
            self._rows, self._bytes = self._own_rows, self._bytes - nbytes
            self._keep(chosen)
            self._choose_at = 2 * chosen.num_rows

    def _keep(self, batch: pa.RecordBatch) -> None:
        nbytes = kept_bytes(batch)
        self._account.charge(nbytes)
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += nbytes
        self._upto[-1] = self._rows

    def end(self) -> None:
        """All of the evaluation has come."""
        if self._is_full:
            self.hand_on()

    def hand_on(self) -> None:
        """Shows what waits."""
        if not self._numbers:
            return
        copied = self._bytes if len(self._waiting) > 1 else 0
        with self._account.borrowed(copied):
            batch = self._shown.joined(self._waiting)
            groups = MergedGroups(batch, self._shown.answers, np.array(self._upto, np.int64))
            keys, starts, ends = self._shown.keys(batch), self._starts[self._numbers], self._ends[self._numbers]
            for show in self._shows:
                show.see(keys, groups, groups.upto, starts, ends)
        self.close()

    def close(self) -> None:
        """Forgets what waits."""
        self._account.release(self._bytes)
        self._begin()

    @property
    def _is_full(self) -> bool:
        return self._rows >= EMITTED_AT_ONCE or self._bytes >= self._most_bytes

    def _chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The groups of an evaluation, or of a part of it, that some query may show."""
        upto = np.full(1, batch.num_rows, np.int64)
        groups = MergedGroups(batch, self._shown.answers, upto)
        keep = may_show(self._shows, self._shown.keys(batch), groups, upto)
        return batch if keep is None else batch.filter(pa.array(keep))
