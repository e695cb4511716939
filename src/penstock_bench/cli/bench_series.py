"""`penstock bench sweep` and `penstock bench sustainable`: many runs of one setup, and a table of what they showed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from penstock.errors import InputError
from penstock.instruments import Interrupt
from penstock_bench.cli.bench_run import watch
from penstock_bench.measure.machine import describe
from penstock_bench.measure.running.controller import Controller
from penstock_bench.measure.running.sustainable import Search, Trial
from penstock_bench.measure.running.sweep import ADAPTER, Sweep, points_of, series_of
from penstock_bench.measure.setup.durations import microseconds
from penstock_bench.measure.setup.find import assignments, find_setup, quick_parameters
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.measure.setup.model import Series, Setup
from penstock_bench.measure.setup.read import read_setup


def sweep_setup(
    named: str,
    *,
    vary: list[str],
    series: str | None,
    adapter: str | None,
    settings: list[str],
    output: Path | None,
    repeat: int,
    quick: bool,
    quiet: bool,
) -> bool:
    """Runs a series and prints what came of it as one line of JSON; False if it was stopped before its end."""
    path = find_setup(named)
    parameters = {**(quick_parameters(path) if quick else {}), **assignments(settings)}
    setup = read_setup(path, parameters, adapter)
    points = points_of(_series(setup, vary, series), repeat, quick=quick)
    directory = output or Path("runs") / f"{setup.name.replace(' ', '-')}-sweep"
    sweep = Sweep(path, directory, points, {**parameters, **({ADAPTER: adapter} if adapter else {})})
    console = _console()
    done = len(sweep.outcomes) - len(sweep.waiting)
    if done and not quiet:
        console.print(Text(f"{done} of {len(points)} points are done already", style="dim"))
    with Interrupt() as interrupt:
        perform = _performer(console, interrupt, quiet)
        names = {id(outcome.setup): outcome.point.name for outcome in sweep.outcomes}

        def announced(controller: Controller) -> bool:
            nonlocal done
            done += 1
            if not quiet:
                console.print(f"[dim]{done} of {len(points)}[/dim]  {names[id(controller.setup)]}")
            return perform(controller)

        sweep.run(announced)
    if not quiet:
        console.print(_swept(sweep))
        for failed in (outcome for outcome in sweep.outcomes if outcome.state == "failed"):
            console.print(Text(f"{failed.point.name}: {failed.error}", style="yellow"))
        console.print(Text(f"the table is in {directory / 'table.csv'}", style="dim"))
    typer.echo(json.dumps({"setup": setup.name, "directory": str(directory), "points": sweep.table()}))
    return not interrupt.asked


def _console() -> Console:
    """A table that goes to a file is not cut to a terminal's width."""
    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 160)


def _series(setup: Setup, vary: list[str], named: str | None) -> list[Series]:
    """What is varied: as the command says, or else as the setup does."""
    if vary:
        return [series_of(vary)]
    if named is not None:
        found = [one for one in setup.series if one.name == named]
        if not found:
            known = ", ".join(one.name for one in setup.series) or "none"
            raise InputError(f"there is no series '{named}' in the setup; there are {known}")
        return found
    if not setup.series:
        raise InputError("the setup names no series; say what to vary, as in --vary rate=1000,2000")
    return list(setup.series)


def _performer(console: Console, interrupt: Interrupt, quiet: bool) -> Callable[[Controller], bool]:
    def perform(controller: Controller) -> bool:
        watch(controller, console, interrupt, quiet=quiet)
        return not interrupt.asked

    return perform


def _swept(sweep: Sweep) -> Table:
    table = Table(box=None, padding=(0, 2))
    shown = {
        "events/s": ("events_per_second", 0),
        "results/s": ("results_per_second", 0),
        "p50 ms": ("latency_p50_ms", 2),
        "p99 ms": ("latency_p99_ms", 2),
        "max ms": ("latency_max_ms", 2),
        "CPU": ("cpu_share", 2),
        "MB": ("max_rss_mb", 0),
    }
    rows = sweep.table()
    several = [name for name in ("series", "repeat") if len({row[name] for row in rows}) > 1]
    names = [*several, *sweep.varied, ADAPTER, "state"]
    for name in names:
        table.add_column(name, style="cyan" if name in sweep.varied else None)
    for heading in shown:
        table.add_column(heading, justify="right")
    for row in rows:
        figures = [_figure(row[name], digits) for name, digits in shown.values()]
        table.add_row(*(Text(str(row[name])) for name in names), *figures)
    return table


def _figure(value: Scalar, digits: int) -> str:
    return f"{value:,.{digits}f}" if isinstance(value, (int, float)) else "-"


def search_setup(
    named: str,
    *,
    adapter: str | None,
    settings: list[str],
    parameter: str | None,
    latency_limit: str | None,
    trial: str,
    start: float | None,
    output: Path | None,
    quiet: bool,
) -> bool:
    """Searches the highest rate and prints the answer as one line of JSON; False if it was stopped before its end."""
    path = find_setup(named)
    given = assignments(settings)

    def read(parameters: dict[str, Scalar]) -> Setup:
        return read_setup(path, {**given, **parameters}, adapter)

    directory = output or Path("runs") / f"{read({}).name.replace(' ', '-')}-sustainable"
    search = Search(
        read,
        _unused(directory),
        parameter=parameter,
        latency_limit_us=None if latency_limit is None else _duration("--latency-limit", latency_limit),
        trial_us=_duration("--trial", trial),
        start=start,
    )
    console = _console()

    def told(one: Trial) -> None:
        verdict = "[green]sustained[/green]" if one.sustained else f"[yellow]not sustained[/yellow]: {escape(one.why)}"
        if not quiet:
            console.print(f"{one.rate:>14,.0f}/s  {verdict}")

    with Interrupt() as interrupt:
        answer = search.run(_performer(console, interrupt, quiet), told)
    if not quiet:
        console.print(_tried(search.trials))
    typer.echo(json.dumps({**answer, "machine": describe()}))
    return not interrupt.asked


def _unused(directory: Path) -> Path:
    """Trials of another search are not overwritten."""
    if not directory.exists():
        return directory
    number = 2
    while directory.with_name(f"{directory.name}-{number}").exists():
        number += 1
    return directory.with_name(f"{directory.name}-{number}")


def _duration(option: str, text: str) -> int:
    try:
        value = microseconds(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValueError as error:
        raise InputError(f"{option} {text}: {error}") from None
    if value <= 0:
        raise InputError(f"{option} {text}: must be longer than nothing")
    return value


def _tried(trials: list[Trial]) -> Table:
    table = Table(box=None, padding=(0, 2))
    for heading in ("rate", "sustained", "events/s", "lag ms", "growth s/s", "p50 ms", "p99 ms"):
        table.add_column(heading, justify="left" if heading == "sustained" else "right")
    for one in sorted(trials, key=lambda trial: trial.rate):
        latencies: list[Any] = [one.latency_p50_ms, one.latency_p99_ms]
        table.add_row(
            f"{one.rate:,.0f}",
            "yes" if one.sustained else "no",
            f"{one.events_per_second:,.0f}",
            f"{one.lag_ms:,.1f}",
            f"{one.growth:.3f}",
            *(_figure(value, 2) if value is not None else "-" for value in latencies),
        )
    return table
