"""Which times events may have: those of the years 1 to 9999, and what is said of others.

A time outside of them is nearly always a number in another unit than the declared one, so the reason guesses at it.
"""

from __future__ import annotations

from penstock.expressions.text_forms import write_date
from penstock.lang.durations import UNITS
from penstock.types import FIRST_TIME, LAST_TIME

_GUESSED = ("SECOND", "MILLISECOND", "MICROSECOND")
_DAY = UNITS["DAY"]


def bounds(unit: int) -> tuple[int, int]:
    """The first and the last number of a column of times in this unit of microseconds.

    >>> bounds(1_000_000)
    (-62135596800, 253402300799)
    """
    return -(-FIRST_TIME // unit), LAST_TIME // unit


def outside(value: int, unit: int, *, counted: bool) -> str:
    """Why an event with this number in its time column is no event; `counted` says that the column is a BIGINT, whose
    unit is declared.

    >>> outside(1_730_000_000_000, 1_000_000, counted=True)
    'event time 1730000000000 is in the year 56,791; is UNIT MILLISECONDS meant?'
    >>> outside(1 << 62, 1, counted=False)
    'event time is in the year 148,108; times lie in the years 1 to 9999'
    """
    said = f"event time {value} is" if counted else "event time is"
    said += f" in the year {_year(value * unit):,}"
    for name in _GUESSED if counted else ():
        if _is_likely(value * UNITS[name]):
            return f"{said}; is UNIT {name}S meant?"
    if _is_likely(value // 1_000):
        return f"{said}; are these nanoseconds? Divide by 1,000: " + (
            "UNIT MICROSECONDS is the finest" if counted else "a TIMESTAMP is microseconds"
        )
    return f"{said}; times lie in the years 1 to 9999"


def _year(micros: int) -> int:
    return int(write_date(micros // _DAY)[:-6])


def _is_likely(micros: int) -> bool:
    """Whether it is a time that data of today has."""
    return 1970 < _year(micros) < 2100
