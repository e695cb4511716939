"""Arrow's functions over columns, loaded when the first one is called.

Loading them takes a tenth of the time to the first result. Most programs need none: numbers are computed in numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    found = getattr(import_module("pyarrow.compute"), name)
    globals()[name] = found
    return found
