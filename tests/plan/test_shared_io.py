"""What a shared store is predicted to take, against the formulas worked out by hand."""

from __future__ import annotations

import pytest

from penstock.lang import parse
from penstock.plan import cost
from penstock.plan.physical.rules import plan_program
from penstock.plan.shared_io import SharedStore, shared_stores

STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k INT NOT NULL, x DOUBLE NOT NULL, EVENT TIME t);"


def predicted(*selects: str, memory: int) -> list[SharedStore]:
    program = parse(STREAM + ";".join(selects))
    return shared_stores(plan_program(program), cost.Workload(rate=1000), block_size=2000, memory=memory)


SHORT = "SELECT k, SUM(x) AS a FROM s [RANGE 100 SECONDS] GROUP BY k"
LONG = "SELECT k, MAX(x) AS a FROM s [RANGE 300 SECONDS] GROUP BY k"


def test_two_windows_by_hand() -> None:
    """Rows of 8 + 4 + 8 bytes, 100 to a block: gaps of 1,000 and 2,000 blocks. 1,500 blocks in memory are the whole of
    the first and a quarter of the second, so 5/8 of the blocks are found."""
    (store,) = predicted(SHORT, LONG, memory=1500 * 2000)
    assert (store.row, store.space, store.space_apart) == (20, 6_000_000, 8_000_000)
    assert store.hit_rate == pytest.approx((1 + 0.25) / 2)
    assert store.requests == pytest.approx(10 * (1 + 0.375 * 3))
    assert store.requests_apart == pytest.approx(2 * 2 * 10)


def test_windows_that_fit_need_no_requests() -> None:
    (store,) = predicted(SHORT, LONG, memory=3001 * 2000)
    assert (store.hit_rate, store.requests) == (1.0, 0.0)


def test_groupings_and_arguments_are_stored_once_each() -> None:
    (store,) = predicted(SHORT, LONG, "SELECT SUM(k) AS a FROM s [RANGE 200 SECONDS]", memory=1)
    assert store.row == 8 + 2 * 4 + 8 + 4
    assert store.queries == ("q1", "q2", "q3")


def test_windows_of_one_length_or_that_count_rows_are_left_out() -> None:
    assert predicted(SHORT, SHORT, memory=1) == []
    assert predicted(SHORT, "SELECT SUM(x) AS a FROM s [ROWS 10]", memory=1) == []
