"""Tables in the buckets of Spark against the embedded engine: with events that change them, in micro-batches that are
thrown away and run again, and loaded from a file."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import App, QueryError
from penstock.errors import BudgetError
from penstock.plan.placement import Spread
from penstock.spark.program import read_program

from .by_hand import Run

DECLARED = """
CREATE STREAM moves (t TIMESTAMP, n INT, car INT, zone STRING, EVENT TIME t SEQUENCE n);
CREATE STREAM asks (t TIMESTAMP, n INT, car INT, EVENT TIME t SEQUENCE n);
"""
WRITTEN = """
CREATE TABLE cars (car INT PRIMARY KEY, zone STRING, moves BIGINT);
ON moves UPSERT INTO cars (car, zone, moves) VALUES (moves.car, moves.zone, COALESCE(moves, 0) + 1);
ON asks WHERE asks.n % 7 = 0 DELETE FROM cars WHERE cars.car = asks.car;
"""
READ = """
CREATE QUERY q AS SELECT asks.t, asks.n, cars.zone, cars.moves FROM asks LEFT JOIN cars ON {on}
"""


def events(stream: str, count: int, seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    found = []
    for n in range(count):
        row = {"t": n // 2, "n": n, "car": chance.choice([None, 1, 2, 3, 4, 5])}
        found.append(row | ({"zone": chance.choice(["a", "b", "c"])} if stream == "moves" else {}))
    return found


def embedded(text: str, given: dict[str, list[dict[str, Any]]]) -> list[Any]:
    with App(text) as app:
        for stream, rows in given.items():
            app.push(stream, rows)
        app.finish()
        return sorted(map(str, app.results("q").to_pylist()))


def on_spark(text: str, given: dict[str, list[dict[str, Any]]], segments: Path | None) -> tuple[list[Any], Spread]:
    run = Run(text, random.Random(1), segments)
    size, batch = 23, 0
    longest = max(map(len, given.values()))
    for start in range(0, longest, size):
        task = {stream: rows[start : start + size] for stream, rows in given.items()}
        if batch % 3 == 1:
            run.settle(run.attempt(batch, [task]), commit=False)
        run.settle(run.attempt(batch, [task]), commit=True)
        batch += 1
    run.settle(run.attempt(batch, None), commit=True)
    return sorted(map(str, run.table("q").to_pylist())), run.spreads["q"]


@pytest.mark.parametrize(
    ("on", "spread"),
    [("asks.car = cars.car", Spread.BY_KEY), ("asks.n = cars.moves", Spread.ONE_PLACE)],
)
def test_tables_that_events_change(on: str, spread: Spread, tmp_path: Path) -> None:
    text = DECLARED + WRITTEN.replace("COALESCE(moves, 0)", "COALESCE(cars.moves, 0)") + READ.format(on=on)
    given = {"moves": events("moves", 200, 1), "asks": events("asks", 200, 2)}
    assert on_spark(text, given, tmp_path) == (embedded(text, given), spread)


def test_tables_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "cars.csv").write_text("car,zone,moves\n1,a,10\n2,b,20\n3,c,30\n")
    table = f"CREATE TABLE cars (car INT PRIMARY KEY, zone STRING, moves BIGINT) FROM '{tmp_path / 'cars.csv'}';"
    text = DECLARED + table + READ.format(on="asks.car = cars.car")
    given = {"asks": events("asks", 100, 2)}
    assert on_spark(text, given, None) == (embedded(text, given), Spread.ANYWHERE)


def test_the_check_of_memory_reads_no_table(tmp_path: Path) -> None:
    """The driver has no need of the rows; the file need not even be there."""
    table = f"CREATE TABLE cars (car INT PRIMARY KEY, zone STRING, moves BIGINT) FROM '{tmp_path / 'gone.csv'}';"
    run = Run(DECLARED + table + READ.format(on="asks.car = cars.car"), random.Random(1))
    run.recipe.check_memory()
    with pytest.raises(BudgetError, match="1,000 bytes of memory are too few"):
        replace(run.recipe, memory=1000).check_memory()


def test_copies_in_databases_are_not_written_there(tmp_path: Path) -> None:
    table = (
        f"CREATE TABLE cars AS LAST BY car FROM moves; CREATE TABLE c (car INT PRIMARY KEY) FROM 'sqlite:{tmp_path}/x';"
    )
    text = (
        DECLARED
        + table
        + "ON moves UPSERT INTO c VALUES (moves.car); SELECT asks.n FROM asks, c WHERE asks.car = c.car"
    )
    with pytest.raises(QueryError, match="not written on Spark"):
        read_program(text, {})
