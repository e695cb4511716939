"""The typed expression tree: what the language binds to and what the evaluator and the planner read.

Nodes are frozen and hashable, so equal expressions are one key wherever they are shared or fingerprinted.
Everything that is not a literal, a column or a cast is a `Call` of a function of the closed list
(`expressions.functions`): operators are functions too (`add`, `and`, `like`, `case`, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.types import SqlType


@dataclass(frozen=True)
class Literal:
    """`value` is a bool, int, float, str or None; DATE is days and TIMESTAMP, INTERVAL microseconds, as int."""

    value: bool | int | float | str | None
    type: SqlType


@dataclass(frozen=True)
class Column:
    """A column of the input by its exact name. Aggregates become columns named `$0`, `$1`, ... of the group's row."""

    name: str
    type: SqlType


@dataclass(frozen=True)
class Cast:
    operand: Expression
    type: SqlType


@dataclass(frozen=True)
class Call:
    """`function` is a name of the closed list; `case` takes cond, value, cond, value, ..., otherwise."""

    function: str
    args: tuple[Expression, ...]
    type: SqlType


Expression = Literal | Column | Cast | Call


def children(expression: Expression) -> tuple[Expression, ...]:
    if isinstance(expression, Call):
        return expression.args
    if isinstance(expression, Cast):
        return (expression.operand,)
    return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything below it, parents first."""
    stack = [expression]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def columns(expression: Expression) -> set[str]:
    return {node.name for node in walk(expression) if isinstance(node, Column)}


def transform(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Rebuilds the tree bottom up; `change` sees each node after its children were changed."""
    if isinstance(expression, Call):
        expression = Call(expression.function, tuple(transform(a, change) for a in expression.args), expression.type)
    elif isinstance(expression, Cast):
        expression = Cast(transform(expression.operand, change), expression.type)
    return change(expression)
