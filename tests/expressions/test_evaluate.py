"""What the evaluator promises beyond single values: laziness of failures, independence of batches, no copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import QueryError
from penstock.expressions.evaluate import compile_expression, is_total
from penstock.expressions.tree import Call, Cast, Column, Expression, Literal
from penstock.types import SqlType

INT, BIGINT, DOUBLE = SqlType.INT, SqlType.BIGINT, SqlType.DOUBLE
STRING, BOOLEAN = SqlType.STRING, SqlType.BOOLEAN
X, Y, S, P = Column("x", INT), Column("y", DOUBLE), Column("s", STRING), Column("p", BOOLEAN)


def literal(value: Any, type_: SqlType) -> Literal:
    return Literal(value, type_)


def call(name: str, type_: SqlType, *args: Expression) -> Call:
    return Call(name, args, type_)


ONE_BY_Y = call("divide", DOUBLE, literal(1.0, DOUBLE), Y)
"""Fails where y is 0."""
POSITIVE = call("gt", BOOLEAN, ONE_BY_Y, literal(0.0, DOUBLE))


def evaluate(expression: Expression, **columns: Any) -> tuple[list[Any], list[int]]:
    """The values and the rows that failed."""
    types = {"x": INT, "y": DOUBLE, "s": STRING, "p": BOOLEAN}
    batch = pa.record_batch({name: pa.array(values, types[name].arrow) for name, values in columns.items()})
    answer = compile_expression(expression)(batch)
    failed = [] if answer.errors is None else answer.errors.rows.tolist()
    if answer.errors is not None:
        assert np.array_equal(np.flatnonzero(answer.errors.mask), failed)
    return answer.values.to_pylist(), failed


@pytest.mark.parametrize(
    ("expression", "values", "failed"),
    [
        # p is TRUE, FALSE, NULL and y is 0, so the division fails wherever it counts
        (call("and", BOOLEAN, P, POSITIVE), [None, False, None], [0, 2]),
        (call("and", BOOLEAN, POSITIVE, P), [None, None, None], [0, 1, 2]),
        (call("or", BOOLEAN, P, POSITIVE), [True, None, None], [1, 2]),
        (call("or", BOOLEAN, POSITIVE, P), [None, None, None], [0, 1, 2]),
        (call("if", DOUBLE, P, ONE_BY_Y, literal(7.0, DOUBLE)), [None, 7.0, 7.0], [0]),
        (call("if", DOUBLE, P, literal(7.0, DOUBLE), ONE_BY_Y), [7.0, None, None], [1, 2]),
        (call("case", INT, POSITIVE, literal(1, INT), P, literal(2, INT), literal(3, INT)), [None] * 3, [0, 1, 2]),
        (call("case", INT, P, literal(1, INT), POSITIVE, literal(2, INT), literal(3, INT)), [1, None, None], [1, 2]),
        (
            call("case", STRING, P, literal("a", STRING), POSITIVE, literal("b", STRING), literal("c", STRING)),
            ["a", None, None],
            [1, 2],
        ),
        (call("is_null", BOOLEAN, ONE_BY_Y), [None] * 3, [0, 1, 2]),
        (call("coalesce", BOOLEAN, P, POSITIVE), [True, False, None], [2]),
        (call("coalesce", BOOLEAN, POSITIVE, P), [None] * 3, [0, 1, 2]),
        (call("greatest", BOOLEAN, P, POSITIVE), [None] * 3, [0, 1, 2]),
        (call("eq", BOOLEAN, P, POSITIVE), [None] * 3, [0, 1]),
        (call("eq_null_safe", BOOLEAN, P, POSITIVE), [None] * 3, [0, 1, 2]),
        (call("in", BOOLEAN, literal(True, BOOLEAN), P, POSITIVE), [True, None, None], [1, 2]),
    ],
    ids=lambda value: value.function if isinstance(value, Call) else "",
)
def test_failures_count_only_where_the_row_goes(expression: Call, values: list[Any], failed: list[int]) -> None:
    assert evaluate(expression, p=[True, False, None], y=[0.0, 0.0, 0.0]) == (values, failed)


def test_reasons_name_the_failing_part() -> None:
    sum_ = call("add", INT, X, Cast(S, INT))
    batch = pa.record_batch({"x": pa.array([2**31 - 1, 1, 1], pa.int32()), "s": ["1", "no", "2"]})
    errors = compile_expression(sum_)(batch).errors
    assert errors is not None
    assert errors.reason(0) == "ARITHMETIC_OVERFLOW: x + CAST(s AS INT)"
    assert errors.reason(1) == "CAST_INVALID_INPUT: CAST(s AS INT)"
    assert errors.reason(2) is None


def test_a_null_divisor_hides_the_failure_of_the_dividend() -> None:
    quotient = call("divide", DOUBLE, Cast(S, DOUBLE), Y)
    assert evaluate(quotient, s=["no", "no", "4"], y=[None, 2.0, 2.0]) == ([None, None, 2.0], [1])


def test_a_column_is_returned_as_it_is() -> None:
    plain, coded = pa.array([1, None, 3], pa.int32()), pa.array(["a", "b", None]).dictionary_encode()
    batch = pa.record_batch({"x": plain, "s": coded})
    assert compile_expression(X)(batch).values.buffers()[1].address == plain.buffers()[1].address
    assert isinstance(compile_expression(S)(batch).values, pa.DictionaryArray)
    values, valid = compile_expression(X)(batch).columns
    assert values[[0, 2]].tolist() == [1, 3]
    assert valid is not None
    assert valid.tolist() == [True, False, True]


def test_dictionary_columns_compute_as_plain_ones() -> None:
    batch = pa.record_batch({"s": pa.array(["a", "b", None, "a"]).dictionary_encode()})
    equal = compile_expression(call("eq", BOOLEAN, S, literal("a", STRING)))
    assert equal(batch).values.to_pylist() == [True, False, None, True]
    assert equal(batch).true.tolist() == [True, False, False, True]


def test_literals_fill_every_row_and_none() -> None:
    for expression in (
        literal(5, INT),
        literal("a", STRING),
        literal(None, INT),
        call("upper", STRING, literal("a", STRING)),
    ):
        compiled = compile_expression(expression)
        for rows in (0, 1, 3):
            answer = compiled(pa.record_batch({"x": pa.array([1] * rows, pa.int32())}))
            assert len(answer.values) == rows
            assert answer.errors is None


def test_a_failing_literal_fails_every_row() -> None:
    by_zero = call("divide", DOUBLE, literal(1.0, DOUBLE), literal(0.0, DOUBLE))
    assert evaluate(by_zero, x=[1, 2]) == ([None, None], [0, 1])
    assert evaluate(by_zero, x=[]) == ([], [])


def test_total_expressions() -> None:
    assert is_total(
        call("and", BOOLEAN, call("lt", BOOLEAN, X, literal(3, INT)), call("like", BOOLEAN, S, literal("a%", STRING)))
    )
    assert not is_total(POSITIVE)
    assert not is_total(call("nullif", INT, X, S))
    assert is_total(call("nullif", INT, X, X))


def test_division_by_at_least_one() -> None:
    at_least_one = call("greatest", INT, X, literal(1, INT))
    ten = literal(10, INT)
    for function, type_, expected in [
        ("div", BIGINT, [3, 10, 10, 10, 1]),
        ("modulo", INT, [1, 0, 0, 0, 0]),
    ]:
        assert evaluate(call(function, type_, ten, at_least_one), x=[3, 0, None, -1, 10]) == (expected, [])


@pytest.mark.parametrize("pattern", ["a\\", "a\\b"])
def test_bad_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(QueryError, match="LIKE pattern"):
        compile_expression(call("like", BOOLEAN, S, literal(pattern, STRING)))


def test_unknown_units_are_refused() -> None:
    moment = Column("t", SqlType.TIMESTAMP)
    with pytest.raises(QueryError, match="fortnight"):
        compile_expression(call("date_trunc", SqlType.TIMESTAMP, literal("fortnight", STRING), moment))


def test_in_a_long_list_finds_what_python_finds() -> None:
    items = [float(i * i) for i in range(40)] + [float("nan")]
    inside = call("in", BOOLEAN, Y, *(literal(i, DOUBLE) for i in items))
    tried = [0.0, -0.0, 2.0, 1521.0, 1e9, float("nan"), None]
    assert evaluate(inside, y=tried)[0] == [True, True, False, True, False, True, None]


SMALL_INTS = st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([2**31 - 1, -(2**31)]))
FLOATS = st.one_of(st.none(), st.floats(width=64), st.sampled_from([0.0, -0.0, 0.5, 2.5]))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "1", "-2", "x", "ß", "日本", " 3 ", "1e5"]), st.text(max_size=4))
ROWS = st.lists(st.tuples(SMALL_INTS, FLOATS, TEXTS, st.one_of(st.none(), st.booleans())), min_size=1, max_size=30)


def expressions() -> st.SearchStrategy[tuple[Expression, ...]]:
    """One expression of each of INT, DOUBLE, STRING and BOOLEAN, built from one another."""

    def grown(parts: tuple[Expression, ...]) -> st.SearchStrategy[tuple[Expression, ...]]:
        i, d, s, b = parts
        return st.tuples(
            st.sampled_from(
                [
                    i,
                    call("add", INT, i, X),
                    call("multiply", INT, i, literal(3, INT)),
                    call("modulo", INT, X, i),
                    call("negate", INT, i),
                    Cast(s, INT),
                    Cast(d, INT),
                    call("if", INT, b, i, X),
                    call("coalesce", INT, i, literal(9, INT)),
                    call("length", INT, s),
                    call("nullif", INT, i, X),
                ]
            ),
            st.sampled_from(
                [
                    d,
                    call("divide", DOUBLE, d, Y),
                    call("ln", DOUBLE, d),
                    call("round", DOUBLE, d, literal(1, INT)),
                    Cast(i, DOUBLE),
                    call("case", DOUBLE, b, d, P, Y, literal(0.5, DOUBLE)),
                    call("greatest", DOUBLE, d, Y),
                ]
            ),
            st.sampled_from(
                [
                    s,
                    call("concat", STRING, s, S),
                    call("upper", STRING, s),
                    call("substring", STRING, s, i),
                    call("if", STRING, b, s, S),
                    Cast(i, STRING),
                    Cast(d, STRING),
                    call("coalesce", STRING, s, literal("none", STRING)),
                    call("left", STRING, s, X),
                ]
            ),
            st.sampled_from(
                [
                    b,
                    call("and", BOOLEAN, b, P),
                    call("or", BOOLEAN, P, b),
                    call("lt", BOOLEAN, d, Y),
                    call("ge", BOOLEAN, s, S),
                    call("in", BOOLEAN, i, X, literal(1, INT)),
                    call("is_null", BOOLEAN, d),
                    call("eq_null_safe", BOOLEAN, i, X),
                    call("contains", BOOLEAN, S, s),
                ]
            ),
        )

    leaves: st.SearchStrategy[tuple[Expression, ...]] = st.just((X, Y, S, P))
    return leaves.flatmap(grown).flatmap(grown).flatmap(grown)


@pytest.mark.parametrize("name", ["exp", "ln", "log10", "log2", "sin", "cos", "tan", "atan", "sqrt", "pow", "atan2"])
def test_mathematics_is_the_same_to_the_last_bit_in_any_batch(name: str) -> None:
    """Vector instructions and special cases must not depend on where a row lies."""
    random = np.random.default_rng(1)
    values = np.concatenate(
        [random.normal(size=500), 1e6 * random.normal(size=500), 10.0 ** random.uniform(-300, 300, 500)]
    )
    batch = pa.record_batch({"y": values})
    more = [(literal(e, DOUBLE),) for e in (2.0, 0.5, -1.0, 3.0, 1.7)] if name in ("pow", "atan2") else [()]
    for extra in more:
        compiled = compile_expression(call(name, DOUBLE, Y, *extra))
        whole = compiled(batch).values
        for size in (1, 7):
            pieces = [compiled(batch.slice(i, size)).values for i in range(0, len(values), size)]
            assert compared(pa.concat_arrays(pieces).to_pylist()) == compared(whole.to_pylist())


def compared(values: list[Any]) -> list[str]:
    return [repr(value) for value in values]


@settings(max_examples=150, deadline=None)
@given(expressions(), ROWS, st.integers(0, 30))
def test_splitting_a_batch_changes_nothing(parts: tuple[Expression, ...], rows: list[Any], cut: int) -> None:
    columns = [[row[i] for row in rows] for i in range(4)]
    arrays = [pa.array(c, t.arrow) for c, t in zip(columns, (INT, DOUBLE, STRING, BOOLEAN), strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, ["x", "y", "s", "p"])
    for expression in parts:
        compiled = compile_expression(expression)
        whole = compiled(batch)
        pieces = [compiled(batch.slice(0, cut)), compiled(batch.slice(cut))]
        singles = [compiled(batch.slice(i, 1)) for i in range(len(rows))]
        for split in (pieces, singles):
            assert compared([value for p in split for value in p.values.to_pylist()]) == compared(
                whole.values.to_pylist()
            )
            told = [r for p in split for r in reasons(p)]
            assert told == reasons(whole)
        if is_total(expression):
            assert whole.errors is None


def reasons(answer: Any) -> list[str | None]:
    rows = len(answer.values)
    return [None] * rows if answer.errors is None else [answer.errors.reason(i) for i in range(rows)]
