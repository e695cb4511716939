"""`--ui` of `penstock run`: a page in the browser beside the run, or a word about what it needs."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rich.console import Console

from penstock.errors import InputError

if TYPE_CHECKING:
    from penstock.engine.app import App
    from penstock.spark.program import Program
    from penstock.spark.progress import Figures
    from penstock.web.seen import Seen


@dataclass(frozen=True)
class Pages:
    """Pages beside a run, on the loopback."""

    name: str
    port: int

    def show_app(self, app: App) -> None:
        _check_installed()
        from penstock.web.embedded import look_at

        self._serve(look_at(weakref.ref(app)))

    def show_spark(self, figures: Figures, program: Program, buckets: int | None) -> None:
        _check_installed()
        from penstock.web.on_spark import look_at_figures

        self._serve(look_at_figures(figures, program, buckets))

    def _serve(self, look: Callable[[], Seen | None]) -> None:
        from penstock.web.seen import Watched
        from penstock.web.server import Serving, take_address
        from penstock.web.site import Site

        address = take_address("127.0.0.1", self.port, None)
        Serving(Site({self.name: Watched(self.name, look).start()}), address).beside()
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print(f"Watch it at {address.url_of('app')}", markup=False)


def _check_installed() -> None:
    if find_spec("nicegui") is None:
        raise InputError("--ui needs the pages: pip install 'penstock[ui]'")
