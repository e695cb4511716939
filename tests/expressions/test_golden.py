"""The evaluator and the typing against tables made by Spark (see make_golden.py).

Each group of calls is evaluated three ways: arguments as columns of one batch, as columns of one-row batches, and as
literals. All must be what Spark said.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.expressions.evaluate import IMPLEMENTATIONS, compile_expression, is_total
from penstock.expressions.functions import FUNCTIONS, can_cast, coerce, resolve
from penstock.expressions.tree import Call, Cast, Column, Expression, Literal
from penstock.expressions.vector import Evaluated
from penstock.types import SqlType

GOLDEN = Path(__file__).parent / "golden"

LAST_DIGIT = {"exp", "ln", "log10", "log2", "pow", "sin", "cos", "tan", "atan", "atan2"}
"""Java's StrictMath and the C library may differ in the last place; so may two C libraries."""

DIFFERENT_VALUES: dict[tuple[str, tuple[Any, ...]], str] = {
    ("date_add", (19_782, 2**31 - 1)): "Spark wraps around; an overflow is a failure here",
    ("date_add", (2_932_896, 2**31 - 1)): "Spark wraps around; an overflow is a failure here",
    ("substring", ("abc", -(2**31))): "Spark's end of the text overflows and cuts the last character",
    ("substring", ("日本語テスト", -(2**31))): "Spark's end of the text overflows and cuts the last character",
    ("substring", ("😀x", -(2**31))): "Spark's end of the text overflows and cuts the last character",
    ("cast:STRING", (2147483648.0,)): "Java before 19 does not print the shortest digits",
    ("cast:STRING", (9.223372036854775e18,)): "Java before 19 does not print the shortest digits",
}

NUMBERS = {"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"}
REFUSED_HERE: dict[tuple[str, frozenset[str]], str] = {
    ("to_date", frozenset({"BOOLEAN", *NUMBERS})): "Spark plans it and then fails on every row",
    (
        "add",
        frozenset({"NULL"}),
    ): "an untyped NULL beside a DATE or TIMESTAMP is more likely a mistake than an interval",
    ("subtract", frozenset({"NULL", "STRING", "DATE", "TIMESTAMP"})): "there are no columns of INTERVAL",
}


def decoded(type_: SqlType, value: Any) -> Any:
    return float(value) if type_.is_floating and value is not None else value


def call_of(function: str, args: tuple[Expression, ...]) -> Expression | None:
    """What the binder makes of a call; None where the argument types do not fit."""
    types = tuple(a.type for a in args)
    if function.startswith("cast:"):
        target = SqlType(function.removeprefix("cast:"))
        return Cast(args[0], target) if can_cast(types[0], target) else None
    wanted = coerce(function, types)
    if wanted is None:
        return None
    cast = tuple(a if a.type is t else as_type(a, t) for a, t in zip(args, wanted, strict=True))
    result = resolve(function, wanted)
    assert result is not None
    return Call(function, cast, result)


def as_type(expression: Expression, type_: SqlType) -> Expression:
    """A NULL literal takes any type; every other expression is cast."""
    if isinstance(expression, Literal) and expression.value is None:
        return Literal(None, type_)
    return Cast(expression, type_)


def told(answer: Evaluated, row: int) -> Any:
    if answer.errors is not None and answer.errors.reason(row) is not None:
        assert answer.values[row].as_py() is None
        return {"error": answer.errors.reason(row)}
    values = answer.values
    if values.type in (pa.date32(), pa.timestamp("us", tz="UTC")):
        values = values.view(pa.int32() if values.type == pa.date32() else pa.int64())
    return values[row].as_py()


def same(function: str, type_: SqlType, ours: Any, spark: Any) -> bool:
    if isinstance(spark, dict) or isinstance(ours, dict):
        return isinstance(spark, dict) and isinstance(ours, dict)
    if not type_.is_floating or ours is None or spark is None:
        return type(ours) is type(spark) and ours == spark
    spark = float(np.float32(spark)) if type_ is SqlType.FLOAT else float(spark)
    if math.isnan(spark) or math.isnan(ours):
        return math.isnan(spark) and math.isnan(ours)
    if function in LAST_DIGIT and math.isfinite(spark):
        return abs(ours - spark) <= 2 * math.ulp(spark)
    return ours == spark and math.copysign(1, ours) == math.copysign(1, spark)


