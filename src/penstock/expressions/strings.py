"""String functions over Arrow columns. Characters are Unicode code points, positions count from 1.

Arrow's kernels do the work where their meaning is Spark's; where it differs (case of non-ASCII text, positions given by
a column, padding) the function runs once per distinct combination of arguments. Called by `expressions.evaluate` only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import compute as pc
from penstock.errors import QueryError
from penstock.expressions.logic import flags
from penstock.expressions.tree import Call, Literal
from penstock.expressions.vector import (
    Array,
    Mask,
    Operation,
    Site,
    Vector,
    by_row,
    check_total,
    checked_text,
    constant,
    null_text,
    strict,
    strict_text,
    text_by_row,
)
from penstock.types import SqlType

Builder = Callable[[Call, Site], Operation]

LONGEST = 1 << 24
"""So many characters a text that is made has at most; the row of a longer one is rejected, and the text not made."""

_TOO_LONG = f"TEXT_TOO_LONG (more than {LONGEST:,} characters)"


def _numbers(result: Any) -> Array:
    """An INT result of Arrow as numpy."""
    if isinstance(result, pa.Scalar):
        return np.array([result.as_py() or 0], np.int32)
    numbers: Array = result.fill_null(0).to_numpy(zero_copy_only=False)
    return numbers


def _by_arrow(name: str) -> Builder:
    def build(call: Call, site: Site) -> Operation:
        function = pc.get_function(name)
        return strict_text(lambda values: function.call([values]))

    return build


def _trimmed(name: str) -> Builder:
    def build(call: Call, site: Site) -> Operation:
        function, blank = pc.get_function(name), pc.TrimOptions(" ")
        return strict_text(lambda values: function.call([values], blank))

    return build


def _by_python(function: Callable[..., str]) -> Builder:
    return lambda call, site: strict_text(lambda *columns: text_by_row(function, *columns))


def _growing(function: Callable[..., str], length: Callable[..., int]) -> Builder:
    """A function whose text can be far longer than its arguments; `length` says how long before it is made."""

    def build(call: Call, site: Site) -> Operation:
        def kernel(*columns: Any) -> tuple[Any, Mask | None]:
            too_long = [(n or 0) > LONGEST for n in by_row(length, *columns)]
            if not any(too_long):
                return text_by_row(function, *columns), None
            made = text_by_row(lambda *row: function(*row) if length(*row) <= LONGEST else "", *columns)
            return made, np.array(too_long, np.bool_)

        return checked_text(kernel, site(_TOO_LONG))

    return build


def _case_mapped(ascii_name: str, function: Callable[[str], str]) -> Builder:
    """Non-ASCII text may change its length ('ß' to 'SS'), which Arrow's mapping of single characters does not do."""

    def build(call: Call, site: Site) -> Operation:
        ascii_kernel, is_ascii = pc.get_function(ascii_name), pc.get_function("string_is_ascii")

        def kernel(values: Any) -> Any:
            if flags(is_ascii.call([values])).all():
                return ascii_kernel.call([values])
            return text_by_row(function, values)

        return strict_text(kernel)

    return build


def _length(call: Call, site: Site) -> Operation:
    function = pc.get_function("utf8_length")
    return strict(lambda values: _numbers(function.call([values])))


def _concat(call: Call, site: Site) -> Operation:
    function, length = pc.get_function("binary_join_element_wise"), pc.get_function("utf8_length")
    known = pc.get_function("is_valid")
    separator = pa.scalar("", pa.string())

    def kernel(*columns: Any) -> tuple[Any, Mask | None]:
        if sum(map(_bytes, columns)) <= LONGEST:
            return function.call([*columns, separator]), None
        lengths = [_numbers(length.call([column])).astype(np.int64) for column in columns]
        total = np.add.reduce(np.broadcast_arrays(*lengths))
        too_long = total > LONGEST
        check_total(int(total[~too_long].sum()))
        if not too_long.any():
            return function.call([*columns, separator]), None
        for column in columns:
            too_long = too_long & flags(known.call([column]))
        short = function.call([*(null_text(column, too_long) for column in columns), separator])
        return pc.if_else(pa.array(too_long), pa.scalar("", pa.string()), short), too_long

    return checked_text(kernel, site(_TOO_LONG))


def _bytes(column: Any) -> int:
    """No text of the column has more."""
    if isinstance(column, pa.Scalar):
        return column.as_buffer().size if column.is_valid else 0
    nbytes: int = column.nbytes
    return nbytes


def substring(value: str, position: int, length: int | None = None) -> str:
    """Positions before the text count toward the length: substring('abc', -5, 3) is 'a'.

    >>> substring("abc", -5, 3), substring("abc", 0, 2), substring("abc", -2)
    ('a', 'ab', 'bc')
    """
    start = position - 1 if position > 0 else (len(value) + position if position < 0 else 0)
    end = len(value) if length is None else start + length
    return value[max(0, start) : max(0, end)]


