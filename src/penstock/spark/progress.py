"""What a running query tells about itself, and a live display of it for terminals."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock.spark.dataframe import METRICS


@dataclass
class Figures:
    """Sums over the micro-batches of a run; `busy_seconds` is the time that Spark spent in them."""

    batches: int = 0
    events: int = 0
    results: int = 0
    late: int = 0
    rejected: int = 0
    state_bytes: int = 0
    last_time: int | None = None
    busy_seconds: float = 0.0
    last_seconds: float = 0.0
    last_events: int = 0
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def read(self, query: StreamingQuery) -> None:
        """Takes in the micro-batches that ended since the last call."""
        for progress in query.recentProgress:
            key = (str(progress["runId"]), int(progress["batchId"]))
            metrics = progress["observedMetrics"].get(METRICS)
            if key in self._seen or metrics is None or metrics["events"] is None:
                continue
            self._seen.add(key)
            self._add(metrics.asDict(), progress["durationMs"]["triggerExecution"] / 1000)

    def _add(self, metrics: dict[str, Any], seconds: float) -> None:
        self.batches += 1
        self.events += metrics["events"]
        self.results += metrics["results"]
        self.late += metrics["late"]
        self.rejected += metrics["rejected"]
        self.state_bytes = metrics["state_bytes"]
        self.last_time = metrics["last_time"]
        self.busy_seconds += seconds
        if metrics["events"]:
            self.last_seconds, self.last_events = seconds, metrics["events"]

    @property
    def stream_time(self) -> str:
        if self.last_time is None:
            return "-"
        return f"{datetime.fromtimestamp(self.last_time / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


class ProgressDisplay:
    """Shows `figures` while a run goes on; `watch` is what `spark.bounded.run` calls."""

    def __init__(self, console: Console, total_events: int | None = None) -> None:
        self.figures = Figures()
        self._bar = Progress(
            TextColumn("[bold]events"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        )
        self._task = self._bar.add_task("events", total=total_events)
        self._live = Live(self._picture(), console=console, refresh_per_second=4)

    def __enter__(self) -> ProgressDisplay:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.update(self._picture())
        self._live.stop()

    def watch(self, query: StreamingQuery) -> None:
        self.figures.read(query)
        self._bar.update(self._task, completed=self.figures.events)
        self._live.update(self._picture())

    def _picture(self) -> Group:
        figures = self.figures
        rate = figures.last_events / figures.last_seconds if figures.last_seconds else 0.0
        table = Table.grid(padding=(0, 3))
        table.add_row("events/s", f"{rate:,.0f}", "stream time", figures.stream_time)
        table.add_row("results", f"{figures.results:,}", "late", f"{figures.late:,}")
        table.add_row("micro-batches", f"{figures.batches}", "last one", f"{figures.last_seconds:.2f} s")
        table.add_row("committed state", f"{figures.state_bytes / 1e6:.2f} MB", "rejected", f"{figures.rejected:,}")
        return Group(self._bar, table)
