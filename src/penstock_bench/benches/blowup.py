"""An average per key while RANGE/SLIDE grows: ours on Spark against Spark's own `window()`, in the same session.

Spark's own copies every event into RANGE/SLIDE windows. It is given what serves it best: the state store that keeps
everything in memory, appended results, no micro-batches without data, and micro-batches that are large beside what
planning one costs. They are smaller than ours all the same, since it would not end otherwise. One that takes longer
than a limit is given up; what it was given, divided by the limit, then stands for its rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock_bench.benches.callcentre_feed import STREAM, CallCentre
from penstock_bench.benches.feed import evenly
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.spark_feed import CORES, FedQuery, Plan, penstock_plan, spark_place

_PER_SECOND = 1000
_KEY, _VALUE = "agentSite", "busyTime"
_IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_NATIVE_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": _IN_MEMORY,
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


@dataclass(frozen=True)
class _Step:
    """One ratio: the events of a micro-batch of either, and the seconds that one of Spark's own may take."""

    ratio: int
    events: int
    native_events: int
    rounds: int
    limit: float


_PLANS = {
    Size.TINY: (_Step(2, 2000, 500, 1, 60), _Step(3, 2000, 500, 1, 60), _Step(4, 2000, 500, 1, 0)),
    Size.QUICK: (
        _Step(60, 1_000_000, 20_000, 2, 10),
        _Step(600, 1_000_000, 4000, 1, 10),
        _Step(3600, 1_000_000, 40, 1, 5),
    ),
    Size.FULL: (
        _Step(60, 4_000_000, 200_000, 5, 120),
        _Step(600, 4_000_000, 40_000, 3, 300),
        _Step(3600, 4_000_000, 1000, 1, 300),
    ),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    rates = []
    with spark_place(size, report) as (spark, place):
        for step in _PLANS[size]:
            report.step(f"RANGE/SLIDE {step.ratio:,}: ours, and then Spark's own")
            rates.append(_compare(spark, place / str(step.ratio), step))
    report.table(tuple(rates[0]), [tuple(row.values()) for row in rates])
    *compared, last = rates
    return {
        **{f"ratio_{row['range_to_slide']}": row["ratio"] for row in compared},
        f"native_{last['range_to_slide']}": last["native"],
        "slide_seconds": 1,
        "events_per_event_second": _PER_SECOND,
        "native_state_store": _IN_MEMORY.rpartition(".")[2],
        "native_output_mode": "append",
        "cores": CORES,
        "rates": rates,
    }


def _compare(spark: SparkSession, place: Path, step: _Step) -> dict[str, Any]:
    """Events per second of both over the same stream with the same window."""
    text = (
        f"SELECT {_KEY}, AVG({_VALUE}) AS mean "
        f"FROM {STREAM} [RANGE {step.ratio} SECONDS SLIDE 1 SECOND] GROUP BY {_KEY}"
    )
    full = _PER_SECOND * step.ratio
    ours = _rate(spark, place / "ours", penstock_plan(spark, STREAM, text), step.events, full, step.rounds, None)
    assert isinstance(ours, float), "there was no limit"
    with _settings(spark, _NATIVE_SETTINGS):
        plan = _native_plan(step.ratio)
        native = _rate(spark, place / "native", plan, step.native_events, 0, step.rounds, step.limit)
    at_most = native if isinstance(native, float) else step.native_events / max(step.limit, 1e-3)
    return {
        "range_to_slide": step.ratio,
        "penstock": ours,
        "native": native,
        "ratio": ours / at_most,
        "penstock_batch_events": step.events,
        "native_batch_events": step.native_events,
    }


def _rate(
    spark: SparkSession, place: Path, plan: Plan, events: int, full: int, rounds: int, limit: float | None
) -> float | str:
    """Events per second of micro-batches after those that fill the window and one more, or why there is no rate.

    Spark's own has as many windows open after one micro-batch as it ever has: it need not be filled.
    """
    stream = CallCentre(place / "made", (_KEY, _VALUE), evenly(1_000_000 // _PER_SECOND), events)
    shares = stream.shares(full + (1 + rounds) * events)
    fed = FedQuery(spark, place / "query", stream.ddl, plan)
    taken = []
    try:
        for share in shares:
            timing = fed.feed_within(share, limit)
            if timing is None:
                break
            taken.append(timing.rate)
    except StreamingQueryException as error:
        return f"failed: {error.getMessage()}".splitlines()[0]
    finally:
        fed.stop()
    if not taken:
        return f"no micro-batch of {events} events within {limit:g} s"
    return median(taken[-rounds:])


def _native_plan(range_to_slide: int) -> Plan:
    def results(events: DataFrame, checkpoint: str) -> DataFrame:
        window = F.window("timestamp", f"{range_to_slide} seconds", "1 second")
        return events.withWatermark("timestamp", "0 seconds").groupBy(window, _KEY).agg(F.avg(_VALUE).alias("mean"))

    return results


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings that a query takes when it is started, put back afterwards."""
    before = {name: str(spark.conf.get(name)) for name in wanted}
    for name in wanted:
        spark.conf.set(name, wanted[name])
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
