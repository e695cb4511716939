"""`penstock pairs`: the tools of the benchmark Pairs, from generated ticks to validated answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.errors import InputError
from penstock_bench.cli.kit import progress_bar, say, writing

if TYPE_CHECKING:
    from penstock_bench.workloads.pairs.configuration import Configuration
    from penstock_bench.workloads.pairs.validator import Answers

EXAMPLES = """
[bold]A whole run[/bold]

  [cyan]penstock pairs configuration > pairs.properties[/cyan]
      what can be set, with its defaults

  [cyan]penstock pairs generate --config pairs.properties[/cyan]
      ticks and correlations of the scale factor

  [cyan]penstock pairs queries --config pairs.properties[/cyan]
      the strategies, as neutral XML

  [cyan]penstock pairs run --config pairs.properties[/cyan]
      the strategies over all ticks, as fast as Penstock takes them; answers go to sutFile

  [cyan]penstock pairs validate --config pairs.properties --page report.html[/cyan]
      compares the answers with the expected ones
"""

pairs = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help=f"The benchmark Pairs: generate ticks and strategies, run them, validate the answers.\n\n{EXAMPLES}",
    rich_markup_mode="rich",
)

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="The configuration file; without one, the defaults hold."),
]
System = Annotated[str, typer.Option(metavar="NAME", help="The system that it is for: penstock or esper.")]


@pairs.command()
def configuration() -> None:
    """Print a configuration file with every property, its meaning and its default."""
    from penstock_bench.workloads.pairs.configuration import sample

    typer.echo(sample(), nl=False)


@pairs.command()
def generate(
    config: Config = None,
    scale_factor: Annotated[
        int | None, typer.Option(metavar="SF", min=1, help="In place of scaleFactor in the file.")
    ] = None,
    phases: Annotated[
        float | None, typer.Option(metavar="FACTOR", help="Multiplies the length of all phases: 0.1 is 12 minutes.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, help="In place of seed in the file.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Write the ticks and the auxiliary file (the data generator)."""
    from penstock_bench.workloads.pairs.market import Market
    from penstock_bench.workloads.pairs.real_ticks import take_over
    from penstock_bench.workloads.pairs.tick_files import Auxiliary, write_auxiliary, write_ticks

    given: dict[str, Any] = {"scale_factor": scale_factor, "shortened": phases, "seed": seed}
    settings = replace(_configuration(config), **{name: value for name, value in given.items() if value is not None})
    if settings.real_ticks is not None:
        with progress_bar("ticks", None, quiet=quiet) as progress, writing(settings.data_folder):
            taken = take_over(settings, settings.real_ticks, progress)
        say(f"{settings.data_folder}: {len(taken.correlations)} pairs, {taken.strategies} strategies", quiet=quiet)
        return
    market = Market(settings.market)
    with (
        progress_bar("ticks", market.settings.curve.expected_ticks, quiet=quiet) as progress,
        writing(settings.data_folder),
    ):
        files = write_ticks(
            market.ticks(),
            market.symbols,
            settings.data_folder,
            settings.file_count,
            settings.tick_format,
            progress,
        )
        names = tuple(file.name for file in files)
        count = market.settings.number_of_strategies
        auxiliary = Auxiliary(settings.scale_factor, count, market.correlations, names)
        write_auxiliary(settings.data_folder, auxiliary)
    say(f"{', '.join(map(str, files))}: {settings.market.curve.seconds:,.0f} seconds of ticks", quiet=quiet)


@pairs.command()
def queries(
    config: Config = None, quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary.")] = False
) -> None:
    """Write the strategies as neutral XML, from the auxiliary file of the ticks (the query generator)."""
    from penstock_bench.workloads.pairs.setup_xml import write_strategies
    from penstock_bench.workloads.pairs.strategies import strategies
    from penstock_bench.workloads.pairs.tick_files import read_auxiliary

    settings = _configuration(config)
    auxiliary = read_auxiliary(settings.data_folder)
    made = strategies(auxiliary.correlations, auxiliary.strategies, settings.seed)
    with writing(settings.strategies_file):
        settings.query_folder.mkdir(parents=True, exist_ok=True)
        write_strategies(settings.strategies_file, made)
    say(f"{settings.strategies_file}: {len(made):,} strategies", quiet=quiet)


@pairs.command()
def translate(
    config: Config = None,
    system: System = "penstock",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary.")] = False,
) -> None:
    """Write what a system runs for the strategies: for Penstock one SQL program and a table of their parameters."""
    from penstock_bench.workloads.pairs.esper import translated
    from penstock_bench.workloads.pairs.setup_xml import read_strategies
    from penstock_bench.workloads.pairs.translator import translate_file

    settings = _configuration(config)
    folder = settings.translator_folder
    with writing(folder):
        if system == "penstock":
            written = [translate_file(settings.strategies_file, folder)]
        elif system == "esper":
            made = translated(read_strategies(settings.strategies_file))
            folder.mkdir(parents=True, exist_ok=True)
            written = [folder / f"{name}.epl" for name in made.queries]
            for path, text in zip(written, made.queries.values(), strict=True):
                path.write_text(text, encoding="utf-8")
        else:
            raise InputError(f"there is no translator for {system!r}: write penstock or esper")
    say(", ".join(map(str, written)), quiet=quiet)


