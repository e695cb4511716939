"""`penstock run`: an application on Spark, in local mode or on a cluster.

There are three ways to run: to the end of the input, which closes the windows; over what there is now, which leaves
them open for the next run; and on and on, until Ctrl-C. All three go on from the same checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from rich.console import Console

import penstock.generators  # makes the generators known
import penstock.spark
from penstock.cli.interrupt import Interrupt
from penstock.cli.pages import Pages
from penstock.cli.spark_sinks import OutputPipe, sinks_of
from penstock.connect.generate import make_generator
from penstock.connect.opening import MAX_AHEAD
from penstock.connect.wiring import outputs
from penstock.errors import CheckpointError, InputError, PenstockError
from penstock.lang.query import Program, StreamDef
from penstock.plan.columns import needed_columns
from penstock.spark.file_system import qualified
from penstock.spark.program import Program as Planned
from penstock.spark.program import read_program
from penstock.spark.progress import ProgressDisplay
from penstock.spark.running import Watch, run_to_end
from penstock.spark.sources import open_stream
from penstock.spark.write import Sink, names, write


class RunLength(Enum):
    """How long a run goes on."""

    TO_THE_END = "to the end"
    AVAILABLE_NOW = "available now"
    ON_AND_ON = "on and on"


@dataclass(frozen=True)
class SparkOptions:
    """What the command line says; `trigger` is the time between micro-batches, as Spark writes it."""

    memory: str
    checkpoint: str | None
    rejects: str
    way: RunLength
    trigger: str | None
    master: str
    conf: Mapping[str, str]
    buckets: int | None
    quiet: bool
    pages: Pages | None = None


_CONF = {"spark.sql.streaming.pollingDelay": "100ms"}
"""Files are looked for so often while there is nothing to do; Spark's own default keeps a core busy with it."""


class _Stopped(Exception):
    """Ctrl-C was pressed; never leaves this file."""


def run_on_spark(text: str, options: SparkOptions) -> bool:
    """Runs the application; False if it was stopped before it ended by itself."""
    planned = read_program(text, {})
    program = planned.parsed
    way = _way(program, options.way)
    _check_checkpoint(options.checkpoint)
    reader = OutputPipe()
    sinks = sinks_of(program, options.rejects, reader)
    console = Console(stderr=True, quiet=options.quiet, highlight=False)
    with Interrupt() as interrupt, log_file() as log, tempfile.TemporaryDirectory(prefix="penstock-") as scratch:
        with console.status("starting Spark"):
            spark = penstock.spark.session("penstock", options.master, {**_CONF, **options.conf}, log_file=log)
        try:
            with _notes(console):
                frames = _frames(spark, planned, way)
                run = _Run(spark, frames, planned, sinks, options.checkpoint or f"{scratch}/checkpoint", options)
                display = _display(program, console)
                if options.pages is not None:
                    options.pages.show_spark(display.figures, planned, options.buckets)
                return _watched(run, way, display, reader, interrupt, options.rejects)
        finally:
            with contextlib.suppress(Py4JError, ConnectionError):
                spark.stop()


def _display(program: Program, console: Console) -> ProgressDisplay:
    crossing = sys.stdout.isatty() and any(output.printed for output in outputs(program))
    return ProgressDisplay(console, _known_events(program), live=not crossing)


