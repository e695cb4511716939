"""The aggregate functions: their names, what they accept and what they return. No arithmetic here.

A call names a *function*; the planner maps each function to the *state* that can answer it
(`plan.states`), so that AVG, SUM and COUNT of one field share two states.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.expressions.tree import Expression
from penstock.types import SqlType


class Family(Enum):
    SUBTRACTABLE = "subtractable"
    SELECTIVE = "selective"
    HOLISTIC = "holistic"
    USER = "user-defined"


@dataclass(frozen=True)
class AggregateCall:
    """`function` is a key of `SIGNATURES` or a registered user-defined name (upper case).

    COUNT(*) has no argument. `parameter` is the fraction of PERCENTILE_CONT and PERCENTILE_DISC.
    ARG_MIN(x, y) is the x of the event with the least y. `over` is the length of the window behind OVER, in
    microseconds; without one the aggregate is over the window in FROM.
    """

    function: str
    args: tuple[Expression, ...]
    filter: Expression | None
    parameter: float | None
    type: SqlType
    over: int | None = None


@dataclass(frozen=True)
class Want:
    """A result asked of a state: an aggregate function and its parameter (the fraction of a percentile)."""

    function: str
    parameter: float | None = None


@dataclass(frozen=True)
class Signature:
    family: Family
    arity: int
    description: str


SIGNATURES: dict[str, Signature] = {
    "COUNT": Signature(Family.SUBTRACTABLE, 1, "events, or those where the argument is not NULL"),
    "SUM": Signature(Family.SUBTRACTABLE, 1, "exact sum: BIGINT of integers, DOUBLE of floats"),
    "AVG": Signature(Family.SUBTRACTABLE, 1, "exact sum by count, DOUBLE"),
    "VAR_POP": Signature(Family.SUBTRACTABLE, 1, "population variance"),
    "VAR_SAMP": Signature(Family.SUBTRACTABLE, 1, "sample variance; NULL for fewer than two values"),
    "STDDEV_POP": Signature(Family.SUBTRACTABLE, 1, "square root of VAR_POP"),
    "STDDEV_SAMP": Signature(Family.SUBTRACTABLE, 1, "square root of VAR_SAMP"),
    "COVAR_POP": Signature(Family.SUBTRACTABLE, 2, "population covariance"),
    "COVAR_SAMP": Signature(Family.SUBTRACTABLE, 2, "sample covariance; NULL for fewer than two pairs"),
    "CORR": Signature(Family.SUBTRACTABLE, 2, "Pearson correlation"),
    "MIN": Signature(Family.SELECTIVE, 1, "least value; NaN counts as largest"),
    "MAX": Signature(Family.SELECTIVE, 1, "greatest value; NaN counts as largest"),
    "FIRST": Signature(Family.SELECTIVE, 1, "value of the earliest event, NULL included"),
    "LAST": Signature(Family.SELECTIVE, 1, "value of the latest event, NULL included"),
    "ARG_MIN": Signature(Family.SELECTIVE, 2, "first argument where the second is least; ties: the earliest event"),
    "ARG_MAX": Signature(Family.SELECTIVE, 2, "first argument where the second is greatest; ties: the earliest event"),
    "MEDIAN": Signature(Family.HOLISTIC, 1, "PERCENTILE_CONT(0.5)"),
    "PERCENTILE_CONT": Signature(Family.HOLISTIC, 1, "interpolated percentile, DOUBLE"),
    "PERCENTILE_DISC": Signature(Family.HOLISTIC, 1, "least value whose cumulative share reaches the fraction"),
    "COUNT_DISTINCT": Signature(Family.HOLISTIC, 1, "number of distinct values, NULL not counted"),
    "MODE": Signature(Family.HOLISTIC, 1, "most frequent value; ties: the one seen earliest"),
}

ALIASES: dict[str, str] = {
    "VARIANCE": "VAR_SAMP",
    "STDDEV": "STDDEV_SAMP",
    "MEAN": "AVG",
    "MAX_BY": "ARG_MAX",
    "MIN_BY": "ARG_MIN",
    "ARGMAX": "ARG_MAX",
    "ARGMIN": "ARG_MIN",
    "FIRST_VALUE": "FIRST",
    "LAST_VALUE": "LAST",
}


def result_type(function: str, args: tuple[SqlType, ...]) -> SqlType | None:
    """The type of a call, or None where the argument types do not fit. User-defined functions are not here.

    >>> result_type("SUM", (SqlType.INT,)), result_type("SUM", (SqlType.STRING,))
    (<SqlType.BIGINT: 'BIGINT'>, None)
    """
    if function in ("COUNT", "COUNT_DISTINCT"):
        return SqlType.BIGINT
    first = args[0]
    numeric = first.is_numeric or first is SqlType.NULL
    if function == "SUM":
        return (SqlType.BIGINT if first.is_integer else SqlType.DOUBLE) if numeric else None
    if function in ("AVG", "VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP", "MEDIAN", "PERCENTILE_CONT"):
        return SqlType.DOUBLE if numeric else None
    if function in ("COVAR_POP", "COVAR_SAMP", "CORR"):
        second = args[1]
        return SqlType.DOUBLE if numeric and (second.is_numeric or second is SqlType.NULL) else None
    return first


def kind_of(function: str) -> str:
    """The kind of state that answers a function: functions of one kind over the same arguments share one state.

    >>> kind_of("AVG"), kind_of("MEDIAN"), kind_of("ARG_MAX"), kind_of("MY_FUNCTION")
    ('SUM', 'ORDER', 'ARG_MAX', 'USER')
    """
    if function not in SIGNATURES:
        return "USER"
    return _SHARED_KINDS.get(function, function)


MERGEABLE = frozenset(("COUNT", "SUM", "MOMENTS", "COMOMENTS", "MIN", "MAX"))
"""The kinds of states of which parts of a window can be computed in several places and merged
(`aggregates.state.MergeableState`)."""

_SHARED_KINDS: dict[str, str] = {
    "AVG": "SUM",
    "VAR_POP": "MOMENTS",
    "VAR_SAMP": "MOMENTS",
    "STDDEV_POP": "MOMENTS",
    "STDDEV_SAMP": "MOMENTS",
    "COVAR_POP": "COMOMENTS",
    "COVAR_SAMP": "COMOMENTS",
    "CORR": "COMOMENTS",
    "MEDIAN": "ORDER",
    "PERCENTILE_CONT": "ORDER",
    "PERCENTILE_DISC": "ORDER",
    "COUNT_DISTINCT": "DISTINCT",
    "MODE": "DISTINCT",
}
