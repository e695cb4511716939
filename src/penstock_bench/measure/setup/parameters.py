"""Parameters of a setup: `${window}` in any text, sums of them, and keys that stand for many keys.

- A text that is nothing but `${rate}` becomes the parameter's value; inside other text it is written out.
- Between the braces may be a sum: `${400000 + i * 1000}`, with + - * / // % and parentheses.
- A key `a1..a${n}` stands for the keys a1, a2, … ; in the values below it `${i}` is the key's number.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import InputError
from penstock_bench.measure.setup.generators import Scalar

MOST_KEYS = 10_000
"""A key stands for no more keys than this; a misprint would fill the memory otherwise."""

_USED = re.compile(r"\$\{([^{}]*)\}")
_MANY = re.compile(r"(.*?)(\d{1,9})\.\.(.*?)(\d{1,9})")
_SUMS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def given_parameters(where: str, declared: object, given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The declared parameters with the given values put in; a value given as text takes the declared one's type.

    >>> given_parameters("x.toml", {"rate": 1000, "f": "SUM"}, {"rate": "5_000"})
    {'rate': 5000, 'f': 'SUM'}
    """
    if not isinstance(declared, dict):
        raise InputError(f"{where}: parameters: must be a table of names and values")
    values: dict[str, Scalar] = {}
    for name, value in declared.items():
        if not isinstance(value, (bool, int, float, str)):
            raise InputError(f"{where}: parameters.{name}: must be a number, a text, true or false")
        values[name] = value
    for name, value in given.items():
        if name not in values:
            known = ", ".join(values) or "none"
            raise InputError(f"{where}: there is no parameter '{name}'; the setup has {known}")
        values[name] = _like(values[name], value, f"{where}: parameter {name} = {value}")
    return values


def _like(declared: Scalar, value: Scalar, what: str) -> Scalar:
    if not isinstance(value, str) or isinstance(declared, str):
        return value
    if isinstance(declared, bool):
        if value.lower() not in ("true", "false"):
            raise InputError(f"{what}: write true or false")
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value  # a setup may allow a word in a number's place: rate = "max"


def put_in(value: Any, parameters: Mapping[str, Scalar], path: str) -> Any:
    """The value with all parameters in their places; `path` says where it is, for errors."""
    if isinstance(value, str):
        return _text(value, parameters, path)
    if isinstance(value, list):
        return [put_in(item, parameters, f"{path}[{place}]") for place, item in enumerate(value)]
    if isinstance(value, dict):
        made: dict[str, Any] = {}
        for key, item in value.items():
            for name, number in _keys(str(_text(key, parameters, path)), f"{path}.{key}".lstrip(".")):
                inner = parameters if number is None else {**parameters, "i": number}
                if name in made:
                    raise InputError(f"{path}.{name}: there twice".lstrip("."))
                made[name] = put_in(item, inner, f"{path}.{name}".lstrip("."))
        return made
    return value


def _keys(key: str, path: str) -> list[tuple[str, int | None]]:
    """
    >>> _keys("a1..a3", ""), _keys("ts", "")
    ([('a1', 1), ('a2', 2), ('a3', 3)], [('ts', None)])
    """
    many = _MANY.fullmatch(key)
    if many is None:
        return [(key, None)]
    stem, first, other, last = many[1], int(many[2]), many[3], int(many[4])
    if stem != other or last - first >= MOST_KEYS:
        raise InputError(f"{path}: write a1..a9 for the keys a1 to a9, at most {MOST_KEYS:,} of them")
    return [(f"{stem}{number}", number) for number in range(first, last + 1)]


def _text(text: str, parameters: Mapping[str, Scalar], path: str) -> Scalar:
    whole = _USED.fullmatch(text)
    if whole is not None:
        return _sum(whole[1], parameters, path)
    return _USED.sub(lambda found: _written(_sum(found[1], parameters, path)), text)


def _written(value: Scalar) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _sum(text: str, parameters: Mapping[str, Scalar], path: str) -> Scalar:
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, parameters)
    except KeyError as missing:
        known = ", ".join(parameters) or "none"
        raise InputError(f"{path}: ${{{text}}}: there is no parameter {missing}; there are {known}") from None
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        raise InputError(
            f"{path}: ${{{text}}}: is no parameter and no sum of parameters, like ${{rate}} or ${{rate * 2 + 1}}"
        ) from None


def _value(node: ast.expr, parameters: Mapping[str, Scalar]) -> Scalar:
    if isinstance(node, ast.Name):
        return parameters[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(_value(node.operand, parameters))
    if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
        left, right = _number(_value(node.left, parameters)), _number(_value(node.right, parameters))
        made: float = _SUMS[type(node.op)](left, right)
        return made
    raise ValueError


def _number(value: Scalar) -> int | float:
    if isinstance(value, (bool, str)):
        raise TypeError
    return value
