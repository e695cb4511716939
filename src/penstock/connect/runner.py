"""The runner: reads the sources of an app, pushes their events, writes its results, and commits all three together.

Invariants:
1. A checkpoint holds the app's state, the position of every source and the position of every sink after the same
   events. Sinks commit first; the checkpoint that names their positions is what counts. A restart cuts every sink back
   to what the checkpoint says, so results after it are written again, the same, and none is lost or repeated.
2. The last checkpoint of a bounded run is taken before the end of input is told to the app. Running it again closes
   the same windows once more; running it after input was added goes on as if it had never stopped.
3. Among several sources the one that is furthest behind in event time is read next, so that little has to wait.

Who calls: the command line, and programs with `run(app)`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connect.opening import open_sink, open_source
from penstock.connect.rejects import RejectWriter
from penstock.connect.sink import Sink
from penstock.connect.source import Position, Reject, Source
from penstock.connect.stdout import StdoutSink
from penstock.engine.app import App
from penstock.engine.metrics import Metrics
from penstock.errors import InputError
from penstock.lang.query import Program, StreamDef, columns_of

REPORT_SECONDS = 0.1
COMMIT_SECONDS = 10.0


class Outcome(Enum):
    FINISHED = "finished"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Report:
    """How far a run has come: `fraction` of the input where its end is known; `rejects` unread and uncomputed rows."""

    metrics: Metrics
    rejects: int
    fraction: float | None
    epoch: int
    seconds: float


@dataclass
class _Feed:
    """A source at work. `reached` is the largest event time read, in microseconds."""

    stream: StreamDef
    source: Source
    position: Position
    reached: int = -(1 << 63)
    ended: bool = False
    waited: bool = False


@dataclass
class _Outputs:
    """Where results go: declared sinks by name; a query that goes nowhere else is printed."""

    declared: dict[str, Sink] = field(default_factory=dict)
    printed: list[Sink] = field(default_factory=list)


def run(
    app: App,
    *,
    checkpoint_every: float | None = None,
    follow: bool = False,
    batch_rows: int = 65536,
    limit: int | None = None,
    reject_file: Path | None = None,
    on_progress: Callable[[Report], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Runs an app until its sources end, `limit` events are read or `stop()` says so.

    `checkpoint_every` is in seconds; the app must have a checkpoint directory then. Without it, results become durable
    every `COMMIT_SECONDS` and at the end, and a restart begins anew.
    """
    runner = _Runner(app, checkpoint_every, follow, batch_rows, reject_file, on_progress)
    try:
        return runner.run(limit, stop)
    finally:
        runner.close()