def groups() -> list[Any]:
    with (GOLDEN / "values.jsonl").open(encoding="utf-8") as lines:
        loaded = [json.loads(line) for line in lines]
    by_function = defaultdict(list)
    for group in loaded:
        by_function[group["function"]].append(group)
    return [pytest.param(found, id=name) for name, found in by_function.items()]


def batch_of(types: list[SqlType], rows: list[list[Any]]) -> pa.RecordBatch:
    arrays = [pa.array([row[i] for row in rows], t.arrow) for i, t in enumerate(types)]
    return pa.RecordBatch.from_arrays(arrays, [f"c{i}" for i in range(len(types))])


def differences(group: dict[str, Any]) -> list[str]:
    function, type_ = group["function"], SqlType(group["type"])
    types = [SqlType(t) for t in group["types"]]
    rows = [[decoded(t, v) for t, v in zip(types, row, strict=False)] for row in group["rows"]]
    expected = [row[-1] for row in group["rows"]]
    fixed = FUNCTIONS[function].literals if function in FUNCTIONS else ()
    fixed = (*fixed, *(i for i, t in enumerate(types) if t is SqlType.INTERVAL))
    found = []

    def judge(row: list[Any], spark: Any, ours: Any, way: str) -> None:
        if (function, tuple(row)) not in DIFFERENT_VALUES and not same(function, type_, ours, spark):
            found.append(f"{function}{tuple(row)!r} {[t.value for t in types]} {way}: {ours!r}, Spark {spark!r}")

    by_fixed = defaultdict(list)
    for place, row in enumerate(rows):
        by_fixed[tuple(row[i] for i in fixed if i < len(row))].append(place)
    for places in by_fixed.values():
        first = rows[places[0]]
        args = tuple(Literal(first[i], t) if i in fixed else Column(f"c{i}", t) for i, t in enumerate(types))
        expression = call_of(function, args)
        assert expression is not None, f"{function}{group['types']} is refused"
        assert expression.type is type_, f"{function}{group['types']} is {expression.type}, in Spark {type_}"
        compiled = compile_expression(expression)
        batch = batch_of(types, [rows[p] for p in places])
        answer = compiled(batch)
        assert answer.values.type == type_.arrow
        if is_total(expression):
            assert answer.errors is None
        for i, place in enumerate(places):
            judge(rows[place], expected[place], told(answer, i), "in a batch")
            judge(rows[place], expected[place], told(compiled(batch.slice(i, 1)), 0), "alone")
            literals = call_of(function, tuple(Literal(v, t) for t, v in zip(types, rows[place], strict=True)))
            assert literals is not None
            judge(rows[place], expected[place], told(compile_expression(literals)(batch.slice(i, 1)), 0), "of literals")
    return found


@pytest.mark.parametrize("function_groups", groups())
def test_values_are_those_of_spark(function_groups: list[dict[str, Any]]) -> None:
    found = [difference for group in function_groups for difference in differences(group)]
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:40])


def test_every_function_has_golden_rows_and_a_meaning() -> None:
    named = {param.id for param in groups()}
    assert set(FUNCTIONS) - named == set()
    assert set(FUNCTIONS) - set(IMPLEMENTATIONS) == {"nullif"}


def test_types_are_those_of_spark() -> None:
    found, used = [], set()
    with (GOLDEN / "types.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            group = json.loads(line)
            args = tuple(Column(f"c{i}", SqlType(t)) for i, t in enumerate(group["types"]))
            expression = call_of(group["function"], args)
            ours = None if expression is None else expression.type.value
            excuse = [(f, t) for f, t in REFUSED_HERE if f == group["function"] and t.intersection(group["types"])]
            if ours is None and group["type"] is not None and excuse:
                used.update(excuse)
            elif ours != group["type"]:
                found.append(f"{group['function']}{group['types']}: {ours}, Spark {group['type']}")
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:60])
    assert used == set(REFUSED_HERE)
