"""What small micro-batches on Spark read and write of the state: the 144 KPIs of `make run`, with all groups known.

`restored_share` is the part of the buckets whose state had to be read back from the state store, since the process that
ran them did not have it. `bytes_to_changed` is what a micro-batch writes of the state, over the bytes of the groups
that its events change. The rest are the rows of the window that no block is full of yet, and the manifest.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.generators.callcentre import FIELDS, GROUP_KEYS, STREAM
from penstock.instruments import Figures
from penstock_bench.benches.callcentre_feed import CallCentre
from penstock_bench.benches.feed import evenly
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.spark_feed import CORES, FedQuery, Share, penstock_plan, spark_place
from penstock_bench.benches.timing import Timing
from penstock_bench.workloads.callcentre_on_spark import QUERIES

_MEMORY = "96MB"
_BUCKETS = CORES
"""As many as there are shuffle partitions; each is run in every micro-batch."""

_MICROSECONDS = 25_000
"""Between two events: 40 a second, as in `make run`, so that no window ends while it is measured."""

GROUP_BYTES = len(FIELDS) * 24 + 8 + 25
"""What a group has in the state: an exact sum of each field, the number of its events, its key with two numbers."""


@dataclass(frozen=True)
class _Plan:
    """`fill` events make the groups; `warm_up` micro-batches are set aside, in which workers come to know the state."""

    fill: int
    events: int
    warm_up: int
    batches: int


_PLANS = {
    Size.TINY: _Plan(4000, 100, 1, 3),
    Size.QUICK: _Plan(700_000, 1000, 10, 16),
    Size.FULL: _Plan(700_000, 1000, 10, 200),
}


@dataclass(frozen=True)
class _Seen:
    """One micro-batch: buckets that were read back, the bytes that it wrote, the groups that it changed."""

    restored: int
    written: int
    groups: int
    taken: Timing


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    with spark_place(size, report) as (spark, place):
        filling = _stream(place / "filling", 0, plan.fill)
        query = FedQuery(spark, place / "query", filling.ddl, penstock_plan(spark, STREAM, QUERIES, _MEMORY))
        report.step(f"making the groups of {plan.fill:,} events")
        for share in filling.shares(plan.fill):
            query.feed(share)
        small = _stream(place / "small", plan.fill, plan.events)
        figures, seen = Figures(), []
        figures.read(query.running)
        for number, share in enumerate(small.shares(plan.events * (plan.warm_up + plan.batches))):
            if number in (0, plan.warm_up):
                report.step("warming up" if number < plan.warm_up else f"{plan.batches} micro-batches")
            before, taken = figures.restored, query.feed(share)
            figures.read(query.running)
            seen.append(_Seen(figures.restored - before, figures.state_written, _changed_groups(share), taken))
        query.stop()
    warm_up, measured = seen[: plan.warm_up], seen[plan.warm_up :]
    written, groups = sum(one.written for one in measured), sum(one.groups for one in measured)
    found = {
        "restored_share": sum(one.restored for one in measured) / (_BUCKETS * plan.batches),
        "bytes_to_changed": written / (groups * GROUP_BYTES),
        "restored_in_warm_up": sum(one.restored for one in warm_up) / (_BUCKETS * plan.warm_up),
        "state_written": written / plan.batches,
        "state_bytes": figures.state_bytes,
        "changed_groups": groups / plan.batches,
        "batch_seconds": sum(one.taken.wall for one in measured) / plan.batches,
        "batch_cpu_seconds": sum(one.taken.cpu for one in measured) / plan.batches,
    }
    report.table(("figure", "value"), list(found.items()))
    parameters = {"fill_events": plan.fill, "batch_events": plan.events, "batches": plan.batches}
    return {**found, **parameters, "buckets": _BUCKETS, "cores": CORES, "memory": _MEMORY}


def _stream(place: Path, first: int, share_rows: int) -> CallCentre:
    """The events from number `first` on. A share is read by one task, so that it is known what goes where."""
    times = evenly(_MICROSECONDS)
    columns = (*GROUP_KEYS, *FIELDS)
    return CallCentre(place, columns, lambda row, count: times(first + row, count), share_rows, files=1)


def _changed_groups(share: Share) -> int:
    """Events of all keys are in any bucket: each gets a piece of what a task reads."""
    (file,) = share.files
    events = pq.read_table(file, columns=list(GROUP_KEYS))
    ends = [share.events * part // _BUCKETS for part in range(_BUCKETS + 1)]
    pieces = [events.slice(start, end - start) for start, end in pairwise(ends)]
    return sum(pc.count_distinct(piece.column(key)).as_py() for piece in pieces for key in GROUP_KEYS)
