"""What each aggregate function means, on a plain list of events: exact rationals, rounded once.

`aggregate` is the whole of it. Values are what the events carry: int, float, str, bool, or None for NULL.

- SUM of integers is exact and must fit a BIGINT, or `Overflow` is raised. SUM of floats is the exact sum rounded once
  (`math.fsum`); any NaN, or both infinities, give NaN; infinities of one sign give that infinity.
- AVG is the rounded sum divided by the count. Variances and covariances are exact rationals rounded once; a standard
  deviation is the square root of its rounded variance. CORR is cxy / (sqrt(cxx) * sqrt(cyy)) of the rounded population
  values, NULL where cxx or cyy is 0. A NaN or infinity among the values makes all of these NaN.
- FIRST, LAST and the value of ARG_* may be NULL; everything else skips NULLs. NaN is the greatest of all numbers and
  equal to itself. MODE: ties go to the value that appears earliest. ARG_*: ties go to the earliest event.
- PERCENTILE_CONT interpolates at p * (n - 1) as Spark does: low + (high - low) * rest. PERCENTILE_DISC is the value
  number ceil(p * n), at least the first; p * n is a product of doubles, as Spark has it.
- Of no value at all, COUNT is 0 and everything else NULL; a sample variance or covariance of one value is NULL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from conformance.description import Aggregate, Event

BIGINT = range(-(2**63), 2**63)


class Overflow(Exception):
    """An integer sum that no BIGINT holds: the result row is rejected."""


def identity(value: Any) -> Any:
    """Hashable, with NaN equal to NaN, and 0.0 equal to -0.0: equality as in GROUP BY and DISTINCT."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else (value,)


def ascending(value: Any) -> tuple[Any, ...]:
    """The sort key of ORDER BY and of group keys: NULL first, NaN last, strings by their UTF-8 bytes."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value.encode() if isinstance(value, str) else value)


def rounded(exact: Fraction) -> float:
    """The nearest double; beyond the largest one, infinity."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def aggregate(call: Aggregate, events: Sequence[Event]) -> Any:
    """The value of an aggregate over the events of a group, in order."""
    if call.filter is not None:
        events = [event for event in events if call.filter.value(event) is True]
    if not call.args:
        return len(events)
    rows = [tuple(arg.value(event) for arg in call.args) for event in events]
    match call.function:
        case "FIRST" | "LAST":
            return rows[0 if call.function == "FIRST" else -1][0] if rows else None
        case "ARG_MIN" | "ARG_MAX":
            return _arg(call.function, [row for row in rows if row[1] is not None])
        case "COVAR_POP" | "COVAR_SAMP" | "CORR":
            return _two(call.function, [(x, y) for x, y in rows if x is not None and y is not None])
    values = [row[0] for row in rows if row[0] is not None]
    match call.function:
        case "COUNT":
            return len(values)
        case "COUNT_DISTINCT":
            return len({identity(value) for value in values})
    if not values:
        return None
    match call.function:
        case "SUM":
            return _sum(values)
        case "AVG":
            total = sum(values) if _integers(values) else _sum(values)
            return float(total) / len(values)
        case "VAR_POP" | "VAR_SAMP" | "STDDEV_POP" | "STDDEV_SAMP":
            variance = _covariance([(value, value) for value in values], sample=call.function.endswith("SAMP"))
            return variance if variance is None or call.function.startswith("VAR") else math.sqrt(variance)
        case "MIN" | "MAX":
            return (min if call.function == "MIN" else max)(values, key=ascending)
        case "MEDIAN":
            return _interpolated(values, 0.5)
        case "PERCENTILE_CONT":
            return _interpolated(values, call.parameter or 0.0)
        case "PERCENTILE_DISC":
            fraction, ordered = call.parameter or 0.0, sorted(values, key=ascending)
            return ordered[max(1, math.ceil(fraction * len(ordered))) - 1]
        case "MODE":
            same = [identity(value) for value in values]
            return max(values, key=lambda value: same.count(identity(value)))  # max() keeps the first of equals
    raise ValueError(f"no such aggregate function: {call.function}")


def _integers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int) for value in values)


def _sum(values: Sequence[Any]) -> int | float:
    if _integers(values):
        total: int = sum(values)
        if total not in BIGINT:
            raise Overflow(f"{total} is out of the range of BIGINT")
        return total
    special = {value for value in values if not math.isfinite(value) and not math.isnan(value)}
    if any(math.isnan(value) for value in values) or len(special) == 2:
        return math.nan
    return special.pop() if special else rounded(sum(map(Fraction, values), Fraction(0)))


def _covariance(pairs: Sequence[tuple[Any, Any]], sample: bool) -> float | None:
    count = len(pairs)
    if count == 0 or (sample and count == 1):
        return None
    if not all(math.isfinite(x) and math.isfinite(y) for x, y in pairs):
        return math.nan
    exact = [(Fraction(x), Fraction(y)) for x, y in pairs]
    mean_x, mean_y = sum(x for x, _ in exact) / count, sum(y for _, y in exact) / count
    moment = sum((x - mean_x) * (y - mean_y) for x, y in exact)
    return rounded(Fraction(moment) / (count - 1 if sample else count))


def _two(function: str, pairs: Sequence[tuple[Any, Any]]) -> float | None:
    covariance = _covariance(pairs, sample=function == "COVAR_SAMP")
    if function != "CORR" or covariance is None or math.isnan(covariance):
        return covariance
    xx, yy = _covariance([(x, x) for x, _ in pairs], False), _covariance([(y, y) for _, y in pairs], False)
    return covariance / (math.sqrt(xx) * math.sqrt(yy)) if xx and yy else None


def _arg(function: str, rows: Sequence[tuple[Any, Any]]) -> Any:
    if not rows:
        return None
    keys = [ascending(row[1]) for row in rows]
    return rows[keys.index((min if function == "ARG_MIN" else max)(keys))][0]


def _interpolated(values: Sequence[Any], fraction: float) -> float:
    ordered = [float(value) for value in sorted(values, key=ascending)]
    position = fraction * (len(ordered) - 1)
    low, high = math.floor(position), math.ceil(position)
    if low == high or identity(ordered[low]) == identity(ordered[high]):
        return ordered[low]
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
