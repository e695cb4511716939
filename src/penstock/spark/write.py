"""From a tagged DataFrame to its parts: `results` picks one, `write` sends each to its sink, exactly once.

A tagged DataFrame has the results of several queries, late events and rejects in one: rows `(name, rows, packed)`,
where `packed` is an Arrow record batch whose columns the metadata of the field `packed` tells by name.

A path is a directory with a directory `batch=N` in it for each micro-batch N that had rows. The tasks of one Spark job
write the files of all paths, with the encoders of the embedded engine.

Invariants:
1. Micro-batch 0 begins a new query: what an earlier one left under the path goes. A path belongs to one query.
2. A micro-batch that is run again first removes what it left, and a task that is run again replaces its own file; a
   file has its name only when it is whole. So after the batch is committed its rows are there once.
3. The DataFrame of a micro-batch is computed once, however many sinks there are.
"""

from __future__ import annotations

import re
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, cast
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as pafs
from pyarrow import parquet
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from penstock.connect.encode import csv_header, csv_lines, json_lines
from penstock.errors import InputError, StorageError
from penstock.spark.bucket_app import REJECTS
from penstock.spark.calls import as_frame, delivery_of, rows_of
from penstock.spark.dataframe import SCHEMAS
from penstock.spark.failures import as_ours
from penstock.spark.file_system import file_system, qualified
from penstock.spark.packing import REJECTED, decode
from penstock.spark.schema import schema_of
from penstock.types import Schema

FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}

_WRITTEN_DDL = "name string, rows bigint"
_WRITTEN = pa.schema([("name", pa.string()), ("rows", pa.int64())])


@dataclass(frozen=True)
class Files:
    """A directory for results. `format` is parquet, csv or jsonl; delimiter and header are for CSV."""

    path: str
    format: str
    delimiter: str = ","
    header: bool = True

    @staticmethod
    def at(path: str) -> Files:
        """With the format that the path's ending tells; Parquet where it tells none.

        >>> Files.at("out/totals.csv").format, Files.at("out/totals").format
        ('csv', 'parquet')
        """
        ending = re.search(r"\.\w+$", path.rstrip("/"))
        return Files(path, FORMATS.get(ending.group().lower(), "parquet") if ending else "parquet")


Sink = str | Files | Callable[[DataFrame, int], None]
"""A path, a path with its format, or a function that is called with the rows and the number of each micro-batch."""


def names(tagged: DataFrame) -> dict[str, Schema]:
    """What a tagged DataFrame holds, by name."""
    packed = next((field for field in tagged.schema.fields if field.name == "packed"), None)
    if packed is None or SCHEMAS not in packed.metadata:
        raise InputError("this is no tagged DataFrame; penstock.spark.query(..., tagged=True) makes one")
    return {
        name: schema_of(cast(StructType, StructType.fromDDL(ddl))) for name, ddl in packed.metadata[SCHEMAS].items()
    }


def results(tagged: DataFrame, name: str) -> DataFrame:
    """The rows of one name, in their own columns."""
    schema = _known(names(tagged), name).arrow

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for packed in batch.column(0):
                yield decode(packed.as_py(), schema)

    own = tagged.where(F.col("name") == name).select("packed")
    return own.mapInArrow(unpack, _ddl(tagged, name))


def write(tagged: DataFrame, sinks: Mapping[str, Sink]) -> DataStreamWriter:
    """Sends each name's rows to its sink; those of names without a sink are computed and dropped.

    The calls of rules are made in this process, before a micro-batch is committed: at least once, and with the same
    keys if it is run again. A call that has failed goes to the sink of the rejects. Where a name of calls has a sink,
    that sink gets its rows, and no function is called.

    A function gets an ordinary DataFrame and, as Spark's `foreachBatch` has it, may be called again with the same
    number after a failure; paths need no care.
    """
    if not tagged.isStreaming:
        raise InputError("these are results over static DataFrames; take each name with penstock.spark.results")
    if getattr(tagged, "_jdf", None) is None:
        raise InputError(
            "over Spark Connect micro-batches cannot be handed on to several sinks: Spark computes them apart from "
            "their streaming query; write penstock.spark.results(df, name) with writeStream to one of Spark's sinks"
        )
    schemas = names(tagged)
    chosen = {name: Files.at(sink) if isinstance(sink, str) else sink for name, sink in sinks.items()}
    for name in chosen:
        _known(schemas, name)
    paths = {
        name: replace(sink, path=qualified(tagged.sparkSession, sink.path))
        for name, sink in chosen.items()
        if isinstance(sink, Files)
    }
    functions = {name: sink for name, sink in chosen.items() if not isinstance(sink, Files)}
    for sink in paths.values():
        _check_directory(sink)
    metadata = tagged.schema["packed"].metadata
    delivery = delivery_of(tagged)
    called = [] if delivery is None else [name for name in delivery.functions if name not in chosen]

    def write_batch(batch: DataFrame, number: int) -> None:
        for sink in paths.values():
            _clear(sink.path, number)
        # The metadata is lost on the way into `foreachBatch`.
        again = batch.withMetadata("packed", metadata)
        if functions or called:
            again = again.persist()
        try:
            again.mapInArrow(_FileWriter(paths, schemas, number), _WRITTEN_DDL).collect()
            failed: list[dict[str, str]] = []
            for name in called:
                assert delivery is not None
                failed += delivery.deliver(name, rows_of(again, name, schemas[name].arrow))
            if failed and REJECTS in paths:
                _write_failed(paths[REJECTS], failed, number)
            elif failed and REJECTS not in functions:
                warnings.warn(f"{len(failed)} calls have failed: {failed[0]['reason']}", stacklevel=2)
            for name, function in functions.items():
                rows = results(again, name)
                function(rows.union(as_frame(rows, failed)) if failed and name == REJECTS else rows, number)
        except PySparkException as error:
            raise as_ours(error) from None
        finally:
            if functions or called:
                again.unpersist()

    return tagged.writeStream.foreachBatch(write_batch)


