"""Closures over one row against the evaluator: the same value to the bit, or an answer left to the evaluator."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.expressions.batch import Row, columns_of_tuples, row_getter
from penstock.expressions.evaluate import UNCERTAIN, compile_expression, compile_row
from penstock.expressions.functions import FUNCTIONS as FUNCTIONS_OF_THE_LANGUAGE
from penstock.expressions.functions import can_cast, coerce, resolve
from penstock.expressions.scalar import scalar
from penstock.expressions.tree import Call, Cast, Column, Expression, Literal
from penstock.types import SqlType

BOOLEAN, INT, BIGINT, DOUBLE, STRING = (
    SqlType.BOOLEAN,
    SqlType.INT,
    SqlType.BIGINT,
    SqlType.DOUBLE,
    SqlType.STRING,
)
TYPES = [t for t in SqlType if t not in (SqlType.NULL, SqlType.INTERVAL)]
NAN = float("nan")


def integers(bits: int) -> st.SearchStrategy[int]:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    near = [least, least + 1, -1, 0, 1, 2, 7, most - 1, most]
    return st.sampled_from([n for n in near if least <= n <= most]) | st.integers(least, most)


FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.5, NAN, float("inf"), float("-inf"), 1e308, 5e-324, 2.0**53])
VALUES: dict[SqlType, st.SearchStrategy[Any]] = {
    SqlType.BOOLEAN: st.booleans(),
    SqlType.TINYINT: integers(8),
    SqlType.SMALLINT: integers(16),
    SqlType.INT: integers(32),
    SqlType.BIGINT: integers(64),
    SqlType.FLOAT: st.floats(width=32) | st.sampled_from([0.0, -0.0, NAN]),
    SqlType.DOUBLE: FLOATS | st.floats(),
    SqlType.STRING: st.sampled_from(["", "a", "ab", "b", "é", "日本", "😀", "\uffff", "1"]),
    SqlType.DATE: st.integers(-700_000, 2_900_000),
    SqlType.TIMESTAMP: integers(64),
}
NUMBERS = (SqlType.TINYINT, SqlType.SMALLINT, INT, BIGINT, SqlType.FLOAT, DOUBLE)
FUNCTIONS = {
    "add": NUMBERS,
    "subtract": NUMBERS,
    "multiply": NUMBERS,
    "negate": NUMBERS,
    "abs": NUMBERS,
    "divide": NUMBERS,
    "div": NUMBERS,
    "modulo": NUMBERS,
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe"), tuple(TYPES)),
    "and": (BOOLEAN,),
    "or": (BOOLEAN,),
    "not": (BOOLEAN,),
    "is_null": tuple(TYPES),
    "is_not_null": tuple(TYPES),
    "if": tuple(TYPES),
    "case": tuple(TYPES),
    "coalesce": tuple(TYPES),
    "nullif": tuple(TYPES),
    "greatest": tuple(TYPES),
    "least": tuple(TYPES),
    "in": tuple(TYPES),
    "sign": NUMBERS,
    "length": (STRING,),
    "unix_seconds": (SqlType.TIMESTAMP,),
}
COUNTS = {"negate": 1, "abs": 1, "not": 1, "is_null": 1, "is_not_null": 1, "sign": 1, "length": 1, "unix_seconds": 1}
MANY = {"and", "or", "coalesce", "greatest", "least", "in"}


def literals(type_: SqlType) -> st.SearchStrategy[Literal]:
    return st.one_of(st.none(), VALUES[type_]).map(lambda value: Literal(value, type_))


def cast_to(expression: Expression, type_: SqlType) -> Expression:
    if expression.type is type_:
        return expression
    return Cast(expression, type_) if can_cast(expression.type, type_) else Literal(None, type_)


@st.composite
def expressions(draw: st.DrawFn, type_: SqlType, depth: int = 3) -> Expression:
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return (
            draw(literals(type_))
            if draw(st.integers(0, 3)) == 0
            else Column(f"{type_}{draw(st.integers(0, 1))}", type_)
        )
    function = draw(st.sampled_from(sorted(FUNCTIONS)))
    own = draw(st.sampled_from(FUNCTIONS[function]))
    if function in ("if", "case", "coalesce", "greatest", "least", "nullif"):
        own = type_
    count = COUNTS.get(function, draw(st.integers(2, 4)) if function in MANY else 2)
    args = [draw(expressions(own, depth - 1)) for _ in range(count)]
    if function in ("if", "case"):
        pairs = 1 if function == "if" else draw(st.integers(1, 2))
        args = []
        for _ in range(pairs):
            args += [draw(expressions(BOOLEAN, depth - 1)), draw(expressions(own, depth - 1))]
        args.append(draw(expressions(own, depth - 1)))
    wanted = coerce(function, tuple(arg.type for arg in args))
    if wanted is None:
        return Column(f"{type_}0", type_)
    args = [cast_to(arg, kind) for arg, kind in zip(args, wanted, strict=True)]
    result = resolve(function, wanted)
    assert result is not None
    return cast_to(Call(function, tuple(args), result), type_)


ROWS = st.fixed_dictionaries({f"{type_}{n}": st.one_of(st.none(), VALUES[type_]) for type_ in TYPES for n in range(2)})
KINDS = {f"{type_}{n}": type_ for type_ in TYPES for n in range(2)}


def bits(value: Any) -> Any:
    return struct.pack("<d", value) if isinstance(value, float) else value


def check(expression: Expression, row: dict[str, Any]) -> None:
    answer = compile_expression(expression)(Row(KINDS, row))
    try:
        value = compile_row(expression)(row)
    except UNCERTAIN:
        return
    assert answer.errors is None
    assert type(value) is type(answer.only)
    assert bits(value) == bits(answer.only)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(TYPES).flatmap(expressions), ROWS)
def test_what_comes_out_is_what_the_evaluator_says(expression: Expression, row: dict[str, Any]) -> None:
    check(expression, row)


GROUPS = [json.loads(line) for line in (Path(__file__).parent / "golden" / "values.jsonl").read_text().splitlines()]
KNOWN = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "div",
    "modulo",
    "eq",
    "lt",
    "ge",
    "and",
    "or",
    "not",
    "if",
    "coalesce",
)


def of_group(group: dict[str, Any], types: list[SqlType]) -> Expression | None:
    function, args = group["function"], [Column(f"c{i}", type_) for i, type_ in enumerate(types)]
    if function.startswith("cast:"):
        return Cast(args[0], SqlType(function.removeprefix("cast:")))
    if SqlType.INTERVAL in types or FUNCTIONS_OF_THE_LANGUAGE[function].literals:
        return None
    wanted = coerce(function, tuple(types))
    result = None if wanted is None else resolve(function, wanted)
    if wanted is None or result is None:
        return None
    return Call(function, tuple(cast_to(arg, kind) for arg, kind in zip(args, wanted, strict=True)), result)


@pytest.mark.parametrize("function", sorted({group["function"] for group in GROUPS}))
def test_the_values_that_spark_has_made(function: str) -> None:
    certain = rows = 0
    for group in GROUPS:
        types = [SqlType(name) for name in group["types"]]
        expression = of_group(group, types) if group["function"] == function else None
        if expression is None:
            continue
        by_row, by_columns = compile_row(expression), compile_expression(expression)
        kinds = {f"c{i}": type_ for i, type_ in enumerate(types)}
        for row in group["rows"]:
            values = {
                f"c{i}": float(v) if t.is_floating and v is not None else v
                for i, (t, v) in enumerate(zip(types, row, strict=False))
            }
            rows += 1
            answer = by_columns(Row(kinds, values))
            try:
                value = by_row(values)
            except UNCERTAIN:
                continue
            assert answer.errors is None
            assert (type(value), bits(value)) == (type(answer.only), bits(answer.only)), (group["types"], values)
            certain += 1
    if function in KNOWN:
        assert 2 * certain > rows


@pytest.mark.parametrize("function", sorted(set(FUNCTIONS) - {"sign", "length", "unix_seconds", "nullif"}))
def test_the_common_functions_are_known(function: str) -> None:
    type_ = BOOLEAN if function in ("and", "or", "not") else BIGINT
    count = 3 if function in ("if", "case") else COUNTS.get(function, 2)
    args: list[Expression] = [Literal(1, type_) for _ in range(count)]
    if function in ("if", "case"):
        args[0] = Column("p", BOOLEAN)
    if function == "divide":
        args = [Literal(1.0, DOUBLE), Literal(2.0, DOUBLE)]
    assert scalar(Call(function, tuple(args), type_), compile_row) is not None


def test_a_row_is_a_batch() -> None:
    row = Row({"x": INT, "y": DOUBLE, "s": STRING, "p": BOOLEAN}, {"x": 1, "y": None, "s": "a", "p": False})
    assert row.to_arrow().to_pylist() == [{"x": 1, "y": None, "s": "a", "p": False}]
    assert row.to_arrow().schema.types == [pa.int32(), pa.float64(), pa.string(), pa.bool_()]
    assert row.prefixed("a.").to_arrow().to_pylist() == [{"a.x": 1, "a.y": None, "a.s": "a", "a.p": False}]


@given(st.lists(ROWS, min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_rows_together_are_the_rows_one_by_one(rows: list[dict[str, Any]]) -> None:
    rows = [{name: row[name] for name in KINDS} for row in rows]
    together = columns_of_tuples(list(map(row_getter(KINDS), rows)), KINDS).to_arrow()
    singly = pa.Table.from_batches([Row(KINDS, row).to_arrow() for row in rows]).combine_chunks().to_batches()[0]
    assert together.schema == singly.schema
    for name, type_ in KINDS.items():
        one, other = together.column(name), singly.column(name)
        if type_ in (SqlType.TIMESTAMP, SqlType.DATE):
            one, other = (c.view(pa.int64() if type_ is SqlType.TIMESTAMP else pa.int32()) for c in (one, other))
        assert list(map(bits, one.to_pylist())) == list(map(bits, other.to_pylist()))
