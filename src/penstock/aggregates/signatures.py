"""The aggregate functions: their names, what they accept and what they return. No arithmetic here.

A call names a *function*; its signature names the *kind* of state that answers it (`kinds`). Functions of one kind over
the same arguments share one state (`plan.states`), so that AVG, SUM and COUNT of one field have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.aggregates import kinds
from penstock.aggregates.kinds import Kind
from penstock.expressions.tree import Expression
from penstock.types import SqlType


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
    """`returns` gives the type of a call over arguments of these types, or None where they do not fit."""

    kind: Kind
    arity: int
    returns: Callable[[tuple[SqlType, ...]], SqlType | None]
    description: str
    of_nothing: int | None = None
    """The answer where there is no value; a function that answers 0 is never NULL."""
    takes_fraction: bool = False
    """A call has a fraction as well, and may be written WITHIN GROUP (ORDER BY ...)."""
    keeps_order: bool = False
    """The answer depends on the order of rows, for which the state keeps more than for other functions of its kind."""
    same_as: Want | None = None
    """Another function and a parameter with the same answer, by which the state knows it."""


def _bigint(args: tuple[SqlType, ...]) -> SqlType | None:
    return SqlType.BIGINT


def _first(args: tuple[SqlType, ...]) -> SqlType | None:
    return args[0]


def _double(args: tuple[SqlType, ...]) -> SqlType | None:
    return SqlType.DOUBLE if all(arg.is_numeric or arg is SqlType.NULL for arg in args) else None


def _sum(args: tuple[SqlType, ...]) -> SqlType | None:
    return SqlType.BIGINT if args[0].is_integer else _double(args)


_LEAST = "first argument where the second is least; ties: the earliest event"
_GREATEST = "first argument where the second is greatest; ties: the earliest event"
_HALF = Want("PERCENTILE_CONT", 0.5)

SIGNATURES: dict[str, Signature] = {
    "COUNT": Signature(kinds.COUNT, 1, _bigint, "events, or those where the argument is not NULL", of_nothing=0),
    "SUM": Signature(kinds.SUM, 1, _sum, "exact sum: BIGINT of integers, DOUBLE of floats"),
    "AVG": Signature(kinds.SUM, 1, _double, "exact sum by count, DOUBLE"),
    "VAR_POP": Signature(kinds.MOMENTS, 1, _double, "population variance"),
    "VAR_SAMP": Signature(kinds.MOMENTS, 1, _double, "sample variance; NULL for fewer than two values"),
    "STDDEV_POP": Signature(kinds.MOMENTS, 1, _double, "square root of VAR_POP"),
    "STDDEV_SAMP": Signature(kinds.MOMENTS, 1, _double, "square root of VAR_SAMP"),
    "COVAR_POP": Signature(kinds.COMOMENTS, 2, _double, "population covariance"),
    "COVAR_SAMP": Signature(kinds.COMOMENTS, 2, _double, "sample covariance; NULL for fewer than two pairs"),
    "CORR": Signature(kinds.COMOMENTS, 2, _double, "Pearson correlation"),
    "MIN": Signature(kinds.MIN, 1, _first, "least value; NaN counts as largest"),
    "MAX": Signature(kinds.MAX, 1, _first, "greatest value; NaN counts as largest"),
    "FIRST": Signature(kinds.FIRST, 1, _first, "value of the earliest event, NULL included"),
    "LAST": Signature(kinds.LAST, 1, _first, "value of the latest event, NULL included"),
    "ARG_MIN": Signature(kinds.ARG_MIN, 2, _first, _LEAST),
    "ARG_MAX": Signature(kinds.ARG_MAX, 2, _first, _GREATEST),
    "MEDIAN": Signature(kinds.ORDER, 1, _double, "PERCENTILE_CONT(0.5)", same_as=_HALF),
    "PERCENTILE_CONT": Signature(kinds.ORDER, 1, _double, "interpolated percentile, DOUBLE", takes_fraction=True),
    "PERCENTILE_DISC": Signature(
        kinds.ORDER, 1, _first, "least value whose cumulative share reaches the fraction", takes_fraction=True
    ),
    "COUNT_DISTINCT": Signature(
        kinds.DISTINCT, 1, _bigint, "number of distinct values, NULL not counted", of_nothing=0
    ),
    "MODE": Signature(kinds.DISTINCT, 1, _first, "most frequent value; ties: the one seen earliest", keeps_order=True),
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
    "PERCENTILE": "PERCENTILE_CONT",
    "QUANTILE_CONT": "PERCENTILE_CONT",
    "QUANTILE_DISC": "PERCENTILE_DISC",
}


def kind_of(function: str) -> Kind:
    """The kind of state that answers a function; a function that is not in the table is the user's.

    >>> [kind_of(function).name for function in ("AVG", "MEDIAN", "ARG_MAX", "MY_FUNCTION")]
    ['SUM', 'ORDER', 'ARG_MAX', 'USER']
    """
    signature = SIGNATURES.get(function)
    return kinds.USER if signature is None else signature.kind


def of_nothing(function: str) -> int | None:
    """The answer where there is no value.

    >>> of_nothing("COUNT"), of_nothing("SUM"), of_nothing("COUNTRY_OF_MY_OWN")
    (0, None, None)
    """
    signature = SIGNATURES.get(function)
    return None if signature is None else signature.of_nothing


def keeps_order(wants: Iterable[Want]) -> bool:
    """Whether one of these functions of one state depends on the order of rows more than others of its kind."""
    return any(want.function in SIGNATURES and SIGNATURES[want.function].keeps_order for want in wants)


def want_of(call: AggregateCall) -> Want:
    """What a call asks of its state."""
    signature = SIGNATURES.get(call.function)
    if signature is not None and signature.same_as is not None:
        return signature.same_as
    return Want(call.function, call.parameter)


def written(want: Want) -> str:
    """A function as a query calls it.

    >>> written(Want("PERCENTILE_CONT", 0.5)), written(Want("COUNT_DISTINCT")), written(Want("SUM"))
    ('MEDIAN', 'COUNT(DISTINCT)', 'SUM')
    """
    if want.function == "COUNT_DISTINCT":
        return "COUNT(DISTINCT)"
    return next((name for name, signature in SIGNATURES.items() if signature.same_as == want), want.function)
