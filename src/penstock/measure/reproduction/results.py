"""What was measured: results of our own benches and tables of sweeps, read from a directory."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.errors import InputError

MICRO = "micro/"
"""What the names of sources that are sweeps of microbenchmarks begin with."""

EVENTS_PER_SECOND = "throughput.events_per_second"
MEMORY_MB = "resources.system.max_rss_mb"

Row = Mapping[str, str]


class Results:
    """A directory of results; what is not there is empty."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise InputError(f"{directory}: there is no such directory of results; 'penstock bench all' makes one")
        self._directory = directory

    @cached_property
    def benches(self) -> dict[str, dict[str, Any]]:
        """The figures of our own benches, by name."""
        found = {file.stem: _figures(file) for file in sorted(self._directory.glob("*.json"))}
        return {name: figures for name, figures in found.items() if figures.get("bench") == name}

    def bench(self, name: str) -> dict[str, Any]:
        return self.benches.get(name, {})

    @cached_property
    def _sweeps(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        root = self._directory / MICRO
        for table in sorted(root.glob("**/table.csv")):
            found.setdefault(table.relative_to(root).parts[0], []).extend(_table(table))
        return found

    def sweep(self, name: str) -> Sequence[Row]:
        """The points of all sweeps over a microbenchmark: parameters, adapter and measures."""
        return self._sweeps.get(name, [])

    def has(self, source: str) -> bool:
        """Whether there are results of a bench, or of a sweep if its name says so."""
        if source.startswith(MICRO):
            return bool(self.sweep(source.removeprefix(MICRO)))
        return source in self.benches

    def is_quick(self, source: str) -> bool:
        """Whether these are results of a short run, which a sweep does not say: its rows have their parameters."""
        return bool(self.bench(source).get("size", "full") != "full")

    @property
    def machine(self) -> dict[str, Any]:
        """What the figures were taken on; of several machines the first."""
        return next((figures["machine"] for figures in self.benches.values() if "machine" in figures), {})


def curves(
    rows: Sequence[Row], x: str, y: str = EVENTS_PER_SECOND, where: Mapping[str, object] | None = None
) -> dict[str, list[tuple[float, float]]]:
    """By adapter the points of a series, in order; rows that lack a value, or differ from `where`, are left out.

    >>> rows = [{"adapter": "a", "window": "10", "f": "MAX", "rate": "7"}, {"adapter": "a", "window": "5", "rate": ""}]
    >>> curves(rows, "window", "rate", {"f": "MAX"})
    {'a': [(10.0, 7.0)]}
    """
    found: dict[str, dict[float, float]] = {}
    for row in rows:
        if all(_equal(row.get(name), value) for name, value in (where or {}).items()) and row.get(x) and row.get(y):
            # Later sweeps of the same point stand for it.
            found.setdefault(row.get("adapter") or "?", {})[float(row[x])] = float(row[y])
    return {adapter: sorted(points.items()) for adapter, points in sorted(found.items())}


def _equal(found: str | None, wanted: object) -> bool:
    if found is None or isinstance(wanted, str):
        return found == wanted
    try:
        return float(found) == float(wanted)  # type: ignore[arg-type]
    except ValueError:
        return False


def _figures(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: is not the JSON of a bench: {error}; measure it again or remove it") from None
    return found if isinstance(found, dict) else {}


def _table(file: Path) -> list[Row]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
