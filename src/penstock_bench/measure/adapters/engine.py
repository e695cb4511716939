"""A system under test that the framework runs in a process of its own, the *host*.

An adapter for such a system is a class with these five methods; host, sockets, clocks and logs are the framework's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from penstock_bench.measure.setup.model import Setup

Emit = Callable[[str, pa.RecordBatch], None]
"""Takes results of a query as they are made; may be called from any thread."""


class Engine(Protocol):
    def start(self, setup: Setup, tables: Mapping[str, Path], emit: Emit) -> None:
        """Compiles the queries and is ready for events when it returns. `tables` are Parquet files."""

    def push(self, stream: str, batch: pa.RecordBatch) -> None:
        """Takes a batch of events, in order; called by one thread. It blocks while the system has more waiting than
        it can take: what has been accepted is processed, but for a bounded rest."""

    def finish(self) -> None:
        """The input has ended: returns when every result has been emitted."""

    def status(self) -> dict[str, Any]:
        """What a person would like to see of the system while it runs, as JSON; may be empty. Called by the thread that
        pushes."""

    def close(self) -> None:
        """Stops the system, whatever state it is in."""
