"""The sessions of a shard, found in the rows of its log, and which of them are over.

    rows of the log ─▶ session of each row ─▶ sessions that are over, in the order of (window_end, partition key)

The place of a session in that order is its rank. Only the rows of sessions that have a rank enter states. Which session
each row is in stands on the device until then: a session may have more rows than memory.

Why: docs/decisions/sessions-in-shards.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s, Slots
from penstock.expressions.tree import Expression
from penstock.expressions.vector import ColumnView
from penstock.operators.paged.held_sessions import HeldSessions
from penstock.operators.paged.log import times_of
from penstock.operators.resources import Resources
from penstock.operators.session_windows import SessionWindows
from penstock.store.blobs import Blob, write_blob
from penstock.store.charged import ChargedArray
from penstock.store.device import BlockDevice
from penstock.types import SqlType

_NONE = -1


class ShardSessions:
    """Made for one look at a shard, and closed then. The sessions of the `partitions` that are held come first. The
    first keys of a row are those of its partition."""

    def __init__(
        self,
        name: str,
        gap: int,
        partition_by: tuple[Expression, ...],
        resources: Resources,
        device: BlockDevice,
        held: HeldSessions,
        partitions: Slots,
    ) -> None:
        self._resources = resources
        self._device = device
        self._of_rows: list[Blob] = []
        self._types: Sequence[SqlType] = [key.type for key in partition_by]
        try:
            self._account = resources.account(f"{name}: sessions of a shard")
            self._windows = SessionWindows(gap, partition_by, self._account)
            self._ranks = ChargedArray(self._account, np.int32, fill=_NONE)
            held.begin(self._windows, partitions)
        except BaseException:
            resources.close()
            raise
        self._held = partitions
        self.starts: Int64s = np.empty(0, np.int64)
        self.ends: Int64s = np.empty(0, np.int64)
        """The extent of each session that is over, by its rank."""

    def enter(self, rows: pa.RecordBatch) -> None:
        """Rows behind all others."""
        keys = [ColumnView(rows.column(1 + i), kind) for i, kind in enumerate(self._types)]
        instances = self._windows.enter(times_of(rows), keys)
        self._of_rows.append(write_blob(self._device, instances.astype(np.int32).data))

    def find_over(self, after: int, watermark: int) -> None:
        """Sessions are over that end after one time and up to another."""
        count = self._windows.made
        closed = self._windows.close(watermark)
        first = int(np.searchsorted(closed.ends, after, "right"))
        self.starts, self.ends = closed.starts[first:], closed.ends[first:]
        self._ranks.resize(count)
        self._ranks.array[closed.instances[first:]] = np.arange(len(self.ends))

    def ranks(self) -> Iterator[Int64s]:
        """For each call of `enter` the ranks of the sessions of its rows; below 0 for those that are not over."""
        for blob in self._of_rows:
            yield self._ranks.array[np.frombuffer(blob.read(self._device), np.int32)]

    @property
    def held_over(self) -> tuple[Slots, Int64s]:
        """The held partitions whose sessions are over, and the ranks of these sessions."""
        ranks = self._ranks.array[: len(self._held)]
        over = ranks >= 0
        return self._held[over], ranks[over].astype(np.int64)

    @property
    def holds(self) -> bool:
        """Whether a session that is held goes on."""
        return bool((self._windows.open.numbers < len(self._held)).any())

    @property
    def first_time(self) -> int | None:
        """That of the first row of a session that goes on."""
        starts = self._windows.open.starts
        return int(starts.min()) if len(starts) else None

    @property
    def least_end(self) -> int:
        """No session that goes on ends before this time."""
        return self._windows.least_end

    @property
    def nbytes(self) -> int:
        return self._account.nbytes

    def close(self) -> None:
        for blob in self._of_rows:
            blob.free(self._device)
        self._resources.close()
