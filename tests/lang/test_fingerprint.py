"""Fingerprints: equal for what computes the same, different for everything else, stable across processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.lang import parse
from penstock.lang.fingerprint import fingerprint
from penstock.windows.spec import Range, Rows, TimeSlide

STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, x DOUBLE, n INT, EVENT TIME t);"
BASE = "SELECT k, SUM(x) AS a FROM s [RANGE 1 HOUR SLIDE 1 MINUTE] WHERE n > 1 GROUP BY k"


def of(query: str) -> str:
    return fingerprint(parse(STREAM + query).queries[-1])


@pytest.mark.parametrize(
    "same",
    [
        "select K,sum( X ) as b from S [range 60 minutes slide 60 seconds] where (n > 1) group by 1 -- formatting",
        f"CREATE QUERY other AS {BASE}",
        f"INSERT INTO elsewhere {BASE}",
        f"SELECT x FROM s; {BASE}",
    ],
)
def test_layout_and_names_do_not_matter(same: str) -> None:
    assert of(same) == of(BASE)


def test_everything_else_matters() -> None:
    queries = [
        BASE,
        BASE.replace("SUM(x)", "AVG(x)"),
        BASE.replace("SUM(x)", "SUM(n)"),
        BASE.replace("SUM(x)", "SUM(x) FILTER (WHERE n > 1)"),
        BASE.replace("1 HOUR", "2 HOURS"),
        BASE.replace("1 MINUTE", "1 MINUTE OFFSET 1 SECOND"),
        BASE.replace("1 MINUTE", "1 MINUTE WHEN FULL"),
        BASE.replace("n > 1", "n > 2"),
        BASE.replace("n > 1", "n >= 1"),
        BASE.replace("SELECT k", "SELECT ISTREAM k"),
        BASE.replace("SELECT k, SUM(x) AS a", "SELECT SUM(x) AS a, k"),
        BASE + " HAVING SUM(x) > 0",
        BASE + " ORDER BY 2",
        BASE + " ORDER BY 2 DESC",
        BASE + " ORDER BY 2 LIMIT 1",
        BASE + " DRAIN",
    ]
    assert len({of(query) for query in queries}) == len(queries)


def test_swapped_names_of_a_subquery_matter() -> None:
    outer = "SELECT SUM(a) FROM (SELECT {} FROM s) [ROWS 3]"
    assert of(outer.format("x AS a, n AS b")) != of(outer.format("x AS b, n AS a"))


def test_parts_do_not_run_into_each_other() -> None:
    assert (
        len({fingerprint(node) for node in (Range(5), Rows(5), TimeSlide(5), ("ab", "c"), ("a", "bc"), (1,), (True,))})
        == 7
    )


def test_another_process_gives_the_same() -> None:
    code = (
        "from penstock.lang import parse; from penstock.lang.fingerprint import fingerprint;"
        f"print(fingerprint(parse({STREAM + BASE!r}).queries[0]))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == of(BASE)


def test_foreign_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="list is no part"):
        fingerprint([1])
