"""The runtimes that conformance cases run on. Each takes a case and gives back what came out of it.

The embedded runtime can be driven in many ways that must make no difference: how the events are cut into pushes, how
much memory there is, how large a block is, and whether it is stopped and started again from a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from conformance.cases import Case, Moment, Table
from conformance.compare import bits
from conformance.description import Event

Arrivals = Sequence[tuple[str, Event]]


@dataclass
class Run:
    """What came out: the rows of each query, the late events of each stream and the number of rejects; and how many
    blocks were read back."""

    results: dict[str, list[Table]] = field(default_factory=dict)
    late: dict[str, list[Table]] = field(default_factory=dict)
    rejects: int = 0
    blocks_read: int = 0

    def table(self, query: str) -> Table:
        return joined(self.results[query])

    def late_table(self, stream: str) -> Table:
        return joined(self.late[stream])


@dataclass(frozen=True)
class Drive:
    """How to run the embedded engine.

    `batches`: sizes of the pushes, in turn, the rest in one; after a restart the sizes begin again.
    `restart_at`: after so many events a checkpoint is taken, the next `lost` events are pushed, their results thrown
    away, and a new App takes up from the checkpoint.
    """

    batches: tuple[int, ...] = ()
    memory: str = "64MB"
    block_size: int = 65536
    restart_at: int | None = None
    lost: int = 0
    directory: Path | None = None
    strategy: str = "auto"


def joined(tables: Sequence[Table]) -> Table:
    """Successive reads of one query: the columns are the same in all, the rows follow."""
    assert len({table.columns for table in tables}) == 1, "the columns changed between two reads"
    return Table(tables[0].columns, [row for table in tables for row in table.rows])


def plain(table: pa.Table) -> Table:
    """An Arrow table as Python values, timestamps as `Moment`."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            micros = column.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
            columns.append([None if value is None else Moment(value) for value in micros])
        else:
            columns.append(column.to_pylist())
    return Table(tuple(table.column_names), list(zip(*columns, strict=True)))


def pushes(arrivals: Arrivals, sizes: Sequence[int]) -> Iterator[tuple[str, list[Event]]]:
    """Cuts the arrivals into batches of these sizes (0 is an empty push), never across two streams."""
    start = 0
    for size in (*sizes, len(arrivals)):
        batch = arrivals[start : start + size]
        start += size
        if not batch and arrivals and size == 0:
            yield arrivals[0][0], []
        for stream, part in groupby(batch, key=lambda arrival: arrival[0]):
            yield stream, [event for _, event in part]


AT_ONCE = Drive()


def run_embedded(case: Case, drive: Drive = AT_ONCE) -> Run:
    """Runs a case through `penstock.App` and collects every query and stream the case expects something of."""
    return drive_embedded(case.program, case.arrivals, tuple(case.expect), tuple(case.late), drive)


def drive_embedded(program: str, arrivals: Arrivals, queries: Sequence[str], late: Sequence[str], drive: Drive) -> Run:
    run = Run()
    checkpoint = str(drive.directory) if drive.restart_at is not None else None

    def start() -> ps.App:
        return ps.App(
            program,
            memory=drive.memory,
            checkpoint=checkpoint,
            block_size=drive.block_size,
            strategy=drive.strategy,
        )

    def collect(app: ps.App) -> None:
        for name in queries:
            run.results.setdefault(name, []).append(plain(app.results(name)))
        for name in late:
            run.late.setdefault(name, []).append(plain(app.late(name)))

    app = start()
    try:
        if drive.restart_at is not None:
            for stream, batch in pushes(arrivals[: drive.restart_at], drive.batches):
                app.push(stream, batch)
            collect(app)
            app.checkpoint()
            run.rejects += len(app.rejects)
            run.blocks_read += app.metrics.blocks_read
            arrivals = arrivals[drive.restart_at :]
            for stream, batch in pushes(arrivals[: drive.lost], ()):
                app.push(stream, batch)
            app.close()
            app = start()
        before = len(app.rejects) if drive.restart_at is not None else 0
        for stream, batch in pushes(arrivals, drive.batches):
            app.push(stream, batch)
            collect(app)
        app.finish()
        collect(app)
        run.rejects += len(app.rejects) - before
        run.blocks_read += app.metrics.blocks_read
    finally:
        app.close()
    return run


def run_spark(case: Case, spark: Any, directory: Path | None = None, micro_batches: int = 3) -> Run:
    """Runs the program of a case on Spark, in buckets: as a bounded streaming run with files in `directory`, or else
    over static DataFrames."""
    from penstock.spark import query
    from spark.runs import Collected, bounded_streams, static_frames

    sink = Collected()
    if directory is None:
        sink(query(spark, static_frames(spark, case.program, events_of(case)), case.program, buckets=3, tagged=True), 0)
    else:
        bounded_streams(spark, case.program, events_of(case), sink, directory, micro_batches, buckets=3, tagged=True)
    return _came_out(case, sink.tables())


def run_spark_in_order(case: Case, spark: Any, directory: Path) -> Run:
    """As a bounded streaming run over files that we read ourselves, so that their rows arrive in the order of the case;
    in several micro-batches and tasks. All streams give out their late events."""
    from penstock.lang import parse
    from penstock.spark import run
    from spark.runs import Collected, streams_in_order

    streams = [f"{text}{'' if 'LATE INTO' in text else f' LATE INTO late_{i}'}" for i, text in enumerate(case.texts)]
    program = ";\n".join([*streams, case.query])
    frames = streams_in_order(spark, program, events_of(case), directory)
    sink = Collected()
    run(spark, frames, program, sink.write, str(directory / "checkpoint"), buckets=3, tagged=True)
    tables = sink.tables()
    names = {stream.name: stream.late_into or "" for stream in parse(program).streams}
    late = {stream: tables[names[stream]].select(table.columns) for stream, table in case.late.items()}
    return _came_out(case, tables, late)


def events_of(case: Case) -> dict[str, list[Event]]:
    events: dict[str, list[Event]] = {}
    for name, event in case.arrivals:
        events.setdefault(name, []).append(event)
    return events


def _came_out(case: Case, tables: dict[str, pa.Table], late: dict[str, pa.Table] | None = None) -> Run:
    """Rows in the order in which the case expects them, since those of one evaluation come from several buckets in any
    order."""
    run = Run(rejects=tables["rejects"].num_rows)
    for name, expected in case.expect.items():
        if name in tables:  # else its rows only go on to another query
            run.results[name] = [_sorted(plain(tables[name]), expected)]
    for name, table in (late or {}).items():
        run.late[name] = [_sorted(plain(table), case.late[name])]
    return run


def _sorted(table: Table, expected: Table) -> Table:
    wanted = [tuple(map(bits, row)) for row in expected.rows]
    place = {row: i for i, row in reversed(list(enumerate(wanted)))}
    return Table(table.columns, sorted(table.rows, key=lambda row: place.get(tuple(map(bits, row)), len(place))))
