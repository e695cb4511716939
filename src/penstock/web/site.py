"""What the pages of this process show, and the application that serves them.

The library keeps its pages per process, so there is one site; pages look here for what they show when they are opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui

from penstock.web.seen import Watched

STATIC = "/penstock"


@dataclass(frozen=True)
class Page:
    """A page of a site. `show` makes its content; its parameters are those of the address. `key` is the key that leads
    to it, `keys` are the others that it knows, with what they do."""

    path: str
    title: str
    key: str
    show: Callable[..., None]
    keys: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Site:
    """`watched` are the apps that can be seen, by name; `pages` are those that there are besides the page of the apps;
    `first` is the path of the page that is shown first."""

    watched: dict[str, Watched] = field(default_factory=dict)
    pages: Sequence[Page] = ()
    first: str = "/app"


_made: list[FastAPI] = []


def application(site: Site) -> FastAPI:
    """The pages of the site; made once, since the library can have them only once in a process."""
    if _made:
        return _made[0]
    from penstock.web.app_view import app_page

    site.pages = sorted([*site.pages, app_page(site)], key=lambda page: page.key)
    served = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    nicegui_app.add_static_files(STATIC, Path(__file__).parent / "static")
    ui.page("/")(lambda: ui.navigate.to(site.first))
    for page in site.pages:
        ui.page(page.path)(page.show)
    ui.run_with(
        served,
        title="Penstock",
        favicon=Path(__file__).parent / "static" / "penstock.svg",
        dark=None,
        tailwind=False,
        binding_refresh_interval=None,
        reconnect_timeout=10,
        show_welcome_message=False,
    )
    _made.append(served)
    return served
