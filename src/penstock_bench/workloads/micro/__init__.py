"""The microbenchmarks of Mendes' thesis (Table 4.2) as setups: `penstock bench run NAME`, on any adapter.

Each says in its description what it asks, names the paper's factors as parameters and the paper's series of them as
`series`. `rate = "max"` finds what a system can take; `quick` is a short run of the same.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

DIRECTORY = Path(str(files(__package__)))


def names() -> list[str]:
    """The names of all microbenchmarks, in the order of the thesis."""
    return [name for name in _ORDER if setup_file(name).is_file()]


def setup_file(name: str) -> Path:
    return DIRECTORY / f"{name}.toml"


def quick(name: str) -> dict[str, Any]:
    """The parameters of a short run."""
    found: dict[str, Any] = _read(name).get("quick", {})
    return found


def is_series(name: str) -> bool:
    """Whether it is run for several values of its parameters (`penstock bench sweep`), or once (`run`)."""
    return "series" in _read(name)


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(setup_file(name).read_text(encoding="utf-8"))


_ORDER = (
    "selection",
    "projection",
    "aggregation-sliding",
    "aggregation-tumbling",
    "time-window",
    "time-window-two-level",
    "join-windows",
    "join-table",
    "join-database",
    "pattern",
    "adaptivity",
    "queries-identical",
    "queries-similar",
)
