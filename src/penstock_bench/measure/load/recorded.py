"""Records of a file that is replayed, a stretch at a time: columns, times in microseconds, names of streams.

Files are read by the readers of `penstock.connect`, so they may be larger than memory, and compressed. What a file is
like (its columns, and how times are written in it) is told by its first record.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import parquet

from penstock.errors import InputError
from penstock.instruments import StreamDef, can_become, format_by_name, open_source
from penstock.types import Field, Schema, SqlType
from penstock_bench.measure.load.arrivals import Times
from penstock_bench.measure.setup.model import Replay, Stream

_LONGEST_LINE = 1 << 20
LATEST_US = 2.0**61
"""No time is beyond this, on either side of the epoch; sums of two of them are still whole numbers of 64 bits."""
_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}


@dataclass(frozen=True)
class Records:
    """Rows of a file: their payload, and where the file has them their times (µs since the epoch) and streams."""

    columns: Mapping[str, pa.Array]
    times: Times | None
    streams: pa.Array | None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


@dataclass(frozen=True)
class _Looks:
    """The names of a file's columns (None: any, as in JSON), the types if it has them, and its first record."""

    names: list[str] | None
    types: Mapping[str, pa.DataType]
    first: Mapping[str, object]


class RecordedFile:
    """A file that is to be replayed into some of the setup's streams."""

    def __init__(self, replay: Replay, streams: Mapping[str, Stream], where: str) -> None:
        self._replay = replay
        self._where = where
        self._path = replay.file
        if not self._path.is_file():
            raise InputError(f"{where}.file: there is no file {self._path}")
        kind = replay.format or format_by_name(self._path)
        if kind is None:
            raise InputError(
                f"{where}.file: {self._path.name}: what is in it? add format = 'csv', 'jsonl' or 'parquet'"
            )
        self._format = kind
        self._looks = self._look()
        self.payload = {name: self._payload(stream) for name, stream in self._fed(streams).items()}
        if not self.payload:
            raise InputError(f"{where}.file: {self._path} has the columns of no stream of the setup")
        self._clock_times = False
        columns = self._merged(streams)
        # A reader needs at least one column; a stream may have none but its time.
        self._declared = Schema(tuple(Field(name, kind) for name, kind in columns.items()))
        if not len(self._declared):
            raise InputError(f"{where}.file: no column of {self._path} is needed; there is nothing to replay")

    def read(self, batch_rows: int) -> Iterator[Records]:
        """All records from the first one on."""
        replay = self._replay
        options = [("format", self._format)] + ([("delimiter", replay.delimiter)] if self._format == "csv" else [])
        name = replay.stream or "replay"
        stream = StreamDef(name, self._declared, replay.time_column or "", uri=str(self._path), options=tuple(options))
        source = open_source(stream, batch_rows=batch_rows)
        try:
            for got in source:
                if got.rejects:
                    bad = got.rejects[0]
                    unit = "row" if self._format == "parquet" else "line"
                    raise InputError(f"{self._where}.file: {self._path}, {unit} {bad.row}: {bad.reason}")
                if got.batch.num_rows:
                    yield self._records(got.batch)
        finally:
            source.close()

    def _records(self, batch: pa.RecordBatch) -> Records:
        replay = self._replay
        times = None if replay.time_column is None else self._times(batch.column(replay.time_column))
        streams = None if replay.type_column is None else batch.column(replay.type_column)
        return Records(dict(zip(batch.schema.names, batch.columns, strict=True)), times, streams)

    def _times(self, column: pa.Array) -> Times:
        if pa.types.is_string(column.type):
            try:
                if self._clock_times:
                    column = pc.binary_join_element_wise(pa.scalar("1970-01-01"), column, pa.scalar(" "))
                column = column.cast(pa.timestamp("us"))
            except pa.ArrowInvalid as error:
                raise InputError(f"{self._where}.time_column: {self._path} has a bad time: {error}") from None
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
            scale = 1.0
        else:
            scale = _UNITS[self._replay.time_unit]
        times: Times = column.to_numpy()
        if scale == 1 and times.dtype.kind == "i":
            return times
        scaled: NDArray[np.float64] = np.rint(times * scale)
        bad = np.flatnonzero(~(np.abs(scaled) < LATEST_US))
        if len(bad):
            raise InputError(f"{self._where}.time_column: {self._path} has a bad time: {times[bad[0]]}")
        return scaled.astype(np.int64)

    def _fed(self, streams: Mapping[str, Stream]) -> dict[str, Stream]:
        """The streams whose columns the file has. One that is named must be there: the reader says what is missing."""
        if self._replay.stream is not None:
            return {self._replay.stream: streams[self._replay.stream]}
        names = self._looks.names
        lowered = None if names is None else {name.lower() for name in names}
        return {
            name: stream
            for name, stream in streams.items()
            if lowered is None or all(column.lower() in lowered for column in self._payload(stream))
        }

    @staticmethod
    def _payload(stream: Stream) -> tuple[str, ...]:
        return tuple(column for column in stream.columns if column != stream.time)

    def _merged(self, streams: Mapping[str, Stream]) -> dict[str, SqlType]:
        """The columns to read: those of all streams, the time and the type."""
        columns: dict[str, SqlType] = {}
        for name, payload in self.payload.items():
            for column in payload:
                kind = streams[name].columns[column]
                if columns.setdefault(column, kind) is not kind:
                    raise InputError(
                        f"{self._where}.type_column: column '{column}' is {kind} in stream '{name}' and"
                        f" {columns[column]} in another; one file cannot have both"
                    )
        for column, kind in columns.items():
            found = self._looks.types.get(column)
            if found is not None and not can_become(found, kind):
                raise InputError(
                    f"{self._where}.file: column '{column}' is {found} in {self._path} and {kind} in the stream"
                )
        if self._replay.type_column is not None:
            columns.setdefault(self._replay.type_column, SqlType.STRING)
        if self._replay.time_column is not None:
            columns.setdefault(self._replay.time_column, self._time_type(self._replay.time_column))
        return columns

    def _time_type(self, column: str) -> SqlType:
        """How times are written: as times, as numbers, or as a time of day."""
        found = self._looks.types.get(column)
        if found is not None:
            if pa.types.is_timestamp(found):
                return SqlType.TIMESTAMP
            return SqlType.BIGINT if pa.types.is_integer(found) else SqlType.DOUBLE
        first = self._looks.first.get(column)
        if first is None and column in (self._looks.names or ()):
            return SqlType.BIGINT  # there are no records, which is told when they are read
        if first is None:
            names = ", ".join(self._looks.first) or "none"
            raise InputError(f"{self._where}.time_column: {self._path} has no '{column}'; there are {names}")
        text = str(first).strip()
        try:
            float(text)
            # In seconds or milliseconds the first one may be whole and another not.
            return SqlType.DOUBLE if self._replay.time_unit in ("s", "ms") else SqlType.BIGINT
        except ValueError:
            self._clock_times = text[:1].isdigit() and ":" in text[:3]
            return SqlType.STRING if self._clock_times else SqlType.TIMESTAMP

    def _look(self) -> _Looks:
        try:
            if self._format == "parquet":
                schema = parquet.read_schema(self._path)
                return _Looks(schema.names, dict(zip(schema.names, schema.types, strict=True)), {})
            first, second = _first_lines(self._path)
        except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
            raise InputError(f"{self._where}.file: {self._path} cannot be read as {self._format}: {error}") from None
        if self._format == "csv":
            names, values = (next(csv.reader([line], delimiter=self._replay.delimiter), []) for line in (first, second))
            names = [name.strip() for name in names]
            return _Looks(names, {}, dict(zip(names, values, strict=False)))
        try:
            record = json.loads(first or "{}")
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise InputError(f"{self._where}.file: {self._path}, line 1: is no JSON object")
        return _Looks(None, {}, record)


def _first_lines(path: Path) -> tuple[str, str]:
    with path.open("rb") as raw, gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw as file:
        first, second = file.readline(_LONGEST_LINE), file.readline(_LONGEST_LINE)
    return first.decode("utf-8-sig", "replace").strip(), second.decode("utf-8", "replace").strip()
