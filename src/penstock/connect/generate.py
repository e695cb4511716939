"""Synthetic sources, `generate:name?key=value&...`: events made as they are read, the same ones every time.

A workload registers its generator here by name; `penstock.generators` registers those that come along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import parse_qsl

import numpy as np
import pyarrow as pa

from penstock.connect.conform import check_types, conform, match_names
from penstock.connect.source import Position, Progress, Reading, Source, SourceBatch
from penstock.errors import InputError


class Generator(Protocol):
    """Makes any stretch of its rows, in any order of asking; equal parameters give equal rows."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def rows(self) -> int | None:
        """None: without end."""

    def batch(self, start: int, count: int, columns: Sequence[str]) -> pa.RecordBatch: ...


class Parameters:
    """The `key=value` pairs of a generator's URI, read one by one; `finish` refuses pairs that were not read."""

    def __init__(self, name: str, query: str) -> None:
        self._name = name
        self._left = dict(parse_qsl(query, keep_blank_values=True))
        self._known: list[str] = []

    def integer(self, key: str, default: int, least: int = 0) -> int:
        text = self._take(key)
        try:
            value = default if text is None else int(text.replace("_", ""))
        except ValueError:
            raise InputError(f"generate:{self._name}: {key}='{text}' is not an integer") from None
        if value < least:
            raise InputError(f"generate:{self._name}: {key}={value}; it must be at least {least}")
        return value

    def time(self, key: str, default: datetime) -> int:
        """A time as microseconds since the epoch; without a zone it is UTC."""
        text = self._take(key)
        try:
            value = default if text is None else datetime.fromisoformat(text)
        except ValueError:
            raise InputError(f"generate:{self._name}: {key}='{text}' is no time like 2024-01-31T12:00:00") from None
        value = value if value.tzinfo else value.replace(tzinfo=UTC)
        since = value - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds

    def finish(self) -> None:
        if self._left:
            unknown, known = next(iter(self._left)), ", ".join(self._known)
            raise InputError(f"generate:{self._name}: unknown parameter '{unknown}'; there are {known}")

    def _take(self, key: str) -> str | None:
        self._known.append(key)
        return self._left.pop(key, None)


Factory = Callable[[Parameters], Generator]
_FACTORIES: dict[str, Factory] = {}


def register_generator(name: str, factory: Factory) -> None:
    """Makes `generate:name` known; a second registration replaces the first."""
    _FACTORIES[name] = factory


def make_generator(uri: str) -> Generator:
    name, _, query = uri.removeprefix("generate:").partition("?")
    if name not in _FACTORIES:
        raise InputError(f"unknown generator '{name}'; there are {', '.join(sorted(_FACTORIES)) or 'none'}")
    parameters = Parameters(name, query)
    generator = _FACTORIES[name](parameters)
    parameters.finish()
    return generator


class GeneratedSource(Source):
    """Position: `{"row": rows made}`."""

    def __init__(self, reading: Reading, position: Position | None) -> None:
        self._reading = reading
        self._generator = make_generator(reading.uri)
        self._row = int((position or {}).get("row", 0))
        found = self._generator.schema
        places = match_names(reading.stream.schema, found.names, reading.uri)
        check_types(reading.stream.schema, {name: found.field(i).type for name, i in places.items()}, reading.uri)
        self._columns = [found.names[places[name]] for name in reading.fields.names]

    def __next__(self) -> SourceBatch:
        total = self._generator.rows
        count = self._reading.batch_rows if total is None else min(self._reading.batch_rows, total - self._row)
        if count <= 0:
            raise StopIteration
        made = self._generator.batch(self._row, count, self._columns)
        named = pa.record_batch([made.column(name) for name in self._columns], names=list(self._reading.fields.names))
        numbers = np.arange(self._row + 1, self._row + 1 + count)
        self._row += count
        batch, rejects = conform(named, self._reading, self._reading.uri, numbers)
        return SourceBatch(batch, rejects, {"row": self._row})

    @property
    def progress(self) -> Progress:
        return Progress(self._row, self._generator.rows, "rows")

    def close(self) -> None:
        """Nothing is held."""
