"""Streams for the benches: batches that are made before the clock runs, and an app they are pushed into.

The columns come from a ring of batches made once; only the times differ from lap to lap, so a stream of any length
costs little memory and no time while it is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock import App
from penstock_bench.benches.timing import Timing, timed

BATCH_ROWS = 65536

Times = Callable[[int, int], NDArray[np.int64]]
"""The event times, in microseconds, of so many rows from a row on."""

_TIMESTAMP = pa.timestamp("us", tz="UTC")


def evenly(interval: int) -> Times:
    """One event every so many microseconds."""
    return lambda first, count: np.arange(first, first + count) * interval


class Ring:
    """Columns of a stream, by name, in batches that follow each other again and again."""

    def __init__(self, names: Sequence[str], batches: Sequence[Sequence[pa.Array]]) -> None:
        self.names = list(names)
        self._batches = batches
        self.batch_rows = len(batches[0][0])

    def batch(self, first: int, times: NDArray[np.int64]) -> pa.RecordBatch:
        """The batch that begins with row `first`, with its times in front."""
        columns = self._batches[first // self.batch_rows % len(self._batches)]
        time = pa.array(times).view(_TIMESTAMP)
        return pa.RecordBatch.from_arrays([time, *[c.slice(0, len(times)) for c in columns]], names=self.names)


class Feed:
    """An app that reads one stream, and how far it has been fed. Results are dropped as they come."""

    def __init__(self, app: App, stream: str, ring: Ring, times: Times) -> None:
        self.app = app
        self._stream = stream
        self._ring = ring
        self._times = times
        self.rows = 0
        for query in app.queries:
            app.subscribe(query, lambda results: None)

    def fill(self, rows: int) -> None:
        """Pushes rows without taking the time, whole batches of them."""
        for batch in self._made(-(-rows // self._ring.batch_rows)):
            self.app.push(self._stream, batch)

    def push(self, batches: int) -> Timing:
        """What the next batches take."""
        made = list(self._made(batches))

        def push_all() -> None:
            for batch in made:
                self.app.push(self._stream, batch)

        return timed(sum(batch.num_rows for batch in made), push_all)

    def _made(self, batches: int) -> Iterator[pa.RecordBatch]:
        for _ in range(batches):
            count = self._ring.batch_rows
            yield self._ring.batch(self.rows, self._times(self.rows, count))
            self.rows += count


def number_ring(batches: int, rows: int = BATCH_ROWS, seed: int = 1) -> Ring:
    """A time and a random double: `t`, `v`."""
    random = np.random.default_rng(seed)
    return Ring(("t", "v"), [[pa.array(random.random(rows) * 1000)] for _ in range(batches)])
