"""The app view: a running application, its plan, queries and windows, and what its memory is used for."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import timedelta
from urllib.parse import quote

from nicegui import ui

from penstock.lang.query import Program
from penstock.pictures.application import plan_picture
from penstock.web import shown
from penstock.web.charts import LineChart
from penstock.web.parts import Figures, State, Table, Text, panel, share_bar
from penstock.web.seen import MemorySeen, Seen, Watched
from penstock.web.shell import page
from penstock.web.site import Page, Site

_LARGEST = 4
"""So many holders of memory have a part of the bar of their own."""
_MOST_QUERIES = 200
"""So many are listed and drawn."""
_SMALLEST = 0.8
"""Of its size, a plan is drawn at least so large; then it scrolls."""


def app_page(site: Site) -> Page:
    def show(name: str | None = None) -> None:
        with page(site, "/app"):
            watched = site.watched.get(name) if name is not None else next(iter(site.watched.values()), None)
            if watched is None:
                _nothing_there(site, name)
            else:
                _View(site, watched)

    return Page("/app", "App", "3", show)


def _nothing_there(site: Site, name: str | None) -> None:
    with ui.element("div").classes("head"):
        Text("h1", "No app to see here")
    with panel("How to watch one"):
        if name is not None:
            Text("p", f"There is no app named {name} (any more).")
        for other in site.watched:
            Text("a", other).props(f'href="{_address(other)}"')
        Text("p", "An application from a file, embedded or on Spark:")
        Text("code", "penstock run app.sql --engine embedded --ui")
        Text("p", "An app in a script or notebook:")
        Text("code", "from penstock.web import watch; watch(app)")


class _View:
    def __init__(self, site: Site, watched: Watched) -> None:
        self._watched = watched
        self._drawn: Program | None = None
        seen = watched.seen
        with ui.element("div").classes("head"):
            Text("h1", watched.name)
            self._state = State(seen.state)
            self._engine = Text("span").classes("sub")
            if len(site.watched) > 1:
                ui.select(
                    list(site.watched), value=watched.name, label="App", on_change=lambda e: _go_to(str(e.value))
                ).props("outlined dense options-dense").style("margin-left:auto;min-width:12rem")
        self._figures = Figures(["Events", "Results", "Watermark", "Late", "Rejected", "Memory", "Pool hits"])
        with ui.element("div").classes("grid two"):
            with panel("Rates", "per second, over the last ten minutes"):
                self._rates = LineChart("events and results a second over time", "count")
            self._make_memory(seen)
        with ui.element("div").classes("grid"), panel("Plan", "streams, stored windows, queries and what they feed"):
            self._plan = ui.html("", sanitize=False).classes("plan")
            self._plan.props('tabindex="0" role="region" aria-label="Plan"')
        with ui.element("div").classes("grid"), panel("Queries") as self._queries_note:
            columns = [("query", "name"), ("results", "n"), ("windows", "code"), ("kept as", ""), ("goes to", "")]
            self._queries = Table("Queries", [*columns, ("text", "code quiet")], "This app has no queries.")
        if seen.tables:
            with ui.element("div").classes("grid"), panel("Tables"):
                columns = [
                    ("table", "name"),
                    ("rows", "n"),
                    ("of the past", "n"),
                    ("expired", "n"),
                    ("oldest row", "n"),
                ]
                self._tables = Table("Tables", columns, "This app has no tables.")
        with ui.element("div").classes("grid two"):
            with panel("Streams"):
                columns = [("stream", "name"), ("events", "n"), ("late", "n"), ("held back", "n"), ("watermark", "n")]
                self._streams = Table("Streams", columns, "This app has no streams.")
            with panel("Rejects", "the last rows that could not be computed"):
                self._rejects = Table("Rejects", [("reason", ""), ("row", "code")], "None so far.")
        ui.timer(1.0, self._refresh)
        ui.timer(0, self._refresh, once=True)

    def _make_memory(self, seen: Seen) -> None:
        if seen.memory is None:
            with panel("Engine"):
                self._facts = Table("Engine", [("", "quiet"), ("", "n")], "Nothing yet.", tall=False)
            return
        with panel("Memory") as beside:
            self._memory_note = beside
            self._memory = ui.html("", sanitize=False).style("margin-bottom:.8rem")
            columns = [("store", "code"), ("size", "n"), ("blocks out", "n"), ("in", "n"), ("pool hits", "n")]
            self._stores = Table("Stores", columns, "No window is stored on disk.")

    async def _refresh(self) -> None:
        seen, points = self._watched.seen, self._watched.points
        self._state.set(seen.state)
        self._engine.text = f"{seen.engine}, {len(seen.queries):,} {'query' if len(seen.queries) == 1 else 'queries'}"
        latest = points[-1] if points else None
        figures = self._figures
        figures.set("Events", shown.count(seen.events), shown.rate(latest.events) if latest else "")
        figures.set("Results", shown.count(seen.results), shown.rate(latest.results) if latest else "")
        day, _, clock = shown.event_time(seen.watermark).partition(" ")
        figures.set("Watermark", clock or day, day if clock else "no event yet")
        figures.set("Late", shown.count(seen.late), _share(seen.late, seen.events))
        figures.set("Rejected", shown.count(seen.rejected), _share(seen.rejected, seen.events))
        self._show_memory(seen)
        self._rates.show(
            {"events": [(p.at, round(p.events)) for p in points], "results": [(p.at, round(p.results)) for p in points]}
        )
        self._queries.rows(
            [
                (
                    q.name,
                    shown.count(q.results),
                    "  ".join(q.windows) or "event by event",
                    _kept(q.kept, q.sharers),
                    q.into,
                    " ".join(q.text.split()),
                )
                for q in seen.queries[:_MOST_QUERIES]
            ]
        )
        self._streams.rows(
            [
                (s.name, shown.count(s.events), shown.count(s.late), shown.count(s.held), shown.event_time(s.watermark))
                for s in seen.streams
            ]
        )
        if seen.tables:
            self._tables.rows(
                [
                    (t.name, shown.count(t.rows), shown.count(t.past), shown.count(t.expired), _age(t.retention))
                    for t in seen.tables
                ]
            )
        self._rejects.rows(seen.rejects[::-1])
        more = len(seen.queries) - _MOST_QUERIES
        self._queries_note.text = f"{more:,} more are neither listed nor drawn" if more > 0 else ""
        if seen.program != self._drawn:
            self._drawn = seen.program
            self._plan.content = await asyncio.to_thread(_drawn, seen.program)

    def _show_memory(self, seen: Seen) -> None:
        hits = sum(use.metrics.pool_hits for use in seen.stores)
        asked = hits + sum(use.metrics.pool_misses for use in seen.stores)
        self._figures.set(
            "Pool hits", f"{100 * hits / asked:.1f} %" if asked else "–", f"of {shown.count(asked)} reads"
        )
        if seen.memory is None:
            self._figures.set("Memory", "–", "in the buckets")
            self._facts.rows(list(seen.figures.items()))
            return
        memory = seen.memory
        self._figures.set("Memory", shown.size(memory.used), f"of {shown.size(memory.budget)}")
        self._memory_note.text = (
            f"{shown.size(memory.used)} of {shown.size(memory.budget)}, at most {shown.size(memory.peak)}"
        )
        self._memory.content = share_bar(_parts(memory), memory.budget, shown.size)
        self._stores.rows(
            [
                (
                    use.name,
                    shown.size(use.nbytes),
                    shown.count(use.metrics.blocks_written),
                    shown.count(use.metrics.blocks_read),
                    _hits(use.metrics.pool_hits, use.metrics.pool_misses),
                )
                for use in seen.stores
            ]
        )


def _age(micros: int | None) -> str:
    return "–" if micros is None else str(timedelta(microseconds=micros))


def _drawn(program: Program) -> str:
    """The plan, made smaller to fit the page as long as it can be read."""
    program = replace(program, queries=program.queries[:_MOST_QUERIES])
    picture = plan_picture(program, "the plan", styled=False)
    width = re.search(r' width="([\d.]+)"', picture)
    assert width is not None
    return picture.replace("<svg ", f'<svg style="min-width:{_SMALLEST * float(width[1]):.0f}px" ', 1)


def _go_to(name: str) -> None:
    ui.navigate.to(_address(name))


def _address(name: str) -> str:
    return f"/app?name={quote(name, safe='')}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} % of events" if part and whole else ""


def _kept(kept: str, sharers: int) -> str:
    return f"{kept}, with {sharers:,} more" if sharers else kept


def _hits(hits: int, misses: int) -> str:
    return f"{100 * hits / (hits + misses):.1f} %" if hits + misses else "–"


def _parts(memory: MemorySeen) -> list[tuple[str, int]]:
    """The largest holders, and the rest together."""
    held = list(memory.held.items())
    rest = sum(size for _, size in held[_LARGEST:])
    return held[:_LARGEST] + ([(f"{len(held) - _LARGEST} others", rest)] if rest else [])
