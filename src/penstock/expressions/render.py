"""Expressions as text, for the reasons of rejected rows and for EXPLAIN. Not meant to be parsed again."""

from __future__ import annotations

from penstock.expressions.tree import Call, Cast, Column, Expression, Literal

_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "div": "DIV",
    "modulo": "%",
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq_null_safe": "<=>",
    "and": "AND",
    "or": "OR",
    "like": "LIKE",
}


def render(expression: Expression) -> str:
    """SQL-like text; nested operators are in parentheses.

    >>> from penstock.types import SqlType
    >>> x = Column("x", SqlType.INT)
    >>> render(Call("add", (x, Call("multiply", (x, Literal(2, SqlType.INT)), SqlType.INT)), SqlType.INT))
    'x + (x * 2)'
    """
    if isinstance(expression, Literal):
        return "NULL" if expression.value is None else repr(expression.value)
    if isinstance(expression, Column):
        return expression.name
    if isinstance(expression, Cast):
        return f"CAST({render(expression.operand)} AS {expression.type})"
    if expression.function in _INFIX:
        return f" {_INFIX[expression.function]} ".join(map(_operand, expression.args))
    return f"{expression.function}({', '.join(map(render, expression.args))})"


def _operand(expression: Expression) -> str:
    nested = isinstance(expression, Call) and expression.function in _INFIX
    return f"({render(expression)})" if nested else render(expression)
