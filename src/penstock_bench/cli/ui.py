"""`penstock ui`: pages in the browser to run and watch benchmarks."""

from __future__ import annotations

import tempfile
import threading
import webbrowser
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from penstock_bench.cli.kit import check_installed

if TYPE_CHECKING:
    from penstock_bench.web.bench import Bench

ui = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@ui.command()
def serve(
    setups: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR]...", help="Directories with setup files; by default this one.")
    ] = None,
    runs: Annotated[Path, typer.Option(metavar="DIR", help="Where runs are kept, and found to look at again.")] = Path(
        "runs"
    ),
    host: Annotated[str, typer.Option(help="The address to serve at; the default is this machine alone.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to serve at; 0 is any that is free.")] = 8080,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_UI_TOKEN",
            help="What a browser must know; by default one is made and printed as part of the address.",
        ),
    ] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS", help="Setups may name this class as their adapter, besides those installed."),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, open nothing.")] = False,
) -> None:
    """Run and watch benchmarks on pages in the browser, until Ctrl-C."""
    check_installed("penstock ui")
    from penstock_bench.web.bench import Bench

    bench = Bench(setups or [Path()], runs, adapter or ())
    _serve(bench, host=host, port=port, token=token, browser=not no_browser)


def _serve(bench: Bench, *, host: str, port: int, token: str | None, browser: bool) -> None:
    """Serves the pages until Ctrl-C; a run that is going on then is stopped, and what was measured is kept."""
    from penstock.web.kit import Serving, take_address
    from penstock_bench.web.pages import bench_site

    address = take_address(host, port, token)

    def ready() -> None:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print(f"Penstock is at {address.url_of()}\nCtrl-C ends it.", markup=False)
        if browser:
            threading.Thread(target=webbrowser.open, args=(leading.as_uri(),), daemon=True).start()

    with tempfile.TemporaryDirectory(prefix="penstock-ui-") as directory:
        leading = _leading_to(address.url_of(), Path(directory))
        try:
            Serving(bench_site(bench), address).in_front(ready)
        finally:
            bench.close()


def _leading_to(url: str, directory: Path) -> Path:
    """A file that leads a browser there: every account of the machine can see the arguments of a browser's process,
    and this file is for its owner alone."""
    page = directory / "open.html"
    page.touch(mode=0o600)
    page.write_text(f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={escape(url)}">')
    return page
