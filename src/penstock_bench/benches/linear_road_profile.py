"""Where the processor time of the engine goes, by its modules."""

from __future__ import annotations

import cProfile
import pstats
from collections import Counter
from typing import Any

_LEAST = 0.02
"""Smaller shares are told together."""


class Profile:
    """Takes what happens between `begin` and `end`."""

    def __init__(self) -> None:
        self._profile = cProfile.Profile()

    def begin(self) -> None:
        self._profile.enable()

    def end(self) -> None:
        self._profile.disable()

    def shares(self) -> dict[str, float]:
        """The greatest first. Compiled loops and library calls count for the module of ours that calls them."""
        found: Any = pstats.Stats(self._profile)
        return shares(found.stats)


def shares(stats: dict[Any, Any]) -> dict[str, float]:
    """Of a table of the standard profiler."""
    spent: Counter[str] = Counter()
    for (file, _, _), (_, _, own, _, callers) in stats.items():
        part = module_of(file)
        if part is not None:
            spent[part] += own
        else:
            for (caller, _, _), (_, _, called, _) in callers.items():
                spent[module_of(caller) or "libraries"] += called
    whole = sum(spent.values()) or 1.0
    told = {part: seconds / whole for part, seconds in spent.most_common() if seconds >= _LEAST * whole}
    return {**told, "others": max(0.0, 1 - sum(told.values()))}


def module_of(file: str) -> str | None:
    """A module of ours by its name in the package.

    >>> module_of("/x/site-packages/penstock/operators/tables/table.py"), module_of("~")
    ('operators.tables.table', None)
    """
    _, found, name = file.replace("\\", "/").rpartition("/penstock/")
    return name.removesuffix(".py").replace("/", ".") if found else None
