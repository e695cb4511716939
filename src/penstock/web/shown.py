"""Numbers, sizes and times as pages show them: short, with a unit."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def count(number: float | None) -> str:
    """
    >>> count(950), count(12_345), count(1_234_567), count(4_000_000_000), count(None)
    ('950', '12,345', '1.235 M', '4.000 G', '–')
    """
    if number is None:
        return "–"
    for limit, unit in ((1e9, "G"), (1e6, "M")):
        if abs(number) >= limit:
            return f"{number / limit:.3f} {unit}"
    return f"{number:,.0f}"


def rate(number: float | None) -> str:
    """
    >>> rate(0.5), rate(1234), rate(2_500_000)
    ('0.5 /s', '1,234 /s', '2.50 M/s')
    """
    if number is None:
        return "–"
    if number >= 1e6:
        return f"{number / 1e6:,.2f} M/s"
    return f"{number:,.0f} /s" if number >= 10 or number == 0 else f"{number:.1f} /s"


def size(number: float | None) -> str:
    """
    >>> size(512), size(64_000), size(3_500_000), size(2_000_000_000)
    ('512 B', '64.0 kB', '3.5 MB', '2.0 GB')
    """
    if number is None:
        return "–"
    for unit in ("B", "kB", "MB"):
        if abs(number) < 1000:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def nanoseconds(number: float | None) -> str:
    """
    >>> nanoseconds(740), nanoseconds(1_500), nanoseconds(2_345_678), nanoseconds(12e9)
    ('740 ns', '1.50 µs', '2.35 ms', '12.0 s')
    """
    if number is None or math.isnan(number):
        return "–"
    for unit in ("ns", "µs", "ms"):
        if abs(number) < 1000:
            return _three(number, unit)
        number /= 1000
    return _three(number, "s")


def _three(number: float, unit: str) -> str:
    """Three digits."""
    digits = 0 if unit == "ns" or abs(number) >= 100 else 1 if abs(number) >= 10 else 2
    return f"{number:.{digits}f} {unit}"


def event_time(micros: int | None) -> str:
    """
    >>> event_time(1_704_067_200_000_000), event_time(None), event_time(1 << 62)
    ('2024-01-01 00:00:00', '–', '–')
    """
    if micros is None:
        return "–"
    try:
        return f"{_EPOCH + timedelta(microseconds=micros):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return "–"
