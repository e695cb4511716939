"""Sources: where the events of a declared stream come from.

A source is opened by the URI of its stream (`connect.opening`) and yields batches that have exactly the declared
columns (or those the queries read); rows that do not fit are taken out and handed over beside the batch, with the
reason.

Invariants of every source:
1. `position` of a batch says where to continue after it; a source opened there yields exactly the rows that follow,
   whatever the batch size is. Standard input cannot go back: there the line numbers go on, no more.
2. A row is in the batch or among the rejects, never in both and never in neither; blank lines are no rows.
3. A batch may be empty: a source that follows growing input answers so when nothing has come for a moment, and its
   caller can do other work.

Callers: `connect.runner`, and programs that feed an app themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.lang.query import StreamDef
from penstock.types import Schema

Position = dict[str, Any]
"""JSON-able; its keys are the business of the source that made it."""

POLL_SECONDS = 0.1
"""How long a source that follows growing input waits before it answers with an empty batch."""


@dataclass(frozen=True)
class Reject:
    """A row that does not fit. `row` counts from 1: the line of a text file (header included), the row of others."""

    source: str
    row: int
    reason: str
    raw: str


@dataclass(frozen=True)
class SourceBatch:
    batch: pa.RecordBatch
    rejects: list[Reject]
    position: Position


@dataclass(frozen=True)
class Progress:
    """`done` and `total` count `unit`s; `total` is None where the end is not known."""

    done: int
    total: int | None
    unit: str

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1.

        >>> Progress(50, 200, "rows").fraction
        0.25
        """
        if self.total is None:
            return None
        return min(1.0, self.done / self.total) if self.total else 1.0


class Source(ABC):
    """An iterator of `SourceBatch`."""

    def __iter__(self) -> Iterator[SourceBatch]:
        return self

    @abstractmethod
    def __next__(self) -> SourceBatch: ...

    @property
    @abstractmethod
    def progress(self) -> Progress: ...

    @abstractmethod
    def close(self) -> None: ...


@dataclass(frozen=True)
class Reading:
    """What every kind of source needs to know of the stream it serves; `fields` are the columns to deliver."""

    stream: StreamDef
    uri: str
    fields: Schema
    required: frozenset[str]
    options: Mapping[str, str]
    batch_rows: int

    @property
    def schema(self) -> pa.Schema:
        return self.fields.arrow
