"""The runner: reads the sources of an app, pushes their events, writes its results, and commits all three together.

Invariants:
1. A checkpoint holds the app's state, the position of every source and the position of every sink after the same
   events. Sinks commit first; the checkpoint that names their positions is what counts. A restart cuts every sink back
   to what the checkpoint says, so results after it are written again, the same, and none is lost or repeated. Events
   go on while a checkpoint is written; the next one waits for it, and a run does not end before the last one stands.
2. The last checkpoint of a bounded run is taken before the end of input is told to the app. Running it again closes
   the same windows once more; running it after input was added goes on as if it had never stopped.
3. Among several sources the one that is furthest behind in event time is read next, so that little has to wait.
4. What is written to text files can be read there at once when the input pauses, and after `FLUSH_SECONDS` at the
   latest while it does not.

Callers: the command line, and programs with `run(app)`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connect.opening import is_live, open_sink, open_source
from penstock.connect.rejects import RejectWriter
from penstock.connect.sink import Sink
from penstock.connect.source import Position, Reject, Source
from penstock.connect.stdout import StdoutSink
from penstock.connect.wiring import outputs
from penstock.engine.app import App
from penstock.engine.event_times import bounds
from penstock.engine.metrics import Metrics
from penstock.errors import CheckpointError, InputError
from penstock.lang.query import StreamDef

REPORT_SECONDS = 0.1
FLUSH_SECONDS = 1.0
COMMIT_SECONDS = 10.0
COMMIT_SECONDS_LIVE = 1.0
"""Between commits without checkpoints. With live input a reader waits for the results; of what is read to its end,
results in fewer files are better."""


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


def run(
    app: App,
    *,
    checkpoint_every: float | None = None,
    commit_every: float | None = None,
    follow: bool = False,
    batch_rows: int = 65536,
    limit: int | None = None,
    reject_file: Path | None = None,
    on_progress: Callable[[Report], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Runs an app until its sources end, `limit` events are read or `stop()` says so.

    `checkpoint_every` is in seconds; the app must have a checkpoint directory then. Without it a restart begins anew,
    and `commit_every` is how often results become durable (and Parquet files readable) besides at the end: by default
    every second if a source is live, and every ten seconds if none is.
    """
    if checkpoint_every is not None and commit_every is not None:
        raise InputError("results are committed with every checkpoint; give checkpoint_every or commit_every")
    if limit is not None and checkpoint_every is not None:
        raise InputError("a limit cuts the input short and a checkpoint promises to go on with it; give one of them")
    runner = _Runner(app, checkpoint_every, commit_every, follow, batch_rows, reject_file, on_progress)
    try:
        return runner.run(limit, stop)
    finally:
        runner.close()


