"""The call-centre job: the paper's 144 KPIs over the last 24 hours, every two hours of event time, on Spark.

Six durations are counted, added up and averaged by eight keys. Since the keys differ, events stay where they are read,
each is stored once, and what the places have of a group is merged. Events are made as Spark reads them. The window is
many times the memory budget, so it lives in segment files; results go to Parquet, and the last look at the busiest
services is shown as a table. `make run` runs it in Spark's local mode.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock import App
from penstock.generators.callcentre import FIELDS, GROUP_KEYS, STREAM, generator, schema
from penstock.generators.chunks import ChunkedGenerator
from penstock.instruments import SHORT_RUN, Figures, ProgressDisplay, generated_stream
from penstock.spark import run, session, write
from penstock.types import Schema
from penstock_bench.workloads.callcentre_kpis import kpi_stream_sql, kpis_by_key

QUERIES = kpis_by_key("RANGE 24 HOURS SLIDE 2 HOURS")
COLUMNS = ("timestamp", *GROUP_KEYS, *FIELDS)

_SHOWN = 12
_START = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000


@dataclass(frozen=True)
class Job:
    """How much there is to do: `hours` of a stream with `rate` events per second of event time."""

    hours: int = 26
    rate: int = 40
    rows_per_batch: int = 600_000
    memory: str = "96MB"
    tasks: int = 2
    seed: int = 1

    @property
    def events(self) -> int:
        return self.hours * 3600 * self.rate

    def generator(self) -> ChunkedGenerator:
        return generator(rate=self.rate, seconds=self.hours * 3600, seed=self.seed, start=_START)

    def stream(self, spark: SparkSession) -> DataFrame:
        """Only the columns that are read: a Python source cannot be told by Spark which those are."""
        read = Schema(tuple(field for field in schema() if field.name in COLUMNS))
        return generated_stream(spark, self.generator, read, self.events, self.rows_per_batch, self.tasks)


def main(job: Job | None = None, master: str = "local[2]") -> None:
    """Runs the job with a live display and prints the KPIs at the end."""
    job = job or Job()
    console = Console()
    console.print("[bold]Call centre on Spark[/bold]: 144 KPIs over the last 24 hours, every two hours of event time")
    console.print(f"{job.events:,} events, {job.hours} hours of them; memory budget {job.memory}")
    with tempfile.TemporaryDirectory(prefix="penstock-") as place:
        with console.status("starting Spark"):
            compiling = Thread(target=_compile_kernels, args=(job,))
            compiling.start()
            spark = session("penstock call centre", master, SHORT_RUN, log_file=f"{place}/spark.log")
            compiling.join()

        def to_parquet(results: DataFrame) -> DataStreamWriter:
            return write(results, {f"by_{key}": f"{place}/by_{key}" for key in GROUP_KEYS})

        started = time.monotonic()
        with ProgressDisplay(console, job.events, line_seconds=5) as display:
            run(
                spark,
                {STREAM: job.stream(spark)},
                QUERIES,
                to_parquet,
                f"{place}/checkpoint",
                memory=job.memory,
                tagged=True,
                watch=display.watch,
            )
        window = _bytes_under(Path(place) / "checkpoint" / "penstock" / "segments")
        seconds = time.monotonic() - started
        _show(console, _last_look(spark, f"{place}/by_serviceId"), display.figures, window, seconds)
        spark.stop()


def _compile_kernels(job: Job) -> None:
    """Runs the queries on a few events in this process, so that the workers find their kernels compiled on disk."""
    with App(kpi_stream_sql("generated") + QUERIES) as app:
        events = job.generator()
        app.push(STREAM, events.batch(0, 1000, list(COLUMNS)))
        app.finish()


def _last_look(spark: SparkSession, results: str) -> list[dict[str, Any]]:
    frame = spark.read.parquet(results)
    newest = frame.agg(F.max("window_end").alias("window_end"))
    rows = frame.join(newest, "window_end").orderBy(F.desc("calls")).collect()
    return [row.asDict() for row in rows]


def _bytes_under(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def _show(console: Console, rows: list[dict[str, Any]], figures: Figures, window: int, seconds: float) -> None:
    table = Table(
        title=f"The {_SHOWN} busiest of {len(rows)} services in the 24 hours before "
        f"{rows[0]['window_end']:%Y-%m-%d %H:%M:%S} UTC, mean times in minutes",
        box=box.SIMPLE,
        padding=0,
    )
    for name in ("service", "calls", "", *(field.removesuffix("Time") for field in FIELDS)):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for row in rows[:_SHOWN]:
        table.add_row(
            f"{row['serviceId']}",
            f"{row['calls']:,}",
            Text(bar(row["calls"] / rows[0]["calls"], 8), style="green"),
            *(minutes(row[f"{field}_mean"] / 1000) for field in FIELDS),
        )
    console.print(table)
    console.print(
        f"The same by {', '.join(key for key in GROUP_KEYS if key != 'serviceId')}: {len(GROUP_KEYS)} keys, "
        f"{len(FIELDS)} durations, COUNT, SUM and AVG of each are {len(GROUP_KEYS) * len(FIELDS) * 3} KPIs."
    )
    console.print(
        f"[bold]{figures.events:,}[/bold] events and [bold]{figures.results:,}[/bold] results in {seconds:.0f} s, "
        f"{figures.batches} micro-batches, [bold]{figures.mean_rate:,.0f} events/s[/bold] while they ran; "
        f"late {figures.late:,}, rejected {figures.rejected:,}"
    )
    console.print(
        f"{window / 1e6:,.0f} MB of window in segment files beside the checkpoint, "
        f"{figures.state_bytes / 1e6:.1f} MB of committed state; event time reached {figures.stream_time}"
    )


def bar(part: float, width: int) -> str:
    """
    >>> bar(0.5, 4), bar(1, 4)
    ('██  ', '████')
    """
    return ("█" * round(part * width)).ljust(width)


def minutes(seconds: float) -> str:
    """
    >>> minutes(75.4), minutes(7.25)
    ('1:15', '0:07')
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


if __name__ == "__main__":
    main()
