"""A program is parsed once and each of its queries is planned once on Spark, too; its physical plan is made once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock.spark
from counted_plans import count_plans
from penstock.cli import spark as command

QUERIES = """
    CREATE QUERY a AS SELECT k, SUM(x) AS n FROM s [RANGE 1 MINUTE SLIDE 10 SECONDS] GROUP BY k;
    CREATE QUERY b AS SELECT AVG(x) AS n FROM (SELECT x FROM s) [RANGE 1 MINUTE SLIDE 10 SECONDS]
"""


def count_make_plan(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    module = sys.modules["penstock.spark.query"]  # the package has a function of this name
    made: list[Any] = []
    make_plan = module.make_plan
    monkeypatch.setattr(module, "make_plan", lambda *given: made.append(given) or make_plan(*given))
    return made


def test_queries_over_a_frame(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = spark.createDataFrame([], "t TIMESTAMP, k INT, x DOUBLE")
    counted, made = count_plans(monkeypatch), count_make_plan(monkeypatch)
    penstock.spark.query(spark, {"s": frame}, QUERIES, buckets=1)
    assert (counted.parsed, counted.planned, len(made)) == (1, 2, 1)


def test_the_command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("t,k,x\n2024-01-01T00:00:00Z,1,2.0\n")
    source = f"CREATE STREAM s (t TIMESTAMP, k INT, x DOUBLE, EVENT TIME t) FROM '{tmp_path}/s.csv'"
    monkeypatch.setattr(penstock.spark, "session", lambda *given, **settings: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)
    counted, made = count_plans(monkeypatch), count_make_plan(monkeypatch)
    options = command.SparkOptions(
        "64MB", None, str(tmp_path / "rejects"), command.RunLength.TO_THE_END, None, "local[2]", {}, 1, quiet=True
    )
    assert command.run_on_spark(f"{source}; {QUERIES}", options)
    assert (counted.parsed, counted.planned, len(made)) == (1, 2, 1)