@pairs.command()
def run(
    config: Config = None,
    system: System = "penstock",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where the answers go; in place of sutFile.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")] = False,
) -> None:
    """Run all ticks through a system as fast as it takes them, and keep its answers.

    Response times at the benchmark's own rates are measured by `penstock bench pairs`.
    """
    from penstock_bench.benches.pairs_files import run_from_files
    from penstock_bench.benches.pairs_systems import SYSTEMS
    from penstock_bench.workloads.pairs.setup_xml import read_strategies
    from penstock_bench.workloads.pairs.tick_files import TickReader, read_auxiliary

    settings = _configuration(config)
    if system not in SYSTEMS:
        raise InputError(f"there is no system {system!r}: write one of {', '.join(SYSTEMS)}")
    files = [settings.data_folder / name for name in read_auxiliary(settings.data_folder).files]
    folder = output or settings.answers
    strategies = read_strategies(settings.strategies_file)
    with progress_bar("ticks", None, quiet=quiet) as progress, writing(folder):
        ran = run_from_files(SYSTEMS[system](), strategies, TickReader(files), folder, progress)
    found = ", ".join(f"{count:,} of {stream}" for stream, count in ran.answers.items())
    pace = f"{ran.ticks:,} ticks in {ran.seconds:,.1f} s, {ran.ticks / ran.seconds:,.0f} a second"
    say(f"{folder}: {found}, from {pace}", quiet=quiet)


@pairs.command()
def validate(
    config: Config = None,
    sut: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="The answers of the system, a folder or a log; in place of sutFile."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Also write a page with all answers that are not correct.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Compute the expected answers and compare those of a system with them. Exit code 1 if they are not the same."""
    from penstock_bench.workloads.pairs.answer_files import read_answers
    from penstock_bench.workloads.pairs.answers import compared
    from penstock_bench.workloads.pairs.setup_xml import read_strategies

    settings = _configuration(config)
    answers = sut or settings.answers
    expected = _expected(settings, quiet=quiet)
    if sut is None and settings.sut_file is None and not answers.exists():
        say(f"{settings.validator_folder}: the expected answers; name those of a system with --sut", quiet=quiet)
        return
    report = compared(expected, read_answers(answers))
    typer.echo(report.text())
    with writing(settings.validator_folder):
        (settings.validator_folder / "report.txt").write_text(report.text() + "\n", encoding="utf-8")
    if page is not None:
        from penstock_bench.pictures.pairs_page import validation_page

        text = validation_page(report, expected, read_strategies(settings.strategies_file), str(answers))
        with writing(page):
            page.write_text(text, encoding="utf-8")
    if not report.passed:
        raise typer.Exit(1)


@pairs.command()
def picture(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.svg", help="Where to.")],
    config: Config = None,
    strategy: Annotated[
        str | None,
        typer.Option(metavar="ALIAS", help="Ratio, bands and orders of this strategy; without it, the input rate."),
    ] = None,
    first: Annotated[float, typer.Option("--from", metavar="MINUTE", help="The first minute shown.")] = 0.0,
    last: Annotated[float | None, typer.Option("--to", metavar="MINUTE", help="The last minute shown.")] = None,
) -> None:
    """Draw the expected answers of a strategy, as they were last validated, or the input rate of a run, as SVG."""
    from penstock_bench.pictures.pairs import bands_picture, rate_picture
    from penstock_bench.workloads.pairs.answer_files import read_expected
    from penstock_bench.workloads.pairs.setup_xml import read_strategies

    settings = _configuration(config)
    if strategy is None:
        text = rate_picture(settings.market.curve)
    else:
        known = {one.alias: one for one in read_strategies(settings.strategies_file)}
        if strategy not in known:
            raise InputError(f"{strategy!r} is no strategy of {settings.strategies_file}: write an alias of that file")
        expected = read_expected(settings.validator_folder)
        text = bands_picture(known[strategy], expected, first, float("inf") if last is None else last)
    with writing(output):
        output.write_text(text, encoding="utf-8")


def _configuration(path: Path | None) -> Configuration:
    from penstock_bench.workloads.pairs.configuration import Configuration, read_configuration

    return Configuration() if path is None else read_configuration(path)


def _expected(settings: Configuration, *, quiet: bool) -> Answers:
    """The expected answers; they are kept in the folder of the validator."""
    from penstock_bench.workloads.pairs.answer_files import read_expected, write_answers
    from penstock_bench.workloads.pairs.setup_xml import read_strategies
    from penstock_bench.workloads.pairs.tick_files import TickReader, read_auxiliary
    from penstock_bench.workloads.pairs.validator import expected_answers

    if settings.skip_input_validation:
        return read_expected(settings.validator_folder)
    files = [settings.data_folder / name for name in read_auxiliary(settings.data_folder).files]
    reader = TickReader(files)
    with progress_bar("ticks validated", None, quiet=quiet) as progress:
        strategies = read_strategies(settings.strategies_file)
        expected = expected_answers(reader.ticks(), lambda: reader.symbols, strategies, progress)
    with writing(settings.validator_folder):
        write_answers(settings.validator_folder, expected)
    return expected
