"""Lengths of time as people write them in setups: `10 s`, `500 ms`, `5 minutes`, or a number of seconds."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

_UNITS = {
    "us": 1, "microsecond": 1, "ms": 1_000, "millisecond": 1_000, "s": 1_000_000, "sec": 1_000_000,
    "second": 1_000_000, "min": 60_000_000, "m": 60_000_000, "minute": 60_000_000, "h": 3_600_000_000,
    "hour": 3_600_000_000,
}  # fmt: skip
LONGEST = 100 * 365 * 24 * _UNITS["hour"]
"""A century: more is a misprint, and too much for clocks and timers."""
_WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")


def microseconds(value: object) -> int:
    """
    >>> microseconds("1.5 s"), microseconds(2), microseconds("10 minutes")
    (1500000, 2000000, 600000000)
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _whole(value, 1_000_000)
    found = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    unit = found[2].lower() if found else ""
    scale = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
    if found is None or scale is None:
        raise ValueError("is no length of time; write a number of seconds, or '10 s', '500 ms', '5 minutes', '1 h'")
    return _whole(float(found[1]), scale)


def _whole(number: float, scale: int) -> int:
    if not number <= LONGEST / scale:
        raise ValueError("is longer than a century")
    return round(number * scale)


Duration = Annotated[
    int, BeforeValidator(microseconds), Field(ge=0), PlainSerializer(lambda length: f"{length} us", return_type=str)
]
"""Microseconds; written out with its unit, so that a setup that is written can be read again."""
