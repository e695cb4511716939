"""How values are written as text and read from it, one value at a time: what CAST to and from STRING means.

Text is read as Spark reads it: blanks around are dropped, and what does not parse is None. `expressions.casts` calls
this once per distinct value.
"""

from __future__ import annotations

import re
from datetime import date, timedelta

import numpy as np

_BLANKS = "".join(map(chr, (*range(0x21), 0x7F)))
"""Spark trims all ASCII control characters and the space."""

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?\Z")
_SPECIAL = {
    "nan": np.nan,
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), np.inf),
    **dict.fromkeys(("-inf", "-infinity"), -np.inf),
}
_TRUE = {"t", "true", "y", "yes", "1"}
_FALSE = {"f", "false", "n", "no", "0"}
_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?\Z", re.DOTALL)
_TIMESTAMP = re.compile(
    r"([+-]?)([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?"
    r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?)?"
    r" ?(Z|UTC|GMT|UT|(?:UTC|GMT|UT)?[+-][0-9]{1,2}(?::?[0-9]{1,2})?)?\Z"
)
_ZONE = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2}):?([0-9]{1,2})?\Z")

_DAYS_TO_1970 = date(1970, 1, 1).toordinal()
_MICROS_PER_DAY = 86_400_000_000


def read_integer(written: str) -> int | None:
    trimmed = written.strip(_BLANKS)
    return int(trimmed) if _INTEGER.match(trimmed) else None


def read_double(written: str) -> float | None:
    trimmed = written.strip(_BLANKS)
    if _NUMBER.match(trimmed):
        return float(trimmed.rstrip("dDfF"))
    return _SPECIAL.get(trimmed.lower())


def read_boolean(written: str) -> bool | None:
    lowered = written.strip(_BLANKS).lower()
    return True if lowered in _TRUE else (False if lowered in _FALSE else None)


def _days(sign: str, year: str, month: str | None, day: str | None) -> int | None:
    """Days since 1970 of any year; Python's dates stop at 9999, so whole cycles of 400 years are taken out."""
    number = -int(year) if sign == "-" else int(year)
    cycles, rest = divmod(number - 2000, 400)
    try:
        ordinal = date(2000 + rest, int(month or 1), int(day or 1)).toordinal()
    except ValueError:
        return None
    return ordinal - _DAYS_TO_1970 + cycles * 146_097


def read_date(written: str) -> int | None:
    """Days since 1970 of `yyyy`, `yyyy-m` or `yyyy-m-d`, the last with anything after a blank or T.

    >>> read_date("1970-1-2"), read_date("1970-02-30")
    (1, None)
    """
    match = _DATE.match(written.strip(_BLANKS))
    if match is None:
        return None
    days = _days(*match.groups())
    return days if days is not None and -(2**31) <= days < 2**31 else None


def read_timestamp(written: str) -> int | None:
    """Microseconds since 1970; without a zone the text is UTC.

    >>> read_timestamp("1970-01-01 00:00:01.5"), read_timestamp("1970-01-01T01:00:00+01:00")
    (1500000, 0)
    """
    match = _TIMESTAMP.match(written.strip(_BLANKS))
    if match is None:
        return None
    sign, year, month, day, hour, minute, second, fraction, zone = match.groups()
    if (hour is not None and day is None) or (zone is not None and hour is None):
        return None
    days = _days(sign, year, month, day)
    offset = _offset(zone)
    clock = [int(part or 0) for part in (hour, minute, second)]
    if days is None or offset is None or clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        return None
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    seconds = clock[0] * 3600 + clock[1] * 60 + clock[2] - offset
    moment = days * _MICROS_PER_DAY + seconds * 1_000_000 + micros
    return moment if -(2**63) <= moment < 2**63 else None


def _offset(zone: str | None) -> int | None:
    """Seconds east of UTC; None if there is no such zone."""
    match = _ZONE.match(zone) if zone else None
    if match is None:
        return 0
    sign, hours, minutes = match.groups()
    total = int(hours) * 3600 + int(minutes or 0) * 60
    if int(minutes or 0) > 59 or total > 18 * 3600:
        return None
    return -total if sign == "-" else total


def write_float(value: float) -> str:
    """As Java 19 and later print it: shortest digits that read back, but two if one would do, the nearest to the
    value; a point always; an exponent outside [0.001, 10 million).

    >>> write_float(1e7), write_float(0.001), write_float(-0.0), write_float(5e-324)
    ('1.0E7', '0.001', '-0.0', '4.9E-324')
    """
    if value != value:
        return "NaN"
    if abs(value) == np.inf:
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return np.format_float_positional(value, trim="0")
    mantissa, exponent = np.format_float_scientific(value, trim="0").split("e")
    if mantissa.endswith(".0"):
        mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}E{int(exponent)}"


def write_date(days: int) -> str:
    """ISO; years beyond four digits carry a sign.

    >>> write_date(0), write_date(-800000), write_date(4000000)
    ('1970-01-01', '-0221-09-04', '+12921-08-18')
    """
    cycles, rest = divmod(days + _DAYS_TO_1970 - date(2000, 1, 1).toordinal(), 146_097)
    inside = date(2000, 1, 1) + timedelta(days=rest)
    year = inside.year + 400 * cycles
    sign = "-" if year < 0 else ("+" if year > 9999 else "")
    return f"{sign}{abs(year):04d}-{inside.month:02d}-{inside.day:02d}"


def write_timestamp(micros: int) -> str:
    """Date and time to the second, and what is not zero of the fraction.

    >>> write_timestamp(1_500_000), write_timestamp(-1)
    ('1970-01-01 00:00:01.5', '1969-12-31 23:59:59.999999')
    """
    days, rest = divmod(micros, _MICROS_PER_DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{write_date(days)} {clock}" + (f".{fraction:06d}".rstrip("0") if fraction else "")
