"""Rendering: readable, and bound again it gives the same tree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.expressions.tree import Expression
from penstock.lang import parse
from penstock.lang.query import Select
from penstock.lang.render import render, render_aggregate, render_window

STREAM = (
    "CREATE STREAM s (t TIMESTAMP, k STRING, x DOUBLE, n INT, s SMALLINT, ok BOOLEAN, d DATE, `a b` INT, EVENT TIME t);"
)


def bound(query: str) -> Select:
    body = parse(STREAM + query).queries[0].body
    assert isinstance(body, Select)
    return body


def expression(text: str) -> Expression:
    return bound(f"SELECT {text} AS e FROM s").outputs[0].expression


@pytest.mark.parametrize(
    ("written", "rendered"),
    [
        ("x+x*x", "x + x * x"),
        ("(x+x)*x", "(x + x) * x"),
        ("x-(x-x)", "x - (x - x)"),
        ("x-x-x", "x - x - x"),
        ("x/2", "x / 2.0"),
        ("n div 2", "CAST(n AS BIGINT) DIV 2"),
        ("-n", "-n"),
        ("-(-n)", "-(-n)"),
        ("n + -1", "n + -1"),
        ("NOT ok AND (ok OR n = 1)", "NOT ok AND (ok OR n = 1)"),
        ("NOT (ok AND ok)", "NOT (ok AND ok)"),
        ("x BETWEEN 1 AND 2", "x >= 1.0 AND x <= 2.0"),
        ("k NOT IN ('a', 'it''s')", "NOT k IN ('a', 'it''s')"),
        ("k LIKE 'a\\\\%'", "k LIKE 'a\\\\%'"),
        ("(x > 1) IS NULL", "(x > 1.0) IS NULL"),
        ("x IS NOT NULL", "x IS NOT NULL"),
        ("k IS DISTINCT FROM 'x'", "NOT k <=> 'x'"),
        ("CASE n WHEN 1 THEN 'a' END", "CASE WHEN n = 1 THEN 'a' ELSE CAST(NULL AS STRING) END"),
        ("CAST(x AS INT)", "CAST(x AS INT)"),
        ("x::BIGINT", "CAST(x AS BIGINT)"),
        ("t >= '2024-03-01 10:00'", "t >= TIMESTAMP '2024-03-01 10:00:00'"),
        ("d = DATE '2024-03-01'", "d = DATE '2024-03-01'"),
        ("t - INTERVAL '90' MINUTES", "t - INTERVAL '1 HOUR 30 MINUTES'"),
        ("s + 1S", "s + 1S"),
        ("`a b` + 1", "`a b` + 1"),
        ("upper(k) || 'x' || k", "concat(upper(k), 'x', k)"),
        ("EXTRACT(HOUR FROM t)", "hour(t)"),
        ("n & 3 | 4", "n & 3 | 4"),
        ("4 | n & 3", "4 | n & 3"),
        ("(4 | n) & 3 ^ n << 1 + 1", "(4 | n) & 3 ^ n << 1 + 1"),
        ("(n = 1) = ok", "(n = 1) = ok"),
        ("2147483648", "2147483648"),
        ("1e300", "1e+300"),
    ],
)
def test_expressions(written: str, rendered: str) -> None:
    tree = expression(written)
    assert render(tree) == rendered
    assert expression(rendered) == tree


@pytest.mark.parametrize(
    "window",
    [
        "[NOW]",
        "[RANGE 1 HOUR 30 MINUTES]",
        "[RANGE 1 WEEK SLIDE 1 DAY OFFSET 6 HOURS ON WALL CLOCK WHEN FULL]",
        "[RANGE 5 SECONDS SLIDE 3 ROWS]",
        "[ROWS 100 SLIDE 10 ROWS WHEN FULL]",
        "[ROWS 7]",
        "[ROWS 7 SLIDE 250 MILLISECONDS]",
        "[PARTITION BY k, `a b` ROWS 7]",
        "[PARTITION BY k SESSION 5 MINUTES]",
        "[SINCE TIMESTAMP '2024-01-01 00:00:00.000001' SLIDE 1 MICROSECOND]",
    ],
)
def test_windows(window: str) -> None:
    spec = bound(f"SELECT k FROM s {window}").window
    assert spec is not None
    assert render_window(spec) == window


@pytest.mark.parametrize(
    "aggregate",
    [
        "COUNT(*)",
        "COUNT(DISTINCT k)",
        "PERCENTILE_CONT(x, 0.9)",
        "SUM(x * x) FILTER (WHERE ok)",
        "ARG_MAX(k, x)",
    ],
)
def test_aggregates(aggregate: str) -> None:
    assert render_aggregate(bound(f"SELECT {aggregate} FROM s [NOW]").aggregates[0]) == aggregate


def test_names_for_the_columns_of_groups() -> None:
    select = bound("SELECT SUM(x) / COUNT(*) FROM s [NOW]")
    names = {f"${i}": render_aggregate(call) for i, call in enumerate(select.aggregates)}
    assert render(select.outputs[0].expression, names) == "SUM(x) / CAST(COUNT(*) AS DOUBLE)"
    assert render(select.outputs[0].expression) == "$0 / CAST($1 AS DOUBLE)"


def _joined(parts: st.SearchStrategy[str], operators: list[str]) -> st.SearchStrategy[str]:
    return st.tuples(parts, st.sampled_from(operators), parts).map(" ".join)


NUMBERS = st.recursive(
    st.sampled_from(
        ["x", "n", "s", "`a b`", "1", "-2", "0.5", "3000000000", "2S", "CAST(k AS INT)", "EXTRACT(HOUR FROM t)"]
    ),
    lambda inner: (
        _joined(inner, ["+", "-", "*", "/", "%"])
        | inner.map("({})".format)
        | inner.map("-({})".format)
        | st.tuples(inner, inner).map(lambda pair: f"CASE WHEN ok THEN {pair[0]} ELSE {pair[1]} END")
    ),
    max_leaves=8,
)
CONDITIONS = st.recursive(
    _joined(NUMBERS, ["=", "<>", "<", "<=", ">", ">=", "<=>", "IS DISTINCT FROM"])
    | st.tuples(NUMBERS, NUMBERS, NUMBERS).map(lambda t: f"{t[0]} BETWEEN {t[1]} AND {t[2]}")
    | st.tuples(NUMBERS, NUMBERS, NUMBERS).map(lambda t: f"{t[0]} NOT IN ({t[1]}, {t[2]})")
    | st.sampled_from(["ok", "k LIKE 'a%'", "x IS NULL", "k || 'b' = 'ab'", "TRUE", "d > '2024-03-01'"]),
    lambda inner: (
        _joined(inner, ["AND", "OR"])
        | inner.map("({})".format)
        | inner.map("NOT {}".format)
        | inner.map("({}) IS NOT NULL".format)
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(CONDITIONS)
def test_any_condition_is_the_same_when_rendered_and_read_again(written: str) -> None:
    tree = expression(written)
    assert expression(render(tree)) == tree
