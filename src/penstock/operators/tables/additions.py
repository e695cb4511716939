"""Columns that a statement adds to: `SET n = n + expr`, also `n - expr` and `COALESCE(n, 0) + expr`."""

from __future__ import annotations

from typing import NamedTuple

from penstock.expressions.evaluate import Compiled, compile_expression, is_total
from penstock.expressions.tree import Call, Column, Expression, Literal, columns
from penstock.types import SqlType

_TYPES = (SqlType.TINYINT, SqlType.SMALLINT, SqlType.INT, SqlType.BIGINT, SqlType.DOUBLE)


class Addition(NamedTuple):
    """What is added (or, with sign -1, taken away), and what counts where there is nothing: None is NULL."""

    addend: Compiled
    sign: int
    default: int | float | None


def addition(expression: Expression, column: str) -> Addition | None:
    """The expression as an addition to the column, in the column's own arithmetic; None if it is none.

    >>> n, x = Column("t.n", SqlType.BIGINT), Column("s.x", SqlType.BIGINT)
    >>> addition(Call("add", (n, x), SqlType.BIGINT), "t.n").sign
    1
    >>> addition(Call("multiply", (n, x), SqlType.BIGINT), "t.n") is None
    True
    """
    if not isinstance(expression, Call) or expression.function not in ("add", "subtract"):
        return None
    if expression.type not in _TYPES or any(arg.type is not expression.type for arg in expression.args):
        return None
    first, second = expression.args
    pairs = [(first, second)] if expression.function == "subtract" else [(first, second), (second, first)]
    for own, addend in pairs:
        default = _default(own, column)
        if default is not None and column not in columns(addend) and _is_free(addend, column) and is_total(addend):
            return Addition(compile_expression(addend), -1 if expression.function == "subtract" else 1, default[0])
    return None


def _is_free(addend: Expression, column: str) -> bool:
    """Whether it reads the stream alone."""
    table = column.partition(".")[0]
    return not any(name.startswith(f"{table}.") for name in columns(addend))


def _default(own: Expression, column: str) -> tuple[int | float | None] | None:
    """What stands for a NULL of the column, if this is the column; None if it is something else."""
    if isinstance(own, Column) and own.name == column:
        return (None,)
    if (
        isinstance(own, Call)
        and own.function == "coalesce"
        and len(own.args) == 2
        and isinstance(own.args[0], Column)
        and own.args[0].name == column
        and isinstance(own.args[1], Literal)
        and isinstance(own.args[1].value, int | float)
        and not isinstance(own.args[1].value, bool)
    ):
        return (own.args[1].value,)
    return None
