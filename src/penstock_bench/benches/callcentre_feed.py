"""The call-centre stream as Parquet files for the benches on Spark, made before the clock runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.generators import callcentre
from penstock.instruments import ddl
from penstock.types import Schema
from penstock_bench.benches.feed import Ring, Times
from penstock_bench.benches.spark_feed import CORES, Share, write_parquet

STREAM = callcentre.STREAM
KPI_COLUMNS = ("serviceId", *callcentre.FIELDS)


def kpis(window: str, key: str = "serviceId") -> str:
    """The paper's KPIs of one key: SUM, COUNT and AVG of every duration."""
    pairs = [(function, field) for field in callcentre.FIELDS for function in ("SUM", "COUNT", "AVG")]
    outputs = [f"{function}({field}) AS {function.lower()}_{field}" for function, field in pairs]
    return f"SELECT {key}, {', '.join(outputs)} FROM {STREAM} [{window}] GROUP BY {key}"


class CallCentre:
    """Some columns of the stream, with the times that a bench wants, in shares that follow each other.

    The values come from a ring of a few shares; only the times go on. A share is read by as many tasks as it has files.
    """

    def __init__(
        self, place: Path, columns: Sequence[str], times: Times, share_rows: int, ring: int = 4, files: int = CORES
    ) -> None:
        self.schema = Schema(tuple(f for f in callcentre.schema() if f.name in ("timestamp", *columns)))
        self._place = place
        self._times = times
        self._share_rows = share_rows
        self._files = files
        self._made = 0
        source = callcentre.generator(rate=1, seconds=0, seed=1, start=0)
        values = self.schema.names[1:]
        self._ring = Ring(
            self.schema.names, [source.batch(i * share_rows, share_rows, values).columns for i in range(ring)]
        )

    @property
    def ddl(self) -> str:
        """The columns as Spark reads them."""
        return ddl(self.schema)

    @property
    def create_stream(self) -> str:
        """The declaration of the stream for an app."""
        columns = ", ".join(f"{field.name} {field.type}" for field in self.schema)
        return f"CREATE STREAM {STREAM} ({columns}, EVENT TIME timestamp);"

    def shares(self, events: int) -> list[Share]:
        """The next events of the stream, whole shares of them."""
        return [self._share() for _ in range(-(-events // self._share_rows))]

    def _share(self) -> Share:
        first = self._made * self._share_rows
        batch = self._ring.batch(first, self._times(first, self._share_rows))
        self._made += 1
        return write_parquet(batch, self._place / f"share-{self._made:06d}", self._files)
