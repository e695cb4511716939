"""What the controller shows of a run: its figures, drivers, sinks, processes and notes."""

from __future__ import annotations

from nicegui import ui

from penstock.web.kit import Figures, Table, Text, done_bar, panel, shown
from penstock_bench.measure.running.live import fraction_done
from penstock_bench.measure.setup.model import Setup
from penstock_bench.web.live_run import LiveRun

_MOST_QUERIES = 60


class RunPanels:
    def __init__(self) -> None:
        self._figures = Figures(
            ["Time", "Events sent", "Behind", "Largest lag", "Results", "System CPU", "System memory"]
        )
        self._notes_told: tuple[str, ...] = ()

    def make_tables(self) -> None:
        with ui.element("div").classes("stack"):
            with panel("Drivers"):
                columns = [("driver", "name"), ("phase", ""), ("", "html"), ("sent", "n"), ("due", "n"), ("lag", "n")]
                self._drivers = Table("Drivers", columns, "No run yet.")
            with panel("Sinks", "results by query; latency of the last seconds"):
                columns = [("query", "name"), ("results", "n"), ("rate", "n"), ("p50", "n"), ("p99", "n")]
                self._sinks = Table("Sinks", columns, "No run yet.")
            with panel("System", "what processes use"):
                columns = [("process", "name"), ("CPU", "n"), ("memory", "n"), ("read", "n"), ("written", "n")]
                self._processes = Table("Processes", columns, "No run yet.")
                self._status = Text("div").classes("empty code").style("margin-top:1rem")
            with panel("Notes"):
                self._notes = ui.element("ul").classes("notes").props('aria-live="polite"')
                with self._notes:
                    Text("li", "None.").classes("empty")

    def show(self, run: LiveRun) -> None:
        seen, cores = run.snapshot, run.cores
        drivers = {f"{d.name}-{k}": d for d in run.setup.drivers for k in range(d.copies)}
        sent, due = sum(d.sent for d in seen.drivers.values()), sum(d.due for d in seen.drivers.values())
        figures = self._figures
        planned = planned_seconds(run.setup)
        figures.set("Time", f"{run.elapsed:.0f} s", "" if planned is None else f"of {planned:.0f} s")
        figures.set("Events sent", shown.count(sent), shown.rate(sum(s.rate for s in seen.streams.values())))
        figures.set("Behind", shown.count(max(due - sent, 0)), "due, not sent")
        lag = max((d.lag_us for d in seen.drivers.values()), default=0)
        figures.set("Largest lag", shown.nanoseconds(lag * 1000), "of the last moment")
        results = sum(q.results for q in seen.queries.values())
        figures.set("Results", shown.count(results), shown.rate(sum(q.rate for q in seen.queries.values())))
        system = seen.resources.get("system")
        figures.set("System CPU", f"{cores['system']:.2f}" if "system" in cores else "–", "cores")
        figures.set("System memory", "–" if system is None else shown.size(system.rss_bytes))
        self._drivers.rows(
            [
                (
                    name,
                    "finished" if view.finished else view.phase_name,
                    done_bar(fraction_done(drivers[name], view, run.elapsed)),
                    shown.count(view.sent),
                    shown.count(view.due),
                    shown.nanoseconds(view.lag_us * 1000),
                )
                for name, view in seen.drivers.items()
            ]
        )
        self._sinks.rows(
            [
                (
                    name,
                    shown.count(query.results),
                    shown.rate(query.rate),
                    shown.nanoseconds(query.recent.p50) if query.recent.count else "–",
                    shown.nanoseconds(query.recent.p99) if query.recent.count else "–",
                )
                for name, query in list(seen.queries.items())[:_MOST_QUERIES]
            ]
        )
        self._processes.rows(
            [
                (
                    name,
                    f"{cores[name]:.2f} cores" if name in cores else "–",
                    shown.size(usage.rss_bytes),
                    shown.size(usage.read_bytes),
                    shown.size(usage.written_bytes),
                )
                for name, usage in seen.resources.items()
            ]
        )
        self._status.text = " · ".join(_told(name, value) for name, value in seen.status.items())
        self._show_notes(seen.notes)

    def _show_notes(self, notes: tuple[str, ...]) -> None:
        if notes == self._notes_told:
            return
        self._notes_told = notes
        self._notes.clear()
        with self._notes:
            for note in notes[::-1] or ("None.",):
                Text("li", note).classes("message warn" if notes else "empty")


def _told(name: str, value: object) -> str:
    """A fact that the system tells of itself; its name says what kind of number it is."""
    if not isinstance(value, int) or isinstance(value, bool):
        return f"{name} {value}"
    if name.endswith("_bytes"):
        return f"{name.removesuffix('_bytes')} {shown.size(value)}"
    if name.endswith("_us"):
        return f"{name.removesuffix('_us')} {shown.event_time(value)}"
    return f"{name} {value:,}"


def planned_seconds(setup: Setup) -> float | None:
    """How long the drivers' phases take, where they say so."""
    lengths = [driver.length_us for driver in setup.drivers]
    known = [length / 1e6 for length in lengths if length is not None]
    return max(known) if known and len(known) == len(lengths) else None
