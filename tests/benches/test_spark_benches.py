"""Every bench on Spark runs in the session of the tests, on a few events, and gives the figures it promises."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark.progress import Figures
from penstock_bench.benches import NAMES, measure
from penstock_bench.benches.callcentre_feed import KPI_COLUMNS, STREAM, CallCentre, kpis
from penstock_bench.benches.feed import evenly
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.spark_feed import FedQuery, penstock_plan

pytestmark = pytest.mark.slow

FIGURES = {
    "blowup": ("ratio_2", "ratio_3"),
    "spark-throughput": ("events_per_second", "to_embedded"),
    "spark-flat": ("slowest_to_fastest",),
    "spark-latency": ("p50_ms", "p99_ms", "to_empty"),
    "snapshot": ("bytes_to_state", "bytes_to_state_skewed", "pause_ms", "pause_whole_ms", "spark_bytes_to_state"),
    "spark-state": ("restored_share", "bytes_to_changed", "state_written"),
    "recovery": ("seconds", "bytes_read", "window_bytes"),
    "linear-road": ("wrong_rows", "l_rating", "l_rating_spark", "response_max_ms", "rows_checked"),
}


@pytest.fixture(scope="module")
def taken(spark: SparkSession) -> dict[str, dict[str, Any]]:
    """The figures of every bench, taken once."""
    return {name: measure(name, Size.TINY, Report(name, quiet=True)) for name in FIGURES}


def test_they_are_known(taken: dict[str, Any]) -> None:
    assert set(taken) < set(NAMES)


@pytest.mark.parametrize("name", list(FIGURES))
def test_bench_gives_its_figures(spark: SparkSession, taken: dict[str, dict[str, Any]], name: str) -> None:
    figures = taken[name]
    assert json.loads(json.dumps(figures)) == figures
    for field in FIGURES[name]:
        assert math.isfinite(figures[field]), field
        assert figures[field] >= 0, field
    assert figures["cores"] == 2


def test_what_spark_cannot_do_in_time_is_said(spark: SparkSession, taken: dict[str, dict[str, Any]]) -> None:
    figures = taken["blowup"]
    assert figures["native_4"] == "no micro-batch of 500 events within 0 s"
    assert [row["native"] > 0 for row in figures["rates"][:2]] == [True, True]


def test_latencies_are_in_order(spark: SparkSession, taken: dict[str, dict[str, Any]]) -> None:
    figures = taken["spark-latency"]
    assert figures["p50_ms"] <= figures["p99_ms"]
    assert figures["results"] > 0
    assert figures["to_empty"] == pytest.approx(figures["batch_ms"] / figures["empty_batch_ms"])


def test_recovery_goes_on_from_the_committed_state(spark: SparkSession, taken: dict[str, dict[str, Any]]) -> None:
    figures = taken["recovery"]
    assert figures["results"] > 0
    assert figures["window_bytes"] > figures["window_events"] * 36
    assert figures["seconds_without_starting_spark"] <= figures["seconds"]
    assert 0 < figures["state_bytes"] < figures["window_bytes"]


def test_a_share_is_one_micro_batch_and_a_restart_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    stream = CallCentre(tmp_path / "made", KPI_COLUMNS, evenly(1000), 100)
    plan = penstock_plan(spark, STREAM, kpis("RANGE 1 SECOND SLIDE 1 SECOND"))
    shares = stream.shares(250)
    assert [share.events for share in shares] == [100, 100, 100]
    events = []
    for some in (shares[:2], shares[2:]):
        fed = FedQuery(spark, tmp_path / "query", stream.ddl, plan)
        assert [fed.feed(share).events for share in some] == [100] * len(some)
        figures = Figures()
        figures.read(fed.running)
        events.append((figures.batches, figures.events))
        assert fed.stop()
    assert events == [(2, 200), (1, 100)]


def test_shares_follow_each_other_in_time(spark: SparkSession, tmp_path: Path) -> None:
    stream = CallCentre(tmp_path / "made", ("agentSite",), evenly(10), 4, ring=2)
    tables = [[pq.read_table(file) for file in share.files] for share in stream.shares(12)]
    times = [time for parts in tables for part in parts for time in part["timestamp"].cast("int64").to_pylist()]
    assert times == [i * 10 for i in range(12)]
    assert tables[0][0]["agentSite"].equals(tables[2][0]["agentSite"])


def test_a_query_that_fails_is_not_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    stream = CallCentre(tmp_path / "made", ("agentSite",), evenly(10), 4)

    def failing(events: DataFrame, checkpoint: str) -> DataFrame:
        return events.select(F.raise_error(F.lit("no good")))

    fed = FedQuery(spark, tmp_path / "query", stream.ddl, failing)
    with pytest.raises(StreamingQueryException, match="no good"):
        fed.feed_within(stream.shares(4)[0], 600)
