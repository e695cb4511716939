"""The call-centre job: rolling 24-hour KPIs per service, every 10 seconds of event time, on Spark.

Events are made as Spark reads them. The window is many times the memory budget, so it lives in segment files; results
go to Parquet, and the last evaluation is shown as a table. `make run` runs it in Spark's local mode.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from penstock.engine.app import App
from penstock.spark import run, session
from penstock.spark.generated import generated_stream
from penstock.spark.progress import Figures, ProgressDisplay
from penstock.spark.session import SHORT_RUN
from penstock.types import Schema
from penstock.workloads.callcentre import STREAM, create_stream_sql, generator, schema
from penstock.workloads.chunks import ChunkedGenerator

QUERY = f"""
SELECT serviceId                     AS service,
       COUNT(*)                      AS calls,
       AVG(waitTime) / 1000          AS wait_s,
       MAX(waitTime) / 1000          AS longest_s,
       AVG(busyTime) / 1000          AS busy_s,
       AVG(wrapUpTime) / 1000        AS wrap_up_s,
       COUNT(*) FILTER (WHERE waitTime <= 20000) * 100.0 / COUNT(*) AS within_20_s
FROM {STREAM} [RANGE 24 HOURS SLIDE 10 SECONDS]
GROUP BY serviceId
"""
COLUMNS = ("timestamp", "serviceId", "waitTime", "busyTime", "wrapUpTime")

_START = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000


@dataclass(frozen=True)
class Job:
    """How much there is to do: `hours` of a stream with `rate` events per second of event time."""

    hours: int = 26
    rate: int = 60
    rows_per_batch: int = 1_000_000
    memory: str = "16MB"
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
    console.print("[bold]Call centre on Spark[/bold]: 24-hour KPIs per service, every 10 seconds of event time")
    console.print(f"{job.events:,} events, {job.hours} hours of them; memory budget {job.memory}")
    with tempfile.TemporaryDirectory(prefix="penstock-") as place:
        with console.status("starting Spark"):
            compiling = Thread(target=_compile_kernels, args=(job,))
            compiling.start()
            spark = session("penstock call centre", master, SHORT_RUN, log_file=f"{place}/spark.log")
            compiling.join()
        with ProgressDisplay(console, job.events) as display:
            run(
                spark,
                {STREAM: job.stream(spark)},
                QUERY,
                lambda frame: frame.writeStream.format("parquet").option("path", f"{place}/results"),
                f"{place}/checkpoint",
                memory=job.memory,
                watch=display.watch,
            )
        window = _bytes_under(Path(place) / "checkpoint" / "penstock" / "segments")
        _show(console, _last_evaluation(spark, f"{place}/results"), display.figures, window)
        spark.stop()


def _compile_kernels(job: Job) -> None:
    """Runs the query on a few events in this process, so that the workers find its kernels compiled on disk."""
    with App(create_stream_sql("generated") + QUERY) as app:
        events = job.generator()
        app.push(STREAM, events.batch(0, 1000, events.schema.names))
        app.finish()


def _last_evaluation(spark: SparkSession, results: str) -> list[dict[str, object]]:
    frame = spark.read.parquet(results)
    newest = frame.agg(F.max("window_end").alias("window_end"))
    rows = frame.join(newest, "window_end").orderBy(F.desc("calls")).collect()
    return [row.asDict() for row in rows]


def _bytes_under(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def _show(console: Console, rows: list[dict[str, object]], figures: Figures, window: int) -> None:
    shown = 12
    title = (
        f"The {shown} busiest of {len(rows)} services in the 24 hours before {rows[0]['window_end']:%Y-%m-%d %H:%M} UTC"
    )
    table = Table(title=title)
    names = [name for name in rows[0] if not name.startswith("window_")]
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows[:shown]:
        cells = (row[name] for name in names)
        table.add_row(*(f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" for value in cells))
    console.print()
    console.print(table)
    rate = figures.events / figures.busy_seconds
    console.print(
        f"{figures.events:,} events, {figures.results:,} results, {figures.batches} micro-batches, {rate:,.0f} "
        f"events/s; late {figures.late}, rejected {figures.rejected}; "
        f"{window / 1e6:,.0f} MB of window in segment files, {figures.state_bytes / 1e6:.1f} MB committed state"
    )


if __name__ == "__main__":
    main()
