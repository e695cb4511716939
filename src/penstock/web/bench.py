"""The benchmarks of this process: setups to choose from, the text that is being worked on, the run that goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.measure.setup.generators import Scalar
from penstock.web.setups import SetupFiles


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
    """`draft` is the setup that was edited last, on any page, so that a reload has it again."""

    def __init__(self, setups: Sequence[Path], runs: Path) -> None:
        self.setups = SetupFiles(setups)
        self.runs = runs
        self.draft: Draft | None = None

    def open(self, name: str) -> Draft:
        """A setup of the list becomes the one that is worked on."""
        text, beside = self.setups.read(name)
        self.draft = Draft(name, text, beside)
        return self.draft

    def take(self, name: str, text: str, parameters: Mapping[str, Scalar] | None = None) -> Draft:
        """So does a text from elsewhere."""
        self.draft = Draft(name, text, self.runs, dict(parameters or {}))
        return self.draft

    def close(self) -> None: ...
