"""A series of runs: one setup, some of its parameters varied, every combination a run.

    DIR/sweep.json   the setup's name, what is varied, the points and what became of each
    DIR/runs/POINT/  the run of a point
    DIR/table.csv    a row for each point that has been run: its parameters and its measures

Invariants:
1. `sweep.json` and `table.csv` are written after every run, whole: a series that is stopped or killed keeps what is
   done, and the same call goes on with the rest.
2. A point whose run is done is not run again; one that failed or was stopped is.
3. All points are read before the first one runs, so a mistake in a value is told at once.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from penstock.errors import InputError, PenstockError
from penstock_bench.measure.running.controller import Controller
from penstock_bench.measure.running.directory import RunDirectory
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.measure.setup.model import Series, Setup
from penstock_bench.measure.setup.read import read_setup, read_text

ADAPTER = "adapter"
"""What may be varied beside parameters."""

Perform = Callable[[Controller], bool]
"""Leads a run that has been started to its end; False if the series shall end with it."""

_MEASURES = (
    "events_per_second",
    "results_per_second",
    "latency_mean_ms",
    "latency_p50_ms",
    "latency_p99_ms",
    "latency_max_ms",
    "max_lag_ms",
    "schedule_kept",
    "cpu_share",
    "max_rss_mb",
)


@dataclass(frozen=True)
class Point:
    """One run of a series; `values` are the parameters (and the adapter) that differ from the setup's own."""

    series: str
    values: Mapping[str, Scalar]
    repeat: int = 1

    @property
    def name(self) -> str:
        """
        >>> Point("", {"rate": 1000, "window": "10 s"}, 2).name
        'rate=1000,window=10_s,run=2'
        """
        parts = [self.series] if self.series else []
        parts += [f"{name}={value}" for name, value in self.values.items()]
        parts += [f"run={self.repeat}"] if self.repeat > 1 else []
        name = re.sub(r"[^A-Za-z0-9=,._-]", "_", ",".join(parts) or "run=1")
        # File systems have names of 255 characters at most.
        return name if len(name) <= 200 else f"{name[:180]}~{zlib.crc32(name.encode()):08x}"


@dataclass
class Outcome:
    """What became of a point: `waiting`, `done`, `stopped` or `failed`."""

    point: Point
    setup: Setup
    state: str = "waiting"
    error: str | None = None
    summary: dict[str, Any] = field(default_factory=dict)


def series_of(vary: Sequence[str]) -> Series:
    """`rate=1000,2000` as it is given on the command line.

    >>> series_of(["rate=1000,2000", "adapter=embedded"]).vary
    {'rate': ('1000', '2000'), 'adapter': ('embedded',)}
    """
    varied: dict[str, tuple[str, ...]] = {}
    for text in vary:
        name, given, values = text.partition("=")
        listed = tuple(value.strip() for value in values.split(",") if value.strip())
        if not given or not name.strip() or not listed:
            raise InputError(f"--vary {text}: write NAME=VALUE,VALUE,… as in --vary rate=1000,2000")
        if name.strip() in varied:
            raise InputError(f"--vary {text}: '{name.strip()}' is varied twice; write all its values in one")
        varied[name.strip()] = listed
    return Series(name="series", vary=varied)


def points_of(series: Iterable[Series], repeat: int = 1, *, quick: bool = False) -> list[Point]:
    """All combinations, the last name's values changing fastest. Repetitions come after all others, so that what
    disturbs the machine for a while does not disturb all runs of a point."""
    listed = list(series)
    points = []
    for number in range(1, repeat + 1):
        for one in listed:
            vary = {**one.vary, **one.quick} if quick else one.vary
            for values in product(*vary.values()):
                given = {**one.fixed, **dict(zip(vary, values, strict=True))}
                points.append(Point(one.name if len(listed) > 1 else "", given, number))
    return points


