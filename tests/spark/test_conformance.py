"""The conformance cases on Spark: all over static data, and some of every kind in several micro-batches.

Each takes most of a second, however small it is; so a third of them is run with the quick tests, the rest with the slow
ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conformance.cases import Case, load
from conformance.compare import assert_same
from conformance.runtimes import Run, run_spark

ANSWERED = [case for case in load() if case.expect]
CASES = [case for case in ANSWERED if not case.embedded_only]
DIFFERENT = [case for case in ANSWERED if case.embedded_only]
STREAMED = CASES[::24]

pytestmark = pytest.mark.filterwarnings("ignore:.* runs in one bucket")


def check(case: Case, run: Run) -> None:
    assert run.results
    for query in run.results:
        assert_same(run.table(query), case.expect[query], f"{case}: {query}")
    if case.rejects is not None:
        assert run.rejects == case.rejects


@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_static(case: Case, spark: SparkSession) -> None:
    check(case, run_spark(case, spark))


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for n, case in enumerate(CASES) if n % 3], ids=str)
def test_more_over_static_data(case: Case, spark: SparkSession) -> None:
    check(case, run_spark(case, spark))


@pytest.mark.parametrize("case", STREAMED, ids=str)
def test_in_micro_batches(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    check(case, run_spark(case, spark, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[12::24], ids=str)
def test_more_in_micro_batches(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    check(case, run_spark(case, spark, tmp_path))


@pytest.mark.parametrize("case", DIFFERENT, ids=str)
def test_what_is_said_to_differ_differs(case: Case, spark: SparkSession) -> None:
    """A reason that no longer holds must go."""
    with pytest.raises(Exception, match=r"differs|rows|columns"):
        check(case, run_spark(case, spark))
