"""Figures as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))


def duration(ns: float) -> str:
    """
    >>> [duration(ns) for ns in (0, 850, 12_345, 1_500_000, 2.5e9, 250e9, -2_000_000)]
    ['0', '850 ns', '12.3 µs', '1.50 ms', '2.50 s', '250 s', '-2.00 ms']
    """
    if not ns:
        return "0"
    for unit, size in _UNITS:
        if abs(ns) >= size:
            return f"{three(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def three(value: float) -> str:
    """Three digits, or all before the point.

    >>> [three(value) for value in (0, 0.01234, 1.5, 45.678, 123.4, 98765.4, 2_345_678)]
    ['0', '0.0123', '1.50', '45.7', '123', '98,765', '2,345,678']
    """
    if not value:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.9995 else f"{value:.3g}"


def ratio(value: float | None) -> str:
    return "–" if value is None else three(value)


def moment(ns: int) -> str:
    """
    >>> moment(1_698_000_000_000_000_000)
    '2023-10-22 18:40:00 UTC'
    """
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
