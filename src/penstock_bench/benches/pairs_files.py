"""A run of Pairs from files to files: ticks go to a system as fast as it takes them, and its answers are kept for the
validator.

Latencies are not measured here, since nothing is sent when it is due; `penstock bench pairs` does that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as parquet

from penstock.errors import InputError
from penstock_bench.benches.pairs_systems import STREAMS, TICKS, PairsSystem
from penstock_bench.workloads.pairs.strategies import Strategy
from penstock_bench.workloads.pairs.tick_files import TickReader

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Ran:
    ticks: int
    seconds: float
    answers: dict[str, int]
    """How many of each stream."""


def run_from_files(
    system: PairsSystem,
    strategies: Sequence[Strategy],
    reader: TickReader,
    folder: Path,
    progress: Callable[[int], None] = lambda _: None,
) -> Ran:
    """TS and inputTS are microseconds since the begin of the run."""
    folder.mkdir(parents=True, exist_ok=True)
    ticks = last_ts = arrived = 0
    with _Kept(folder) as kept:
        try:
            system.start(strategies, kept.take)
            began = time.monotonic_ns()
            for piece in reader.ticks():
                arrived = (time.monotonic_ns() - began) // 1000
                system.push(_batch(piece.batch(pa.array(reader.symbols, pa.string())), arrived))
                ticks += len(piece)
                last_ts = int(piece.tick_ts[-1])
                progress(ticks)
            if ticks == 0:
                raise InputError("there is no tick to run: the files of ticks are empty")
            system.end(last_ts, arrived)
            seconds = (time.monotonic_ns() - began) / 1e9
        finally:
            system.close()
    return Ran(ticks, seconds, kept.counts)


def _batch(ticks: pa.RecordBatch, arrived: int) -> pa.RecordBatch:
    columns = [
        ticks.column("symbol").dictionary_decode(),
        *ticks.columns[1:],
        pa.repeat(pa.scalar(arrived, pa.int64()), ticks.num_rows),
    ]
    return pa.record_batch(columns, schema=TICKS)


class _Kept:
    """Both streams of answers as Parquet files, written in large pieces."""

    def __init__(self, folder: Path) -> None:
        self._writers = {
            name: parquet.ParquetWriter(folder / f"{name}.parquet", schema) for name, schema in STREAMS.items()
        }
        self._held: dict[str, list[pa.RecordBatch]] = {name: [] for name in STREAMS}
        self._rows = dict.fromkeys(STREAMS, 0)
        self.counts = dict.fromkeys(STREAMS, 0)

    def take(self, stream: str, answers: pa.RecordBatch) -> None:
        self._held[stream].append(answers.select(STREAMS[stream].names).cast(STREAMS[stream]))
        self._rows[stream] += answers.num_rows
        self.counts[stream] += answers.num_rows
        if self._rows[stream] >= _ROWS_AT_ONCE:
            self._write(stream)

    def _write(self, stream: str) -> None:
        if self._rows[stream]:
            self._writers[stream].write_table(pa.Table.from_batches(self._held[stream]).combine_chunks())
        self._held[stream], self._rows[stream] = [], 0

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for stream, writer in self._writers.items():
            self._write(stream)
            writer.close()
