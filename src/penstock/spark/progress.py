"""What a running query tells about itself, and a live display of it for terminals."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from penstock.spark.dataframe import METRICS, RESULTS

_BATCHES_DRAWN = 16


@dataclass
class Figures:
    """Sums over the micro-batches of a run; `busy_seconds` is the time that Spark spent in them. `state_bytes` is the
    state after the last one, and `state_written` what that wrote of it. `restored` counts buckets whose state was read
    back, since the process that ran them did not have it."""

    batches: int = 0
    events: int = 0
    results: int = 0
    late: int = 0
    rejected: int = 0
    state_bytes: int = 0
    state_written: int = 0
    bytes_read: int = 0
    restored: int = 0
    last_time: int | None = None
    busy_seconds: float = 0.0
    last_seconds: float = 0.0
    last_events: int = 0
    slowest_seconds: float = 0.0
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=_BATCHES_DRAWN))
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def read(self, query: StreamingQuery) -> None:
        """Takes in the micro-batches that ended since the last call."""
        for progress in query.recentProgress:
            key = (str(progress["runId"]), int(progress["batchId"]))
            observed = progress["observedMetrics"]
            metrics = observed.get(METRICS)
            if key in self._seen or metrics is None or metrics["events"] is None:
                continue
            self._seen.add(key)
            self.add(
                {**metrics.asDict(), **observed[RESULTS].asDict()}, progress["durationMs"]["triggerExecution"] / 1000
            )

    def add(self, metrics: dict[str, Any], seconds: float) -> None:
        """Takes in one micro-batch."""
        self.batches += 1
        self.events += metrics["events"]
        self.results += metrics["results"] or 0
        self.late += metrics["late"]
        self.rejected += metrics["rejected"]
        self.state_bytes, self.state_written = metrics["state_bytes"], metrics["state_written"]
        self.bytes_read += metrics["bytes_read"]
        self.restored += metrics["restored"]
        self.last_time = metrics["last_time"]
        self.busy_seconds += seconds
        self.slowest_seconds = max(self.slowest_seconds, seconds)
        if metrics["events"]:
            self.last_seconds, self.last_events = seconds, metrics["events"]
            self.rates.append(self.rate)

    @property
    def rate(self) -> float:
        """Events per second of the last micro-batch that had some."""
        return self.last_events / self.last_seconds if self.last_seconds else 0.0

    @property
    def mean_rate(self) -> float:
        return self.events / self.busy_seconds if self.busy_seconds else 0.0

    @property
    def stream_time(self) -> str:
        if self.last_time is None:
            return "-"
        try:
            return f"{datetime.fromtimestamp(self.last_time / 1e6, UTC):%Y-%m-%d %H:%M:%S}"
        except (OverflowError, ValueError):
            return "-"


class ProgressDisplay:
    """Shows `figures` on a terminal while a run goes on; `watch` is what `spark.running` calls.

    `live` is off where it would be drawn across results on the same terminal. Where there is no terminal, a line is
    printed every `line_seconds`, if that is given.
    """

    def __init__(
        self,
        console: Console,
        total_events: int | None = None,
        *,
        live: bool = True,
        line_seconds: float | None = None,
    ) -> None:
        self.figures = Figures()
        self._console = console
        self._doing = "starting"
        done = "{task.completed:,}" if total_events is None else "{task.completed:,} of {task.total:,}"
        self._bar = Progress(
            TextColumn("[bold]events"),
            BarColumn(pulse_style="cyan"),
            TextColumn(done),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._bar.add_task("events", total=total_events)
        self._line_seconds = None if console.is_terminal else line_seconds
        self._lined, self._last_line = time.monotonic(), ""
        drawn = live and console.is_terminal
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True, get_renderable=self._picture) if drawn else None
        )

    def __enter__(self) -> ProgressDisplay:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def watch(self, query: StreamingQuery) -> None:
        self.figures.read(query)
        self._doing = query.status["message"]
        self._bar.update(self._task, completed=self.figures.events)
        now = time.monotonic()
        line = self._line()
        if self._line_seconds is not None and now - self._lined >= self._line_seconds and line != self._last_line:
            self._lined, self._last_line = now, line
            self._console.print(line, soft_wrap=True)

    def _line(self) -> str:
        figures = self.figures
        return (
            f"{figures.events:,} events, {figures.rate:,.0f}/s, stream time {figures.stream_time}, "
            f"{figures.results:,} results, last micro-batch {figures.last_seconds:.2f} s, "
            f"state {figures.state_bytes / 1e6:,.2f} MB, {figures.late:,} late, {figures.rejected:,} rejected"
        )

    def _picture(self) -> Group:
        figures = self.figures
        table = Table.grid(padding=(0, 2))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(no_wrap=True)
        rate = Text.assemble(f"{figures.rate:>11,.0f}/s ", (sparkline(figures.rates), "green"))
        table.add_row("events", rate, "stream time", figures.stream_time)
        batch = f"{figures.batches}: last {figures.last_seconds:.2f} s, most {figures.slowest_seconds:.2f} s"
        table.add_row("micro-batches", batch, "state", f"{figures.state_bytes / 1e6:,.2f} MB")
        lost = Text.assemble(
            _count(figures.late, "late"),
            "  ",
            _count(figures.rejected, "rejected"),
            style="" if figures.late else "dim",
        )
        table.add_row("results", f"{figures.results:>11,}", "left out", lost)
        return Group(self._bar, table, Text(self._doing, style="dim", no_wrap=True, overflow="ellipsis"))

    def summary(self, title: str, seconds: float) -> None:
        """The totals of the run, once it is over."""
        figures = self.figures
        table = Table(title=f"[bold]{title}[/bold]", show_header=False, box=None, padding=(0, 2))
        table.add_column(style="cyan")
        table.add_column(justify="right")
        rows = [
            ("events", f"{figures.events:,}"),
            ("seconds", f"{seconds:,.1f}"),
            ("events a second in micro-batches", f"{figures.mean_rate:,.0f}"),
            ("micro-batches", f"{figures.batches:,}"),
            ("event time reached", figures.stream_time),
            ("results", f"{figures.results:,}"),
            ("late", f"{figures.late:,}"),
            ("rejected", f"{figures.rejected:,}"),
            ("committed state", f"{figures.state_bytes / 1e6:,.2f} MB"),
            ("written of it by the last micro-batch", f"{figures.state_written / 1e6:,.2f} MB"),
        ]
        for name, value in rows:
            table.add_row(name, value)
        self._console.print(table)

    def note(self, text: str) -> None:
        self._console.print(text, style="yellow", markup=False, soft_wrap=True)


def sparkline(values: Iterable[float]) -> str:
    """
    >>> sparkline([1, 4, 8, 2])
    '▁▄█▂'
    """
    bars = "▁▂▃▄▅▆▇█"
    drawn = list(values)
    most = max(drawn, default=0.0)
    return "".join(bars[max(0, round(value / most * len(bars)) - 1)] for value in drawn) if most else ""


def _count(number: int, what: str) -> Text:
    return Text(f"{number:,} {what}", style="yellow" if number else "dim")
