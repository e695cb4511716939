"""Joins in buckets as on Spark, by key and in one place, against brute force."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.plan.placement import Spread
from properties.join_oracle import Case, Side, answers
from properties.test_joins import LATENESS, PROGRAM, SECOND, cases, equal, large, make_streams

from .by_hand import Run


def run_in_buckets(case: Case, seed: int) -> tuple[list[tuple[Any, ...]], Spread]:
    """The results in any order, and how the rows were spread."""
    chance = random.Random(seed)
    run = Run(PROGRAM + f"CREATE QUERY q1 AS {case.sql};", chance)
    streams = make_streams(seed)
    used = {side.stream for side in case.sides}
    arriving = sorted(
        ((row["t"] + chance.uniform(0, LATENESS - 0.1), name, row) for name in used for row in streams[name]),
        key=lambda event: event[0],
    )
    number = 0
    while arriving:
        count = chance.choice([1, 3, 8])
        tasks: list[dict[str, list[dict[str, Any]]]] = [{}, {}]
        for _, name, row in arriving[:count]:
            chance.choice(tasks).setdefault(name, []).append(row | {"t": row["t"] * SECOND})
        arriving = arriving[count:]
        run.settle(run.attempt(number, list(tasks)), commit=True)
        number += 1
    run.settle(run.attempt(number, None), commit=True)
    table = run.table("q1")
    columns = [c.cast("int64") if str(c.type).startswith("timestamp") else c for c in table.columns]
    rows = list(zip(*(c.to_pylist() for c in columns), strict=True)) if table.num_rows else []
    return rows, run.spreads["q1"]


def in_any_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def check(case: Case, seed: int) -> Spread:
    found, spread = run_in_buckets(case, seed)
    expected = [(start * SECOND, end * SECOND, *rest) for start, end, *rest in answers(case, make_streams(seed))]
    assert in_any_order(found) == in_any_order(expected), case.sql
    return spread


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.tuples(st.booleans(), st.booleans()).flatmap(lambda kinds: cases(*kinds)), st.integers(0, 10**6))
def test_joins_in_buckets_are_those_of_brute_force(case: Case, seed: int) -> None:
    check(case, seed)


def test_windows_by_time_go_by_key() -> None:
    for kind in ("INNER", "LEFT", "FULL"):
        for slide in (None, 3):
            sides = (Side("a", None, 5), Side("b", None, 7, kind, (equal(0, 1, "k"),)))
            for seed in range(4):
                assert check(Case(sides, (), "", slide), seed) is Spread.BY_KEY
    grouped = (Side("a", None, 5), Side("b", None, 7, "INNER", (equal(0, 1, "k"), large(1))))
    assert check(Case(grouped, (), "", 3, aggregates=True), 1) is Spread.BY_KEY


def test_windows_that_count_rows_are_in_one_place() -> None:
    sides = (Side("a", 5, None), Side("b", None, 7, "LEFT", (equal(0, 1, "k"),)))
    assert check(Case(sides, (), "", None), 3) is Spread.ONE_PLACE
