"""Sessions that have been in memory since before the rows of others went to shards.

They stay there until they close. Each shard has its part of them: those whose partitions would be in it. Their groups
and states are as they were when rows began to go to the log; the rows that have come since then are in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Bools, Int64s, Slots
from penstock.operators.aggregation import Aggregation
from penstock.operators.paged.held import HeldGroups
from penstock.operators.session_windows import SessionWindows
from penstock.store.budget import Account
from penstock.types import SqlType

_GROUP_BYTES = 24
"""What is noted of a group: its slot and the number of its session, and as much again while they are put in order."""


class HeldSessions:
    """For one sweep. The partitions of the `windows` have keys of these `types`, and a session each at most; the first
    key of the groups of the `aggregation` is the instance of their session."""

    def __init__(
        self, windows: SessionWindows, aggregation: Aggregation, types: Sequence[SqlType], account: Account
    ) -> None:
        self.aggregation = aggregation
        self._windows = windows
        self._open = windows.open
        self._partitions = HeldGroups(windows.partitions, self._open.owners, types, account)
        self._stays: Bools = np.ones(len(self._open.numbers), np.bool_)
        groups = aggregation.groups
        alive = np.flatnonzero(groups.counts).astype(np.int32)
        self._account, self._nbytes = account, _GROUP_BYTES * len(alive) + self._stays.nbytes
        account.charge(self._nbytes)
        instances = groups.words(alive)
        order = np.argsort(instances, kind="stable")
        self._instances, self._slots = instances[order], alive[order]

    def of(self, prefix: int, bits: int) -> Slots:
        """The partitions whose hashes begin with these upper bits, of which there are no more than 32."""
        return self._partitions.of(prefix, bits)

    def begin(self, windows: SessionWindows, partitions: Slots) -> None:
        """These partitions come first in other windows, with their sessions."""
        self._partitions.begin(windows.partitions, partitions)
        places = self._windows.places(partitions)
        windows.begin(self._open.starts[places], self._open.lasts[places])

    def groups(self, partitions: Slots) -> tuple[Slots, Int64s]:
        """The groups of the sessions of these partitions, and for each group the place of its partition in the list."""
        instances = self._open.numbers[self._windows.places(partitions)]
        first = np.searchsorted(self._instances, instances)
        counts = np.searchsorted(self._instances, instances, "right") - first
        which = np.repeat(np.arange(len(partitions)), counts)
        own = np.arange(len(which)) - (np.cumsum(counts) - counts)[which]
        return self._slots[first[which] + own], which

    def note_over(self, partitions: Slots) -> None:
        """The sessions of these partitions have been shown."""
        self._stays[self._windows.places(partitions)] = False

    def forget_over(self) -> None:
        """Sessions that have been shown are gone."""
        if not self._stays.all():
            self._windows.keep(self._stays)

    def close(self) -> None:
        self._partitions.close()
        self._account.release(self._nbytes)
