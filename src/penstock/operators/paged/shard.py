"""A shard in memory: its groups, their states, and what they read of the rows of its log.

It is made anew each time the shard is looked at, filled with what was saved of it, and closed when it has been saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s
from penstock.components import component
from penstock.expressions.batch import Batch, Data
from penstock.expressions.vector import ColumnView, Evaluated, Vector
from penstock.operators.aggregation import Aggregation, RowRun
from penstock.operators.arguments import OwnColumns, codes_in_use
from penstock.operators.columns import to_argument, to_data
from penstock.operators.groups import GroupTable
from penstock.operators.interner import Interner
from penstock.operators.paged.log import LoggedRows
from penstock.operators.resources import Resources
from penstock.plan.nodes import StateSpec
from penstock.plan.reads import Read, reads_of
from penstock.store.budget import Account
from penstock.types import SqlType

POSITION, KEPT, START, END = "@", "&", "start", "end"
"""The last columns of a log with positions, of a log that has rows that are in no group, and of a log with windows."""

_MORE = {POSITION: SqlType.BIGINT, KEPT: SqlType.BOOLEAN, START: SqlType.BIGINT, END: SqlType.BIGINT}

_NO_STEP = np.zeros(1, np.int64)
_SILENT = np.zeros(1, np.bool_)


class EnteringRows(NamedTuple):
    """Rows of a window as they come: their times, their places in the stream, their keys and what the states read, with
    the strings of texts: as codes, or as they are. Rows that `keep` leaves out are in no group; None for all. `windows`
    says where the window of each row begins and ends, if the log has that. It is called when the texts of the rows have
    been read: rows leave with the call, and their texts may go."""

    times: Int64s
    positions: Int64s
    keys: Sequence[Data]
    columns: Sequence[Argument | pa.Array]
    interners: Sequence[Interner | None]
    keep: Bools | None = None
    windows: Callable[[], tuple[Int64s, Int64s]] | None = None

    def no_windows(self) -> tuple[Int64s, Int64s]:
        """For rows that have been shown."""
        return self.times, self.times


class LoggedColumns:
    """The columns of a log, behind the time: the keys `#0`, `#1`, ... and what the states read, by the names of what it
    is, in the order of `OwnColumns`; then `POSITION`, the place of each row in the stream, `KEPT`, whether a row is in
    a group, or `START` and `END`, the window at the row, if they are asked for. The first `hashed` keys say which shard
    a row is in: all, if not given."""

    def __init__(
        self,
        key_types: tuple[SqlType, ...],
        states: tuple[StateSpec, ...],
        *more: str,
        hashed: int | None = None,
    ) -> None:
        self.key_types = key_types
        self.hashed_types = key_types[:hashed]
        self.reads = reads_of(states)
        self._kinds = {f"#{i}": kind for i, kind in enumerate(self.key_types)}
        self._kinds |= {read.name: _type_of(read) for read in self.reads}
        self._kinds |= {name: _MORE[name] for name in more}

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, kind.arrow) for name, kind in self._kinds.items()])

    @property
    def has_all_rows(self) -> bool:
        """Whether rows are logged that are in no group."""
        return KEPT in self._kinds

    def of(self, rows: EnteringRows) -> list[pa.Array]:
        """Rows as they are logged. Texts, which have codes here, are logged as texts."""
        data: list[Data] = [*rows.keys]
        for column, read, interner in zip(rows.columns, self.reads, rows.interners, strict=True):
            data.append(to_data(*column, _type_of(read), interner) if isinstance(column, Argument) else column)
        if POSITION in self._kinds:
            data.append(Vector(rows.positions, None))
        if self.has_all_rows:
            data.append(Vector(np.ones(len(rows.times), np.bool_) if rows.keep is None else rows.keep, None))
        if START in self._kinds:
            assert rows.windows is not None, "windows are asked for"
            data += [Vector(bounds, None) for bounds in rows.windows()]
        batch = Batch(self._kinds, dict(zip(self._kinds, data, strict=True)), len(rows.times))
        return [batch.column(name) for name in self._kinds]


def _type_of(read: Read) -> SqlType:
    return SqlType.BOOLEAN if read.is_filter else read.expression.type


def _unnamed(saved: dict[str, Any]) -> dict[str, Any]:
    """Version 1: the texts are those of the reads that there are."""
    return saved | {"reads": None}


@component("ShardReading", 2, _unnamed)
class ShardReading:
    """What an aggregation reads of a log (`operators.arguments.Reading`). Groups and strings are on the `account`."""

    def __init__(self, columns: LoggedColumns, own: OwnColumns, account: Account) -> None:
        self._columns = columns
        self._reads = columns.reads
        self.groups = GroupTable(columns.key_types, account)
        self.interners = tuple(Interner(account) if read.is_text else None for read in self._reads)
        self.state_columns = own.state_columns
        self.no_columns = own.nothing
        self._has_texts = any(interner is not None for interner in self.interners)

    @property
    def counts(self) -> Int64s:
        return self.groups.counts

    def enter(self, rows: LoggedRows) -> RowRun:
        """Rows that enter the states."""
        run = self._run(rows)
        if self._has_texts:
            for interner, column in zip(self.interners, run.columns, strict=True):
                if interner is not None:
                    interner.use(codes_in_use(column, None))
                    interner.sweep()
        return run

    def leave(self, rows: LoggedRows) -> RowRun:
        """Rows that leave the states; their strings go with `forget`."""
        return self._run(rows)

    def forget(self, run: RowRun) -> None:
        """Rows have left the states."""
        for interner, column in zip(self.interners, run.columns, strict=True):
            if interner is not None:
                interner.release(codes_in_use(column, None))

    def _run(self, rows: LoggedRows) -> RowRun:
        batch, keys = rows.batch, len(self._columns.key_types)
        views: list[Evaluated] = [
            ColumnView(batch.column(1 + i), kind) for i, kind in enumerate(self._columns.key_types)
        ]
        slots = self.groups.assign(views, batch.num_rows, None)
        columns = []
        for i, (read, interner) in enumerate(zip(self._reads, self.interners, strict=True)):
            view = ColumnView(batch.column(1 + keys + i), _type_of(read))
            if read.is_filter:
                columns.append(Argument(view.true.astype(np.int8), None))
            else:
                columns.append(to_argument(view, read.expression.type, interner))
        return RowRun(rows.first, slots, tuple(columns))

    def snapshot(self) -> dict[str, Any]:
        texts = [None if interner is None else interner.snapshot() for interner in self.interners]
        reads = [read.name for read in self._reads]
        return {"groups": self.groups.snapshot(), "texts": texts, "reads": reads}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.groups.restore(snapshot["groups"])
        names = [read.name for read in self._reads]
        texts = dict(zip(snapshot["reads"] or names, snapshot["texts"], strict=True))
        for interner, name in zip(self.interners, names, strict=True):
            if interner is not None:
                interner.restore(texts[name])


class Shard:
    """`least` is what it took when it was renewed last: what it holds besides may be rows that cannot answer."""

    __slots__ = ("aggregation", "least", "reading", "resources")

    def __init__(self, reading: ShardReading, aggregation: Aggregation, resources: Resources) -> None:
        self.reading = reading
        self.aggregation = aggregation
        self.resources = resources
        self.least = 0

    @classmethod
    def make(
        cls, name: str, columns: LoggedColumns, own: OwnColumns, states: tuple[StateSpec, ...], resources: Resources
    ) -> Shard:
        """An empty one. If there is no room for it, nothing of it stays."""
        apart = resources.apart()
        try:
            reading = ShardReading(columns, own, apart.account(f"{name}: groups and strings of a shard"))
            return cls(reading, Aggregation(name, reading, states, apart, pages=False), apart)
        except BaseException:
            apart.close()
            raise

    @property
    def nothing(self) -> RowRun:
        """No rows."""
        return RowRun(0, np.empty(0, np.int32), self.reading.no_columns())

    def leave(self, leaving: Iterable[LoggedRows]) -> int:
        """Rows leave, and nothing is looked at; returns how many."""
        gone = 0
        for rows in leaving:
            run = self.reading.leave(rows)
            count = np.full(1, len(run.slots), np.int64)
            self.aggregation.play(self.nothing, run, _NO_STEP, count, _SILENT)
            self.reading.forget(run)
            gone += len(run.slots)
        return gone

    @property
    def is_empty(self) -> bool:
        return not self.reading.counts.any()

    def become(self, other: Shard) -> None:
        """The other one takes its place."""
        self.close()
        self.reading, self.aggregation, self.resources = other.reading, other.aggregation, other.resources
        self.least = self.aggregation.nbytes

    def close(self) -> None:
        self.resources.close()
