"""The setup files that can be chosen: the microbenchmarks, and those in directories that were given.

Only a name that the list has just shown is opened, and only what lies inside its directory: a name made up by someone
else reaches no other file.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.measure.setup.model import Setup
from penstock_bench.measure.setup.read import parse_setup, read_text, resolved
from penstock_bench.web.limits import Limits
from penstock_bench.web.places import line_of
from penstock_bench.workloads import micro

_MOST_FILES = 500
_LONGEST_TEXT = 1_000_000
_MICRO = "microbenchmarks"


class SetupFiles:
    def __init__(self, directories: Sequence[Path]) -> None:
        for directory in directories:
            if not directory.is_dir():
                raise InputError(f"{directory}: is no directory; give those that have setup files")
        self._directories = tuple(directories)

    def files(self) -> dict[str, Path]:
        """All of them by the name that is shown, the given directories first."""
        found: dict[str, Path] = {}
        for directory in self._directories:
            inside = directory.resolve()
            for file in sorted(directory.glob("*.toml"))[:_MOST_FILES]:
                if file.is_file() and file.resolve().is_relative_to(inside) and _is_setup(file):
                    found[f"{inside.name}/{file.name}"] = file
        return found | {f"{_MICRO}/{name}": micro.setup_file(name) for name in micro.names()}

    def read(self, name: str) -> tuple[str, Path]:
        """The text of a file of the list, and where what it names is looked for."""
        file = self.files().get(name)
        if file is None:
            raise InputError(f"{name}: there is no such setup here (any more)")
        return read_text(file), file.parent

    def texts(self) -> Iterator[str]:
        """Of all files of the list that can be read."""
        for file in self.files().values():
            with contextlib.suppress(InputError):
                yield read_text(file)


def _is_setup(file: Path) -> bool:
    """Other files end in .toml too; a setup has queries."""
    try:
        if file.stat().st_size > _LONGEST_TEXT:
            return False
        return re.search(r"^\s*\[+\s*queries\b", file.read_text(encoding="utf-8"), re.MULTILINE) is not None
    except (OSError, UnicodeDecodeError):
        return False


@dataclass(frozen=True)
class Checked:
    """A setup's text, looked through: the setup or what is wrong with it, at which line if that is known. `declared`
    are its parameters as the text has them."""

    setup: Setup | None
    error: str = ""
    line: int | None = None
    declared: Mapping[str, Scalar] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def check(text: str, beside: Path, parameters: Mapping[str, Scalar], adapter: str | None, limits: Limits) -> Checked:
    """Reads the text as `penstock bench run` would, within the limits of the pages."""
    if len(text) > _LONGEST_TEXT:
        return Checked(None, f"the setup is longer than {_LONGEST_TEXT:,} letters")
    try:
        plain = resolved(text, "setup", beside, None, adapter)
        declared = dict(plain["parameters"])
        given = {name: value for name, value in parameters.items() if name in declared}
        plain = resolved(text, "setup", beside, given, adapter)
    except InputError as error:
        return _wrong(error, text)
    try:
        setup = parse_setup(plain, "setup")
        if refused := limits.refusals(setup):
            raise InputError("\n  ".join(["setup:", *refused]))
        return Checked(setup, declared=declared, values=plain)
    except InputError as error:
        return _wrong(error, text, declared)


def _wrong(error: InputError, text: str, declared: Mapping[str, Scalar] | None = None) -> Checked:
    return Checked(None, str(error), _line(str(error), text), declared or {})


def _line(error: str, text: str) -> int | None:
    """TOML's own errors tell the line; of others the first field that is named is looked for."""
    if told := re.search(r"at line (\d+)", error):
        return int(told[1])
    for path in re.findall(r"(?:^setup: |^ {2})([A-Za-z_][\w.\[\]-]*):", error, re.MULTILINE):
        if found := line_of(text, path):
            return found
    return None
