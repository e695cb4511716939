"""The conformance cases that name Spark, over static data; those of time windows in several micro-batches, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conformance.cases import Case, load
from conformance.compare import assert_same
from conformance.runtimes import Run, run_spark

CASES = [case for case in load() if "spark" in case.runtimes]
STREAMED = [case for case in CASES if case.file == "01_time_windows"][:4]

pytestmark = pytest.mark.filterwarnings("ignore:the query runs in one bucket")


def check(case: Case, run: Run) -> None:
    for query, table in case.expect.items():
        assert_same(run.table(query), table, f"{case}: {query}")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_static(case: Case, spark: SparkSession) -> None:
    check(case, run_spark(case, spark))


@pytest.mark.parametrize("case", STREAMED, ids=str)
def test_in_micro_batches(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    check(case, run_spark(case, spark, tmp_path))
