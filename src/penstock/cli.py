"""The command `penstock`: run an application, explain its plan, measure.

Results are the only thing on standard output; progress, summaries and errors go to standard error.
Exit codes: 0 done, 2 an error that was told, 130 stopped by Ctrl-C (at a checkpoint, if there is one).
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from penstock.errors import InputError, PenstockError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

EXAMPLES = """
[bold]Examples[/bold]

  [cyan]penstock run examples/callcentre.sql --memory 16MB[/cyan]
      24-hour windows over generated events; results in out/callcentre.csv

  [cyan]penstock run app.sql --checkpoint state --every 5[/cyan]
      can be killed at any time; the same command goes on, no result lost or repeated

  [cyan]tail -F calls.jsonl | penstock run live.sql[/cyan]
      a stream declared FROM '-' reads standard input

  [cyan]penstock explain app.sql[/cyan]
      the plan, with the space and the input/output it will need
"""


MAX_AHEAD = 3600.0
"""How many seconds a live event may be ahead of the clock; later ones are rejected, lest one bad clock close all."""


class Engine(StrEnum):
    EMBEDDED = "embedded"
    SPARK = "spark"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {version('penstock')}")
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
    memory: Annotated[str, typer.Option(help="Memory for all state; the rest of the windows is on disk.")] = "64MB",
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep state here and go on from it after a stop or a crash.")
    ] = None,
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="Time between checkpoints.")] = 10.0,
    block_size: Annotated[str, typer.Option(help="Size of the blocks that windows are paged in.")] = "64KiB",
    rejects: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where unreadable rows go; by default APP.rejects.jsonl, here.")
    ] = None,
    batch: Annotated[int, typer.Option(metavar="N", min=1, help="Events read at once.")] = 65536,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more input at the end of the files.")] = False,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="End after this many events.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")] = False,
    engine: Annotated[Engine, typer.Option(help="Where it runs: in this process, or on Spark.")] = Engine.EMBEDDED,
) -> None:
    """Run an application until its input ends."""
    text = _read(file)
    if engine is Engine.SPARK:
        if follow or limit is not None:
            raise InputError("--follow and --limit work with the embedded engine; leave them out for Spark")
        from penstock.cli_spark import run_on_spark

        run_on_spark(text, memory=memory, checkpoint=checkpoint, quiet=quiet)
        return
    _run_embedded(
        text,
        memory=memory,
        checkpoint=checkpoint,
        every=every,
        block_size=block_size,
        rejects=rejects or Path(f"{file.stem}.rejects.jsonl"),
        batch=batch,
        follow=follow,
        limit=limit,
        quiet=quiet,
    )


def _run_embedded(
    text: str,
    *,
    memory: str,
    checkpoint: Path | None,
    every: float,
    block_size: str,
    rejects: Path,
    batch: int,
    follow: bool,
    limit: int | None,
    quiet: bool,
) -> None:
    import penstock.workloads  # noqa: F401  makes the generators known
    from penstock.cli_progress import ProgressDisplay
    from penstock.connect import runner
    from penstock.connect.opening import is_live
    from penstock.connect.wiring import outputs
    from penstock.engine.app import App
    from penstock.lang import parse

    live = any(is_live(stream, follow) for stream in parse(text).streams)
    with App(
        text, memory=memory, checkpoint=checkpoint, block_size=block_size, max_ahead=MAX_AHEAD if live else None
    ) as running:
        crossing = sys.stdout.isatty() and any(output.printed for output in outputs(running.program))
        display = ProgressDisplay(rejects, quiet=quiet, live=not crossing)
        with _Interrupt() as interrupt, display:
            outcome = runner.run(
                running,
                checkpoint_every=None if checkpoint is None else every,
                follow=follow,
                batch_rows=batch,
                limit=limit,
                reject_file=rejects,
                on_progress=display.update,
                stop=lambda: interrupt.asked,
            )
        display.summary(outcome)
    if outcome is runner.Outcome.STOPPED:
        raise typer.Exit(130)


class _Interrupt:
    """Turns the first Ctrl-C (or SIGTERM) into a wish to stop; the second one ends at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> _Interrupt:
        self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@app.command()
def explain(
    file: Annotated[Path, typer.Argument(metavar="APP.sql", help="The application to explain.")],
    memory: Annotated[str, typer.Option(help="The memory budget to plan for.")] = "64MB",
) -> None:
    """Print the plan of an application: operators, shared states, space and input/output."""
    from penstock.engine.app import App

    with App(_read(file), memory=memory) as planned:
        typer.echo(planned.explain())


@app.command()
def bench(
    name: Annotated[str | None, typer.Argument(help="Which measurement; without it they are listed.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller run that ends within 40 seconds.")] = False,
) -> None:
    """Measure. The last line is one JSON object with the figures."""
    from penstock import bench as benches

    if name is None:
        for known, measures in benches.NAMES.items():
            typer.echo(f"{known:<12} {measures}")
    elif name in benches.NAMES:
        benches.run(name, quick)
    else:
        raise InputError(f"unknown bench '{name}'; there are {', '.join(benches.NAMES)}")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
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


if __name__ == "__main__":
    main()
