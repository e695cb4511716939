"""`penstock bench run`: a run from its setup to its summary, and what one sees of it on the way."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.instruments import Interrupt
from penstock_bench.measure.running.controller import Controller, RunError
from penstock_bench.measure.running.live import Snapshot, fraction_done
from penstock_bench.measure.setup.find import assignments, find_setup, quick_parameters
from penstock_bench.measure.setup.model import Setup
from penstock_bench.measure.setup.read import read_setup, read_text

LATE_US = 100_000
"""A driver that is later than this is shown as late."""


def run_setup(
    named: str, *, adapter: str | None, settings: list[str], output: Path | None, quick: bool, quiet: bool
) -> bool:
    """Runs it and prints the summary as one line of JSON; False if it was stopped before its end."""
    path = find_setup(named)
    parameters = {**(quick_parameters(path) if quick else {}), **assignments(settings)}
    setup = read_setup(path, parameters, adapter)
    directory = output or Path("runs") / f"{setup.name.replace(' ', '-')}-{datetime.now():%Y%m%d-%H%M%S}"
    controller = Controller(setup, directory, read_text(path))
    console = Console(stderr=True)
    with Interrupt() as interrupt:
        controller.start()
        watch(controller, console, interrupt, quiet=quiet)
    try:
        summary = controller.result()
    except RunError:
        if controller.snapshot().began_ns:
            console.print(Text(f"what was measured until it failed is in {directory}", style="dim"))
        raise
    if not quiet:
        console.print(summary_table(summary))
        console.print(Text(f"what was measured is in {directory}", style="dim"))
    typer.echo(json.dumps(summary))
    return summary.get("state") != "stopped"


def watch(controller: Controller, console: Console, interrupt: Interrupt, *, quiet: bool) -> None:
    """Until the run is over. The first Ctrl-C ends the load, the second one does not wait for the system."""
    asked = over = False
    notes = 0
    live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal and not quiet else None
    try:
        if live is not None:
            live.start()
        while not over:
            try:
                over = controller.wait(0.25)
                if interrupt.asked and not asked:
                    asked = True
                    controller.stop()
                seen = controller.snapshot()
                if not quiet:
                    for note in seen.notes[notes:]:
                        console.print(Text(note, style="yellow"))
                notes = len(seen.notes)
                if live is not None:
                    live.update(picture(seen, controller.setup), refresh=True)
            except KeyboardInterrupt:
                controller.stop()
                controller.stop()
    finally:
        if live is not None:
            live.stop()


def picture(seen: Snapshot, setup: Setup) -> Group:
    """A line for each driver and each query."""
    lines: list[RenderableType] = [Text(f"{setup.name} · {setup.system.adapter} · {seen.state}", style="bold")]
    drivers = Table.grid(padding=(0, 2))
    passed = (seen.now_ns - seen.began_ns) / 1e9 if seen.began_ns else 0.0
    for driver in setup.drivers:
        for copy in range(driver.copies):
            name = f"{driver.name}-{copy}"
            view = seen.drivers[name]
            drivers.add_row(
                Text(name, style="cyan"),
                Text(view.phase_name, no_wrap=True),
                ProgressBar(total=1.0, completed=fraction_done(driver, view, passed), width=20),
                Text(f"{view.sent:,} sent", no_wrap=True),
                Text(f"{view.lag_us / 1000:,.0f} ms late", style="yellow") if view.lag_us > LATE_US else Text(""),
            )
    lines.append(drivers)
    accepted = sum(stream.accepted for stream in seen.streams.values())
    rate = sum(stream.rate for stream in seen.streams.values())
    lines.append(Text.assemble(f"{accepted:,} accepted  ", (f"{rate:,.0f}/s", "green")))
    queries = Table.grid(padding=(0, 2))
    for name, query in list(seen.queries.items())[:12]:
        recent = query.recent
        queries.add_row(
            Text(name, style="cyan"),
            Text(f"{query.results:,} results", no_wrap=True),
            Text(f"{query.rate:,.0f}/s", style="green", no_wrap=True),
            Text(f"p50 {shown_ns(recent.p50)}  p99 {shown_ns(recent.p99)}" if recent.count else "", no_wrap=True),
        )
    lines.append(queries)
    if len(seen.queries) > 12:
        lines.append(Text(f"and {len(seen.queries) - 12} queries more", style="dim"))
    return Group(*lines)


def summary_table(summary: dict[str, Any]) -> Table:
    table = Table(title=f"[bold]{summary.get('state', '')}[/bold]", box=None, padding=(0, 2), title_justify="left")
    for column in ("", "a second", "p50", "p90", "p99", "p99.9", "max"):
        table.add_column(
            column, justify="left" if not column else "right", style="cyan" if not column else None, no_wrap=True
        )
    throughput = summary.get("throughput") or {}
    for stream, rate in (throughput.get("by_stream") or {}).items():
        table.add_row(stream, f"{rate:,.0f} events")
    rates = throughput.get("by_query") or {}
    for query, latency in (summary.get("latency") or {}).items():
        figures = [shown_ns(latency[name]) for name in ("p50", "p90", "p99", "p999", "max")] if latency["count"] else []
        table.add_row(query, f"{rates.get(query, 0.0):,.0f} results", *figures)
    return table


def shown_ns(duration: float) -> str:
    """
    >>> shown_ns(950), shown_ns(1_250_000), shown_ns(3_000_000_000)
    ('950 ns', '1.2 ms', '3.0 s')
    """
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if duration >= size:
            return f"{duration / size:,.1f} {unit}"
    return f"{duration:.0f} ns"