def _substring(call: Call, site: Site) -> Operation:
    """Literal positions counted from the front are Arrow's slice; others go row by row."""
    given = [a.value for a in call.args[1:] if isinstance(a, Literal) and isinstance(a.value, int)]
    if len(given) == len(call.args) - 1 and given[0] >= 0 and all(length >= 0 for length in given[1:]):
        start = max(0, given[0] - 1)
        stop = start + given[1] if len(given) == 2 else None
        return strict_text(lambda values, *_: pc.utf8_slice_codeunits(values, start, stop))
    return strict_text(lambda *columns: text_by_row(substring, *columns))


def _replace(call: Call, site: Site) -> Operation:
    def replaced(value: str, searched: str, replacement: str = "") -> str:
        return value.replace(searched, replacement) if searched else value

    def length(value: str, searched: str, replacement: str = "") -> int:
        return len(value) + (value.count(searched) * (len(replacement) - len(searched)) if searched else 0)

    return _growing(replaced, length)(call, site)


def _finds(name: str, function: Callable[[str, str], bool]) -> Builder:
    def build(call: Call, site: Site) -> Operation:
        searched = call.args[1]
        if isinstance(searched, Literal) and isinstance(searched.value, str):
            kernel, options = pc.get_function(name), pc.MatchSubstringOptions(searched.value)
            return strict(lambda values, _: flags(kernel.call([values], options)))
        return strict(lambda *columns: np.array(by_row(function, *columns), object).astype(np.bool_))

    return build


def _instr(call: Call, site: Site) -> Operation:
    def position(value: str, searched: str) -> int:
        return value.find(searched) + 1

    return strict(lambda *columns: np.array([p or 0 for p in by_row(position, *columns)], np.int32))


def _left(value: str, length: int) -> str:
    return value[:length] if length > 0 else ""


def _right(value: str, length: int) -> str:
    return value[-length:] if length > 0 else ""


def _padding(value: str, length: int, pad: str) -> str:
    missing = length - len(value)
    return (pad * (missing // len(pad) + 1))[:missing] if pad and missing > 0 else ""


def _lpad(value: str, length: int, pad: str = " ") -> str:
    return _padding(value, length, pad) + value[: max(0, length)]


def _rpad(value: str, length: int, pad: str = " ") -> str:
    return value[: max(0, length)] + _padding(value, length, pad)


def _repeat(value: str, times: int) -> str:
    return value * times


def like_regex(pattern: str) -> str:
    r"""The pattern of LIKE as a regular expression (RE2) over the whole text.

    >>> like_regex("a_c%")
    '(?s)\\Aa.c.*\\z'
    """
    parts = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            escaped = next(characters, None)
            if escaped not in ("_", "%", "\\"):
                problem = "ends with the escape character \\" if escaped is None else f"escapes {escaped!r}"
                raise QueryError(f"LIKE pattern {pattern!r} {problem}", hint=r"write \\ for \, and \% or \_ otherwise")
            parts.append(re.escape(escaped))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return "(?s)\\A" + "".join(parts) + "\\z"


def _like(call: Call, site: Site) -> Operation:
    pattern = call.args[1]
    if not isinstance(pattern, Literal):
        raise QueryError("the pattern of LIKE must be a literal", hint="use contains, starts_with or ends_with")
    if pattern.value is None:
        unknown = constant(None, SqlType.BOOLEAN)
        return lambda value, _: Vector(unknown.values, unknown.valid, value.errors)
    options = pc.MatchSubstringOptions(like_regex(str(pattern.value)))
    function = pc.get_function("match_substring_regex")
    return strict(lambda values, _: flags(function.call([values], options)))


STRINGS: dict[str, Builder] = {
    "concat": _concat,
    "upper": _case_mapped("ascii_upper", str.upper),
    "lower": _case_mapped("ascii_lower", str.lower),
    "length": _length,
    "substring": _substring,
    "trim": _trimmed("utf8_trim"),
    "ltrim": _trimmed("utf8_ltrim"),
    "rtrim": _trimmed("utf8_rtrim"),
    "replace": _replace,
    "starts_with": _finds("starts_with", str.startswith),
    "ends_with": _finds("ends_with", str.endswith),
    "contains": _finds("match_substring", str.__contains__),
    "left": _by_python(_left),
    "right": _by_python(_right),
    "lpad": _growing(_lpad, lambda value, length, pad=" ": length),
    "rpad": _growing(_rpad, lambda value, length, pad=" ": length),
    "reverse": _by_arrow("utf8_reverse"),
    "repeat": _growing(_repeat, lambda value, times: len(value) * times),
    "instr": _instr,
    "like": _like,
}