def _write_failed(sink: Files, failed: list[dict[str, str]], number: int) -> None:
    """Calls that have failed, in a file beside those of the tasks."""
    file = _File(sink, REJECTED, "calls", number)
    file.write(pa.RecordBatch.from_pylist(failed, REJECTED))
    file.finish()


class _FileWriter:
    """What a task does: the rows of each name into one file, `NAME-PARTITION.format`."""

    def __init__(self, sinks: Mapping[str, Files], schemas: Mapping[str, Schema], number: int) -> None:
        self._sinks = sinks
        self._schemas = {name: schemas[name].arrow for name in sinks}
        self._number = number

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        open_files: dict[str, _File] = {}
        counts: dict[str, int] = {}
        for batch in batches:
            for name, packed in zip(batch.column("name").to_pylist(), batch.column("packed"), strict=True):
                if name not in self._sinks:
                    continue
                if name not in open_files:
                    open_files[name] = _File(self._sinks[name], self._schemas[name], name, self._number)
                rows = decode(packed.as_py(), self._schemas[name])
                open_files[name].write(rows)
                counts[name] = counts.get(name, 0) + rows.num_rows
        for file in open_files.values():
            file.finish()
        yield pa.record_batch([pa.array(counts.keys(), pa.string()), pa.array(counts.values(), pa.int64())], _WRITTEN)


class _File:
    """Under a hidden name until it is whole; Spark and our own sources pass over names that begin with a dot."""

    def __init__(self, sink: Files, schema: pa.Schema, name: str, number: int) -> None:
        self._files, root = file_system(sink.path)
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        directory = f"{root}/batch={number}"
        self._final = f"{directory}/{quote(name, safe='')}-{partition:05d}.{sink.format}"
        self._draft = f"{directory}/.{uuid.uuid4().hex}"
        try:
            self._files.create_dir(directory, recursive=True)
            self._stream = self._files.open_output_stream(self._draft)
            self._encoder = _encoder(sink, schema, self._stream)
        except OSError as error:
            raise _failed(sink.path, error) from None
        self._path = sink.path

    def write(self, rows: pa.RecordBatch) -> None:
        try:
            self._encoder.write(rows)
        except OSError as error:
            raise _failed(self._path, error) from None

    def finish(self) -> None:
        try:
            self._encoder.close()
            self._stream.close()
            self._files.move(self._draft, self._final)
        except OSError as error:
            raise _failed(self._path, error) from None


class _Encoder(Protocol):
    def write(self, rows: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class _Text:
    def __init__(self, sink: Files, schema: pa.Schema, stream: pa.NativeFile) -> None:
        self._stream = stream
        self._delimiter = sink.delimiter if sink.format == "csv" else None
        if self._delimiter is not None and sink.header:
            stream.write(csv_header(schema, self._delimiter))

    def write(self, rows: pa.RecordBatch) -> None:
        self._stream.write(json_lines(rows) if self._delimiter is None else csv_lines(rows, self._delimiter))

    def close(self) -> None:
        """The caller that opened the stream closes it."""


def _encoder(sink: Files, schema: pa.Schema, stream: pa.NativeFile) -> _Encoder:
    if sink.format == "parquet":
        writer: _Encoder = parquet.ParquetWriter(stream, schema, compression="zstd")
        return writer
    return _Text(sink, schema, stream)


def _clear(path: str, number: int) -> None:
    """Removes what an earlier attempt at this micro-batch left, and at the first one what an earlier query left."""
    files, root = file_system(path)
    old = re.compile(r"batch=\d+" if number == 0 else rf"batch={number}")
    try:
        for info in files.get_file_info(pafs.FileSelector(root, allow_not_found=True)):
            if info.type is pafs.FileType.Directory and old.fullmatch(info.base_name):
                files.delete_dir(info.path)
    except OSError as error:
        raise _failed(path, error) from None


def _check_directory(sink: Files) -> None:
    if sink.format not in FORMATS.values():
        raise InputError(f"'{sink.path}': unknown format '{sink.format}'; there are parquet, csv and jsonl")
    files, root = file_system(sink.path)
    if files.get_file_info(root).type is pafs.FileType.File:
        raise InputError(f"'{sink.path}' is a file; on Spark results go to a directory of files: choose another path")


def _known(schemas: Mapping[str, Schema], name: str) -> Schema:
    if name not in schemas:
        raise InputError(f"there are no results named '{name}'; there are {', '.join(sorted(schemas))}")
    return schemas[name]


def _ddl(tagged: DataFrame, name: str) -> str:
    columns: str = tagged.schema["packed"].metadata[SCHEMAS][name]
    return columns


def _failed(path: str, error: OSError) -> StorageError:
    return StorageError(f"{path}: cannot be written: {error}; free space or choose another path")
