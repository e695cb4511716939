"""What was measured: figures of our own benches and summaries of runs of microbenchmarks, read from a directory.

Summaries are read and not the tables of sweeps, for a table has only the parameters that its own sweep varied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock_bench.measure.results.measures import Measures
from penstock_bench.measure.results.summary import number_at
from penstock_bench.workloads import micro

MICRO = "micro/"
"""What the names of sources that are microbenchmarks begin with."""

EVENTS_PER_SECOND = ("throughput", "events_per_second")
MEMORY_MB = ("resources", "system", "max_rss_mb")

_NAMES = {"embedded": "Penstock", "spark": "Penstock on Spark", "spark-streaming": "Spark", "esper": "Esper"}
_NAMES |= {"flink": "Flink", "kafka": "Kafka"}


@dataclass(frozen=True)
class Run:
    """A run of a microbenchmark that came to its end."""

    path: Path
    summary: Mapping[str, Any]

    @property
    def system(self) -> str:
        """The name of what was measured."""
        adapter = str(self.summary.get("adapter"))
        return _NAMES.get(adapter, adapter)

    @property
    def parameters(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.summary.get("parameters") or {}
        return found

    @property
    def measures(self) -> Measures | None:
        """What its logs have beside the summary; None where only that was kept."""
        return Measures(self.path) if (self.path / "setup.json").is_file() else None

    def measure(self, path: Sequence[str]) -> float | None:
        return number_at(self.summary, path)


class Results:
    """A directory of results; what is not there is empty."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise InputError(f"{directory}: there is no such directory of results; 'penstock bench all' makes one")
        self._directory = directory
        self.micro = directory / MICRO

    @cached_property
    def benches(self) -> dict[str, dict[str, Any]]:
        """The figures of our own benches, by name."""
        found = {file.stem: _figures(file) for file in sorted(self._directory.glob("*.json"))}
        return {name: figures for name, figures in found.items() if figures.get("bench") == name}

    def bench(self, name: str) -> dict[str, Any]:
        return self.benches.get(name, {})

    @cached_property
    def _runs(self) -> dict[str, list[Run]]:
        found: dict[str, list[Run]] = {}
        for file in sorted(self.micro.glob("**/summary.json")):
            summary = _figures(file)
            if summary.get("state") == "done":
                found.setdefault(file.relative_to(self.micro).parts[0], []).append(Run(file.parent, summary))
        return found

    def runs(self, name: str) -> Sequence[Run]:
        """The runs of a microbenchmark, on all systems."""
        return self._runs.get(name, [])

    def has(self, source: str) -> bool:
        """Whether there are results of a bench, or runs of a microbenchmark if its name says so."""
        if source.startswith(MICRO):
            return bool(self.runs(source.removeprefix(MICRO)))
        return source in self.benches

    def is_quick(self, source: str) -> bool:
        """Whether these are results of a short run."""
        if source.startswith(MICRO):
            name = source.removeprefix(MICRO)
            short = micro.quick(name)
            return any(short.items() <= run.parameters.items() for run in self.runs(name)) and bool(short)
        return bool(self.bench(source).get("size", "full") != "full")

    def was_busy(self, source: str) -> bool:
        """Whether the machine had more to do than a bench of ours and its own processes."""
        machine = self.bench(source).get("machine", {})
        return bool(machine.get("load", 0) > machine.get("cores", 1) + 2)

    @property
    def machine(self) -> dict[str, Any]:
        """What the figures were taken on; of several machines the first."""
        return next((figures["machine"] for figures in self.benches.values() if "machine" in figures), {})


def curves(
    runs: Sequence[Run], x: str, y: Sequence[str] = EVENTS_PER_SECOND, where: Mapping[str, object] | None = None
) -> dict[str, list[tuple[float, float]]]:
    """By system the points of a series over a parameter, in order; runs whose parameters differ from `where`, or that
    lack the measure, are left out.

    >>> summary = {"adapter": "esper", "parameters": {"window": 10}, "throughput": {"events_per_second": 7}}
    >>> curves([Run(Path(), summary)], "window", where={"window": 10.0}), curves([Run(Path(), summary)], "rate")
    ({'Esper': [(10.0, 7.0)]}, {})
    """
    found: dict[str, dict[float, float]] = {}
    for run in runs:
        value = run.measure(y)
        fits = all(run.parameters.get(name) == wanted for name, wanted in (where or {}).items())
        if value is not None and fits and x in run.parameters:
            # Points that were repeated are there once, and the last one counts.
            found.setdefault(run.system, {})[float(run.parameters[x])] = value
    return {system: sorted(points.items()) for system, points in sorted(found.items(), key=_ours_first)}


def _ours_first(item: tuple[str, object]) -> tuple[bool, str]:
    return not item[0].startswith("Penstock"), item[0]


def _figures(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: is no JSON of results: {error}; measure it again, or remove it") from None
    return found if isinstance(found, dict) else {}
