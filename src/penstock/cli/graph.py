"""`penstock graph APP.sql`: the shared plan and the sliding graphs of an application, as one SVG."""

from __future__ import annotations

from pathlib import Path

import typer

from penstock.errors import InputError
from penstock.lang import parse
from penstock.pictures.application import picture


def draw(text: str, title: str, output: Path | None) -> None:
    """To a file, whose directory is made if need be, or to standard output."""
    svg = picture(parse(text), title)
    if output is None:
        typer.echo(svg, nl=False)
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror}") from None
