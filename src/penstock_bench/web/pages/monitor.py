"""The performance monitor: throughput and latency over time, the latency histogram and all figures by query, of the run
that goes on or of one that is over."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from nicegui import ui

from penstock.errors import PenstockError
from penstock.web.kit import Figures, HistogramChart, LineChart, Page, Site, State, Table, Text, page, panel, shown
from penstock_bench.web.bench import Bench
from penstock_bench.web.live_run import LiveRun
from penstock_bench.web.run_view import FIGURES, RunView

_LIVE = "the run that goes on, or the last"
_COLUMNS = ("min", "avg", "stdev", "p50", "p90", "p99", "p99.9", "max")


def monitor_page(site: Site, bench: Bench) -> Page:
    def show(run: str | None = None) -> None:
        with page(site, "/monitor"):
            _Monitor(bench, run)

    return Page("/monitor", "Performance monitor", "2", show)


class _Monitor:
    """`run` is the name of one that is over; None is the one that was started here."""

    def __init__(self, bench: Bench, run: str | None) -> None:
        self._bench, self._run = bench, run
        self._view: RunView | None = None
        self._query: str | None = None
        self._read: LiveRun | None = None
        with ui.element("div").classes("head"):
            Text("h1", "Performance monitor")
            self._state = State()
            self._name = Text("span").classes("sub")
            with ui.element("div").classes("controls").style("margin-left:auto"):
                self._queries = ui.select(
                    [], label="Query", on_change=lambda event: self._choose_query(event.value)
                ).props("outlined dense options-dense")
                self._queries.style("min-width:9rem").set_visibility(False)
                self._choice = ui.select([_LIVE], value=_LIVE, label="Run").props("outlined dense options-dense")
                self._choice.style("min-width:19rem")
        self._message = Text("div").props('role="status"').classes("message").style("margin-bottom:.9rem")
        self._message.set_visibility(False)
        self._figures = Figures(FIGURES)
        with ui.element("div").classes("grid two"):
            with panel("Throughput", "a second, over seconds since the start"):
                self._throughput = LineChart("events and results a second over time", "count", elapsed=True)
            with panel("Latency over time") as self._latency_note:
                self._latency = LineChart("latency over time", "ns", logarithmic=True, elapsed=True)
        with ui.element("div").classes("grid"), panel("Queries", "latencies of all results so far") as self._table_note:
            columns = [("query", "name"), ("results", "n"), ("rate", "n"), *((name, "n") for name in _COLUMNS)]
            self._table = Table("Queries", columns, "No results yet.")
        with ui.element("div").classes("grid two"):
            with panel("Latency histogram") as self._histogram_note:
                self._histogram = HistogramChart("latency histogram")
            with panel("Processes", "cores in use"):
                self._cores = LineChart("cores in use over time", "count", elapsed=True)
        with ui.element("div").classes("grid two"):
            with panel("Memory", "resident, by process"):
                self._memory = LineChart("memory over time", "size", elapsed=True)
            with panel("Notes"):
                self._notes = Table("Notes", [("", "")], "None.")
        ui.timer(0, self._begin, once=True)

    async def _begin(self) -> None:
        names = await asyncio.to_thread(self._bench.runs.names)
        live = self._bench.run
        if self._run is None and (live is None) and names:
            self._run = names[0]
        self._choice.set_options([_LIVE, *names], value=self._run or _LIVE)
        self._choice.on_value_change(lambda event: _go_to(event.value))
        if self._run is None:
            await self._refresh_live()
            ui.timer(1.0, self._refresh_live)
            return
        self._tell(f"Reading {self._run} …")
        try:
            view = await asyncio.to_thread(self._bench.runs.view, self._run)
        except PenstockError as error:
            self._tell(str(error), bad=True)
            return
        self._tell("")
        self._show(view)

    async def _refresh_live(self) -> None:
        """What is seen of the run; once it is over, what its logs say, which is exact."""
        run = self._bench.run
        if run is not None and run is self._read:
            return
        if run is None:
            self._tell("There is no run yet, here or in the directory of runs. The controller starts one.")
            return
        self._tell("")
        if run.over:
            self._read = run
            try:
                self._show(await asyncio.to_thread(self._bench.runs.view, run.name))
            except PenstockError as error:
                self._tell(str(error), bad=True)
        else:
            self._show(run.view())

    def _tell(self, words: str, *, bad: bool = False) -> None:
        self._message.text = words
        self._message.classes(add="bad" if bad else "", remove="" if bad else "bad")
        self._message.set_visibility(bool(words))

    def _show(self, view: RunView) -> None:
        if self._view is None or list(view.latency) != list(self._view.latency):
            self._ask_query(list(view.latency))
        self._view = view
        self._state.set(view.state)
        self._name.text = f"{view.name} on {view.adapter}"
        for name, (value, more) in view.figures.items():
            self._figures.set(name, value, more)
        self._throughput.show(view.throughput)
        self._cores.show(view.cores)
        self._memory.show(view.memory)
        self._table_note.text = f"latency {view.mode}"
        self._table.rows(
            [
                (
                    name,
                    shown.count(row.count),
                    shown.rate(row.rate),
                    *(
                        shown.nanoseconds(value) if row.max else "–"
                        for value in (row.min, row.mean, row.stdev, row.p50, row.p90, row.p99, row.p999, row.max)
                    ),
                )
                for name, row in view.queries.items()
            ]
        )
        told = [view.error] if view.error else []
        self._notes.rows([(note,) for note in (*told, *view.notes[::-1])])
        self._show_query()

    def _show_query(self) -> None:
        view, query = self._view, self._query
        if view is None or query is None or query not in view.latency:
            return
        self._latency_note.text = f"{query}, {view.mode}"
        self._histogram_note.text = f"{query}, results by latency"
        self._latency.show(view.latency[query])
        self._histogram.show(view.histograms[query].names, view.histograms[query].counts)

    def _ask_query(self, queries: list[str]) -> None:
        self._query = queries[0] if queries else None
        self._queries.set_options(queries, value=self._query)
        self._queries.set_visibility(len(queries) > 1)

    def _choose_query(self, query: str | None) -> None:
        self._query = query
        self._show_query()


def _go_to(run: str) -> None:
    ui.navigate.to("/monitor" if run == _LIVE else f"/monitor?run={quote(run, safe='')}")
