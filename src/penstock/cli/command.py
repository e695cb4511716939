"""The command `penstock`: run an application, explain and draw its plan, look into its state.

Other packages add commands (`plugged_in`).

Results are the only thing on standard output; progress, summaries and errors go to standard error.
Exit codes: 0 done, 2 an error that was told, 130 stopped by Ctrl-C (at a checkpoint, if there is one).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock import __version__
from penstock.cli.pages import Pages
from penstock.cli.plugged_in import Commands
from penstock.errors import InputError, PenstockError

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

EXAMPLES = """
[bold]Examples[/bold]

  [cyan]penstock run examples/callcentre.sql --memory 16MB[/cyan]
      24-hour windows on Spark's local mode; results in out/callcentre.csv

  [cyan]penstock run app.sql --checkpoint state --follow[/cyan]
      can be killed at any time: the same command goes on, nothing is lost

  [cyan]tail -F calls.jsonl | penstock run live.sql --engine embedded[/cyan]
      in this process, where a stream FROM '-' reads standard input

  [cyan]penstock explain app.sql[/cyan]
      the plan, with the space and the input/output it will need
"""


class Engine(StrEnum):
    SPARK = "spark"
    EMBEDDED = "embedded"


class Compression(StrEnum):
    LZ4 = "lz4"
    ZSTD = "zstd"


_SPARK = "On Spark"
_EMBEDDED = "With --engine embedded"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback(help=f"Continuous SQL over sliding windows far larger than memory: exact and fast.\n\n{EXAMPLES}")
def root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None: ...


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="APP.sql", help="The application: streams, sinks and queries.")],
    engine: Annotated[
        Engine | None,
        typer.Option(help="Where it runs: on Spark, or in this process. By default on Spark, if PySpark is there."),
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory for all state; the rest of the windows is on disk.")] = "64MB",
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="Keep state here and go on from it after a stop or a crash.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more input at the end of the files.")] = False,
    rejects: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Where unreadable rows go: a directory, APP.rejects; embedded a file, APP.rejects.jsonl.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")] = False,
    ui: Annotated[bool, typer.Option("--ui", help="Show the run on a page in the browser, beside it.")] = False,
    ui_port: Annotated[
        int | None, typer.Option(metavar="PORT", min=0, max=65535, help="The same, there; by default 8080, 0 is any.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="The master; by default local[*].", rich_help_panel=_SPARK)
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of Spark's; may be repeated.", rich_help_panel=_SPARK),
    ] = None,
    available_now: Annotated[
        bool,
        typer.Option(
            "--available-now",
            help="Process what is there, stop, and leave the windows open for the next run.",
            rich_help_panel=_SPARK,
        ),
    ] = False,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help='Go on until Ctrl-C, with a micro-batch every so often: "10 seconds".',
            rich_help_panel=_SPARK,
        ),
    ] = None,
    buckets: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="The shares that a stream is split into.", rich_help_panel=_SPARK),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="Time between checkpoints, by default 10; without --checkpoint, until results are on disk.",
            rich_help_panel=_EMBEDDED,
        ),
    ] = None,
    block_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Of the blocks that windows are paged in: 64KiB.", rich_help_panel=_EMBEDDED),
    ] = None,
    compression: Annotated[
        Compression | None,
        typer.Option(
            help="Compress blocks that shrink by 30 %: for slow or small disks; by default none are.",
            rich_help_panel=_EMBEDDED,
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Events read at once; by default 65536.", rich_help_panel=_EMBEDDED),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End after this many events.", rich_help_panel=_EMBEDDED)
    ] = None,
) -> None:
    """Run an application until its input ends, or on and on."""
    only_embedded = {
        "--every": every,
        "--block-size": block_size,
        "--compression": compression,
        "--batch": batch,
        "--limit": limit,
    }
    only_spark = {
        "--master": master,
        "--conf": conf,
        "--available-now": available_now or None,
        "--trigger": trigger,
        "--buckets": buckets,
    }
    engine = _engine(engine, only_spark)
    _refuse(engine, only_embedded if engine is Engine.SPARK else only_spark)
    text = _read(file)
    pages = Pages(file.name, 8080 if ui_port is None else ui_port) if ui or ui_port is not None else None
    if engine is Engine.EMBEDDED:
        from penstock.cli.embedded import run_embedded

        finished = run_embedded(
            text,
            memory=memory,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            every=every,
            block_size=block_size or "64KiB",
            compression=None if compression is None else compression.value,
            rejects=Path(rejects or f"{file.stem}.rejects.jsonl"),
            batch=batch or 65536,
            follow=follow,
            limit=limit,
            quiet=quiet,
            pages=pages,
        )
    else:
        from penstock.cli.spark import RunLength, SparkOptions, run_on_spark

        if available_now and (follow or trigger is not None):
            raise InputError(
                "--available-now stops at the end of what is there, --follow and --trigger never do: choose"
            )
        way = (
            RunLength.AVAILABLE_NOW
            if available_now
            else RunLength.ON_AND_ON
            if follow or trigger
            else RunLength.TO_THE_END
        )
        finished = run_on_spark(
            text,
            SparkOptions(
                memory=memory,
                checkpoint=checkpoint,
                rejects=rejects or f"{file.stem}.rejects",
                way=way,
                trigger=trigger,
                master=master or "local[*]",
                conf=_settings(conf or []),
                buckets=buckets,
                quiet=quiet,
                pages=pages,
            ),
        )
    if not finished:
        raise typer.Exit(130)


_REASONS = {
    "--every": "every micro-batch is a checkpoint there; --trigger says how often one begins",
    "--block-size": "blocks of windows have 64 KiB there",
    "--compression": "segments of blocks are written as they are there",
    "--batch": "a micro-batch takes what has come, up to a size that Spark's sources know",
    "--limit": "its tasks read the input side by side; give a generator seconds=, or less input",
}


def _engine(asked: Engine | None, only_spark: Mapping[str, object]) -> Engine:
    """Where it runs if nothing is said: on Spark; in this process where there is no PySpark, and that is told."""
    if asked is Engine.EMBEDDED or find_spec("pyspark") is not None:
        return asked or Engine.SPARK
    for name, given in {"--engine spark": asked, **only_spark}.items():
        if given is not None:
            raise InputError(f"{name} needs PySpark, which is not installed: pip install 'penstock[spark]'")
    typer.echo("PySpark is not installed: running in this process, as with --engine embedded", err=True)
    return Engine.EMBEDDED


def _refuse(engine: Engine, options: Mapping[str, object]) -> None:
    """Options that would have no effect are refused, not ignored."""
    for name, value in options.items():
        if value is None:
            continue
        if engine is Engine.SPARK:
            raise InputError(
                f"{name} has no meaning on Spark: {_REASONS[name]}. Leave it out, or add --engine embedded"
            )
        raise InputError(f"{name} is for Spark; leave it out, or leave out --engine embedded")


def _settings(conf: list[str]) -> dict[str, str]:
    for setting in conf:
        if not setting.partition("=")[0] or "=" not in setting:
            raise InputError(f"--conf {setting}: write KEY=VALUE, as in --conf spark.executor.memory=2g")
    return {key.strip(): value for key, _, value in (setting.partition("=") for setting in conf)}


@app.command()
def explain(
    file: Annotated[Path, typer.Argument(metavar="APP.sql", help="The application to explain.")],
    memory: Annotated[str, typer.Option(help="The memory budget to plan for.")] = "64MB",
    block_size: Annotated[str, typer.Option(metavar="SIZE", help="Of the blocks that windows are paged in.")] = "64KiB",
    stages: Annotated[bool, typer.Option("--stages", help="The stages that run, without estimates.")] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Say what would be kept of this checkpoint of the embedded engine instead."),
    ] = None,
) -> None:
    """Print the plan of an application: operators, shared states, space and input/output. Nothing is opened."""
    from penstock.lang import parse
    from penstock.plan.explain import explain_program, explain_stages
    from penstock.store.budget import parse_size

    program, budget = parse(_read(file)), parse_size(memory)
    if checkpoint is not None:
        from penstock.engine.kept import explain_kept

        typer.echo(explain_kept(program, checkpoint))
    elif stages:
        typer.echo(explain_stages(program, memory=budget))
    else:
        typer.echo(explain_program(program, memory=budget, block_size=parse_size(block_size)))


@app.command()
def graph(
    file: Annotated[Path, typer.Argument(metavar="APP.sql", help="The application to draw.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.svg", help="Where to; by default standard output.")
    ] = None,
) -> None:
    """Draw the shared plan of an application and its sliding graphs, as SVG."""
    from penstock.cli.graph import draw

    draw(_read(file), file.name, output)


@app.command()
def state(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="The checkpoint directory of a run, on Spark or not.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every block, and name what is damaged; on Spark the segments alone.")
    ] = False,
) -> None:
    """Look into a checkpoint: windows, groups, blocks, bytes, watermarks, files. Nothing is changed."""
    from penstock.cli.state import show_state

    if not show_state(directory, as_json=as_json, verify=verify):
        raise typer.Exit(1)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{file}: cannot be read: {reason}") from None


def main() -> None:
    """Runs the command; what a user can put right is told without a traceback."""
    try:
        app()
    except PenstockError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(str(error), style="red", markup=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        with suppress(OSError):
            sys.stdout.close()
        sys.exit(1)
