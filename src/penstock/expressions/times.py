"""Date and time functions over columns: DATE is days, TIMESTAMP microseconds since 1970, always UTC.

The calendar is the proleptic Gregorian one, which numpy's datetime64 computes for whole columns.
Called by `expressions.evaluate` only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.errors import QueryError
from penstock.expressions.functions import DATE_TRUNC_UNITS
from penstock.expressions.tree import Call, Literal
from penstock.expressions.vector import Array, Mask, Operation, Site, Vector, both, checked, strict

Builder = Callable[[Call, Site], Operation]

SECOND = 1_000_000
DAY = 86_400 * SECOND
_EPOCH_YEAR = 1970
_FIXED = {"microsecond": 1, "millisecond": 1_000, "second": SECOND, "minute": 60 * SECOND, "hour": 3600 * SECOND}
_TIMES_OVERFLOW = "DATETIME_OVERFLOW"


def floor_days(micros: Array) -> Array:
    days: Array = micros // DAY
    return days


def _months(days: Array) -> Array:
    """Months since 1970-01."""
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def _first_day(months: Array) -> Array:
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


def _year(days: Array) -> Array:
    return _months(days) // 12 + _EPOCH_YEAR


def _month(days: Array) -> Array:
    return _months(days) % 12 + 1


def _day(days: Array) -> Array:
    return days - _first_day(_months(days)) + 1


def _quarter(days: Array) -> Array:
    return _months(days) % 12 // 3 + 1


def _day_of_year(days: Array) -> Array:
    return days - _first_day(_months(days) // 12 * 12) + 1


def _day_of_week(days: Array) -> Array:
    days = (days + 4) % 7 + 1
    return days


def _monday(days: Array) -> Array:
    days = days - (days + 3) % 7
    return days


def _week(days: Array) -> Array:
    """A week belongs to the year of its Thursday."""
    thursday = _monday(days) + 3
    return (_day_of_year(thursday) - 1) // 7 + 1


def _of_date(kernel: Callable[[Array], Array]) -> Builder:
    return lambda call, site: strict(lambda days: kernel(days.astype(np.int64)).astype(np.int32))


def _of_clock(unit: int, modulus: int) -> Builder:
    return lambda call, site: strict(lambda micros: (micros // unit % modulus).astype(np.int32))


def _floor_by(unit: int) -> Builder:
    return lambda call, site: strict(lambda micros: micros // unit)


def _date_trunc(call: Call, site: Site) -> Operation:
    unit = call.args[0]
    if not isinstance(unit, Literal):
        raise QueryError("the unit of date_trunc must be a literal", hint="write date_trunc('hour', t)")
    if unit.value is None:
        return lambda _, moment: Vector(moment.values, np.zeros(1, np.bool_), moment.errors)
    name = str(unit.value).lower()
    if name not in DATE_TRUNC_UNITS:
        raise QueryError(f"date_trunc knows no unit {unit.value!r}", hint="use one of " + ", ".join(DATE_TRUNC_UNITS))
    if name in _FIXED:
        step = _FIXED[name]
        return strict(lambda _, micros: micros - micros % step)
    starts: dict[str, Callable[[Array], Array]] = {
        "day": lambda days: days,
        "week": _monday,
        "month": lambda days: _first_day(_months(days)),
        "quarter": lambda days: _first_day(_months(days) // 3 * 3),
        "year": lambda days: _first_day(_months(days) // 12 * 12),
    }
    start = starts[name]
    return strict(lambda _, micros: start(floor_days(micros)) * DAY)


def _scaled(factor: int) -> Builder:
    def build(call: Call, site: Site) -> Operation:
        limit = (2**63 - 1) // factor

        def kernel(units: Array) -> tuple[Array, Mask]:
            return units * factor, (units > limit) | (units < -limit)

        return checked(kernel, site(_TIMES_OVERFLOW)) if factor > 1 else strict(lambda units: units)

    return build


def _timestamp_seconds(call: Call, site: Site) -> Operation:
    """Fractional seconds are cut to microseconds; NaN and infinities are NULL, what does not fit is a limit."""
    if call.args[0].type.is_integer:
        return _scaled(SECOND)(call, site)

    def run(arg: Vector) -> Vector:
        micros = arg.values * SECOND
        inside = np.where(np.abs(micros) < 2.0**63, micros, 0.0).astype(np.int64)
        inside = np.where(micros >= 2.0**63, 2**63 - 1, np.where(micros <= -(2.0**63), -(2**63), inside))
        return Vector(inside, both(arg.valid, np.isfinite(arg.values)), arg.errors)

    return run


def _date_add(call: Call, site: Site) -> Operation:
    def kernel(days: Array, more: Array) -> tuple[Array, Mask]:
        wide = days.astype(np.int64) + more
        narrow = wide.astype(np.int32)
        return narrow, wide != narrow

    return checked(kernel, site(_TIMES_OVERFLOW))


def _datediff(call: Call, site: Site) -> Operation:
    return strict(lambda end, start: end - start)


def _to_date(call: Call, site: Site) -> Operation:
    """Its argument is a DATE already: the coercion cast it."""
    return strict(lambda days: days)


TIMES: dict[str, Builder] = {
    "year": _of_date(_year),
    "month": _of_date(_month),
    "day": _of_date(_day),
    "day_of_week": _of_date(_day_of_week),
    "day_of_year": _of_date(_day_of_year),
    "quarter": _of_date(_quarter),
    "week": _of_date(_week),
    "hour": _of_clock(3600 * SECOND, 24),
    "minute": _of_clock(60 * SECOND, 60),
    "second": _of_clock(SECOND, 60),
    "date_trunc": _date_trunc,
    "unix_micros": _floor_by(1),
    "unix_millis": _floor_by(1_000),
    "unix_seconds": _floor_by(SECOND),
    "timestamp_micros": _scaled(1),
    "timestamp_millis": _scaled(1_000),
    "timestamp_seconds": _timestamp_seconds,
    "to_date": _to_date,
    "date_add": _date_add,
    "datediff": _datediff,
}
