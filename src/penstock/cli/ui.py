"""`penstock ui`, and `--ui` of `penstock run`: pages in the browser, or a word about what they need."""

from __future__ import annotations

import tempfile
import threading
import weakref
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from penstock.errors import InputError

if TYPE_CHECKING:
    from penstock.engine.app import App
    from penstock.lang.query import Program
    from penstock.spark.progress import Figures
    from penstock.web.bench import Bench
    from penstock.web.seen import Seen


def ui_command(
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
    from penstock.web.bench import Bench

    bench = Bench(setups or [Path()], runs, adapter or ())
    _serve(bench, host=host, port=port, token=token, browser=not no_browser)


def _serve(bench: Bench, *, host: str, port: int, token: str | None, browser: bool) -> None:
    """Serves the pages until Ctrl-C; a run that is going on then is stopped, and what was measured is kept."""
    from penstock.web.server import Serving, take_address
    from penstock.web.site import Site

    address = take_address(host, port, token)

    def ready() -> None:
        _say(f"Penstock is at {address.url_of()}\nCtrl-C ends it.")
        if browser:
            threading.Thread(target=webbrowser.open, args=(leading.as_uri(),), daemon=True).start()

    with tempfile.TemporaryDirectory(prefix="penstock-ui-") as directory:
        leading = _leading_to(address.url_of(), Path(directory))
        try:
            Serving(Site(bench), address).in_front(ready)
        finally:
            bench.close()


def _leading_to(url: str, directory: Path) -> Path:
    """A file that leads a browser there: every account of the machine can see the arguments of a browser's process,
    and this file is for its owner alone."""
    page = directory / "open.html"
    page.touch(mode=0o600)
    page.write_text(f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={escape(url)}">')
    return page


@dataclass(frozen=True)
class Pages:
    """Pages beside a run, on the loopback."""

    name: str
    port: int

    def show_app(self, app: App) -> None:
        check_installed("--ui")
        from penstock.web.embedded import look_at

        self._serve(look_at(weakref.ref(app)))

    def show_spark(self, figures: Figures, program: Program, buckets: int | None) -> None:
        check_installed("--ui")
        from penstock.web.on_spark import look_at_figures

        self._serve(look_at_figures(figures, program, buckets))

    def _serve(self, look: Callable[[], Seen | None]) -> None:
        from penstock.web.seen import Watched
        from penstock.web.server import Serving, take_address
        from penstock.web.site import Site

        address = take_address("127.0.0.1", self.port, None)
        Serving(Site(watched={self.name: Watched(self.name, look).start()}), address).beside()
        _say(f"Watch it at {address.url_of('app')}")


def check_installed(what: str) -> None:
    if find_spec("nicegui") is None:
        raise InputError(f"{what} needs the pages: pip install 'penstock[ui]'")


def _say(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)
