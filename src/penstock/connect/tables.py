"""Tables from files: what a stream can be read from, a table can be loaded from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
from pyarrow import parquet

from penstock.connect.files import FileSet
from penstock.connect.opening import open_source, reading_of
from penstock.engine.tables.sources import TableSource
from penstock.errors import InputError
from penstock.lang.query import StreamDef
from penstock.lang.table_defs import TableDef
from penstock.lang.table_options import FILE_OPTIONS, is_database


class TableFiles:
    """A file, a glob or a directory; Parquet, CSV or JSON lines."""

    def __init__(self, table: TableDef) -> None:
        self._table = table
        options = tuple((key, value) for key, value in table.options if key in FILE_OPTIONS)
        # What a source reads is a stream; the first column of the key, which is never NULL, stands for its time.
        self._stream = StreamDef(table.name, table.schema, table.key[0], uri=table.uri, options=options)

    def rows(self) -> int | None:
        paths = FileSet(reading_of(self._stream)).list()
        if not paths or any(path.suffix != ".parquet" for path in paths):
            return None
        try:
            return sum(int(parquet.ParquetFile(path).metadata.num_rows) for path in paths)
        except (OSError, pa.ArrowException):
            return None  # reading them says why

    def batches(self) -> Iterator[pa.RecordBatch]:
        with closing(open_source(self._stream, batch_rows=1 << 18)) as source:
            for piece in source:
                if piece.rejects:
                    bad = piece.rejects[0]
                    raise InputError(
                        f"table {self._table.name}: {bad.source}, row {bad.row}: {bad.reason}; "
                        "a table is loaded as a whole or not at all"
                    )
                yield piece.batch


def open_files(table: TableDef) -> TableSource | None:
    return None if table.uri is None or is_database(table.uri) else TableFiles(table)
