"""The closed list of scalar functions: their names, how many arguments they take and how they are typed.

Typing follows Spark SQL's ANSI coercion. `coerce` says what the arguments must be cast to, `resolve` what comes out,
`can_cast` which explicit casts exist. No arithmetic here: `expressions.evaluate` gives each function its meaning.
The binder calls this while it types a query; nothing calls it while events flow.

>>> coerce("add", (SqlType.INT, SqlType.STRING)), resolve("add", (SqlType.BIGINT, SqlType.BIGINT))
((<SqlType.BIGINT: 'BIGINT'>, <SqlType.BIGINT: 'BIGINT'>), <SqlType.BIGINT: 'BIGINT'>)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce

from penstock.types import SqlType

Types = tuple[SqlType, ...]
Coercion = Callable[[Types], Types | None]
Result = Callable[[Types], SqlType]

NULL, BOOLEAN, STRING = SqlType.NULL, SqlType.BOOLEAN, SqlType.STRING
TINYINT, SMALLINT, INT, BIGINT = SqlType.TINYINT, SqlType.SMALLINT, SqlType.INT, SqlType.BIGINT
FLOAT, DOUBLE = SqlType.FLOAT, SqlType.DOUBLE
DATE, TIMESTAMP, INTERVAL = SqlType.DATE, SqlType.TIMESTAMP, SqlType.INTERVAL

DATE_TRUNC_UNITS = (
    "microsecond",
    "millisecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
)

_NUMERIC_ORDER = (TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE)


@dataclass(frozen=True)
class Function:
    """`most` is None for any number of arguments; `literals` are the positions that must be literals."""

    name: str
    least: int
    most: int | None
    coercion: Coercion
    result: Result
    description: str
    literals: tuple[int, ...] = ()


def common_type(first: SqlType, second: SqlType) -> SqlType | None:
    """The type two values meet in: NULL gives way, numbers widen, a STRING becomes what it meets.

    >>> common_type(SqlType.INT, SqlType.FLOAT), common_type(SqlType.STRING, SqlType.INT)
    (<SqlType.DOUBLE: 'DOUBLE'>, <SqlType.BIGINT: 'BIGINT'>)
    """
    if first is second or second is NULL:
        return first
    if first is NULL:
        return second
    if first.is_numeric and second.is_numeric:
        wider = max(first, second, key=_NUMERIC_ORDER.index)
        return DOUBLE if wider is FLOAT else wider
    if {first, second} == {DATE, TIMESTAMP}:
        return TIMESTAMP
    if STRING in (first, second):
        other = second if first is STRING else first
        if other is INTERVAL:
            return None
        if other.is_numeric:
            return BIGINT if other.is_integer else DOUBLE
        return other
    return None


def implicit_cast(source: SqlType, target: SqlType) -> bool:
    """Whether an argument of type `source` may be given where a function declares `target`."""
    if source in (target, NULL):
        return True
    if INTERVAL in (source, target):
        return False
    if STRING in (source, target):
        return True
    return (source.is_numeric and target.is_numeric) or {source, target} == {DATE, TIMESTAMP}


def can_cast(source: SqlType, target: SqlType) -> bool:
    """Whether CAST(source AS target) exists; it may still fail at run time for some values.

    >>> can_cast(SqlType.STRING, SqlType.DATE), can_cast(SqlType.DATE, SqlType.INT)
    (True, False)
    """
    if target is NULL or INTERVAL in (source, target):
        return source in (target, NULL)
    if source in (target, NULL, STRING) or target is STRING:
        return True
    if target.is_numeric:
        return source.is_numeric or source in (BOOLEAN, TIMESTAMP)
    if target is BOOLEAN:
        return source.is_numeric
    if target is TIMESTAMP:
        return source.is_numeric or source is DATE
    return source is TIMESTAMP


def coerce(name: str, args: Types) -> Types | None:
    """The types the arguments must be cast to before the call; None where they do not fit, or the name is unknown."""
    function = FUNCTIONS.get(name)
    if function is None or len(args) < function.least or (function.most is not None and len(args) > function.most):
        return None
    return function.coercion(args)


def resolve(name: str, args: Types) -> SqlType | None:
    """The type of a call whose arguments are already coerced; None where they are not."""
    return FUNCTIONS[name].result(args) if coerce(name, args) == args else None


def _common(types: Iterable[SqlType]) -> SqlType | None:
    def widen(met: SqlType | None, new: SqlType) -> SqlType | None:
        return None if met is None else common_type(met, new)

    start: SqlType | None = NULL
    return reduce(widen, types, start)


def _alike(args: Types) -> Types | None:
    met = _common(args)
    return None if met is None else (met,) * len(args)


def _ordered(args: Types) -> Types | None:
    """As `_alike`, but a STRING meets only STRINGs."""
    return None if STRING in args and any(a not in (STRING, NULL) for a in args) else _alike(args)


def _arithmetic(args: Types) -> Types | None:
    """Numbers meet in their common type; two STRINGs do not fit, a STRING and a number meet as numbers."""
    met = _common(args)
    if met is NULL:
        return (DOUBLE,) * len(args)
    return (met,) * len(args) if met is not None and met.is_numeric else None


def _additive(args: Types) -> Types | None:
    if args[1] is INTERVAL and args[0] in (DATE, TIMESTAMP, NULL):
        return (TIMESTAMP, INTERVAL)
    if args[0] is DATE and args[1] in (TINYINT, SMALLINT, INT):
        return (DATE, INT)
    return _arithmetic(args)


def _plus(args: Types) -> Types | None:
    if args[0] is INTERVAL and args[1] in (DATE, TIMESTAMP, NULL):
        return (INTERVAL, TIMESTAMP)
    if args[1] is DATE and args[0] in (TINYINT, SMALLINT, INT):
        return (INT, DATE)
    return _additive(args)


def _moment_or_first(args: Types) -> SqlType:
    return next((moment for moment in (TIMESTAMP, DATE) if moment in args), args[0])


def _quotient(args: Types) -> Types | None:
    """Integers are divided as they are, so that text beside one must be one: '1.5' / 2 fails as in Spark."""
    met = _arithmetic(args)
    return met if met is None or met[0].is_integer else (DOUBLE, DOUBLE)


def _integral(args: Types) -> Types | None:
    met = _common(args)
    if met is NULL:
        return (INT,) * len(args)
    return (met,) * len(args) if met is not None and met.is_integer else None


def _integral_quotient(args: Types) -> Types | None:
    return None if _integral(args) is None else (BIGINT, BIGINT)


def _number(args: Types) -> Types | None:
    """One number of any type, kept; a STRING or NULL is taken as DOUBLE."""
    if args[0] in (STRING, NULL):
        return (DOUBLE, *args[1:])
    return args if args[0].is_numeric else None


def _rounded(args: Types) -> Types | None:
    first = _number(args[:1])
    if first is None or any(not implicit_cast(a, INT) for a in args[1:]):
        return None
    return (*first, *(INT for _ in args[1:]))


def _whole(args: Types) -> Types | None:
    if args[0].is_integer:
        return (BIGINT,)
    return (DOUBLE,) if implicit_cast(args[0], DOUBLE) else None


def _shift(args: Types) -> Types | None:
    if not implicit_cast(args[0], INT) or not implicit_cast(args[1], INT):
        return None
    return (BIGINT if args[0] is BIGINT else INT, INT)


def _seconds(args: Types) -> Types | None:
    if args[0].is_integer or args[0] is NULL:
        return (BIGINT,)
    return (DOUBLE,) if args[0].is_floating else None


def _exact(declared: SqlType) -> Coercion:
    """One argument of the declared type and no other."""
    return lambda args: (declared,) if args[0] in (declared, NULL) else None


def _days_after(args: Types) -> Types | None:
    fits = implicit_cast(args[0], DATE) and args[1] in (INT, SMALLINT, TINYINT, STRING, NULL)
    return (DATE, INT) if fits else None


def _count_of_units(args: Types) -> Types | None:
    return (BIGINT,) if args[0].is_integer or args[0] is NULL else None


def _any(args: Types) -> Types | None:
    return args


def _case(args: Types) -> Types | None:
    """cond, value, cond, value, ..., otherwise."""
    if len(args) % 2 == 0:
        return None
    conditions, values = args[:-1:2], (*args[1::2], args[-1])
    met = _common(values)
    if met is None or any(c not in (BOOLEAN, NULL) for c in conditions):
        return None
    return (*((BOOLEAN, met) * len(conditions)), met)


def _nullif(args: Types) -> Types | None:
    return args if common_type(*args) is not None else None


def _takes(*declared: SqlType) -> Coercion:
    """A fixed list of parameters, of which the call may leave out the last ones."""

    def coercion(args: Types) -> Types | None:
        wanted = declared[: len(args)]
        return wanted if all(map(implicit_cast, args, wanted)) else None

    return coercion


def _all(declared: SqlType) -> Coercion:
    def coercion(args: Types) -> Types | None:
        return (declared,) * len(args) if all(implicit_cast(a, declared) for a in args) else None

    return coercion


def _logical(args: Types) -> Types | None:
    """A STRING is taken for a BOOLEAN only beside a BOOLEAN, or alone."""
    fits = all(a in (BOOLEAN, NULL, STRING) for a in args)
    return (BOOLEAN,) * len(args) if fits and (STRING not in args or BOOLEAN in args or len(args) == 1) else None


def _gives(type_: SqlType) -> Result:
    return lambda args: type_


def _first(args: Types) -> SqlType:
    return args[0]


def _last(args: Types) -> SqlType:
    return args[-1]


def _text(name: str, least: int, declared: Types, result: SqlType, description: str) -> Function:
    return Function(name, least, len(declared), _takes(*declared), _gives(result), description)


def _of_double(name: str, description: str, arity: int = 1) -> Function:
    return Function(name, arity, arity, _takes(*(DOUBLE,) * arity), _gives(DOUBLE), description)


def _of_moment(name: str, declared: SqlType, result: SqlType, description: str) -> Function:
    return Function(name, 1, 1, _takes(declared), _gives(result), description)


def _compare(name: str, description: str) -> Function:
    return Function(name, 2, 2, _alike, _gives(BOOLEAN), description)


_LIST: tuple[Function, ...] = (
    # operators
    Function("add", 2, 2, _plus, _moment_or_first, "x + y; TIMESTAMP + INTERVAL, DATE + days"),
    Function("subtract", 2, 2, _additive, _moment_or_first, "x - y; TIMESTAMP - INTERVAL, DATE - days"),
    Function("multiply", 2, 2, _arithmetic, _first, "x * y"),
    Function("divide", 2, 2, _quotient, _gives(DOUBLE), "x / y, always DOUBLE"),
    Function("div", 2, 2, _integral_quotient, _gives(BIGINT), "x DIV y: integral, truncated toward zero"),
    Function("modulo", 2, 2, _arithmetic, _first, "x % y with the sign of x"),
    Function("negate", 1, 1, _number, _first, "-x"),
    _compare("eq", "x = y; NaN equals NaN"),
    _compare("ne", "x <> y"),
    _compare("lt", "x < y; NaN is greater than any number"),
    _compare("le", "x <= y"),
    _compare("gt", "x > y"),
    _compare("ge", "x >= y"),
    _compare("eq_null_safe", "x <=> y: NULL equals NULL"),
    Function("and", 2, None, _logical, _gives(BOOLEAN), "three-valued; stops at the first FALSE"),
    Function("or", 2, None, _logical, _gives(BOOLEAN), "three-valued; stops at the first TRUE"),
    Function("not", 1, 1, _logical, _gives(BOOLEAN), "three-valued"),
    Function("is_null", 1, 1, _any, _gives(BOOLEAN), "x IS NULL"),
    Function("is_not_null", 1, 1, _any, _gives(BOOLEAN), "x IS NOT NULL"),
    Function("in", 2, None, _alike, _gives(BOOLEAN), "x IN (y, ...)"),
    Function("like", 2, 2, _all(STRING), _gives(BOOLEAN), "% any text, _ one character, escape \\", literals=(1,)),
    # conditionals
    Function("case", 3, None, _case, _last, "CASE WHEN c THEN v ... ELSE v END"),
    Function("if", 3, 3, _case, _last, "if(c, then, else)"),
    Function("coalesce", 1, None, _alike, _first, "the first argument that is not NULL"),
    Function("nullif", 2, 2, _nullif, _first, "NULL where x = y, else x"),
    Function("greatest", 2, None, _ordered, _first, "the greatest that is not NULL"),
    Function("least", 2, None, _ordered, _first, "the least that is not NULL"),
    # strings; characters are code points, positions count from 1
    Function("concat", 1, None, _all(STRING), _gives(STRING), "x || y || ...; NULL if any is NULL"),
    _text("upper", 1, (STRING,), STRING, "in upper case"),
    _text("lower", 1, (STRING,), STRING, "in lower case"),
    _text("length", 1, (STRING,), INT, "number of characters"),
    _text("substring", 2, (STRING, INT, INT), STRING, "substring(x, position[, length]); negative: from the end"),
    _text("trim", 1, (STRING,), STRING, "without blanks at both ends"),
    _text("ltrim", 1, (STRING,), STRING, "without leading blanks"),
    _text("rtrim", 1, (STRING,), STRING, "without trailing blanks"),
    _text("replace", 2, (STRING, STRING, STRING), STRING, "replace(x, searched[, replacement])"),
    _text("starts_with", 2, (STRING, STRING), BOOLEAN, "x begins with y"),
    _text("ends_with", 2, (STRING, STRING), BOOLEAN, "x ends with y"),
    _text("contains", 2, (STRING, STRING), BOOLEAN, "y occurs in x"),
    _text("left", 2, (STRING, INT), STRING, "the first n characters"),
    _text("right", 2, (STRING, INT), STRING, "the last n characters"),
    _text("lpad", 2, (STRING, INT, STRING), STRING, "padded on the left, or cut, to n characters"),
    _text("rpad", 2, (STRING, INT, STRING), STRING, "padded on the right, or cut, to n characters"),
    _text("reverse", 1, (STRING,), STRING, "characters in reverse order"),
    _text("repeat", 2, (STRING, INT), STRING, "x, n times"),
    _text("instr", 2, (STRING, STRING), INT, "position of y in x, 0 if none"),
    # mathematics
    Function("abs", 1, 1, _number, _first, "absolute value"),
    _of_double("sign", "-1.0, 0.0 or 1.0"),
    Function("ceil", 1, 1, _whole, _gives(BIGINT), "least integer not below x"),
    Function("floor", 1, 1, _whole, _gives(BIGINT), "greatest integer not above x"),
    Function("round", 1, 2, _rounded, _first, "round(x[, digits]), halves away from zero", literals=(1,)),
    _of_double("sqrt", "square root; NaN below zero"),
    _of_double("exp", "e to the x"),
    _of_double("ln", "natural logarithm; NULL for x <= 0"),
    _of_double("log10", "logarithm to the base 10; NULL for x <= 0"),
    _of_double("log2", "logarithm to the base 2; NULL for x <= 0"),
    _of_double("pow", "x to the y", 2),
    _of_double("sin", "sine"),
    _of_double("cos", "cosine"),
    _of_double("tan", "tangent"),
    _of_double("atan", "inverse tangent"),
    _of_double("atan2", "angle of the point (second, first)", 2),
    _of_double("degrees", "radians to degrees"),
    _of_double("radians", "degrees to radians"),
    Function("is_nan", 1, 1, _number, _gives(BOOLEAN), "x is NaN; FALSE for NULL"),
    Function("bitand", 2, 2, _integral, _first, "x & y"),
    Function("bitor", 2, 2, _integral, _first, "x | y"),
    Function("bitxor", 2, 2, _integral, _first, "x ^ y"),
    Function("shiftleft", 2, 2, _shift, _first, "x << n, n modulo the width"),
    Function("shiftright", 2, 2, _shift, _first, "x >> n with the sign, n modulo the width"),
    # dates and times, UTC
    _of_moment("year", DATE, INT, "year"),
    _of_moment("month", DATE, INT, "1 to 12"),
    _of_moment("day", DATE, INT, "day of the month"),
    _of_moment("day_of_week", DATE, INT, "1 is Sunday, 7 is Saturday"),
    _of_moment("day_of_year", DATE, INT, "1 to 366"),
    _of_moment("quarter", DATE, INT, "1 to 4"),
    _of_moment("week", DATE, INT, "ISO week of the year"),
    _of_moment("hour", TIMESTAMP, INT, "0 to 23"),
    _of_moment("minute", TIMESTAMP, INT, "0 to 59"),
    _of_moment("second", TIMESTAMP, INT, "0 to 59"),
    Function("date_trunc", 2, 2, _takes(STRING, TIMESTAMP), _last, "start of the unit", literals=(0,)),
    Function("unix_micros", 1, 1, _exact(TIMESTAMP), _gives(BIGINT), "microseconds since 1970"),
    Function("unix_millis", 1, 1, _exact(TIMESTAMP), _gives(BIGINT), "milliseconds since 1970, rounded down"),
    Function("unix_seconds", 1, 1, _exact(TIMESTAMP), _gives(BIGINT), "seconds since 1970, rounded down"),
    Function("timestamp_micros", 1, 1, _count_of_units, _gives(TIMESTAMP), "TIMESTAMP of microseconds since 1970"),
    Function("timestamp_millis", 1, 1, _count_of_units, _gives(TIMESTAMP), "TIMESTAMP of milliseconds since 1970"),
    Function("timestamp_seconds", 1, 1, _seconds, _gives(TIMESTAMP), "TIMESTAMP of seconds since 1970"),
    _of_moment("to_date", DATE, DATE, "the DATE of a TIMESTAMP or text"),
    Function("date_add", 2, 2, _days_after, _gives(DATE), "date_add(x, days)"),
    Function("datediff", 2, 2, _takes(DATE, DATE), _gives(INT), "datediff(end, start) in days"),
)

FUNCTIONS: dict[str, Function] = {function.name: function for function in _LIST}

ALIASES: dict[str, str] = {
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "date_diff": "datediff",
    "dateadd": "date_add",
    "day_of_month": "day",
    "dayofmonth": "day",
    "dayofweek": "day_of_week",
    "dayofyear": "day_of_year",
    "endswith": "ends_with",
    "ifnull": "coalesce",
    "iff": "if",
    "isnan": "is_nan",
    "isnotnull": "is_not_null",
    "isnull": "is_null",
    "lcase": "lower",
    "len": "length",
    "log": "ln",
    "mod": "modulo",
    "negative": "negate",
    "nvl": "coalesce",
    "power": "pow",
    "signum": "sign",
    "startswith": "starts_with",
    "substr": "substring",
    "ucase": "upper",
    "week_of_year": "week",
    "weekofyear": "week",
}
"""SQL spellings of functions of the list, in lower case."""
