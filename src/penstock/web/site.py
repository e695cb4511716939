"""What the pages of this process show, and the application that serves them.

The library keeps its pages per process, so there is one site; pages look here for what they show when they are opened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui

from penstock.web.seen import Watched
from penstock.workloads.linear_road.roads import RoadsNow

if TYPE_CHECKING:
    from penstock.web.bench import Bench

STATIC = "/penstock"


@dataclass(frozen=True)
class WatchedRoads:
    """The roads of a run of Linear Road, which goes on changing them."""

    name: str
    now: RoadsNow


@dataclass
class Site:
    """`bench` is there where benchmarks can be run; `watched` are the apps that can be seen, by name; `roads` are there
    where Linear Road is watched."""

    bench: Bench | None = None
    watched: dict[str, Watched] = field(default_factory=dict)
    roads: WatchedRoads | None = None

    @property
    def pages(self) -> set[str]:
        """The addresses that have something to show."""
        benches = {"/controller", "/monitor"} if self.bench is not None else set()
        return {"/app"} | benches | ({"/roads"} if self.roads is not None else set())


_made: list[FastAPI] = []


def application(site: Site) -> FastAPI:
    """The pages of the site; made once, since the library can have them only once in a process."""
    if _made:
        return _made[0]
    from penstock.web.pages import register

    served = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    nicegui_app.add_static_files(STATIC, Path(__file__).parent / "static")
    register(site)
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
