"""The names a program has declared so far: streams and tables that can be read, sinks that can be written, queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.lang.query import StreamRef, TableRef
from penstock.types import Schema


class Catalog:
    """Names are case-insensitive and kept as first written. Streams, tables, sinks and queries never share a name,
    except that a query bears the name of what it inserts into."""

    def __init__(
        self,
        streams: Mapping[str, Schema],
        sinks: Collection[str] = (),
        queries: Collection[str] = (),
        tables: Collection[TableRef] = (),
    ) -> None:
        self._streams = {name.lower(): StreamRef(name, schema) for name, schema in streams.items()}
        self._tables = {table.name.lower(): table for table in tables}
        self._read: set[str] = set()
        self._event_times: dict[str, str] = {}
        self._sinks = {name.lower(): name for name in sinks}
        self._queries = {name.lower() for name in queries}

    def stream(self, name: str) -> StreamRef | None:
        return self._streams.get(name.lower())

    def stream_names(self) -> list[str]:
        return [stream.name for stream in self._streams.values()]

    def table(self, name: str) -> TableRef | None:
        return self._tables.get(name.lower())

    def table_names(self) -> list[str]:
        return [table.name for table in self._tables.values()]

    def sink(self, name: str) -> str | None:
        """The sink's name as declared."""
        return self._sinks.get(name.lower())

    def kind_of(self, name: str) -> str | None:
        """What already bears the name."""
        lowered = name.lower()
        if lowered in self._streams:
            return "stream"
        if lowered in self._tables:
            return "table"
        if lowered in self._sinks:
            return "sink"
        return "query" if lowered in self._queries else None

    def add_stream(self, name: str, schema: Schema, event_time: str | None = None) -> None:
        self._streams[name.lower()] = StreamRef(name, schema)
        if event_time is not None:
            self._event_times[name.lower()] = event_time

    def event_time(self, stream: str) -> str | None:
        """The column of a stream's event time, where the stream was declared in this text."""
        return self._event_times.get(stream.lower())

    def add_table(self, table: TableRef) -> None:
        self._tables[table.name.lower()] = table

    def note_read(self, table: str) -> None:
        """A query reads the table: what changes it is complete from here on."""
        self._read.add(table.lower())

    def is_read(self, table: str) -> bool:
        return table.lower() in self._read

    def add_sink(self, name: str) -> None:
        self._sinks[name.lower()] = name

    def add_query(self, name: str) -> None:
        self._queries.add(name.lower())

    def is_query(self, name: str) -> bool:
        return name.lower() in self._queries

    def free_query_name(self, number: int, prefix: str = "q") -> str:
        """`q1`, `q2`, ...: the first from `number` on that nothing bears."""
        while self.kind_of(f"{prefix}{number}") is not None:
            number += 1
        return f"{prefix}{number}"