class _Runner:
    def __init__(
        self,
        app: App,
        checkpoint_every: float | None,
        commit_every: float | None,
        follow: bool,
        batch_rows: int,
        reject_file: Path | None,
        on_progress: Callable[[Report], None] | None,
    ) -> None:
        self._app = app
        self._has_checkpoints = checkpoint_every is not None
        live = any(is_live(stream, follow) for stream in app.program.streams)
        default = COMMIT_SECONDS_LIVE if live else COMMIT_SECONDS
        self._every = next((given for given in (checkpoint_every, commit_every) if given is not None), default)
        self._on_progress = on_progress
        self._started = time.monotonic()
        self._reported = self._flushed = self._committed = self._started
        saved = _saved(app)
        self._epoch = int(saved["epoch"])
        self._rejects = RejectWriter(reject_file)
        self._feeds: list[_Feed] = []
        self._sinks: dict[str, Sink] = {}
        try:
            self._feeds = [self._open(stream, saved["sources"], follow, batch_rows) for stream in app.program.streams]
            self._sinks = _open_sinks(app)
            for name, sink in self._sinks.items():
                sink.restore(saved["sinks"].get(name))
            self._rejects.restore(saved["rejects"])
            app.subscribe_rejects(self._uncomputed)
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
        left = limit
        while (feed := self._next_feed()) is not None:
            if stop():
                self._commit(wait=True)
                self._report(final=True)
                return Outcome.STOPPED
            count = self._advance(feed, left)
            left = None if left is None else left - count
            if left == 0:
                break
            self._show(pauses=count == 0)
            self._report()
        self._commit(wait=True)
        self._app.finish()
        self._commit_outputs()
        self._report(final=True)
        return Outcome.FINISHED

    def _show(self, pauses: bool) -> None:
        """Lets readers of the sinks see what is due."""
        now = time.monotonic()
        if now - self._committed >= self._every:
            self._commit()
            self._committed = self._flushed = time.monotonic()
        elif pauses or now - self._flushed >= FLUSH_SECONDS:
            for sink in self._sinks.values():
                sink.flush()
            self._rejects.flush()
            self._flushed = now

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
        else:
            self._app.tick()
        feed.position = got.position
        return int(batch.num_rows)

    def _uncomputed(self, reason: str, row: dict[str, Any]) -> None:
        """What the app could not compute goes to the same file as what could not be read."""
        self._rejects.write([Reject("computed", 0, reason, json.dumps(row, default=str, ensure_ascii=False))])

    def _commit(self, *, wait: bool = False) -> None:
        positions = self._commit_outputs()
        if self._has_checkpoints:
            sources = {feed.stream.name: feed.position for feed in self._feeds}
            self._app.checkpoint({"epoch": self._epoch, "sources": sources, **positions}, wait=wait)

    def _commit_outputs(self) -> dict[str, object]:
        self._epoch += 1
        sinks = {name: sink.commit(self._epoch) for name, sink in self._sinks.items()}
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
        for sink in self._sinks.values():
            sink.close()
        self._rejects.close()


def _saved(app: App) -> dict[str, Any]:
    """What the last checkpoint says of sources and sinks; of a new app, that there is nothing."""
    saved = app.restored or {}
    if "sources" in saved:
        return saved
    if app.metrics.events:
        raise CheckpointError(
            "the checkpoint was written by a program that pushes events itself, so where to go on reading is unknown; "
            "start with another checkpoint directory"
        )
    return {"epoch": 0, "sources": {}, "sinks": {}, "rejects": None}


def _open_sinks(app: App) -> dict[str, Sink]:
    """The declared sinks that something is written to, subscribed; a query that goes nowhere else is printed. The rows
    of a derived stream that goes to none do not wait: no checkpoint has them."""
    wanted = outputs(app.program)
    several = sum(output.sink is None for output in wanted) > 1
    sinks: dict[str, Sink] = {}
    for output in wanted:
        if output.sink is None:
            style = "table" if sys.stdout.isatty() else "jsonl"
            sink: Sink = StdoutSink(output.schema, style, label=output.name if several else None)
        else:
            if output.sink.name not in sinks:
                sinks[output.sink.name] = open_sink(output.sink, output.schema)
            sink = sinks[output.sink.name]
        app.subscribe(output.name, _writer(sink, output.schema))
    for name in set(app.queries) - {output.name for output in wanted}:
        app.subscribe(name, lambda rows: None)
    return sinks


def _writer(sink: Sink, schema: pa.Schema) -> Callable[[pa.RecordBatch], None]:
    """Results with the columns as declared: inside the engine, strings may be dictionary-encoded."""

    def write(batch: pa.RecordBatch) -> None:
        sink.write(pa.record_batch([c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)], schema=schema))

    return write


def _latest(batch: pa.RecordBatch, stream: StreamDef) -> int:
    """The latest time of an event; the app rejects rows with times beyond `bounds`, so these do not count."""
    first, last = bounds(stream.time_unit)
    times = batch.column(stream.event_time).cast(pa.int64())
    largest = pc.max(times).as_py()
    if largest is not None and largest > last:
        largest = pc.max(times.filter(pc.less_equal(times, last))).as_py()
    return max(first, first if largest is None else largest) * stream.time_unit
