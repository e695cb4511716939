"""What an app has done so far, as an object that prints well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta

from penstock.engine.service_times import DispatchMetrics
from penstock.engine.sizing_metrics import JoinSizing
from penstock.engine.tables.table_metrics import TableMetrics

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Metrics:
    """Counts since the app began (a restart goes on counting) and what it holds now.

    `bytes_written` is the size of the blocks written since this process began and `bytes_compressed` what they took on
    disk. Of `memory_bytes`, `pool_bytes` are blocks of windows in memory: all that others leave, and all but two blocks
    of each store given back when others need it. `stored_bytes` are those blocks and all on disk: of windows, and of
    groups, values, joins, patterns and tables beyond memory, whose blocks count since this process began.
    """

    events: int
    late: int
    rejected: int
    results: int
    blocks_written: int
    blocks_read: int
    bytes_written: int
    bytes_compressed: int
    pool_hits: int
    memory_bytes: int
    pool_bytes: int
    memory_peak: int
    memory_budget: int
    stored_bytes: int
    watermark: int | None
    calls: int = 0
    """Calls of rules that have been taken in."""
    calls_waiting: int = 0
    dispatch: DispatchMetrics | None = None
    """How long events wait and are served, if they are taken from input buffers."""
    rate_sizing: Mapping[str, tuple[JoinSizing, ...]] = field(default_factory=dict)
    """Of each query with rate-sized windows its joins, the innermost first."""
    tables: Mapping[str, TableMetrics] = field(default_factory=dict)

    @property
    def event_time(self) -> datetime | None:
        """The watermark as a time."""
        if self.watermark is None:
            return None
        try:
            return _EPOCH + timedelta(microseconds=self.watermark)
        except OverflowError:
            return None

    def __str__(self) -> str:
        return (
            f"{self.events:,} events, {self.late:,} late, {self.rejected:,} rejected, {self.results:,} results; "
            f"{self.memory_bytes / 1e6:,.1f} of {self.memory_budget / 1e6:,.1f} MB, "
            f"{self.blocks_written:,} blocks written, {self.blocks_read:,} read"
        )

    def _shown(self) -> list[tuple[str, object]]:
        return [(one.name, getattr(self, one.name)) for one in fields(self)]

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in self._shown())
        return f"<table>{rows}</table>"
