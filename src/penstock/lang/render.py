"""Typed expressions and windows back to readable SQL, for EXPLAIN.

Bound in the same place, the rendered text gives the same tree; casts that the binder inserted are shown.

>>> from penstock.types import SqlType
>>> x, two = Column("x", SqlType.DOUBLE), Literal(2.0, SqlType.DOUBLE)
>>> render(Call("multiply", (Call("add", (x, two), SqlType.DOUBLE), x), SqlType.DOUBLE))
'(x + 2.0) * x'
>>> render_window(WindowSpec(Range(3_600_000_000), TimeSlide(10_000_000)))
'[RANGE 1 HOUR SLIDE 10 SECONDS]'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import assert_never

from penstock.aggregates.signatures import AggregateCall
from penstock.expressions.text_forms import write_date, write_timestamp
from penstock.expressions.tree import Call, Cast, Column, Expression, Literal
from penstock.lang.durations import UNITS
from penstock.lang.symbols import SYMBOLS
from penstock.types import SqlType
from penstock.windows.spec import (
    AtClose,
    CountSlide,
    EveryEvent,
    Extent,
    Range,
    RateSized,
    Rows,
    RowsOf,
    Session,
    Since,
    Slide,
    TimeSlide,
    WindowSpec,
)

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ATOM = 99


def render(expression: Expression, names: Mapping[str, str] | None = None) -> str:
    """The expression as SQL; `names` says what to write for columns such as `$0` and `#0`."""
    return _render(expression, names or {})[0]


def render_aggregate(call: AggregateCall, names: Mapping[str, str] | None = None) -> str:
    """The aggregate call as SQL.

    >>> render_aggregate(AggregateCall("COUNT", (), None, None, SqlType.BIGINT))
    'COUNT(*)'
    """
    args = [render(arg, names) for arg in call.args]
    if call.function == "COUNT_DISTINCT":
        shown = f"COUNT(DISTINCT {args[0]})"
    elif call.parameter is not None:
        shown = f"{call.function}({', '.join([*args, repr(call.parameter)])})"
    else:
        shown = f"{call.function}({', '.join(args) or '*'})"
    return f"{shown} FILTER (WHERE {render(call.filter, names)})" if call.filter is not None else shown


def render_window(window: WindowSpec) -> str:
    parts = []
    if window.partition_by:
        parts.append("PARTITION BY " + ", ".join(map(render_name, window.partition_by)))
    parts.append("NOW" if window.is_now else _render_extent(window.extent))
    parts += _render_slide(window.slide)
    if window.when_full:
        parts.append("WHEN FULL")
    return f"[{' '.join(parts)}]"


def _render_extent(extent: Extent) -> str:
    match extent:
        case Range(micros):
            return f"RANGE {render_duration(micros)}"
        case Rows(count):
            return f"ROWS {count}"
        case RowsOf(column):
            return f"ROWS {render_name(column)}"
        case Since(time):
            return f"SINCE TIMESTAMP '{write_timestamp(time)}'"
        case Session(gap):
            return f"SESSION {render_duration(gap)}"
        case RateSized(micros, sample, every, percent):
            change = f" ON CHANGE OF {percent} PERCENT" if percent else ""
            sampled = f"SAMPLE {render_duration(sample)} EVERY {render_duration(every)}"
            return f"RATE SIZED {render_duration(micros)} {sampled}{change}"
        case other:
            assert_never(other)


def _render_slide(slide: Slide) -> list[str]:
    match slide:
        case TimeSlide(micros, offset, wall_clock):
            behind = [f"OFFSET {render_duration(offset)}"] if offset else []
            return [f"SLIDE {render_duration(micros)}", *behind, *(["ON WALL CLOCK"] if wall_clock else [])]
        case CountSlide(count):
            return [f"SLIDE {count} ROWS"]
        case EveryEvent() | AtClose():
            return []
        case other:
            assert_never(other)


def render_duration(micros: int) -> str:
    """A duration in the fewest units.

    >>> render_duration(5_400_000_000), render_duration(1)
    ('1 HOUR 30 MINUTES', '1 MICROSECOND')
    """
    parts = []
    for unit, size in reversed(UNITS.items()):
        count, micros = divmod(micros, size)
        if count:
            parts.append(f"{count} {unit}{'S' if count > 1 else ''}")
    return " ".join(parts) or "0 SECONDS"


def _render(expression: Expression, names: Mapping[str, str]) -> tuple[str, int]:
    """The text and how tightly its outermost operator binds."""
    if isinstance(expression, Column):
        return names.get(expression.name) or render_name(expression.name), _ATOM
    if isinstance(expression, Literal):
        return _literal(expression)
    if isinstance(expression, Cast):
        return f"CAST({_render(expression.operand, names)[0]} AS {expression.type})", _ATOM
    return _call(expression, names)


def _call(call: Call, names: Mapping[str, str]) -> tuple[str, int]:
    args = call.args
    if call.function == "case":
        pairs = zip(args[:-1:2], args[1:-1:2], strict=True)
        branches = "".join(f" WHEN {_render(c, names)[0]} THEN {_render(v, names)[0]}" for c, v in pairs)
        return f"CASE{branches} ELSE {_render(args[-1], names)[0]} END", _ATOM
    if call.function not in SYMBOLS:
        return f"{call.function}({', '.join(_render(a, names)[0] for a in args)})", _ATOM
    symbol, level = SYMBOLS[call.function]

    def operand(index: int, least: int) -> str:
        text, tightness = _render(args[index], names)
        return text if tightness >= least else f"({text})"

    if call.function in ("is_null", "is_not_null"):
        return f"{operand(0, level + 1)} {symbol}", level
    if call.function == "in":
        values = ", ".join(_render(a, names)[0] for a in args[1:])
        return f"{operand(0, level + 1)} IN ({values})", level
    if call.function == "not":
        return f"NOT {operand(0, level + 1)}", level
    if call.function == "negate":
        return f"-{operand(0, _ATOM)}", level
    # the left operand of arithmetic may bind equally, all others must bind tighter: a - b - c is (a - b) - c
    arithmetic = level > SYMBOLS["eq"][1]
    first = operand(0, level if arithmetic else level + 1)
    return f" {symbol} ".join([first, *(operand(i, level + 1) for i in range(1, len(args)))]), level


def _literal(literal: Literal) -> tuple[str, int]:
    value = literal.value
    if value is None:
        return ("NULL" if literal.type is SqlType.NULL else f"CAST(NULL AS {literal.type})"), _ATOM
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'", _ATOM
    if isinstance(value, bool):
        return str(value).upper(), _ATOM
    if isinstance(value, float):
        return repr(value), _ATOM if value >= 0 else SYMBOLS["negate"][1]
    if literal.type is SqlType.TIMESTAMP:
        return f"TIMESTAMP '{write_timestamp(value)}'", _ATOM
    if literal.type is SqlType.DATE:
        return f"DATE '{write_date(value)}'", _ATOM
    if literal.type is SqlType.INTERVAL:
        return f"INTERVAL '{render_duration(value)}'", _ATOM
    suffix = {SqlType.TINYINT: "Y", SqlType.SMALLINT: "S"}.get(literal.type, "")
    return f"{value}{suffix}", _ATOM if value >= 0 else SYMBOLS["negate"][1]


def render_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) or name[:1] in "$#" else "`" + name.replace("`", "``") + "`"
