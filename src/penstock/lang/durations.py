"""Lengths of time and points in time as literals: `1 HOUR 30 MINUTES`, `TIMESTAMP '2024-03-01 12:00:00'`.

Everything becomes integer microseconds (dates: days). MONTH and YEAR have no fixed length and are refused.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from fractions import Fraction

SECOND = 1_000_000

UNITS: dict[str, int] = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": SECOND,
    "MINUTE": 60 * SECOND,
    "HOUR": 3_600 * SECOND,
    "DAY": 86_400 * SECOND,
    "WEEK": 7 * 86_400 * SECOND,
}

VARIABLE_UNITS = {"MONTH": 30, "QUARTER": 91, "YEAR": 365}
"""Units without a fixed length, with the number of days to suggest instead."""

LONGEST = 100_000 * 366 * 86_400 * SECOND
"""Longer durations are refused; sums of a time and two durations still fit 64 bits."""

_NUMBER = re.compile(r"(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?", re.ASCII)
"""A number as written, short enough to be computed with exactly."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?)?"
    r"\s*(?:(Z|UTC)|([+-])(\d{2}):?(\d{2}))?",
    re.ASCII,
)


def singular(unit: str) -> str:
    """The upper-case singular of a unit as written.

    >>> singular("Hours")
    'HOUR'
    """
    upper = unit.upper()
    return upper[:-1] if upper.endswith("S") else upper


def exact(number: str) -> Fraction | None:
    """The number as written, an exponent included; None if it is no number, or one of more than a few hundred digits.

    >>> exact("30E6"), exact("1.5"), exact("5E")
    (Fraction(30000000, 1), Fraction(3, 2), None)
    """
    return Fraction(number) if _NUMBER.fullmatch(number) else None


def scale(number: str, unit: str) -> int | None:
    """`number` of a fixed unit in microseconds, or None if that is no whole number of them.

    >>> scale("1.5", "SECOND"), scale("3E-3", "SECOND"), scale("0.5", "MICROSECOND")
    (1500000, 3000, None)
    """
    value = exact(number)
    micros = None if value is None else value * UNITS[unit]
    return int(micros) if micros is not None and micros.denominator == 1 else None


def duration(text: str) -> int | None:
    """A number and a unit, as options have them, in microseconds; None if it is none, or too long.

    >>> duration("1 MINUTE"), duration("9e1 seconds"), duration("soon"), duration("1E30 DAYS")
    (60000000, 90000000, None, None)
    """
    words = text.split()
    if len(words) != 2 or singular(words[1]) not in UNITS:
        return None
    micros = scale(words[0], singular(words[1]))
    return micros if micros is not None and micros <= LONGEST else None


def parse_timestamp(text: str) -> int | None:
    """Microseconds since the epoch; without a zone the text is UTC. None if it is no timestamp.

    >>> parse_timestamp("1970-01-02"), parse_timestamp("1970-01-01T01:00:00+01:00"), parse_timestamp("soon")
    (86400000000, 0, None)
    """
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, _, sign, zone_hours, zone_minutes = match.groups()
    zone = timedelta(hours=int(zone_hours or 0), minutes=int(zone_minutes or 0))
    try:
        moment = datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0),
            int((fraction or "").ljust(6, "0")), tzinfo=timezone(-zone if sign == "-" else zone),
        )  # fmt: skip
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(microseconds=1)


def parse_date(text: str) -> int | None:
    """Days since the epoch, or None if the text is no date.

    >>> parse_date("1970-02-01"), parse_date("1970-02-30")
    (31, None)
    """
    match = _DATE.fullmatch(text.strip())
    if match is None:
        return None
    try:
        return (date(*map(int, match.groups())) - _EPOCH.date()).days
    except ValueError:
        return None
