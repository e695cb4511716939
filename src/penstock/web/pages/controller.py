"""The controller: a setup is chosen or written, with its mistakes told as it is typed."""

from __future__ import annotations

from nicegui import ui

from penstock.web.parts import Text, panel
from penstock.web.setup_form import SetupForm
from penstock.web.shell import page
from penstock.web.site import Site


def controller(site: Site) -> None:
    assert site.bench is not None
    with page(site, "/controller", "Controller"):
        with ui.element("div").classes("head"):
            Text("h1", "Controller")
        with panel("Setup"):
            SetupForm(site.bench, lambda checked: None)
