"""The loader of conformance cases, and what a file of cases must keep to."""

from __future__ import annotations

import pytest

from conformance.cases import Moment, load, parse

TEXT = """
Prose.

--- stream
CREATE STREAM s (t TIMESTAMP, k STRING, x DOUBLE, EVENT TIME t)

--- events s
t    | k    | x
1.5  | 'a ' | 2
2    | NULL | NaN

=== A title
embedded only: for some reason
    a drawing

--- query
SELECT k, MAX(x) AS m FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k

--- expect
window_start | window_end | k    | m
# a remark
0            | 5          | NULL | 2.0
0            | 5          | '7'  | 7

--- late s
t | k | x
"""


def test_a_case_is_read() -> None:
    (case,) = parse(TEXT, "file")
    assert case.title == "A title"
    assert case.embedded_only == "for some reason"
    assert case.arrivals[0] == ("s", {"t": 1_500_000, "k": "a ", "x": 2.0})
    assert case.arrivals[1][1]["k"] is None
    assert case.expect["q1"].rows[0] == (Moment(0), Moment(5_000_000), None, 2.0)
    assert case.expect["q1"].rows[1][2:] == ("7", 7)
    assert isinstance(case.expect["q1"].rows[1][3], int)
    assert case.late["s"].rows == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--- late s", "--- latte s"),
        (TEXT[TEXT.index("SELECT") : TEXT.index("--- expect")], "\n"),
        ("0            | 5          | '7'  | 7", "0 | 5"),
    ],
)
def test_a_slip_in_a_file_is_found(old: str, new: str) -> None:
    with pytest.raises(ValueError, match=r"latte|needs a query|zip"):
        list(parse(TEXT.replace(old, new), "file"))


def test_cases_are_many_and_told_apart_by_their_titles() -> None:
    cases = load()
    assert len({str(case) for case in cases}) == len(cases) >= 150
    assert sum(not case.embedded_only for case in cases) >= 130
