"""The benchmarks of this process: setups to choose from, the text that is being worked on, the run that goes on.

Invariant: there is one run at a time, whichever page has started it; all pages see it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from penstock.errors import InputError
from penstock_bench.measure.running.controller import Controller
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.web.finished_run import Runs
from penstock_bench.web.limits import Limits
from penstock_bench.web.live_run import LiveRun
from penstock_bench.web.setups import Checked, SetupFiles, check

_END_SECONDS = 20.0


@dataclass
class Draft:
    """A setup that is being edited. Parameters are those that differ from the text's own; paths in it are looked for
    `beside`."""

    name: str
    text: str
    beside: Path
    parameters: dict[str, Scalar] = field(default_factory=dict)
    adapter: str | None = None


class Bench:
    """`draft` is the setup that was edited last, on any page, so that a reload has it again. `run` is the one that goes
    on, or the last."""

    def __init__(self, setups: Sequence[Path], runs: Path, classes: Sequence[str] = ()) -> None:
        """`classes` are adapters that are not installed and may be named."""
        if runs.exists() and not runs.is_dir():
            raise InputError(f"--runs {runs}: is no directory")
        self.setups = SetupFiles(setups)
        self.runs = Runs(runs)
        self._limits = Limits([*setups, runs], classes, self.setups.texts)
        self.draft: Draft | None = None
        self.run: LiveRun | None = None
        self._starting = threading.Lock()

    def open(self, name: str) -> Draft:
        """A setup of the list becomes the one that is worked on."""
        text, beside = self.setups.read(name)
        self.draft = Draft(name, text, beside)
        return self.draft

    def take(self, name: str, text: str) -> Draft:
        """So does a text from elsewhere."""
        self.draft = Draft(name, text, self.runs.directory)
        return self.draft

    def check(self, draft: Draft) -> Checked:
        return check(draft.text, draft.beside, draft.parameters, draft.adapter, self._limits)

    def start(self, draft: Draft) -> LiveRun:
        """Begins a run; raises if it cannot be, or if another one goes on."""
        with self._starting:
            if self.run is not None and not self.run.over:
                raise InputError(f"{self.run.name} goes on; stop it first")
            checked = self.check(draft)
            if checked.setup is None:
                raise InputError(checked.error)
            name = self._unused(re.sub(r"[^A-Za-z0-9_-]", "-", checked.setup.name))
            run = LiveRun(name, Controller(checked.setup, self.runs.directory / name, draft.text))
            run.start()
            self.run = run
            return run

    def _unused(self, stem: str) -> str:
        """A name for a new directory."""
        name = base = f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
        number = 1
        while (self.runs.directory / name).exists():
            number += 1
            name = f"{base}-{number}"
        return name

    def close(self) -> None:
        """Stops the run that goes on; what was measured is kept."""
        run = self.run
        if run is None or run.over:
            return
        for _ in range(2):
            # The second time it does not wait for the system to work off what it has.
            run.controller.stop()
            if run.controller.wait(_END_SECONDS):
                return
