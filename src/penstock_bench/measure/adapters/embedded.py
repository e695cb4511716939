"""Penstock itself, as a library in the host process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock.errors import InputError
from penstock.instruments import quoted
from penstock_bench.measure.adapters import rehearsal
from penstock_bench.measure.adapters.database import Database
from penstock_bench.measure.adapters.engine import Emit, Engine
from penstock_bench.measure.adapters.hosted import Hosted
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.measure.setup.model import Setup

if TYPE_CHECKING:
    from penstock import App


class Embedded(Hosted):
    dialect = "penstock"
    options: ClassVar[Mapping[str, str]] = {
        "memory": "the budget for all state, as '64MB' (the default)",
        "block_size": "of the blocks that windows are paged in, as '64KiB' (the default)",
        "compression": "of blocks: 'lz4' or 'zstd'; by default none",
        "strategy": "how windows are kept: 'auto' (the default), 'window' or 'panes'",
        "dispatch": "how events are taken: 'fcfs' or 'ejf'; by default as they come",
        "cache": "rows that are remembered of a table in a database; by default 1, so that every event asks",
        **rehearsal.OPTION,
    }

    def engine(self) -> Engine:
        return rehearsal.Rehearsed(EmbeddedEngine) if self.option("warm_up", True) else EmbeddedEngine()


class EmbeddedEngine:
    def __init__(self) -> None:
        self._app: App | None = None
        self._database: Database | None = None

    def start(self, setup: Setup, tables: Mapping[str, Path], emit: Emit) -> None:
        # Drivers and sinks know this adapter as well, and need no engine.
        from penstock import App

        options = dict(setup.system.options)
        cache = options.pop("cache", 1)
        options.pop("warm_up", None)
        self._database = Database(setup, tables)
        text = program(setup, {name: self._origin(setup, name, path, cache) for name, path in tables.items()})
        app = App(text, **{name: value if name == "strategy" else str(value) for name, value in options.items()})  # type: ignore[arg-type]
        self._app = app
        known = {name.lower(): name for name in app.queries}
        for query in setup.queries:
            if query.lower() not in known:
                raise InputError(
                    f"queries.{query}.text.penstock: makes no query of the name '{query}'; write one SELECT,"
                    f" or CREATE QUERY {quoted(query)} AS SELECT … among its statements"
                )
            app.subscribe(known[query.lower()], partial(emit, query))

    def _origin(self, setup: Setup, name: str, path: Path, cache: Scalar) -> str:
        """Where a table comes from, as CREATE TABLE says it."""
        if setup.tables[name].where == "memory":
            return f"FROM {literal(str(path))}"
        assert self._database is not None
        options = f"'table' = {literal(name)}, 'mode' = 'lookup', 'cache' = {literal(str(cache))}"
        return f"FROM {literal(self._database.uri)} WITH ({options})"

    def push(self, stream: str, batch: pa.RecordBatch) -> None:
        assert self._app is not None
        self._app.push(stream, batch)

    def finish(self) -> None:
        assert self._app is not None
        self._app.finish()

    def status(self) -> dict[str, Any]:
        if self._app is None:
            return {}
        metrics = self._app.metrics
        names = ("late", "rejected", "memory_bytes", "memory_peak", "stored_bytes", "blocks_written", "blocks_read")
        return {"watermark_us": metrics.watermark, **{name: getattr(metrics, name) for name in names}}

    def close(self) -> None:
        if self._app is not None:
            self._app.close()
        if self._database is not None:
            self._database.close()


def program(setup: Setup, origins: Mapping[str, str]) -> str:
    """The setup's streams, tables and queries as an application."""
    statements = []
    for name, stream in setup.streams.items():
        columns = _columns(stream.columns)
        late = f" LATENESS {stream.lateness} MICROSECONDS" if stream.lateness else ""
        statements.append(f"CREATE STREAM {quoted(name)} ({columns}, EVENT TIME {quoted(stream.time)}{late})")
    for name, table in setup.tables.items():
        columns, key = _columns(table.columns), quoted(table.key)
        statements.append(f"CREATE TABLE {quoted(name)} ({columns}, PRIMARY KEY ({key})) {origins[name]}")
    for name, query in setup.queries.items():
        text = query.text.get(Embedded.dialect)
        if text is None:
            raise InputError(
                f"queries.{name}.text.{Embedded.dialect}: is missing; the adapter 'embedded' runs this one"
            )
        text = text.strip().rstrip(";")
        first = text.split(None, 1)[0].upper() if text else ""
        statements.append(f"CREATE QUERY {quoted(name)} AS\n{text}" if first in ("SELECT", "WITH", "") else text)
    return ";\n".join(statements) + ";\n"


def literal(value: str) -> str:
    """A text as the language writes it."""
    return "'" + value.replace("'", "''") + "'"


def _columns(columns: Mapping[str, Any]) -> str:
    return ", ".join(f"{quoted(name)} {kind.value}" for name, kind in columns.items())
