"""What became of several runs: those of a sweep, or of any directory that holds runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock_bench.measure.results.summary import KILLED, number_at, summarise


@dataclass(frozen=True)
class Outcome:
    """A run of several; one that has measured nothing has no `summary`."""

    group: str
    """Setups, and the series of a setup, are shown apart."""
    adapter: str
    parameters: Mapping[str, Any]
    state: str
    summary: Mapping[str, Any]
    error: str = ""

    def measure(self, path: Sequence[str]) -> float | None:
        return number_at(self.summary, path)


def outcomes_of(directory: Path) -> list[Outcome]:
    """Of a sweep in its order; else of all runs and sweeps that the directory holds, by their names."""
    listed = _json(directory / "sweep.json")
    if listed is not None:
        return _swept(directory, listed)
    if (directory / "setup.json").is_file():
        return [_single(directory)]
    found = []
    for inner in sorted(directory.iterdir()) if directory.is_dir() else []:
        if inner.is_dir() and not inner.is_symlink():
            found += outcomes_of(inner)
    return found


def _swept(directory: Path, listed: Mapping[str, Any]) -> list[Outcome]:
    found = []
    points = listed.get("points")
    for point in points if isinstance(points, list) else []:
        try:
            name, series = str(point["name"]), str(point.get("series") or "")
            parameters, adapter, state = dict(point["parameters"]), str(point["adapter"]), str(point["state"])
            error = str(point.get("error") or "")
        except (TypeError, KeyError, ValueError) as problem:
            raise InputError(f"{directory / 'sweep.json'}: a point cannot be read: {problem!r}") from None
        # A name comes from a file: it must not lead out of the directory.
        run = directory / "runs" / Path(name).name
        setup = str(listed.get("setup") or directory.name)
        group = f"{setup}: {series}" if series else setup
        found.append(Outcome(group, adapter, parameters, state, _json(run / "summary.json") or {}, error))
    return found


def _single(run: Path) -> Outcome:
    summary = _json(run / "summary.json") or summarise(run)
    notes = summary["notes"]
    error = KILLED if KILLED in notes else notes[-1] if notes and summary["state"] == "failed" else ""
    return Outcome(summary["setup"], summary["adapter"], summary["parameters"], summary["state"], summary, error)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def varied(outcomes: Sequence[Outcome]) -> list[str]:
    """The parameters that have several values."""
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.parameters)
    return [name for name in names if len({str(outcome.parameters.get(name)) for outcome in outcomes}) > 1]


def failures(outcomes: Sequence[Outcome]) -> list[str]:
    """What kept runs from coming to an end, each reason once."""
    return list(dict.fromkeys(f"{one.group} on {one.adapter}: {one.error}" for one in outcomes if one.error))
