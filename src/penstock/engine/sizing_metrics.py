"""What rate-sized windows hold and what sizing them costs, as `app.metrics` shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.operators.joins.rate_sizing import RateSizer
from penstock.operators.joins.view import JoinView

_HISTORY = pa.schema(
    [
        ("join", pa.int32()),
        ("side", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("size", pa.int64()),
        ("held", pa.int64()),
    ]
)


@dataclass(frozen=True)
class SideSizing:
    """A side's window: its size now (0 while it goes by time), the rows held on average, what it saves of a window as
    large as the largest of the join; the stream's events, how often the size changed, and seconds per event for the
    three parts of sizing."""

    size: int
    mean_held: float
    saving: float
    events: int
    resizes: int
    sampling: float
    algorithm: float
    resizing: float


@dataclass(frozen=True)
class JoinSizing:
    """`wait` is how long, in seconds of event time, the first row of a match was in its window on average."""

    sides: Mapping[str, SideSizing]
    matches: int
    wait: float


def sizing_of(joins: Iterable[JoinView]) -> tuple[JoinSizing, ...]:
    """Of the joins of a query that have rate-sized windows."""
    found = []
    for join in joins:
        sizers, waits = join.sizers, join.waits
        if sizers:
            largest = max(sizer.metrics.largest for sizer in sizers.values())
            sides = {alias: _side(sizer, largest) for alias, sizer in sizers.items()}
            found.append(JoinSizing(sides, waits.matches, waits.total / max(waits.matches, 1) / 1e6))
    return tuple(found)


def _side(sizer: RateSizer, largest: int) -> SideSizing:
    metrics = sizer.metrics
    held = metrics.held_in_all / max(metrics.samples, 1)
    events = max(metrics.events, 1) * 1e9
    return SideSizing(
        sizer.size,
        held,
        1 - held / max(largest, 1),
        metrics.events,
        metrics.resizes,
        metrics.sampling / events,
        metrics.algorithm / events,
        metrics.resizing / events,
    )


def history(joins: Iterable[JoinView]) -> pa.Table:
    """Size and rows held of each side at the last boundaries of its samples."""
    tables = []
    for number, join in enumerate(join for join in joins if join.sizers):
        for alias, sizer in join.sizers.items():
            columns = (sizer.metrics.times, sizer.metrics.sizes, sizer.metrics.held)
            times, sizes, held = (np.concatenate([np.empty(0, np.int64), *column]) for column in columns)
            arrays = [pa.array(np.full(len(times), number)), pa.array([alias] * len(times), pa.string()), times]
            cast = [pa.array(a).cast(f.type) for a, f in zip([*arrays, sizes, held], _HISTORY, strict=True)]
            tables.append(pa.Table.from_arrays(cast, schema=_HISTORY))
    return pa.concat_tables(tables) if tables else _HISTORY.empty_table()
