"""The microbenchmarks of Mendes' thesis (Table 4.2) as setups: `penstock bench run NAME`, on any adapter.

Each says in its description what it asks, names the paper's factors as parameters and the paper's series of them as
`series`. `rate = "max"` finds what a system can take; `quick` is a short run of the same.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

DIRECTORY = Path(str(files(__package__)))


def names() -> list[str]:
    """The names of all microbenchmarks, in the order of the thesis."""
    return [name for name in _ORDER if setup_file(name).is_file()]


def setup_file(name: str) -> Path:
    return DIRECTORY / f"{name}.toml"


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
