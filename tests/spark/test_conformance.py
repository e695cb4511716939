"""The conformance cases on Spark: all over static data, and some of every kind in several micro-batches. Those that the
order of arrival decides are read from files.

Each takes most of a second, however small it is; so a twelfth of them is run with the quick tests, the rest with the
slow ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conformance.cases import Case, load
from conformance.compare import assert_same
from conformance.runtimes import Run, run_spark, run_spark_in_order

ANSWERED = [case for case in load() if case.expect]
BY_ARRIVAL = [case for case in ANSWERED if case.by_arrival]
CASES = [case for case in ANSWERED if not case.embedded_only and not case.by_arrival]
DIFFERENT = [case for case in ANSWERED if case.embedded_only]
STREAMED = CASES[::72]

pytestmark = pytest.mark.filterwarnings("ignore:.* runs in one bucket")


def check(case: Case, run: Run) -> None:
    assert run.results
    for query in run.results:
        assert_same(run.table(query), case.expect[query], f"{case}: {query}")
    for stream in run.late:
        assert_same(run.late_table(stream), case.late[stream], f"{case}: late events of {stream}")
    if case.rejects is not None:
        assert run.rejects == case.rejects


@pytest.mark.parametrize("case", CASES[::12], ids=str)
def test_static(case: Case, spark: SparkSession) -> None:
    check(case, run_spark(case, spark))


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for n, case in enumerate(CASES) if n % 12], ids=str)
def test_more_over_static_data(case: Case, spark: SparkSession) -> None:
    check(case, run_spark(case, spark))


@pytest.mark.parametrize("case", STREAMED, ids=str)
def test_in_micro_batches(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    check(case, run_spark(case, spark, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for n, case in enumerate(CASES[::12]) if n % 6], ids=str)
def test_more_in_micro_batches(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    check(case, run_spark(case, spark, tmp_path))


@pytest.mark.parametrize("case", BY_ARRIVAL[::16], ids=str)
def test_in_order_of_arrival(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    check(case, run_spark_in_order(case, spark, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for n, case in enumerate(BY_ARRIVAL) if n % 16], ids=str)
def test_more_in_order_of_arrival(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    check(case, run_spark_in_order(case, spark, tmp_path))


def test_what_is_said_to_differ_differs(spark: SparkSession) -> None:
    """A reason that no longer holds must go."""
    for case in DIFFERENT:
        with pytest.raises(Exception, match=r"differs|rows|columns"):
            check(case, run_spark(case, spark))


def test_what_arrival_decides_differs_where_it_is_unknown(spark: SparkSession) -> None:
    case = BY_ARRIVAL[0]
    with pytest.raises(AssertionError, match=r"differs"):
        check(case, run_spark(case, spark))
