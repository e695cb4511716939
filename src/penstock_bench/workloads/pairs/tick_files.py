"""Tick files and the auxiliary file: what the data generator leaves for the other tools.

Ticks are Parquet or CSV (symbol, price, size, tickTS). Several files share the ticks in turn: of n files, file f has
the ticks f, f + n, f + 2n …, and reading them together gives the one stream again. The auxiliary file is JSON: the
number of strategies, the correlations and the names of the tick files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from penstock.errors import InputError
from penstock_bench.workloads.pairs.ticks import CHUNK_TICKS, SCHEMA, Ticks, empty, interleaved, rechunked

AUXILIARY_FILE: Final = "pairs.json"
_PLAIN = pa.schema([field.with_type(pa.string()) if field.name == "symbol" else field for field in SCHEMA])


class TickFormat(StrEnum):
    PARQUET = "parquet"
    CSV = "csv"


@dataclass(frozen=True)
class Auxiliary:
    """What the query generator needs to know of the data."""

    scale_factor: int
    strategies: int
    correlations: tuple[tuple[str, str], ...]
    files: tuple[str, ...]


def write_ticks(
    ticks: Iterator[Ticks],
    symbols: Sequence[str],
    folder: Path,
    count: int,
    format_: TickFormat,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Path]:
    """Deals the ticks out to `count` files; `progress` is told how many are written."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"ticks.{format_}" if count == 1 else f"ticks-{number + 1}.{format_}" for number in range(count)]
    paths = [folder / name for name in names]
    dictionary = pa.array(symbols, pa.string())
    writers = [_writer(path, format_) for path in paths]
    written = 0
    try:
        for piece in rechunked(ticks, max(1, CHUNK_TICKS // count) * count):
            for turn, writer in enumerate(writers):
                writer.write_batch(piece[turn :: len(writers)].batch(dictionary))
            written += len(piece)
            progress(written)
    finally:
        for writer in writers:
            writer.close()
    return paths


def write_auxiliary(folder: Path, auxiliary: Auxiliary) -> Path:
    path = folder / AUXILIARY_FILE
    pairs = ",\n    ".join(json.dumps(pair) for pair in auxiliary.correlations)
    path.write_text(
        f'{{\n  "scaleFactor": {auxiliary.scale_factor},\n  "strategies": {auxiliary.strategies},\n'
        f'  "files": {json.dumps(auxiliary.files)},\n  "correlations": [\n    {pairs}\n  ]\n}}\n',
        encoding="utf-8",
    )
    return path


def read_auxiliary(folder: Path) -> Auxiliary:
    path = folder / AUXILIARY_FILE
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        auxiliary = Auxiliary(
            int(read["scaleFactor"]),
            int(read["strategies"]),
            tuple((str(one), str(other)) for one, other in read["correlations"]),
            tuple(str(name) for name in read["files"]),
        )
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}. Run `penstock pairs generate` first") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: this is not what `penstock pairs generate` writes: {error!r}") from None
    for name in auxiliary.files:
        if Path(name).name != name:
            raise InputError(f"{path}: {name!r} is not the name of a file in the same folder")
    return auxiliary


class TickReader:
    """The ticks of one file, or of several that share one stream; `symbols` are the names met so far, by number."""

    def __init__(self, files: Sequence[Path]) -> None:
        if not files:
            raise InputError("there is no file of ticks: name at least one")
        self._files = tuple(files)
        self._numbers: dict[str, int] = {}

    @property
    def symbols(self) -> list[str]:
        return list(self._numbers)

    def ticks(self, rows: int = CHUNK_TICKS) -> Iterator[Ticks]:
        """In the order of the stream; tickTS is checked never to decrease."""
        count = len(self._files)
        parts = [rechunked(self._of_file(file), max(1, rows // count)) for file in self._files]
        before = 0
        for group in zip_longest(*parts, fillvalue=empty(0)):
            piece = group[0] if count == 1 else self._together(group)
            if len(piece) and (piece.tick_ts[0] < before or bool(np.any(np.diff(piece.tick_ts) < 0))):
                names = ", ".join(map(str, self._files))
                raise InputError(f"{names}: tickTS decreases: sort the ticks by tickTS")
            before = int(piece.tick_ts[-1])
            yield piece

    def _together(self, group: Sequence[Ticks]) -> Ticks:
        total = sum(map(len, group))
        for turn, part in enumerate(group):
            if len(part) != -(-(total - turn) // len(group)):
                names = ", ".join(map(str, self._files))
                raise InputError(f"{names}: these files do not share one stream: name all files of one generated run")
        return interleaved(group)

    def _of_file(self, path: Path) -> Iterator[Ticks]:
        row = 0
        for batch in _batches(path):
            symbol = batch.column("symbol")
            if not pa.types.is_dictionary(symbol.type):
                symbol = symbol.dictionary_encode()
            for name in SCHEMA.names:
                if batch.column(name).null_count:
                    raise InputError(f"{path}: a tick after row {row} has no {name}: every tick has all four columns")
            places = [self._numbers.setdefault(name, len(self._numbers)) for name in symbol.dictionary.to_pylist()]
            price, size = batch.column("price").to_numpy(), batch.column("size").to_numpy()
            times = batch.column("tickTS").to_numpy()
            if len(price) and (price.min() < 1 or size.min() < 0 or times.min() < 0):
                raise InputError(
                    f"{path}: a tick after row {row} has a price below 1 cent, or a negative size or tickTS"
                )
            numbers = np.array(places, np.int32)[symbol.indices.to_numpy()] if len(price) else np.empty(0, np.int32)
            yield Ticks(numbers, price, size, times)
            row += batch.num_rows


class _CsvWriter:
    """Arrow's writer quotes the names of columns, so the header is written here."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._file.write((",".join(_PLAIN.names) + "\n").encode())
        options = csv.WriteOptions(include_header=False, quoting_style="none")
        self._writer = csv.CSVWriter(self._file, _PLAIN, write_options=options)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        text = batch.column("symbol").dictionary_decode()
        self._writer.write_batch(pa.record_batch([text, *batch.columns[1:]], schema=_PLAIN))

    def close(self) -> None:
        self._writer.close()
        self._file.close()


def _writer(path: Path, format_: TickFormat) -> Any:
    return parquet.ParquetWriter(path, SCHEMA) if format_ is TickFormat.PARQUET else _CsvWriter(path)


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The four columns in their types, whatever the file is; ends in an `InputError` if it is not a file of ticks."""
    try:
        if path.suffix == ".parquet":
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(CHUNK_TICKS, columns=SCHEMA.names):
                    yield batch.cast(SCHEMA) if batch.schema != SCHEMA else batch
            return
        with path.open("rb") as start:
            has_header = start.read(7).strip(b'"').startswith(b"symbol")
        reading = csv.ReadOptions(column_names=None if has_header else SCHEMA.names)
        converting = csv.ConvertOptions(column_types=SCHEMA, include_columns=SCHEMA.names, null_values=[""])
        with csv.open_csv(path, reading, convert_options=converting) as rows:
            yield from rows
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (pa.ArrowException, KeyError) as error:
        raise InputError(
            f"{path}: this is not a file of ticks (symbol, price, size, tickTS): {str(error).splitlines()[0]}"
        ) from None
