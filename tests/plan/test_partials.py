"""Which aggregations can be computed in parts, and what is said of the others."""

from __future__ import annotations

import pytest

from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.nodes import AggregateNode
from penstock.plan.partials import mergeable

STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, x DOUBLE, n INT NOT NULL, EVENT TIME t)"
HOUR = "[RANGE 1 HOUR SLIDE 1 MINUTE]"


def reason(query: str) -> str | None:
    node = build(parse(f"{STREAM}; {query}").queries[0].body)
    assert isinstance(node, AggregateNode)
    return mergeable(node)


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT k, COUNT(*) AS a, SUM(x) AS b, AVG(n) AS c FROM s {HOUR} GROUP BY k",
        f"SELECT VAR_POP(x) AS a, CORR(x, n) AS b, MIN(k) AS c, MAX(x) AS d FROM s {HOUR} WHERE n > 1",
        "SELECT SUM(x) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR OFFSET 1 MINUTE]",
        "SELECT SUM(x) AS a FROM s [SINCE TIMESTAMP '2024-01-01 00:00:00' SLIDE 1 MINUTE]",
        f"SELECT DISTINCT SUM(x) AS a FROM s {HOUR} GROUP BY k HAVING COUNT(*) > 2 ORDER BY a LIMIT 3 DRAIN",
    ],
)
def test_these_can(query: str) -> None:
    assert reason(query) is None


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (f"SELECT SUM(x) AS a, MEDIAN(x) AS b FROM s {HOUR}", "MEDIAN cannot be merged"),
        (f"SELECT COUNT(DISTINCT k) AS a FROM s {HOUR}", "COUNT(DISTINCT) cannot be merged"),
        (f"SELECT FIRST(x) AS a FROM s {HOUR}", "FIRST cannot be merged"),
        (f"SELECT ARG_MAX(k, x) AS a FROM s {HOUR}", "ARG_MAX cannot be merged"),
        ("SELECT SUM(x) AS a FROM s [ROWS 10]", "only RANGE and SINCE windows"),
        ("SELECT SUM(x) AS a FROM s [ROWS 10 SLIDE 1 SECOND]", "only RANGE and SINCE windows"),
        ("SELECT SUM(x) AS a FROM s [RANGE 1 HOUR]", "only RANGE and SINCE windows"),
        ("SELECT SUM(x) AS a FROM s [RANGE 1 HOUR SLIDE 5 ROWS]", "only RANGE and SINCE windows"),
        ("SELECT SUM(x) AS a FROM s [SESSION 1 MINUTE]", "only RANGE and SINCE windows"),
        ("SELECT SUM(x) AS a FROM s [RANGE 1 HOUR SLIDE 1 MINUTE ON WALL CLOCK]", "ON WALL CLOCK"),
        ("SELECT SUM(x) AS a FROM s [RANGE 1 HOUR SLIDE 1 MINUTE WHEN FULL]", "WHEN FULL"),
        (f"SELECT ISTREAM SUM(x) AS a FROM s {HOUR}", "ISTREAM compares"),
        (f"SELECT DSTREAM SUM(x) AS a FROM s {HOUR}", "DSTREAM compares"),
        (f"SELECT SUM(a) AS b FROM (SELECT SUM(x) AS a FROM s {HOUR}) [RANGE 1 DAY SLIDE 1 HOUR]", "subquery"),
        (f"SELECT SUM(x) AS b FROM (SELECT x FROM s WHERE n > 1) {HOUR}", "subquery"),
    ],
)
def test_these_cannot_and_are_told_why(query: str, words: str) -> None:
    found = reason(query)
    assert found is not None
    assert words in found
