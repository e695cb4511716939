"""The roads of Linear Road while the application runs: speeds, tolls and accidents of the segments, by the minute."""

from __future__ import annotations

from nicegui import ui

from penstock.web.kit import Figures, Page, Site, Table, Text, page, panel
from penstock_bench.pictures.roads import roads_picture
from penstock_bench.workloads.linear_road.roads import RoadsNow

_FIGURES = ("Minute", "Cars", "Mean speed", "Accidents", "Segments with a toll", "Dearest toll")


def roads_page(site: Site, name: str, now: RoadsNow) -> Page:
    """The roads of a run of Linear Road, which goes on changing them."""

    def show() -> None:
        with page(site, "/roads"):
            _View(name, now)

    return Page("/roads", "Roads", "4", show)


class _View:
    def __init__(self, name: str, now: RoadsNow) -> None:
        self._now = now
        self._drawn = -1
        with ui.element("div").classes("head"):
            Text("h1", "Roads")
            Text("span", name).classes("sub")
        self._figures = Figures(_FIGURES)
        with ui.element("div").classes("grid"), panel("Expressways", "as the application knows them at each minute"):
            self._picture = ui.html("", sanitize=False).classes("roads")
            self._picture.props('tabindex="0" role="region" aria-label="Roads"')
        with ui.element("div").classes("grid"), panel("Accidents", "that cars are warned of now"):
            columns = [("expressway", "n"), ("direction", ""), ("segment", "n")]
            self._accidents = Table("Accidents", columns, "None.", tall=False)
        ui.timer(0.5, self._refresh)
        ui.timer(0, self._refresh, once=True)

    def _refresh(self) -> None:
        seen = self._now.seen
        if seen is None or seen.minute == self._drawn:
            return
        self._drawn = seen.minute
        cars, accidents, tolls = int(seen.cars.sum()), seen.accidents, seen.toll[seen.toll > 0]
        speed = float((seen.speed.clip(0) * seen.cars).sum()) / max(cars, 1)
        shown = (f"{seen.minute}", f"{cars:,}", f"{speed:.0f} mph", f"{len(accidents)}", f"{len(tolls):,}")
        for name, value in zip(_FIGURES, (*shown, f"{int(tolls.max(initial=0)):,}"), strict=True):
            self._figures.set(name, value, "in each segment of its minute" if name == "Cars" else "")
        self._picture.content = roads_picture(seen, "Linear Road", styled=False)
        self._accidents.rows(
            [(str(road // 2), "east" if road % 2 == 0 else "west", str(segment)) for road, segment in accidents]
        )
