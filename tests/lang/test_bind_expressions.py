"""Typing of scalar expressions: literals, implicit casts, operators, and what does not fit."""

from __future__ import annotations

import pytest

from penstock.errors import QueryError
from penstock.expressions.tree import Call, Cast, Column, Expression, Literal
from penstock.lang import parse
from penstock.lang.query import Select
from penstock.types import Field, Schema, SqlType

B, D, INT, L, S, T = (
    SqlType.BOOLEAN,
    SqlType.DOUBLE,
    SqlType.INT,
    SqlType.BIGINT,
    SqlType.STRING,
    SqlType.TIMESTAMP,
)
SCHEMA = Schema(
    (Field("t", T), Field("k", S), Field("x", D), Field("n", INT), Field("ok", B), Field("d", SqlType.DATE))
)
K, X, N, OK = Column("k", S), Column("x", D), Column("n", INT), Column("ok", B)


def bound(text: str) -> Expression:
    body = parse(f"SELECT {text} AS e FROM s", streams={"s": SCHEMA}).queries[0].body
    assert isinstance(body, Select)
    return body.outputs[0].expression


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", Literal(1, INT)),
        ("2147483647", Literal(2147483647, INT)),
        ("2147483648", Literal(2147483648, L)),
        ("-2147483648", Literal(-2147483648, INT)),
        ("-9223372036854775808", Literal(-(2**63), L)),
        ("10L", Literal(10, L)),
        ("1.0", Literal(1.0, D)),
        ("1e3", Literal(1000.0, D)),
        (".5", Literal(0.5, D)),
        ("-0.5", Literal(-0.5, D)),
        ("'it''s'", Literal("it's", S)),
        ("'a\\nb'", Literal("a\nb", S)),
        ("'a' 'b'", Literal("ab", S)),
        ("TRUE", Literal(True, B)),
        ("TIMESTAMP '1970-01-01 00:00:01.5'", Literal(1_500_000, T)),
        ("TIMESTAMP '1970-01-01T01:00:00+01:00'", Literal(0, T)),
        ("DATE '1970-01-02'", Literal(1, SqlType.DATE)),
        ("CAST(NULL AS DOUBLE)", Literal(None, D)),
        ("CAST(3 AS DOUBLE)", Literal(3.0, D)),
        ("CAST('1970-01-01' AS TIMESTAMP)", Literal(0, T)),
    ],
)
def test_literals(text: str, expected: Literal) -> None:
    assert bound(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 1", Call("gt", (X, Literal(1.0, D)), B)),
        ("n + x", Call("add", (Cast(N, D), X), D)),
        ("n = NULL", Call("eq", (N, Literal(None, INT)), B)),
        ("n <> 1", Call("ne", (N, Literal(1, INT)), B)),
        ("n <=> 1", Call("eq_null_safe", (N, Literal(1, INT)), B)),
        ("n IS NOT DISTINCT FROM 1", Call("eq_null_safe", (N, Literal(1, INT)), B)),
        ("n IS DISTINCT FROM 1", Call("not", (Call("eq_null_safe", (N, Literal(1, INT)), B),), B)),
        ("k IS NULL", Call("is_null", (K,), B)),
        ("k IS NOT NULL", Call("is_not_null", (K,), B)),
        ("ok IS TRUE", Call("eq_null_safe", (OK, Literal(True, B)), B)),
        ("ok AND ok AND ok", Call("and", (OK, OK, OK), B)),
        ("ok AND (ok OR ok)", Call("and", (OK, Call("or", (OK, OK), B)), B)),
        ("k || k || 'x'", Call("concat", (K, K, Literal("x", S)), S)),
        (
            "n BETWEEN 1 AND 2",
            Call("and", (Call("ge", (N, Literal(1, INT)), B), Call("le", (N, Literal(2, INT)), B)), B),
        ),
        ("n IN (1, 2)", Call("in", (N, Literal(1, INT), Literal(2, INT)), B)),
        ("k NOT LIKE 'a%'", Call("not", (Call("like", (K, Literal("a%", S)), B),), B)),
        ("SUBSTR(k, 1, 2)", Call("substring", (K, Literal(1, INT), Literal(2, INT)), S)),
        ("IF(ok, n, x)", Call("if", (OK, Cast(N, D), X), D)),
        ("CASE WHEN ok THEN 1 END", Call("case", (OK, Literal(1, INT), Literal(None, INT)), INT)),
        (
            "CASE n WHEN 1 THEN 'a' ELSE k END",
            Call("case", (Call("eq", (N, Literal(1, INT)), B), Literal("a", S), K), S),
        ),
        ("EXTRACT(YEAR FROM d)", Call("year", (Column("d", SqlType.DATE),), INT)),
        ("t + INTERVAL '1' MINUTE", Call("add", (Column("t", T), Literal(60_000_000, SqlType.INTERVAL)), T)),
        ("t >= '1970-01-01'", Call("ge", (Column("t", T), Literal(0, T)), B)),
        ("+n", N),
        ("((n))", N),
    ],
)
def test_operators_and_functions(text: str, expected: Expression) -> None:
    assert bound(text) == expected


def test_zero_and_minus_zero_are_not_taken_for_each_other() -> None:
    assert bound("-0.0") == Call("negate", (Literal(0.0, D),), D)
    assert bound("x * -0.0") != bound("x * 0.0")
    assert bound("-0") == Literal(0, INT)


def test_the_type_of_every_division() -> None:
    assert bound("n / 2").type is D
    assert bound("n DIV 2").type is L
    assert bound("n % 2").type is INT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("upper(k, 1)", "upper takes 1 argument, not 2"),
        ("substring(k)", "substring takes 2 to 3 arguments, not 1"),
        ("coalesce()", "coalesce takes at least 1 argument, not 0"),
        ("x + ok", "'\\+' cannot be applied to DOUBLE, BOOLEAN"),
        ("ok AND x", "'AND' cannot be applied to BOOLEAN, DOUBLE"),
        ("d = ok", "'=' cannot be applied to DATE, BOOLEAN"),
        ("CASE WHEN ok THEN d ELSE n END", "case cannot be applied"),
        ("n IS 5", "after IS stands NULL"),
        ("COUNT(*) + *", "expected|cannot"),
        ("n.*.x", "expected|no column"),
        ("k COLLATE x", "expected ',' or FROM"),
        ("t AT TIME ZONE 'UTC'", "this form of expression is not available"),
        ("k LIKE 'a' ESCAPE 'b'", "this form of expression is not available"),
        ("interval '1 fortnight'", "FORTNIGHT is no unit of fixed length"),
        ("t + INTERVAL '2' MONTHS", "MONTHS has no fixed length"),
    ],
)
def test_what_does_not_fit(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message) as caught:
        bound(text)
    assert caught.value.place is not None
