"""The layout of a run's directory: one place that knows the names of all its files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock_bench.measure.clock import Clock
from penstock_bench.measure.setup.model import Setup


@dataclass(frozen=True)
class RunDirectory:
    """All times are nanoseconds of the run's clock (`clock`), unless a name ends in _us."""

    path: Path

    @classmethod
    def create(cls, path: Path, setup: Setup, text: str) -> RunDirectory:
        """A new one; a directory that holds a run already is refused, so that nothing measured is lost."""
        run = cls(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(f"{path}: is there already; give a new directory for the run")
        try:
            for made in (run.logs, run.tables):
                made.mkdir(parents=True, exist_ok=True)
            (path / "setup.toml").write_text(text, encoding="utf-8")
            (path / "setup.json").write_text(setup.model_dump_json(indent=1), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        return run

    def setup(self) -> Setup:
        return Setup.model_validate_json((self.path / "setup.json").read_bytes())

    def facts(self) -> dict[str, Any]:
        """What run.json says: clock_offset_ns, place, adapter, machine, began_ns."""
        found: dict[str, Any] = json.loads((self.path / "run.json").read_bytes())
        return found

    def write_facts(self, facts: Mapping[str, Any]) -> None:
        # Only the owner reads it: it has the token that lets a process speak to the system under test.
        unfinished = self.path / "run.json.new"
        unfinished.touch(mode=0o600)
        unfinished.write_text(json.dumps(facts, indent=1), encoding="utf-8")
        os.replace(unfinished, self.path / "run.json")

    def clock(self) -> Clock:
        return Clock(self.facts()["clock_offset_ns"])

    @property
    def happenings(self) -> Path:
        """What happened when, one JSON object a line: states, notes, pauses, ends of processes."""
        return self.path / "happenings.jsonl"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def logs(self) -> Path:
        """What the processes say to standard error."""
        return self.path / "logs"

    @property
    def tables(self) -> Path:
        """The rows of the setup's tables as Parquet."""
        return self.path / "tables"

    @property
    def host(self) -> Path:
        """One row per batch that was pushed into the system."""
        return self.path / "host"

    @property
    def resources(self) -> Path:
        return self.path / "resources"

    def driver(self, name: str, copy: int) -> Path:
        """One row per batch that this copy sent."""
        return self.path / "drivers" / f"{name}-{copy}"

    def sink(self, name: str, copy: int) -> Path:
        """One row per sampled result that this copy took."""
        return self.path / "sinks" / f"{name}-{copy}"

    def answers(self, query: str) -> Path:
        return self.path / "answers" / query
