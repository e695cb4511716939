"""The sinks of an application on Spark: directories that Spark's tasks write, and what this process prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from penstock.connect.files import format_by_name
from penstock.connect.opening import sink_options
from penstock.connect.stdout import StdoutSink
from penstock.connect.wiring import Output, outputs
from penstock.errors import InputError
from penstock.lang.query import Program, SinkDef
from penstock.spark.bucket_app import REJECTS
from penstock.spark.write import Files, Sink


class OutputPipe:
    """The reader of standard output. It may close early, which is noticed when results are printed."""

    def __init__(self) -> None:
        self.gone = False

    def check(self) -> None:
        if self.gone:
            raise BrokenPipeError


class Printer:
    """Prints the rows of each micro-batch as it ends, in the order of their windows."""

    def __init__(self, schema: pa.Schema, sink: StdoutSink, reader: OutputPipe) -> None:
        self._schema = schema
        self._sink = sink
        self._reader = reader

    def __call__(self, frame: DataFrame, number: int) -> None:
        rows = frame.toArrow().cast(self._schema)
        if "window_end" in self._schema.names:
            # A stable sort: the order within an evaluation is the query's.
            rows = rows.take(pc.sort_indices(rows, [("window_end", "ascending")]))
        try:
            for batch in rows.combine_chunks().to_batches():
                self._sink.write(batch)
        except BrokenPipeError:
            self._reader.gone = True


def sinks_of(program: Program, rejects: str, reader: OutputPipe) -> dict[str, Sink]:
    """By the names of queries, LATE INTO and the rejects; what is discarded has no sink."""
    wanted = outputs(program)
    several = sum(output.sink is None for output in wanted) > 1
    sinks: dict[str, Sink] = {REJECTS: Files(rejects, "jsonl")}
    for output in wanted:
        made = _printer(output, several, reader) if output.sink is None else _sink(output.sink, output, reader)
        if made is not None:
            sinks[output.name] = made
    return sinks


def _printer(output: Output, several: bool, reader: OutputPipe) -> Sink:
    style = "table" if sys.stdout.isatty() else "jsonl"
    return Printer(output.schema, StdoutSink(output.schema, style, label=output.name if several else None), reader)


def _sink(sink: SinkDef, output: Output, reader: OutputPipe) -> Sink | None:
    options = sink_options(sink)
    if sink.uri == "discard:":
        return None
    if options.is_printed:
        return Printer(output.schema, StdoutSink(output.schema, options.style or "jsonl", options.delimiter), reader)
    style = options.style or format_by_name(Path(sink.uri)) or "parquet"
    if style not in ("parquet", "csv", "jsonl"):
        raise InputError(f"{options.owner}: unknown format '{style}'; there are parquet, csv and jsonl")
    return Files(sink.uri, style, options.delimiter, options.header)
