"""From the URI of a stream or a sink to the object that reads or writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from penstock.connect.csv_format import check_delimiter, flag
from penstock.connect.files import FORMATS, FileSource, format_by_name, local_path
from penstock.connect.generate import GeneratedSource
from penstock.connect.parquet_sink import ParquetSink
from penstock.connect.sink import DiscardSink, Sink, TextSink
from penstock.connect.source import Position, Reading, Source
from penstock.connect.stdin import StdinSource
from penstock.connect.stdout import StdoutSink
from penstock.errors import InputError
from penstock.lang.query import SinkDef, StreamDef
from penstock.lang.stream_options import HEARTBEAT
from penstock.types import Schema

SOURCE_OPTIONS = ("format", "delimiter", "header", "null", "multiline", "follow", HEARTBEAT)
SINK_OPTIONS = ("format", "delimiter", "header")

MAX_AHEAD = 3600.0
"""How many seconds a live event may be ahead of the clock. Events further ahead are rejected: one wrong clock would
close all windows."""


def open_source(
    stream: StreamDef,
    *,
    position: Position | None = None,
    follow: bool = False,
    batch_rows: int = 65536,
    columns: Sequence[str] | None = None,
) -> Source:
    """Opens the source of a declared stream, at a saved position if one is given.

    `follow` (or the stream's option of that name) waits for more at the end of the files.
    `columns` are those that some query reads; the event time and the sequence always come with them. A column that
    is not read is not checked either.
    """
    reading = reading_of(stream, batch_rows, columns)
    if reading.uri in ("-", "stdin:"):
        return StdinSource(reading, position)
    if reading.uri.startswith("generate:"):
        return GeneratedSource(reading, position)
    return FileSource(reading, position, follow or flag(reading, "follow", False))


def is_live(stream: StreamDef, follow: bool) -> bool:
    """Whether events come as they happen, so that a time far in the future can only be a bad clock."""
    followed = follow or dict(stream.options).get("follow", "").lower() == "true"
    return stream.uri in ("-", "stdin:") or (followed and not (stream.uri or "").startswith("generate:"))


def reading_of(stream: StreamDef, batch_rows: int = 65536, columns: Sequence[str] | None = None) -> Reading:
    """What there is to read for a stream; refuses options that no source knows."""
    if stream.uri is None:
        raise InputError(f"stream {stream.name} has no source; add FROM 'uri' to its CREATE STREAM, or push to it")
    if batch_rows < 1:
        raise InputError(f"batch_rows is {batch_rows}; it must be at least 1")
    options = checked_options(f"stream {stream.name}", stream.options, SOURCE_OPTIONS)
    if stream.arrived is not None:  # filled in when an event comes, so no source has it
        stream = replace(stream, schema=Schema(tuple(f for f in stream.schema if f.name != stream.arrived)))
    assert stream.uri is not None
    ordering = {stream.event_time.lower()} | ({stream.sequence.lower()} if stream.sequence else set())
    wanted = None if columns is None else {name.lower() for name in columns} | ordering
    fields = tuple(f for f in stream.schema if wanted is None or f.name.lower() in wanted)
    required = frozenset(f.name for f in fields if not f.nullable or f.name.lower() in ordering)
    return Reading(stream, stream.uri, Schema(fields), required, options, batch_rows)


def open_sink(sink: SinkDef, schema: pa.Schema) -> Sink:
    """Opens a declared sink for rows of a schema. Nothing is touched before its `restore`."""
    options = sink_options(sink)
    owner, style = options.owner, options.style
    if sink.uri == "discard:":
        return DiscardSink()
    if options.is_printed:
        return StdoutSink(schema, style or "jsonl", options.delimiter)
    path = local_path(sink.uri, owner, "stdout: and discard:")
    style = style or format_by_name(path) or ("parquet" if path.is_dir() or not path.suffix else None)
    if style == "parquet":
        if path.is_file():
            raise InputError(f"{owner}: '{path}' is a file; Parquet results need a directory")
        return ParquetSink(path, schema)
    if style not in FORMATS.values() or path.suffix == ".gz":
        raise InputError(f"{owner}: cannot tell the format of '{path}'; end it in .csv or .jsonl, or name a directory")
    if path.is_dir():
        raise InputError(f"{owner}: '{path}' is a directory; {style} results need a file")
    return TextSink(path, schema, options.delimiter if style == "csv" else None, options.header)


class SinkOptions(NamedTuple):
    """The options of a declared sink. `owner` names it in error messages; `style` is its format, or None."""

    owner: str
    style: str | None
    delimiter: str
    header: bool
    is_printed: bool
    """Whether it writes to standard output."""


def sink_options(sink: SinkDef) -> SinkOptions:
    owner = f"sink {sink.name}"
    options = checked_options(owner, sink.options, SINK_OPTIONS)
    style, is_printed = options.get("format"), sink.uri in ("-", "stdout:")
    if is_printed and style not in (None, "jsonl", "csv", "table"):
        raise InputError(f"{owner}: standard output is written as jsonl, csv or table, not '{style}'")
    delimiter = check_delimiter(options.get("delimiter", ","), owner)
    return SinkOptions(owner, style, delimiter, options.get("header", "true").lower() == "true", is_printed)


def checked_options(owner: str, given: tuple[tuple[str, str], ...], known: tuple[str, ...]) -> dict[str, str]:
    """The options of a stream or a sink by their names in lower case; refuses those that are not in `known`."""
    options = {key.lower(): value for key, value in given}
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InputError(f"{owner}: unknown option '{unknown[0]}'; there are {', '.join(known)}")
    return options
