"""What a setup that comes from a page may name of this machine.

Who can open the pages can run queries, which is what they are for; a setup shall not make them import a module, start a
program, or read any file as events besides. Setups on the command line have none of these limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.measure.adapters.adapter import adapters
from penstock.measure.setup.model import Setup

_PROGRAMS = ("python",)
"""Options of adapters that name a program to run."""


class Limits:
    def __init__(self, directories: Sequence[Path] = (), classes: Sequence[str] = ()) -> None:
        """`directories` are those whose files may be replayed, `classes` adapters that are not installed."""
        self._directories = tuple(directory.resolve() for directory in directories)
        self._classes = frozenset(classes)

    def refusals(self, setup: Setup) -> list[str]:
        """Each begins with the field that it is about."""
        return [*self._of_the_system(setup), *self._of_files(setup)]

    def _of_the_system(self, setup: Setup) -> list[str]:
        system = setup.system
        if system.adapter not in adapters() and system.adapter not in self._classes:
            return [
                f"system.adapter: '{system.adapter}' is not installed; `penstock ui --adapter {system.adapter}` allows"
                " a class of your own"
            ]
        return [
            f"system.options.{name}: names a program to run; that is for the command line: `penstock bench run`"
            for name in _PROGRAMS
            if name in system.options
        ]

    def _of_files(self, setup: Setup) -> list[str]:
        return [
            f"drivers[{number}].replay.file: {driver.replay.file} is outside of the directories of these pages"
            for number, driver in enumerate(setup.drivers)
            if driver.replay is not None
            and not any(driver.replay.file.resolve().is_relative_to(inside) for inside in self._directories)
        ]
