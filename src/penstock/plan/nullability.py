"""Which expressions can be NULL: a column without NULLs needs no validity in a block and shares COUNT(*)."""

from __future__ import annotations

from penstock.expressions.batch import Batch
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Call, Cast, Column, Expression, Literal, transform
from penstock.types import Schema

_NULL_ONLY_FROM_NULL = frozenset(
    ("add", "subtract", "multiply", "negate", "abs", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not")
)
"""Functions of values that are themselves values; a row on which they fail never gets into a window."""


def can_be_null(expression: Expression, schema: Schema) -> bool:
    """
    >>> from penstock.types import Field, SqlType
    >>> x = Column("x", SqlType.INT)
    >>> can_be_null(Call("add", (x, x), SqlType.INT), Schema((Field("x", SqlType.INT, nullable=False),)))
    False
    """
    if isinstance(expression, Literal):
        return expression.value is None
    if isinstance(expression, Column):
        field = schema.find(expression.name)
        return field is None or field.nullable
    if isinstance(expression, Cast):
        return can_be_null(expression.operand, schema)
    assert isinstance(expression, Call)
    if expression.function in ("is_null", "is_not_null", "eq_null_safe"):
        return False
    if expression.function in _NULL_ONLY_FROM_NULL:
        return any(can_be_null(arg, schema) for arg in expression.args)
    return True


def of_nulls(expression: Expression) -> bool:
    """Whether it is NULL where all its columns are; it cannot fail.

    >>> from penstock.types import SqlType
    >>> x, one = Column("x", SqlType.INT), Literal(1, SqlType.INT)
    >>> of_nulls(x), of_nulls(Call("coalesce", (x, one), SqlType.INT))
    (True, False)
    """

    def unknown(node: Expression) -> Expression:
        return Literal(None, node.type) if isinstance(node, Column) else node

    found = compile_expression(transform(expression, unknown))(Batch({}, {}, 1))
    return bool(found.values.null_count)