class _Runner:
    def __init__(
        self,
        app: App,
        checkpoint_every: float | None,
        follow: bool,
        batch_rows: int,
        reject_file: Path | None,
        on_progress: Callable[[Report], None] | None,
    ) -> None:
        self._app = app
        self._checkpoint_every = checkpoint_every
        self._computed_rejects = app.metrics.rejected
        self._on_progress = on_progress
        self._started = time.monotonic()
        self._reported = self._started
        saved = app.restored or {"epoch": 0, "sources": {}, "sinks": {}, "rejects": None}
        self._epoch = int(saved["epoch"])
        self._rejects = RejectWriter(reject_file)
        self._feeds: list[_Feed] = []
        self._outputs = _Outputs()
        try:
            self._feeds = [self._open(stream, saved["sources"], follow, batch_rows) for stream in app.program.streams]
            self._outputs = _open_outputs(app)
            for name, sink in self._outputs.declared.items():
                sink.restore(saved["sinks"].get(name))
            self._rejects.restore(saved["rejects"])
        except BaseException:
            self.close()
            raise

    def _open(self, stream: StreamDef, saved: dict[str, Position], follow: bool, batch_rows: int) -> _Feed:
        source = open_source(
            stream,
            position=saved.get(stream.name),
            follow=follow,
            batch_rows=batch_rows,
            columns=self._app.needed_columns(stream.name),
        )
        return _Feed(stream, source, saved.get(stream.name, {}))

    def run(self, limit: int | None, stop: Callable[[], bool]) -> Outcome:
        every = COMMIT_SECONDS if self._checkpoint_every is None else self._checkpoint_every
        committed = time.monotonic()
        left = limit
        while (feed := self._next_feed()) is not None:
            if stop():
                self._commit()
                return Outcome.STOPPED
            count = self._advance(feed, left)
            left = None if left is None else left - count
            if left == 0:
                break
            if time.monotonic() - committed >= every:
                self._commit()
                committed = time.monotonic()
            self._report()
        self._commit()
        self._app.finish()
        self._take_rejects()
        self._commit_outputs()
        self._report(final=True)
        return Outcome.FINISHED

    def _next_feed(self) -> _Feed | None:
        """The one furthest behind; one that just had nothing lets the others go first."""
        feeds = [feed for feed in self._feeds if not feed.ended]
        ready = [feed for feed in feeds if not feed.waited] or feeds
        for feed in feeds:
            feed.waited = False
        return min(ready, key=lambda feed: feed.reached, default=None)

    def _advance(self, feed: _Feed, limit: int | None) -> int:
        """Reads one batch and pushes it; returns the number of events."""
        got = next(feed.source, None)
        if got is None:
            feed.ended = True
            return 0
        batch = got.batch if limit is None else got.batch.slice(0, limit)
        self._rejects.write(got.rejects)
        feed.waited = batch.num_rows == 0
        if batch.num_rows:
            feed.reached = max(feed.reached, _latest(batch, feed.stream))
            self._app.push(feed.stream.name, batch)
            self._take_rejects()
        feed.position = got.position
        return int(batch.num_rows)

    def _take_rejects(self) -> None:
        """What the app could not compute goes to the same file as what could not be read."""
        rejected = self._app.metrics.rejected
        if rejected > self._computed_rejects:
            for reject in self._app.rejects[self._computed_rejects - rejected :]:
                raw = json.dumps(reject["row"], default=str, ensure_ascii=False)
                self._rejects.write([Reject("computed", 0, reject["reason"], raw)])
            self._computed_rejects = rejected

    def _commit(self) -> None:
        positions = self._commit_outputs()
        if self._checkpoint_every is not None:
            sources = {feed.stream.name: feed.position for feed in self._feeds}
            self._app.checkpoint({"epoch": self._epoch, "sources": sources, **positions})

    def _commit_outputs(self) -> dict[str, object]:
        self._epoch += 1
        sinks = {name: sink.commit(self._epoch) for name, sink in self._outputs.declared.items()}
        return {"sinks": sinks, "rejects": self._rejects.commit()}

    def _report(self, final: bool = False) -> None:
        now = time.monotonic()
        if self._on_progress is None or (now - self._reported < REPORT_SECONDS and not final):
            return
        self._reported = now
        fractions = [feed.source.progress.fraction for feed in self._feeds]
        known = [fraction for fraction in fractions if fraction is not None]
        fraction = sum(known) / len(known) if known and len(known) == len(fractions) else None
        self._on_progress(Report(self._app.metrics, self._rejects.count, fraction, self._epoch, now - self._started))

    def close(self) -> None:
        for feed in self._feeds:
            feed.source.close()
        for sink in self._outputs.declared.values():
            sink.close()
        self._rejects.close()


def _open_outputs(app: App) -> _Outputs:
    program = app.program
    outputs = _Outputs()
    by_name = {sink.name: sink for sink in program.sinks}
    schemas: dict[str, pa.Schema] = {}

    def connect(target: str, source: str, schema: pa.Schema) -> None:
        if schemas.setdefault(target, schema) != schema:
            raise InputError(
                f"sink {target}: its queries have different columns ({', '.join(schemas[target].names)} and "
                f"{', '.join(schema.names)}); give each a sink of its own"
            )
        if target not in outputs.declared:
            outputs.declared[target] = open_sink(by_name[target], schema)
        app.subscribe(source, _writer(outputs.declared[target], schema))

    printed = [query for query in program.queries if query.into is None]
    for query in program.queries:
        schema = columns_of(query.body).arrow
        if query.into in by_name:
            connect(query.into, query.name, schema)
        elif query.into is None:
            style = "table" if sys.stdout.isatty() else "jsonl"
            sink = StdoutSink(schema, style, label=query.name if len(printed) > 1 else None)
            outputs.printed.append(sink)
            app.subscribe(query.name, _writer(sink, schema))
    for stream in program.streams:
        if stream.late_into in by_name:
            connect(stream.late_into, stream.late_into, stream.schema.arrow)
    return outputs


def _writer(sink: Sink, schema: pa.Schema) -> Callable[[pa.RecordBatch], None]:
    """Results with the columns as declared: inside the engine, strings may be dictionary-encoded."""

    def write(batch: pa.RecordBatch) -> None:
        sink.write(pa.record_batch([c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)], schema=schema))

    return write


def prints_results(program: Program) -> bool:
    """Whether some result of the app goes to standard output."""
    to_stdout = {sink.name for sink in program.sinks if sink.uri in ("-", "stdout:")}
    return any(query.into is None or query.into in to_stdout for query in program.queries)


def _latest(batch: pa.RecordBatch, stream: StreamDef) -> int:
    largest = pc.max(batch.column(stream.event_time))
    return int(largest.cast(pa.int64()).as_py()) * stream.time_unit
