"""What a small micro-batch on Spark reads and writes of the state: the 144 KPIs of the call centre, all groups known.

`restored_share` is the part of the buckets whose state was read back from the state store, since the worker that ran
them did not have it. `bytes_to_changed` is what a micro-batch writes of the state, over the bytes of the groups that its
events change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.generators.callcentre import FIELDS, GROUP_KEYS, STREAM
from penstock.instruments import Figures
from penstock_bench.benches.callcentre_feed import CallCentre
from penstock_bench.benches.feed import evenly
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.spark_feed import CORES, FedQuery, Share, penstock_plan, spark_place
from penstock_bench.workloads.callcentre_on_spark import QUERIES

_PER_SECOND = 40
_MEMORY = "96MB"


@dataclass(frozen=True)
class _Plan:
    fill: int
    events: int
    warm_up: int
    batches: int


_PLANS = {
    Size.TINY: _Plan(4000, 100, 2, 3),
    Size.QUICK: _Plan(700_000, 1000, 10, 20),
    Size.FULL: _Plan(700_000, 1000, 10, 200),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    with spark_place(size, report) as (spark, place):
        stream = CallCentre(place / "made", (*GROUP_KEYS, *FIELDS), evenly(1_000_000 // _PER_SECOND), plan.fill)
        query = FedQuery(spark, place / "query", stream.ddl, penstock_plan(spark, STREAM, QUERIES, _MEMORY))
        report.step("fill")
        seen = Figures()
        for share in stream.shares(plan.fill):
            query.feed(share)
        small = CallCentre(place / "small", (*GROUP_KEYS, *FIELDS), lambda row, count: evenly(1_000_000 // _PER_SECOND)(plan.fill + row, count), plan.events)
        for share in small.shares(plan.events * (plan.warm_up + plan.batches)):
            t = query.feed(share)
            (p,) = [p for p in query.running.recentProgress if p["batchId"] == query._last]
            m = p["observedMetrics"]["penstock"]
            print(query._last, m["restored"], m["state_bytes"], m["state_written"], m["bytes_read"], t.wall, t.cpu, flush=True)
        import shutil; shutil.rmtree("/tmp/aff-ck", ignore_errors=True); shutil.copytree(place / "query" / "checkpoint", "/tmp/aff-ck")
        query.stop()
    return {}
