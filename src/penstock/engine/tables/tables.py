"""The tables of an app: loaded, changed by events before queries see these, read by queries, saved with checkpoints.

Invariants:
1. A stream's rows change tables before any query is handed them (`Flow.dispatch`), so that an event sees its own
   changes.
2. Streams stand in the total order as they are declared, derived streams after them in the order of their queries.
3. Copies in databases are written after a checkpoint is durable, and by `finish` where there are none.
4. A table that no stream writes is what was loaded last: it is not saved, but loaded again at a restart.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.components import component, read_as
from penstock.engine.clock import Clock
from penstock.engine.names import find
from penstock.engine.tables.looked_up import LookedUpTable
from penstock.engine.tables.sources import source_of
from penstock.engine.tables.table_metrics import TableMetrics, metrics_of_table
from penstock.engine.tables.write_behind import WriteBehind
from penstock.errors import BudgetError, CheckpointError, InputError, PenstockError
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import StreamRef, TableRef
from penstock.lang.table_defs import TableDef, TableWrite
from penstock.lang.table_options import is_database, is_looked_up, refresh_of, ttl_of
from penstock.operators.pipeline import Waits
from penstock.operators.resources import Resources
from penstock.operators.tables.history import DERIVED
from penstock.operators.tables.table import Table
from penstock.operators.tables.writer import TableWriter
from penstock.rejects import Reject
from penstock.store.manager import StoreManager


@component("TableSet")
class TableSet:
    def __init__(self, stores: StoreManager, reject: Reject, clock: Clock) -> None:
        self._resources = Resources(stores, reject)
        self._reject = reject
        self._clock = clock
        self._tables: dict[str, Table] = {}
        self._writers: dict[str, TableWriter] = {}
        self._written: list[Table] = []
        self._expiring: list[Table] = []
        """Tables whose rows have a time to live."""
        self._by_stream: dict[str, list[TableWriter]] = {}
        self._positions: dict[str, int] = {}
        self._refs: dict[str, TableRef] = {}
        self._due: dict[str, int] = {}
        self._copies: dict[str, WriteBehind] = {}

    # Declaring

    def note_streams(self, declared: Iterable[str], derived: Iterable[str]) -> None:
        for name in declared:
            self._positions.setdefault(name, len([p for p in self._positions.values() if p < DERIVED]))
        for name in derived:
            self._positions.setdefault(name, DERIVED + len(self._positions))

    def declare(
        self,
        tables: Sequence[TableDef],
        writes: Sequence[TableWrite],
        streams: Mapping[str, StreamRef],
        passed: Mapping[str, int],
    ) -> None:
        """Makes tables, empty, and what writes them."""
        for definition in tables:
            table = self._made(definition)
            own = [(number, write) for number, write in enumerate(writes) if write.table == definition.name]
            self._tables[definition.name] = table
            if own:
                writer = TableWriter(table, own, self._positions, passed, self._resources)
                self._writers[definition.name] = writer
                self._written.append(table)
                if table.expiry is not None:
                    self._expiring.append(table)
                for stream in writer.streams:
                    self._by_stream.setdefault(stream, []).append(writer)
                if is_database(definition.uri):
                    self._copies[definition.name] = WriteBehind(table, self._resources)
            writers = tuple(streams[name] for name in dict.fromkeys(write.stream for _, write in own))
            self._refs[definition.name] = TableRef(
                definition.name, definition.schema, definition.key, writers, tuple(w for _, w in own), definition
            )

    def _made(self, definition: TableDef) -> Table:
        if is_looked_up(definition):
            return LookedUpTable(definition, self._resources, self._clock)
        return Table(definition, self._resources)

    def load(self, saved: Mapping[str, Any] | None = None) -> None:
        """Fills the tables that have a source, except those that a checkpoint has."""
        for name, table in self._tables.items():
            if isinstance(table, LookedUpTable):
                continue
            if table.definition.uri is not None and not (saved and name in saved and name in self._writers):
                self._load(table)
                if name in self._copies:
                    self._copies[name].forget()
            every = refresh_of(table.definition)
            if every is not None:
                self._due[name] = self._clock.elapsed() + every

    def _load(self, table: Table) -> None:
        source = source_of(table.definition)
        table.load(source.batches(), source.rows())

    def _reload(self, table: Table) -> None:
        """What cannot be read whole, or has no room, changes nothing."""
        source = source_of(table.definition)
        rows = source.rows()
        fresh, before = list(source.batches()), table.batch(table.all_rows())
        try:
            table.load(fresh, rows)
        except BudgetError:
            table.load([before], before.num_rows)
            raise

    # Looking in

    def __bool__(self) -> bool:
        return bool(self._tables)

    @property
    def refs(self) -> tuple[TableRef, ...]:
        return tuple(self._refs.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tables)

    def table(self, name: str) -> Table:
        return self._tables[name]

    @property
    def metrics(self) -> dict[str, TableMetrics]:
        return {name: metrics_of_table(table) for name, table in self._tables.items()}

    def position(self, stream: str) -> int:
        return self._positions[stream]

    def to_arrow(self, name: str) -> pa.Table:
        return self._tables[find(name, "table", self._tables)].to_arrow()

    # Rows pass

    def writers(self, stream: str) -> Sequence[TableWriter]:
        """What takes the rows of a stream that writes tables."""
        return self._by_stream.get(stream, ())

    def waits(self, stream: str) -> dict[Hashable, Waits]:
        """What may wait for the time of a stream that writes tables: changes of those that other streams write, too."""
        return {writer: writer.waits_for for writer in self._by_stream.get(stream, ()) if len(writer.streams) > 1}

    def are_written_by(self, stream: str) -> bool:
        return stream in self._by_stream

    def collect(self) -> None:
        """Forgets previous rows that no reader needs any more, and rows that are over."""
        for table in self._written:
            if len(table.history):
                table.collect()
        for table in self._expiring:
            table.expire()

    def finish(self, names: Iterable[str]) -> None:
        """No more events come that write these tables."""
        for name in names:
            if name in self._writers:
                self._writers[name].finish()

    # Loading again

    def refresh(self, name: str) -> None:
        """Loads a table again."""
        name = find(name, "table", self._tables)
        table = self._tables[name]
        if isinstance(table, LookedUpTable):
            table.forget_rows()
            return
        if table.definition.uri is None or name in self._writers:
            why = "has no source to load from" if table.definition.uri is None else "is written by events"
            raise InputError(f"table {name} {why}; it cannot be refreshed")
        self._reload(table)

    def refresh_due(self) -> None:
        """Loads what is due by the local clock; what cannot be read stays as it was, and is reported."""
        now = self._clock.elapsed()
        for name, due in self._due.items():
            if now >= due:
                self._due[name] = now + (refresh_of(self._tables[name].definition) or 0)
                try:
                    self._reload(self._tables[name])
                except PenstockError as error:
                    self._reject(f"REFRESH: {error}", {"table": name})

    @property
    def refreshes(self) -> bool:
        return bool(self._due)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {
            name: {
                "fingerprint": table_fingerprint(self._tables[name].definition),
                "table": self._tables[name].snapshot(),
                "writer": writer.snapshot(),
                "streams": list(writer.streams),
                "copy": self._copies[name].snapshot() if name in self._copies else None,
            }
            for name, writer in self._writers.items()
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        for name, writer in self._writers.items():
            saved = snapshot.get(name)
            if saved is None:
                continue
            mine = table_fingerprint(self._tables[name].definition)
            if saved["fingerprint"] != mine or saved["streams"] != list(writer.streams):
                raise CheckpointError(
                    f"the checkpoint has another table {name}, or one that other streams write; declare it as it was, "
                    "or start with a new directory"
                )
            self._tables[name].restore(saved["table"])
            writer.restore(saved["writer"])

    @property
    def has_copies(self) -> bool:
        """Whether databases have copies of tables."""
        return bool(self._copies)

    def committed(self, epoch: int) -> None:
        """The checkpoint of this number is durable: copies in databases follow."""
        for copy in self._copies.values():
            copy.write(epoch)

    def resumed(self, epoch: int, snapshot: dict[str, Any]) -> None:
        """Goes on from the checkpoint of this number: copies in databases that are behind catch up."""
        snapshot = read_as(TableSet, snapshot)
        for name, copy in self._copies.items():
            if name in snapshot and snapshot[name]["copy"] is not None:
                copy.restore(snapshot[name]["copy"], epoch)

    def disconnect(self) -> None:
        """Ends the connections to databases."""
        for copy in self._copies.values():
            copy.close()
        for table in self._tables.values():
            if isinstance(table, LookedUpTable):
                table.close()


def derived(queries: Iterable[Any], sinks: Iterable[str]) -> Iterator[str]:
    """The names of the streams that queries feed."""
    known = set(sinks)
    for query in queries:
        if query.into is not None and query.into not in known:
            yield query.into


def table_fingerprint(definition: TableDef) -> str:
    """Equal where the saved rows of a table fit."""
    ttl = ttl_of(definition)
    known = (definition.name, definition.schema, definition.key)
    return fingerprint(known if ttl is None else (*known, ttl))