class Sweep:
    def __init__(
        self, file: Path, directory: Path, points: Sequence[Point], parameters: Mapping[str, Scalar] | None = None
    ) -> None:
        """`parameters` hold for all points."""
        self._text = read_text(file)
        self._directory = directory
        self.outcomes = [Outcome(point, self._setup(file, point, parameters or {})) for point in points]
        names = [outcome.point.name for outcome in self.outcomes]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"the point {twice} is there twice")
        for outcome in self.outcomes:
            self._find(outcome)

    @staticmethod
    def _setup(file: Path, point: Point, parameters: Mapping[str, Scalar]) -> Setup:
        given = {**parameters, **point.values}
        adapter = given.pop(ADAPTER, None)
        return read_setup(file, given, None if adapter is None else str(adapter))

    @property
    def waiting(self) -> list[Outcome]:
        """Points that have yet to be run; those that failed before have another chance."""
        return [outcome for outcome in self.outcomes if outcome.state != "done"]

    def run(self, perform: Perform) -> None:
        """Runs what is left, one after the other."""
        self._write()
        for outcome in self.waiting:
            goes_on = self._run(outcome, perform)
            self._write()
            if not goes_on:
                return

    def _run(self, outcome: Outcome, perform: Perform) -> bool:
        directory = self._place(outcome)
        if directory.exists():
            shutil.rmtree(directory)
        outcome.error, outcome.summary, goes_on = None, {}, True
        controller = Controller(outcome.setup, directory, self._text)
        try:
            controller.start()
            goes_on = perform(controller)
            outcome.summary = controller.result()
            outcome.state = str(outcome.summary.get("state", "failed"))
        except PenstockError as error:
            outcome.state, outcome.error = "failed", str(error)
            outcome.summary = controller.summary or {}
        return goes_on

    def _place(self, outcome: Outcome) -> Path:
        return self._directory / "runs" / outcome.point.name

    def _find(self, outcome: Outcome) -> None:
        """Takes over what an earlier call has done."""
        run = RunDirectory(self._place(outcome))
        if not run.summary.is_file():
            return
        try:
            summary, setup = json.loads(run.summary.read_bytes()), run.setup()
        except (OSError, ValueError):
            return
        if setup != outcome.setup:
            raise InputError(
                f"{run.path} is a run of another version of this setup; give another --output, or remove"
                f" {self._directory}"
            )
        if summary.get("state") == "done":
            outcome.state, outcome.summary = "done", summary

    def _write(self) -> None:
        varied: dict[str, list[Scalar]] = {}
        for outcome in self.outcomes:
            for name, value in row_of(outcome, self.varied).items():
                if name in (*self.varied, ADAPTER) and value not in varied.setdefault(name, []):
                    varied[name].append(value)
        told = {
            "setup": self.outcomes[0].setup.name if self.outcomes else "",
            "varied": varied,
            "points": [
                {
                    "name": outcome.point.name,
                    "series": outcome.point.series,
                    "parameters": dict(outcome.setup.parameters),
                    "adapter": outcome.setup.system.adapter,
                    "repeat": outcome.point.repeat,
                    "state": outcome.state,
                    "error": outcome.error,
                }
                for outcome in self.outcomes
            ],
        }
        self._directory.mkdir(parents=True, exist_ok=True)
        _replace(self._directory / "sweep.json", json.dumps(told, indent=1))
        _replace(self._directory / "table.csv", self._csv())

    @property
    def varied(self) -> list[str]:
        """The parameters whose values differ, in order."""
        names = dict.fromkeys(name for outcome in self.outcomes for name in outcome.point.values)
        return [name for name in names if name != ADAPTER]

    def table(self) -> list[dict[str, Scalar]]:
        """A row for each point that has been run."""
        return [row_of(outcome, self.varied) for outcome in self.outcomes if outcome.state != "waiting"]

    def _csv(self) -> str:
        out = io.StringIO()
        names = ["series", *self.varied, ADAPTER, "repeat", "state", *_MEASURES, "error"]
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.table())
        return out.getvalue()


def row_of(outcome: Outcome, varied: Sequence[str]) -> dict[str, Scalar]:
    """A row of the table; a measure that a run has not is left empty."""
    summary = outcome.summary
    throughput, schedule = summary.get("throughput") or {}, summary.get("schedule") or {}
    latency = summary.get("latency_overall") or {}
    latency = latency if latency.get("count") else {}
    system = (summary.get("resources") or {}).get("system") or {}
    measures = {
        "events_per_second": throughput.get("events_per_second"),
        "results_per_second": throughput.get("results_per_second"),
        **{f"latency_{name}_ms": _scaled(latency.get(name), 1e-6) for name in ("mean", "p50", "p99", "max")},
        "max_lag_ms": _scaled(schedule.get("max_lag_us"), 1e-3),
        "schedule_kept": schedule.get("kept"),
        "cpu_share": system.get("cpu_share"),
        "max_rss_mb": system.get("max_rss_mb"),
    }
    return {
        "series": outcome.point.series,
        **{name: outcome.setup.parameters[name] for name in varied},
        ADAPTER: outcome.setup.system.adapter,
        "repeat": outcome.point.repeat,
        "state": outcome.state,
        **{name: "" if value is None else value for name, value in measures.items()},
        "error": outcome.error or "",
    }


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)
