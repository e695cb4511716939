"""What the tools of the benchmarks show on standard error, and what they say where a file cannot be written or the
pages are not installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import typer

from penstock.errors import InputError


@contextmanager
def progress_bar(what: str, total: float | None, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def say(text: str, *, quiet: bool) -> None:
    if not quiet:
        typer.echo(text, err=True)


def check_installed(what: str) -> None:
    if find_spec("nicegui") is None:
        raise InputError(f"{what} needs the pages: pip install 'penstock-bench[ui]'")
