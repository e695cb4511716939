"""`penstock linear-road`: the tools of the benchmark Linear Road, from generated traffic to validated answers."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import InputError
from penstock_bench.cli.kit import progress_bar, say, writing
from penstock_bench.cli.linear_road_watch import watch

if TYPE_CHECKING:
    from penstock_bench.workloads.linear_road.answers import Answers, Difference

EXAMPLES = """
[bold]A whole run[/bold]

  [cyan]penstock linear-road generate --roads 2 --output road[/cyan]
      three hours on two expressways: road/input.csv, road/tolls.csv, road/segments.csv

  [cyan]penstock linear-road run road/input.csv --tolls road/tolls.csv --output answers.csv[/cyan]
      the application, which is SQL, over the whole file

  [cyan]penstock linear-road validate road/input.csv --tolls road/tolls.csv --answers answers.csv[/cyan]
      compares answers, of whatever system, with the expected ones

  [cyan]penstock linear-road watch road/input.csv --tolls road/tolls.csv --speed 60[/cyan]
      the roads on a page, a minute of traffic every second
"""

linear_road = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help=f"The benchmark Linear Road: generate traffic, answer, validate answers.\n\n{EXAMPLES}",
    rich_markup_mode="rich",
)


class Lav(StrEnum):
    POOLED = "pooled"
    SPEC = "spec"


class Engine(StrEnum):
    EMBEDDED = "embedded"
    SPARK = "spark"


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")]


@linear_road.command()
def generate(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where the files go.")],
    roads: Annotated[int, typer.Option(metavar="L", min=1, max=1000, help="The number of expressways.")] = 1,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The same seed gives the same files.")] = 1,
    copies: Annotated[
        int,
        typer.Option(
            metavar="K", min=1, max=1000, help="Every expressway K times under other numbers: K times L of them."
        ),
    ] = 1,
    begin: Annotated[
        int, typer.Option(metavar="SECOND", min=0, help="Leave out what is before this second of the three hours.")
    ] = 0,
    seconds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="So many seconds from there; by default up to the end.")
    ] = None,
    segments: Annotated[
        str, typer.Option(metavar="FIRST-LAST", help="Only these segments have cars, as dense as the whole road.")
    ] = "0-99",
    all_cars: Annotated[
        bool, typer.Option("--all-cars", help="The ten-week tolls of all cars; by default of those that ask for them.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write an input (input.csv), the tolls of the ten weeks before it (tolls.csv) and statistics (segments.csv).

    An expressway has as many rows as in the original input: about 12 million, 600 MB. The statistics are those of the
    segments in the ten weeks."""
    import numpy as np
    import pyarrow as pa

    from penstock_bench.workloads.linear_road.history import SEGMENT, TOLL
    from penstock_bench.workloads.linear_road.reports import EXPENDITURE, write_integers, write_reports
    from penstock_bench.workloads.linear_road.traffic import (
        THREE_HOURS,
        Traffic,
        repeated,
        repeated_segments,
        repeated_tolls,
    )

    stop = THREE_HOURS if seconds is None else min(begin + seconds, THREE_HOURS)
    if begin >= stop:
        raise InputError(f"--begin {begin}: the three hours end at second {THREE_HOURS}; begin before it.")
    traffic = Traffic(roads, seed, seconds=stop, begin=begin, stretch=_stretch(segments))
    asking: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = [np.empty(0, np.int32)]

    def counted() -> Iterator[pa.Table]:
        with progress_bar("seconds", stop - begin, quiet=quiet) as progress:
            for table in traffic.tables():
                kind, vid = table["type"].to_numpy(), table["vid"].to_numpy()
                asking.append(np.unique(vid if all_cars else vid[kind == EXPENDITURE]))
                yield table
                progress(int(table["time"][-1].as_py()) + 1 - begin if len(table) else stop - begin)

    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
        rows = write_reports(output / "input.csv", repeated(counted(), copies, roads))
        cars = np.unique(np.concatenate(asking))
        paid = (
            repeated_tolls(traffic.tolls(part), copies, roads) for part in np.array_split(cars, len(cars) // 10_000 + 1)
        )
        tolls = write_integers(output / "tolls.csv", paid, TOLL)
        write_integers(output / "segments.csv", [repeated_segments(traffic.segments(), copies, roads)], SEGMENT)
    say(f"{output}: {rows:,} rows of input.csv, {tolls:,} of tolls.csv, and segments.csv", quiet=quiet)


@linear_road.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="INPUT", help="The input: 15 integers to a row, in order of time.")],
    tolls: Annotated[
        str,
        typer.Option(
            metavar="FILE|URI",
            help="The ten-week tolls: a CSV file of vid, day, xway, toll, or a database (postgresql://..., "
            "sqlite:FILE) with a table tolls of these columns.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the answers go, as CSV.")],
    segments: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URI",
            help="Statistics: xway, dir, seg, dow, hour, lav, toll, likewise. With them travel times are answered.",
        ),
    ] = None,
    engine: Annotated[Engine, typer.Option(help="In this process, or on Spark in local mode.")] = Engine.EMBEDDED,
    lav: Annotated[
        Lav, typer.Option(help="The average speed: as the public validator pools it, or as the VLDB paper specifies.")
    ] = Lav.POOLED,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="The budget for all state, such as 1GB.")] = "1GB",
    quiet: Quiet = False,
) -> None:
    """Answer an input with the application, as fast as the file can be read.

    There is no clock in such a run: an answer counts as emitted in the second of its row."""
    from penstock_bench.workloads.linear_road.running import run_embedded, run_on_spark

    if not file.is_file():
        raise InputError(f"{file}: there is no such file")
    if engine is Engine.SPARK:
        counts = run_on_spark(file, output, tolls, segments=segments, lav=lav.value, memory=memory)
    else:
        with progress_bar("megabytes", max(1, file.stat().st_size >> 20), quiet=quiet) as progress:
            counts = run_embedded(
                file,
                output,
                tolls,
                segments=segments,
                lav=lav.value,
                memory=memory,
                watch=lambda taken: progress(taken >> 20),
            )
    listed = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    say(f"{output}: {listed}", quiet=quiet)


