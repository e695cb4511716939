"""The controller: a setup is chosen or written, started, paused, stopped; drivers, sinks and the system are watched."""

from __future__ import annotations

import asyncio

from nicegui import ui

from penstock.errors import PenstockError
from penstock.web.kit import Page, Site, State, Text, button, enable, page, panel
from penstock_bench.web.bench import Bench
from penstock_bench.web.run_panels import RunPanels
from penstock_bench.web.setup_form import SetupForm
from penstock_bench.web.setups import Checked

_KEYS = {"s": "start a run", "p": "pause it, or go on", "x": "stop it"}


def controller_page(site: Site, bench: Bench) -> Page:
    def show() -> None:
        with page(site, "/controller"):
            _Controller(bench)

    return Page("/controller", "Controller", "1", show, _KEYS)


class _Controller:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._complete = False
        self._busy = False
        with ui.element("div").classes("head"):
            Text("h1", "Controller")
            self._state = State()
            self._name = Text("span").classes("sub")
            with ui.element("div").classes("controls").style("margin-left:auto"):
                self._start = button("Start", self._do_start, main=True, key="s")
                self._pause = button("Pause", self._do_pause, key="p")
                self._stop = button("Stop", self._do_stop, key="x")
        self._error = Text("div").props('role="alert"').classes("message bad").style("margin-bottom:.9rem")
        self._panels = RunPanels()
        with ui.element("div").classes("grid wide-left"):
            with panel("Setup"):
                self._form = SetupForm(bench, self._checked)
            self._panels.make_tables()
        self._refresh()
        ui.timer(0.5, self._refresh)

    def _checked(self, checked: Checked) -> None:
        self._complete = checked.setup is not None
        self._refresh()

    async def _do_start(self) -> None:
        draft = self._form.draft
        if draft is None or self._busy:
            return
        self._busy = True
        self._refresh()
        try:
            await asyncio.to_thread(self._bench.start, draft)
        except PenstockError as error:
            self._tell(str(error))
        else:
            self._tell("")
        finally:
            self._busy = False
        self._refresh()

    def _do_pause(self) -> None:
        run = self._bench.run
        if run is not None:
            ask = run.controller.resume if run.snapshot.state == "paused" else run.controller.pause
            ask()

    def _do_stop(self) -> None:
        if self._bench.run is not None:
            self._bench.run.controller.stop()

    def _tell(self, error: str) -> None:
        self._error.text = error
        self._error.set_visibility(bool(error))

    def _refresh(self) -> None:
        run = self._bench.run
        state = "" if run is None else run.snapshot.state.value
        going_on = run is not None and not run.over
        enable(self._start, self._complete and not going_on and not self._busy)
        enable(self._pause, state in ("running", "paused"))
        enable(self._stop, going_on)
        self._pause.text = "Resume" if state == "paused" else "Pause"
        self._start.text = "Starting …" if self._busy else "Start"
        self._state.set(state)
        if run is None:
            self._tell(self._error.text)
            return
        self._name.text = f"{run.name} on {run.setup.system.adapter}"
        if run.snapshot.error is not None:
            self._tell(run.snapshot.error)
        elif going_on:
            self._tell("")
        self._panels.show(run)
