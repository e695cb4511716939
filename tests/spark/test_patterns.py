"""Patterns on Spark in several micro-batches: events go by the key of their pattern, and absence is known everywhere
when the whole stream has come so far."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conformance.cases import Case, load
from conformance.compare import assert_same
from conformance.runtimes import run_spark

TITLES = ("Absence by key, of several streams", "ONE A -> ONE B")
CASES = [case for case in load() if any(title in str(case) for title in TITLES)]


def test_there_are_cases() -> None:
    assert len(CASES) == len(TITLES)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_in_micro_batches(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    run = run_spark(case, spark, tmp_path)
    for query, expected in case.expect.items():
        assert_same(run.table(query), expected, str(case))
