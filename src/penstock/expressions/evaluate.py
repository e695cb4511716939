"""The one evaluator: a typed expression compiled into closures over record batches.

`compile_expression` is called once per expression of a plan; what it returns is called for every batch by the
operators, in both runtimes. The meaning is Spark SQL's in ANSI mode with one change: where Spark would raise, the row
is NULL and marked in `errors` with the reason, and the batch goes on (contract, rule 6).

A function computes its arguments for all rows. Which failures of arguments count is documented in
`expressions.logic` (conditionals stop where Spark stops) and `vector.strict_errors` (all others, from left to right up
to the first NULL). Subtrees without columns are computed once, when the expression is compiled.

>>> import pyarrow as pa
>>> x = Column("x", SqlType.DOUBLE)
>>> ratio = compile_expression(Call("divide", (Literal(1.0, SqlType.DOUBLE), x), SqlType.DOUBLE))
>>> answer = ratio(pa.record_batch({"x": [4.0, 0.0, None]}))
>>> answer.values.to_pylist(), answer.errors.reason(1)
([0.25, None, None], 'DIVIDE_BY_ZERO: 1.0 / x')

Why: docs/decisions/numpy-inside.md
Why: docs/decisions/expressions-follow-spark.md
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.expressions.arithmetic import ARITHMETIC
from penstock.expressions.batch import Batch, Row, Rows
from penstock.expressions.casts import build_cast
from penstock.expressions.functions import common_type
from penstock.expressions.logic import LOGIC
from penstock.expressions.render import render
from penstock.expressions.scalar import RowFails, RowFunction, Values, scalar
from penstock.expressions.strings import STRINGS
from penstock.expressions.times import TIMES
from penstock.expressions.tree import Call, Cast, Column, Expression, Literal, columns, transform, walk
from penstock.expressions.vector import ColumnView, Evaluated, Operation, Site, TextView, Vector, constant, from_arrow
from penstock.types import SqlType

Compiled = Callable[[Rows], Evaluated]
_Node = Callable[[Rows], Vector]

IMPLEMENTATIONS: dict[str, Callable[[Call, Site], Operation]] = {**ARITHMETIC, **LOGIC, **STRINGS, **TIMES}


def compile_expression(expression: Expression) -> Compiled:
    """Closures that evaluate the expression on any batch that has its columns."""
    if isinstance(expression, Column):
        name, type_ = expression.name, expression.type
        return lambda batch: _reference(batch, name, type_)
    reasons: list[str] = []
    type_ = expression.type
    with np.errstate(all="ignore"):
        node = _compile(transform(expression, _simpler), reasons)
    told = tuple(reasons)

    def evaluate(batch: Rows) -> Evaluated:
        with np.errstate(all="ignore"):
            return Evaluated(node(batch), type_, batch.num_rows, told)

    return evaluate


def compile_row(expression: Expression) -> RowFunction:
    """A closure that evaluates the expression on the Python values of one row. It gives what `compile_expression`
    gives, or raises an `UNCERTAIN`, where that one is to be asked."""
    return _compile_row(transform(expression, _simpler))


UNCERTAIN = (RowFails, ArithmeticError)
"""What a closure of `compile_row` raises where the row fails, or is not certain."""


def _compile_row(expression: Expression) -> RowFunction:
    return scalar(expression, _compile_row) or _by_columns(expression)


def _by_columns(expression: Expression) -> RowFunction:
    """For functions that only the evaluator knows: a batch of one row."""
    compiled = compile_expression(expression)
    kinds = {node.name: node.type for node in walk(expression) if isinstance(node, Column)}

    def run(values: Values) -> object:
        found = compiled(Row(kinds, values))
        if found.errors is not None:
            raise RowFails
        return found.only

    return run


def _reference(batch: Rows, name: str, type_: SqlType) -> Evaluated:
    """A bare column, as it is held."""
    if not isinstance(batch, Batch):
        return ColumnView(batch.column(name), type_)
    data = batch.data(name)
    if isinstance(data, Vector):
        return Evaluated(data, type_, batch.num_rows, ())
    return TextView(data) if isinstance(data, list) else ColumnView(data, type_)


def is_total(expression: Expression) -> bool:
    """Whether no row can fail, whatever the columns hold; such a filter may run earlier than it was written.

    >>> x = Column("x", SqlType.INT)
    >>> one = Literal(1, SqlType.INT)
    >>> is_total(Call("gt", (x, one), SqlType.BOOLEAN)), is_total(Call("add", (x, one), SqlType.INT))
    (True, False)
    """
    reasons: list[str] = []
    for node in walk(transform(expression, _simpler)):
        if isinstance(node, Call | Cast):
            _operation(node, reasons)
    return not reasons


def _compile(expression: Expression, reasons: list[str]) -> _Node:
    if isinstance(expression, Literal):
        return _always(constant(expression.value, expression.type))
    if isinstance(expression, Column):
        name, type_ = expression.name, expression.type
        return lambda batch: (
            batch.vector(name, type_) if isinstance(batch, Batch) else from_arrow(batch.column(name), type_)
        )
    operation = _operation(expression, reasons)
    args = [_compile(a, reasons) for a in (expression.args if isinstance(expression, Call) else (expression.operand,))]
    if not columns(expression):
        return _always(operation(*[arg(_NO_BATCH) for arg in args]))
    if len(args) == 1:
        (only,) = args
        return lambda batch: operation(only(batch))
    if len(args) == 2:
        left, right = args
        return lambda batch: operation(left(batch), right(batch))
    return lambda batch: operation(*[arg(batch) for arg in args])


_NO_BATCH = pa.record_batch({})


def _always(vector: Vector) -> _Node:
    return lambda batch: vector


def _operation(expression: Call | Cast, reasons: list[str]) -> Operation:
    def site(error_class: str) -> int:
        reasons.append(f"{error_class}: {render(expression)}")
        return len(reasons)

    if isinstance(expression, Cast):
        return build_cast(expression.operand.type, expression.type, site)
    return IMPLEMENTATIONS[expression.function](expression, site)


def _simpler(expression: Expression) -> Expression:
    """Functions that are short for others, written out."""
    if not isinstance(expression, Call):
        return expression
    if expression.function == "nullif":
        return _nullif(*expression.args)
    if expression.function == "in" and not all(isinstance(item, Literal) for item in expression.args[1:]):
        value, *items = expression.args
        equalities = tuple(Call("eq", (value, item), SqlType.BOOLEAN) for item in items)
        return equalities[0] if len(equalities) == 1 else Call("or", equalities, SqlType.BOOLEAN)
    return expression


def _nullif(value: Expression, other: Expression) -> Expression:
    """The two are compared in their common type; what comes out keeps the type of the first."""
    met = common_type(value.type, other.type) or value.type
    pair = tuple(side if side.type is met else Cast(side, met) for side in (value, other))
    return Call("if", (Call("eq", pair, SqlType.BOOLEAN), Literal(None, value.type), value), value.type)
