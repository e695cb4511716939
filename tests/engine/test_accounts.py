"""What joins and patterns hold is on their accounts, to the byte at any moment; a refusal comes before growth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock import App, BudgetError
from penstock.operators.joins.core import JoinCore
from penstock.operators.joins.rows import JoinRows
from penstock.operators.patterns.candidates import Candidates

STREAMS = """
CREATE STREAM a (t BIGINT, k BIGINT, z STRING, EVENT TIME t UNIT MICROSECONDS);
CREATE STREAM b (t BIGINT, k BIGINT, z STRING, EVENT TIME t UNIT MICROSECONDS);
"""
JOIN = "SELECT u.k, v.z FROM a [RANGE 1 HOUR] AS u, b [RANGE 1 HOUR] AS v WHERE u.k = v.k"
PATTERN = "SELECT u.k, v.z FROM PATTERN SEQ(a u, b v) WHERE u.k = v.k WITHIN 1 HOUR"


def batch(first: int, rows: int, keys: int) -> pa.RecordBatch:
    at = np.arange(first, first + rows)
    return pa.record_batch({"t": at * 1000, "k": at * 7919 % keys, "z": [f"text {i}" for i in at.tolist()]})


def push_both(app: App, events: int, keys: int, check: Any = lambda: None) -> None:
    for first in range(0, events, 500):
        for stream in ("a", "b"):
            app.push(stream, batch(first, 500, keys))
            check()


def held(app: App, ends_with: str) -> int:
    return sum(nbytes for name, nbytes in app._stores.budget.describe().items() if name.endswith(ends_with))


def made(monkeypatch: pytest.MonkeyPatch, kind: type) -> list[Any]:
    """All objects of a class that are made from now on."""
    found: list[Any] = []
    begin = kind.__init__  # type: ignore[misc]

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        found.append(self)

    monkeypatch.setattr(kind, "__init__", noted)
    return found


def test_rows_of_a_join_are_on_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    cores, sides = made(monkeypatch, JoinCore), made(monkeypatch, JoinRows)
    with App(STREAMS + JOIN, memory="8MB") as app:

        def check() -> None:
            arrays = [array for side in sides for array in side._arrays]
            chains = [index._chains for side in sides for index in side.indexes.values()]
            texts = sum(interner.nbytes for side in sides for interner in side._interners if interner is not None)
            assert held(app, "times and keys") == sum(array.nbytes for array in (*arrays, *chains)) + texts
            tables = {id(table): table.nbytes for core in cores for table in core._tables.values()}
            assert held(app, ": keys") == sum(tables.values())

        push_both(app, 10_000, 3_000, check)
        assert held(app, "times and keys") > 500_000


def test_events_that_may_match_are_on_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(monkeypatch, Candidates)
    with App(STREAMS + PATTERN, memory="8MB") as app:

        def check() -> None:
            (candidates,) = found
            of_keys = sum(array.nbytes for array in candidates._of_keys)
            ring = sum(column.nbytes for column in candidates._columns)
            assert held(app, "events that may match") == ring + of_keys + candidates.groups.nbytes

        push_both(app, 10_000, 3_000, check)
        assert held(app, "events that may match") > 500_000


@pytest.mark.parametrize("query", [JOIN.replace("RANGE 1 HOUR", "ROWS 200000"), PATTERN.replace("a u,", "a u, !a w,")])
def test_growth_is_refused_before_it_happens(query: str) -> None:
    with App(STREAMS + query, memory="2MB") as app, pytest.raises(BudgetError, match="a lower bound"):
        push_both(app, 100_000, 1_000_003)
    assert app._stores.budget.peak <= 2_000_000


def test_tables_of_keys_that_are_one_class_leave_nothing_on_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two equalities are one class of keys in the end, and have one table."""
    cores = made(monkeypatch, JoinCore)
    text = STREAMS + (
        "CREATE STREAM c (t BIGINT, k BIGINT, EVENT TIME t UNIT MICROSECONDS);"
        "CREATE STREAM d (t BIGINT, k BIGINT, EVENT TIME t UNIT MICROSECONDS);"
        "SELECT w.k FROM a [ROWS 9] AS u, b [ROWS 9] AS v, c [ROWS 9] AS w, d [ROWS 9] AS x "
        "WHERE u.k = v.k AND w.k = x.k AND v.k = w.k"
    )
    with App(text) as app:
        (core,) = cores
        tables = {id(table): table.nbytes for table in core._tables.values()}
        assert held(app, ": keys") == sum(tables.values())
