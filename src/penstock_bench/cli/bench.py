"""`penstock bench`: the engine's own benches, each a command, and the framework that measures any system."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.errors import InputError
from penstock_bench import benches as benches


class _Benches(TyperGroup):
    """A name that is no command is told with those that are."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is None:
            commands = [name for name in self.commands if name not in benches.NAMES]
            raise InputError(
                f"unknown bench '{cmd_name}'; there are {', '.join(benches.NAMES)};"
                f" and the commands {', '.join(commands)}"
            )
        return found


bench = typer.Typer(
    add_completion=False,
    cls=_Benches,
    invoke_without_command=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@bench.callback()
def listed(ctx: typer.Context) -> None:
    """Measure Penstock, or any event processing system. The last line is one JSON object with the figures."""
    if ctx.invoked_subcommand is None:
        width = max(map(len, benches.NAMES))
        for known, measures in benches.NAMES.items():
            typer.echo(f"{known:<{width}}  {measures}")
        typer.echo("and commands that measure any system by a setup: penstock bench --help", err=True)


_OWN = "Penstock's own benches"
_ANY = "Any system"

_Setup = Annotated[str, typer.Argument(metavar="SETUP.toml|NAME", help="What to run: a file, or a microbenchmark.")]
_Adapter = Annotated[str | None, typer.Option(metavar="NAME", help="Another system under test than the setup's.")]
_Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Another value for a parameter; may be repeated."),
]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")]


@bench.command(rich_help_panel=_ANY)
def run(
    setup: _Setup,
    adapter: _Adapter = None,
    settings: _Settings = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where to; by default runs/NAME-TIME.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The short run that the setup describes.")] = False,
    quiet: _Quiet = False,
) -> None:
    """Load a system as a setup says and measure it. Ctrl-C ends the run and keeps what was measured."""
    from penstock_bench.cli.bench_run import run_setup

    done = run_setup(setup, adapter=adapter, settings=settings or [], output=output, quick=quick, quiet=quiet)
    if not done:
        raise typer.Exit(130)


@bench.command(rich_help_panel=_ANY)
def sweep(
    setup: _Setup,
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE,…", help="Values of a parameter, or of 'adapter'; may be repeated."),
    ] = None,
    series: Annotated[
        str | None, typer.Option(metavar="NAME", help="Without --vary: one of the setup's own series, not all.")
    ] = None,
    repeat: Annotated[int, typer.Option(metavar="N", min=1, help="How often each point is run.")] = 1,
    adapter: _Adapter = None,
    settings: _Settings = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where to; by default runs/NAME-sweep.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Short runs, and fewer points of the setup's series.")] = False,
    quiet: _Quiet = False,
) -> None:
    """Run a setup once for each combination of values. The same command goes on after Ctrl-C."""
    from penstock_bench.cli.bench_series import sweep_setup

    done = sweep_setup(
        setup,
        vary=vary or [],
        series=series,
        adapter=adapter,
        settings=settings or [],
        output=output,
        repeat=repeat,
        quick=quick,
        quiet=quiet,
    )
    if not done:
        raise typer.Exit(130)


@bench.command(rich_help_panel=_ANY)
def sustainable(
    setup: _Setup,
    parameter: Annotated[
        str | None, typer.Option(metavar="NAME", help="What is searched for; by default 'rate', or all rates.")
    ] = None,
    latency_limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="What the 99th percentile of latency may be, as '100 ms'.")
    ] = None,
    trial: Annotated[str, typer.Option(metavar="TIME", help="How long a rate is tried.")] = "10 s",
    start: Annotated[float | None, typer.Option(metavar="RATE", min=1, help="The first rate to try.")] = None,
    adapter: _Adapter = None,
    settings: _Settings = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where to; by default runs/NAME-sustainable.")
    ] = None,
    quiet: _Quiet = False,
) -> None:
    """Search the highest rate that a system sustains, within 5 %."""
    from penstock_bench.cli.bench_series import search_setup

    done = search_setup(
        setup,
        adapter=adapter,
        settings=settings or [],
        parameter=parameter,
        latency_limit=latency_limit,
        trial=trial,
        start=start,
        output=output,
        quiet=quiet,
    )
    if not done:
        raise typer.Exit(130)


def _own(name: str) -> Callable[..., Any]:
    def measure(
        quick: Annotated[
            bool, typer.Option("--quick", help="A smaller run that ends within 40 seconds, some within two minutes.")
        ] = False,
        output: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the figures as DIR/NAME.json.")] = None,
    ) -> None:
        benches.run(name, quick, output)

    return measure


def _linear_road(
    quick: Annotated[
        bool, typer.Option("--quick", help="A stretch at the peak of the three hours; ends within 120 seconds.")
    ] = False,
    reports: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="An input to check, too: CSV, 15 integers to a row."),
    ] = None,
    tolls: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What its cars paid before: CSV of vid, day, expressway, toll.")
    ] = None,
    expected: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The right answers to it: CSV, the type of an answer first.")
    ] = None,
    roads: Annotated[
        int | None,
        typer.Option(metavar="L", min=1, help="Expressways of the three hours; by default the rating of the stretch."),
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the figures as DIR/NAME.json.")] = None,
) -> None:
    from penstock_bench.benches.linear_road_exact import given_files

    benches.run("linear-road", quick, output, given=given_files(reports, tolls, expected), roads=roads)


_WITH_OPTIONS = {"linear-road": _linear_road}
"""Benches that take more options than all do."""

for _name, _measures in benches.NAMES.items():
    bench.command(_name, help=_measures, rich_help_panel=_OWN)(_WITH_OPTIONS.get(_name) or _own(_name))


@bench.command("report", rich_help_panel=_ANY)
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run, a sweep, or a directory that holds some.")],
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the report is written; by default beside the run.")
    ] = None,
    papers: Annotated[
        Path | None,
        typer.Option(
            metavar="DOCS", help="Write reproduction.md and its figures there instead, from results of 'bench all'."
        ),
    ] = None,
) -> None:
    """Write report.html, and report.md with its figures, of what was measured."""
    from penstock_bench.measure.report.writing import write_report

    if papers is not None:
        from penstock_bench.measure.reproduction import write

        typer.echo(write(directory, papers))
        return
    for path in write_report(directory, output)[:2]:
        typer.echo(path)


@bench.command("all", rich_help_panel=_ANY)
def everything(
    full: Annotated[bool, typer.Option("--full", help="The long version of everything; it takes many hours.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="For results; by default out/bench, or out/bench-full.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="This one alone; may be repeated.")] = None,
    adapter: Annotated[
        list[str] | None, typer.Option(help="A system to run microbenchmarks on; by default all that are there.")
    ] = None,
) -> None:
    """Measure everything that is not measured yet, and write the report and the page of the papers' experiments."""
    from penstock_bench.cli.bench_all import SYSTEMS, run_all

    place = output or Path("out") / ("bench-full" if full else "bench")
    if not run_all(place, quick=not full, only=only or (), systems=adapter or SYSTEMS):
        raise typer.Exit(1)
