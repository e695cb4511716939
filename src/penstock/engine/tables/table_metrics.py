"""What tables hold, as `app.metrics` shows it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.operators.reorder import START
from penstock.operators.tables.table import Table


@dataclass(frozen=True)
class TableMetrics:
    """`rows` are those in memory, `on_disk` those on disk, of which some are in memory, too. `past` are the previous
    rows that are kept for readers that are behind. With a time to live, `expired` rows were over when their room was
    freed or a new row took it. `retention` is how long ago, in microseconds of event time, the oldest row was written:
    about the time to live, or longer where a reader is behind. It is None without a time to live, and for an empty
    table."""

    rows: int
    on_disk: int
    past: int
    expired: int
    retention: int | None


def metrics_of_table(table: Table) -> TableMetrics:
    expiry = table.expiry
    if expiry is None:
        return TableMetrics(table.store.rows, table.cold.pages.rows, len(table.history), 0, None)
    oldest = min((time for time in (expiry.oldest, table.cold.pages.least) if time is not None), default=None)
    retention = None if oldest is None or expiry.now == START else max(0, expiry.now - oldest)
    return TableMetrics(table.store.rows, table.cold.pages.rows, len(table.history), expiry.expired, retention)
