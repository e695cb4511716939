"""The pages, each in a file of its own."""

from __future__ import annotations

from nicegui import ui

from penstock.web.pages.app_view import app_view
from penstock.web.pages.controller import controller
from penstock.web.pages.monitor import monitor
from penstock.web.pages.roads import roads_view
from penstock.web.site import Site


def register(site: Site) -> None:
    """Makes the pages known under their addresses."""

    @ui.page("/")
    def first() -> None:
        ui.navigate.to("/app" if site.bench is None else "/controller")

    if site.bench is not None:

        @ui.page("/controller")
        def control() -> None:
            controller(site)

        @ui.page("/monitor")
        def performance(run: str | None = None) -> None:
            monitor(site, run)

    @ui.page("/roads")
    def roads() -> None:
        roads_view(site)

    @ui.page("/app")
    def app(name: str | None = None) -> None:
        app_view(site, name)
