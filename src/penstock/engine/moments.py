"""Points in time as programs give them: integers, datetimes, timestamps of pandas, numpy and Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.errors import InputError
from penstock.types import FIRST_TIME, LAST_TIME

_MICROS = pa.timestamp("us", tz="UTC")


def micros_of(time: Any) -> int:
    """Microseconds since 1970 UTC; what has no zone is UTC, and parts of a microsecond are left out. Times outside of
    the years 1 to 9999 are refused: they come of a wrong unit.

    >>> from datetime import UTC, datetime
    >>> micros_of(5), micros_of(datetime(1970, 1, 1, 0, 0, 1)), micros_of(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))
    (5, 1000000, 2000000)
    """
    if isinstance(time, int) and not isinstance(time, bool):
        return _within_the_calendar(time)
    try:
        moment = time if isinstance(time, pa.Scalar) else pa.scalar(time)
        if pa.types.is_integer(moment.type) and moment.is_valid:
            return _within_the_calendar(moment.as_py())
        if (pa.types.is_timestamp(moment.type) or pa.types.is_date(moment.type)) and moment.is_valid:
            return _within_the_calendar(moment.cast(_MICROS, safe=False).value)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        pass
    raise _unfit(time)


def _within_the_calendar(micros: int) -> int:
    if not FIRST_TIME <= micros <= LAST_TIME:
        raise InputError(f"{micros} is outside of the years 1 to 9999; give microseconds since 1970 UTC")
    return micros


def _unfit(time: Any) -> InputError:
    return InputError(
        f"{time!r:.80} is no point in time; give microseconds since 1970 UTC, a datetime, or a timestamp of pandas, "
        "numpy or Arrow"
    )