def _watched(
    run: _Run, way: RunLength, display: ProgressDisplay, reader: OutputPipe, interrupt: Interrupt, rejects: str
) -> bool:
    """Lets it run under the eyes of the user; False if it was stopped."""

    def watch(query: StreamingQuery) -> None:
        display.watch(query)
        reader.check()
        if interrupt.asked:
            raise _Stopped

    started = time.monotonic()
    finished = True
    try:
        with display:
            run.go(way, watch)
    except _Stopped:
        finished = False
    except (Py4JError, ConnectionError):
        # A signal to the whole group of processes has stopped Java, too.
        if not interrupt.asked:
            raise
        finished = False
    display.summary("finished" if finished else "stopped", time.monotonic() - started)
    if display.figures.rejected:
        display.note(f"rows that could not be read or computed are in {rejects}")
    return finished


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        frames: Mapping[str, DataFrame],
        planned: Planned,
        sinks: Mapping[str, Sink],
        checkpoint: str,
        options: SparkOptions,
    ) -> None:
        self._spark = spark
        self._frames = frames
        self._planned = planned
        self._sinks = sinks
        self._checkpoint = qualified(spark, checkpoint)
        self._options = options

    def go(self, way: RunLength, watch: Watch) -> None:
        memory, buckets = self._options.memory, self._options.buckets
        if way is RunLength.TO_THE_END:
            penstock.spark.run(
                self._spark,
                self._frames,
                self._planned,
                self._write,
                self._checkpoint,
                memory=memory,
                buckets=buckets,
                tagged=True,
                watch=watch,
            )
            return
        tagged = penstock.spark.query(
            self._spark,
            self._frames,
            self._planned,
            memory=memory,
            buckets=buckets,
            checkpoint=self._checkpoint,
            bounded=True,
            tagged=True,
        )
        writer = self._write(tagged)
        if way is RunLength.AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif self._options.trigger is not None:
            writer = writer.trigger(processingTime=self._options.trigger)
        run_to_end(writer, self._checkpoint, watch)

    def _write(self, tagged: DataFrame) -> DataStreamWriter:
        """Names of sinks are as the text declares them, which LATE INTO may spell in another case."""
        there = {name.lower(): name for name in names(tagged)}
        return write(tagged, {there.get(name.lower(), name): sink for name, sink in self._sinks.items()})


def _frames(spark: SparkSession, planned: Planned, way: RunLength) -> dict[str, DataFrame]:
    nodes = planned.nodes.values()
    follow = way is not RunLength.TO_THE_END
    max_ahead = MAX_AHEAD if way is RunLength.ON_AND_ON else None
    return {
        stream.name: open_stream(spark, stream, needed_columns(stream, nodes), follow=follow, max_ahead=max_ahead)
        for stream in planned.parsed.streams
    }


def _way(program: Program, asked: RunLength) -> RunLength:
    """Streams that wait for more, and generators without end, make a run go on and on."""
    endless = [stream.name for stream in program.streams if _is_endless(stream)]
    if asked is RunLength.AVAILABLE_NOW and endless:
        raise InputError(f"stream {endless[0]} has no end, so it is never all available; give its generator seconds=")
    follows = any(dict(stream.options).get("follow", "").lower() == "true" for stream in program.streams)
    return RunLength.ON_AND_ON if asked is RunLength.TO_THE_END and (endless or follows) else asked


def _is_endless(stream: StreamDef) -> bool:
    uri = stream.uri or ""
    return uri.startswith("generate:") and make_generator(uri).rows is None


def _known_events(program: Program) -> int | None:
    """The number of events, where all are generated."""
    uris = [stream.uri or "" for stream in program.streams]
    if not all(uri.startswith("generate:") for uri in uris):
        return None
    rows = [make_generator(uri).rows for uri in uris]
    return None if None in rows else sum(count or 0 for count in rows)


def _check_checkpoint(checkpoint: str | None) -> None:
    if checkpoint is not None and (Path(checkpoint) / "blocks").is_dir():
        raise CheckpointError(
            f"{checkpoint} is the checkpoint of an embedded run; add --engine embedded, or choose another one"
        )


@contextlib.contextmanager
def log_file() -> Iterator[str]:
    """Where Spark's own messages go. An error of Spark's is told in one line, and the log stays to explain it."""
    descriptor, log = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
    os.close(descriptor)
    explains = False
    try:
        yield log
    except (PySparkException, Py4JError) as error:
        explains = True
        raise PenstockError(f"Spark: {_cause(str(error)) or type(error).__name__}; its log is {log}") from error
    finally:
        if not explains:
            os.unlink(log)


@contextlib.contextmanager
def _notes(console: Console) -> Iterator[None]:
    """What the library warns of, as a line and not as a place in its source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, category, filename, lineno, file=None, line=None: console.print(
            f"note: {message}", style="yellow", markup=False, soft_wrap=True
        )
        yield


def _cause(report: str) -> str:
    """What went wrong, in one line, out of the many that Spark writes.

    >>> _cause("[STREAM_FAILED] Query failed: Traceback (most recent call last):\\n  ...\\nKeyError: 'k'\\n\\tat org.x")
    "KeyError: 'k'"
    >>> _cause("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03\\n=== Streaming Query ===")
    '[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03'
    """
    lines = [line.strip() for line in report.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"(?!org\.|java\.|pyspark\.|py4j\.)[\w.]*(Error|Exception): ", line)]
    return raised[-1] if raised else next(iter(lines), "")