@linear_road.command()
def validate(
    file: Annotated[Path, typer.Argument(metavar="INPUT", help="The input: 15 integers to a row, in order of time.")],
    answers: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The answers of the system under test, to be compared.")
    ] = None,
    tolls: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The ten-week tolls: vid, day, xway, toll. For type 3.")
    ] = None,
    segments: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Statistics: xway, dir, seg, dow, hour, lav, toll. For type 4."),
    ] = None,
    lav: Annotated[
        Lav, typer.Option(help="The average speed: as the public validator pools it, or as the VLDB paper specifies.")
    ] = Lav.POOLED,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the expected answers there.")
    ] = None,
) -> None:
    """Recompute the expected answers of an input and compare answers with them; exit code 1 if they differ.

    Types whose table is not given are not compared."""
    from penstock_bench.workloads.linear_road import answers as kinds
    from penstock_bench.workloads.linear_road import validator
    from penstock_bench.workloads.linear_road.history import SEGMENT, TOLL
    from penstock_bench.workloads.linear_road.reports import read_integers, read_reports

    if answers is None and output is None:
        raise InputError("validate needs --answers FILE to compare, or --output FILE for the expected answers")
    given = None if answers is None else kinds.read_answers(answers)
    expected = validator.expected_answers(
        read_reports(file),
        None if tolls is None else read_integers(tolls, TOLL),
        None if segments is None else read_integers(segments, SEGMENT),
        validator.Lav(lav.value),
    )
    if output is not None:
        with writing(output):
            kinds.write_answers(output, expected)
    if given is None:
        return
    differences = kinds.compare(expected, given, sorted(expected.rows))
    _show(differences, given)
    if any(difference.wrong for difference in differences):
        raise typer.Exit(1)


linear_road.command()(watch)


def _show(differences: list[Difference], given: Answers) -> None:
    from rich.console import Console
    from rich.table import Table

    from penstock_bench.workloads.linear_road.answers import DUE, NAMES

    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2))
    for name in ("type", "", "expected", "correct", "missing", "extra"):
        table.add_column(name, justify="left" if not name else "right")
    for d in differences:
        counts = (f"{count:,}" for count in (d.expected, d.correct, d.missing, d.extra))
        table.add_row(str(d.kind), NAMES[d.kind], *counts, style="red" if d.wrong else None)
    console.print(table)
    for d in differences:
        for what, examples in (("missing", d.missing_examples), ("extra", d.extra_examples)):
            for example in examples:
                values = ", ".join(f"{name} {value}" for name, value in example.items())
                typer.echo(f"{what} of type {d.kind}: {values}", err=True)
    typer.echo(
        f"{given.late:,} answers after more than {DUE} s; the longest wait is {given.longest_wait:g} s", err=True
    )


def _stretch(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) < int(last) <= 99):
        raise InputError(f"--segments {text}: write the first and the last of at least two segments, as in 0-99")
    return int(first), int(last)
