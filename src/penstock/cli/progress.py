"""What a run shows on standard error: two lines that live, and a summary."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.connect.runner import Outcome, Report


class ProgressDisplay:
    """`live` is off where it would be drawn across results on the same terminal."""

    def __init__(self, rejects: Path, *, quiet: bool, live: bool) -> None:
        self._console = Console(stderr=True)
        self._rejects = rejects
        self._quiet = quiet
        self._last: Report | None = None
        shown = live and not quiet and self._console.is_terminal
        self._live = Live(console=self._console, transient=True, auto_refresh=False) if shown else None
        self._speed = _Speed()

    def __enter__(self) -> ProgressDisplay:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, report: Report) -> None:
        self._last = report
        self._speed.note(report)
        if self._live is not None:
            self._live.update(_picture(report, self._speed.now), refresh=True)

    def summary(self, outcome: Outcome) -> None:
        report = self._last
        if self._quiet or report is None:
            return
        metrics = report.metrics
        table = Table(title=f"[bold]{outcome.value}[/bold]", show_header=False, box=None, padding=(0, 2))
        table.add_column(justify="left", style="cyan")
        table.add_column(justify="right")
        seconds = max(report.seconds, 1e-9)
        raw, compressed = shown_bytes(metrics.bytes_written), shown_bytes(metrics.bytes_compressed)
        rows = [
            ("events", f"{metrics.events:,}"),
            ("seconds", f"{seconds:,.1f}"),
            ("events a second", f"{metrics.events / seconds:,.0f}"),
            ("event time reached", shown_time(metrics.watermark)),
            ("results", f"{metrics.results:,}"),
            ("late", f"{metrics.late:,}"),
            ("rejected", f"{report.rejects:,}"),
            ("blocks written / read", f"{metrics.blocks_written:,} / {metrics.blocks_read:,}"),
            ("written / after compression", f"{raw} / {compressed}"),
            ("memory at most", shown_bytes(metrics.memory_peak)),
        ]
        for name, value in rows:
            table.add_row(name, value)
        self._console.print(table)
        if report.rejects:
            self._console.print(Text(f"rows that could not be read or computed are in {self._rejects}", style="yellow"))


class _Speed:
    """Events a second of late, not since the start."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events = 0
        self._seconds = 0.0

    def note(self, report: Report) -> None:
        passed = report.seconds - self._seconds
        if passed > 0:
            latest = (report.metrics.events - self._events) / passed
            self.now = latest if not self.now else 0.7 * self.now + 0.3 * latest
        self._events, self._seconds = report.metrics.events, report.seconds


def _picture(report: Report, speed: float) -> Group:
    """Two lines that fit 80 columns: how far it has come, and what has come of it."""
    metrics = report.metrics
    way = Table.grid(padding=(0, 2))
    cells: list[RenderableType] = [
        Text(f"{metrics.events:,} events", style="bold", no_wrap=True),
        Text(f"{speed:,.0f}/s", style="green", no_wrap=True),
        Text(shown_time(metrics.watermark), style="cyan", no_wrap=True),
    ]
    if report.fraction is not None:
        cells.insert(0, ProgressBar(total=1.0, completed=report.fraction, width=20))
    way.add_row(*cells)
    figures = Text.assemble(
        f"{metrics.results:,} results",
        ("  " + f"{metrics.late:,} late", "yellow" if metrics.late else "dim"),
        ("  " + f"{report.rejects:,} rejected", "yellow" if report.rejects else "dim"),
        "  " + shown_bytes(metrics.memory_bytes),
        ("  " + f"blocks {metrics.blocks_written:,} out, {metrics.blocks_read:,} in", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )
    return Group(way, figures)


def shown_time(micros: int | None) -> str:
    """
    >>> shown_time(1_704_067_200_000_000), shown_time(None)
    ('2024-01-01 00:00:00', '-')
    """
    if micros is None:
        return "-"
    try:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return "-"


def shown_bytes(count: int) -> str:
    """
    >>> shown_bytes(512), shown_bytes(3_500_000)
    ('512 B', '3.5 MB')
    """
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError
