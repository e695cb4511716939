"""Rules on Spark: edges in buckets, and calls of the driver, with the same keys when a micro-batch is run again."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.errors import QueryError
from penstock.lang import parse
from penstock.lang.query import Program
from penstock.plan.build import build
from penstock.plan.placement import Spread, place
from penstock.spark import query, write
from penstock.spark.write import Files, Sink

from .by_hand import Events, Run
from .runs import read_batches, write_batches

STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, v BIGINT, n BIGINT, EVENT TIME t LATENESS 2 SECONDS SEQUENCE n);"
SINKS = "CREATE SINK plain TO 'p'; CREATE SINK events TO 'e'; CREATE SINK slides TO 's'; CREATE SINK some TO 'o';"
FUNCTION = "CREATE FUNCTION note AS HTTP POST 'http://127.0.0.1:9';"
RULES = """
    CREATE RULE by_key WHEN SELECT t, k, v FROM s WHERE v > 4 BY k THEN EMIT INTO plain SELECT t, k, v;
    WHEN SELECT k, SUM(v) AS total FROM s [RANGE 4 SECONDS] GROUP BY k HAVING SUM(v) > 8 THEN EMIT INTO events;
    WHEN SELECT k, SUM(v) AS total FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k HAVING SUM(v) > 8
        THEN EMIT INTO slides;
    CREATE RULE called WHEN SELECT k, COUNT(*) AS n FROM s [RANGE 4 SECONDS] GROUP BY k HAVING COUNT(*) > 2
        THEN CALL note(k, n + 1 AS more);
    CREATE RULE every WHEN SELECT v FROM s WHERE v > 8 EVERY THEN CALL note(v), EMIT INTO some
"""
PROGRAM = STREAM + SINKS + FUNCTION + RULES


def events(chance: random.Random, start: int, stop: int) -> Events:
    return [
        {
            "t": max(n // 3 + chance.randint(-1, 1), 0) * 1_000_000,
            "k": chance.choice("abcdef"),
            "v": chance.randint(0, 10),
            "n": n,
        }
        for n in range(3 * start, 3 * stop)
    ]


def keyless(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr({name: value for name, value in row.items() if name != "idempotency_key"}) for row in rows)


def test_rules_go_by_their_keys() -> None:
    parsed: Program = parse(PROGRAM)
    nodes = {found.name: build(found.body) for found in parsed.queries}
    spreads = {name: placement.spread for name, placement in place(parsed.queries, nodes).items()}
    by_key = dict.fromkeys(["plain", "events", "slides", "called"], Spread.BY_KEY)
    assert spreads == {**by_key, "every": Spread.ONE_PLACE, "some": Spread.ONE_PLACE}


def test_buckets_fire_what_one_app_fires(tmp_path: Path) -> None:
    """Each micro-batch is tried twice: what comes out is the same, the keys of calls among it."""
    chance = random.Random(5)
    batches = [events(chance, n, n + 6) for n in range(0, 36, 6)]
    names = ["plain", "events", "slides", "some", "called", "every"]
    run = Run(PROGRAM, chance, tmp_path)
    for number, batch in enumerate(batches):
        tasks = [{"s": batch[::2]}, {"s": batch[1::2]}]
        first = run.attempt(number, tasks)
        run.settle(first, commit=False)
        again = run.attempt(number, tasks)
        assert sorted((row["name"], row["packed"]) for row in first) == sorted(
            (row["name"], row["packed"]) for row in again
        )
        run.settle(again, commit=True)
    run.settle(run.attempt(len(batches), None), commit=True)
    found = {name: run.table(name).to_pylist() for name in names}

    made: list[tuple[str, dict[str, Any]]] = []
    text = PROGRAM.replace(SINKS, "").replace(FUNCTION, "").replace("note(k, n + 1 AS more)", "counted(k, n + 1)")
    functions = {
        "note": lambda v, idempotency_key: made.append(("every", {"v": v})),
        "counted": lambda k, n, idempotency_key: made.append(("called", {"k": k, "more": n})),
    }
    with ps.App(text, functions=functions) as app:
        app.push("s", [event for batch in batches for event in batch])
        app.finish()
        expected = {name: app.results(name).to_pylist() for name in names[:4]}
    for name in names[:4]:
        assert keyless(found[name]) == keyless(expected[name]), name
        assert len(found[name]) > 3
    for name in names[4:]:
        assert keyless(found[name]) == keyless([row for called, row in made if called == name])
        keys = [row["idempotency_key"] for row in found[name]]
        assert len(set(keys)) == len(keys) > 3
        assert all(key.startswith(f"{name}:") for key in keys)


CALLING = STREAM + "CREATE RULE high WHEN SELECT k, v FROM s WHERE v > 5 BY k THEN CALL note(k, v)"


@pytest.mark.slow
def test_the_driver_calls_at_least_once_with_the_same_keys(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(6)
    write_batches(tmp_path / "in", STREAM, [events(chance, n, n + 10) for n in (0, 10)])
    calls: list[tuple[str, str, int]] = []

    def note(k: str, v: int, idempotency_key: str) -> None:
        calls.append((idempotency_key, k, v))
        if v == 9:
            raise ValueError("nine")

    def run(rejects: Sink) -> None:
        place = str(tmp_path / "checkpoint")
        frames = {"s": read_batches(spark, tmp_path / "in", STREAM)}
        tagged = query(spark, frames, CALLING, buckets=2, functions={"note": note}, checkpoint=place)
        writer = write(tagged, {"rejects": rejects}).option("checkpointLocation", place)
        writer.trigger(availableNow=True).start().awaitTermination()

    told: list[str] = []

    def fail(frame: DataFrame, number: int) -> None:
        told.extend(json.loads(row.row)["idempotency_key"] for row in frame.collect())
        if number == 1:
            raise RuntimeError("in the middle of a micro-batch")

    with pytest.raises(Exception, match="in the middle of a micro-batch"):
        run(fail)
    before = len(calls)
    run(Files(str(tmp_path / "rejects"), "jsonl"))
    by_key = {key: (k, v) for key, k, v in calls}
    assert len(calls) > len(by_key)
    assert all(by_key[key] == (k, v) for key, k, v in calls)
    # The first micro-batch was committed, and the second is made again as it was.
    assert set(calls[before:]) <= set(calls[:before])
    files = (tmp_path / "rejects").rglob("*.jsonl")
    rejected = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert {row["reason"] for row in rejected} == {"ValueError: nine"}
    failed = {json.loads(row["row"])["idempotency_key"] for row in rejected}
    assert set(told) == {key for key, (_, v) in by_key.items() if v == 9} > failed != set()


def test_functions_must_be_known(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path, STREAM, [[]])
    with pytest.raises(QueryError, match="unknown function 'note'"):
        query(spark, {"s": read_batches(spark, tmp_path, STREAM)}, CALLING)
