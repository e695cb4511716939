"""How much a bench does: all of it, what fits into some seconds, or just enough to see that it works."""

from __future__ import annotations

from enum import Enum


class Size(Enum):
    TINY = "tiny"
    QUICK = "quick"
    FULL = "full"
