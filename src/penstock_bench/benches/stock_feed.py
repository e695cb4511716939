"""The stream and the query of the SlideM paper's VWAP experiment (Query 3): 100 symbols in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock import App
from penstock.generators import stock
from penstock_bench.benches.feed import Feed, Ring

STREAM = stock.STREAM
_HOUR = 3600 * 1_000_000
BYTES_READ = 8 + 4 + 8 + 4
"""Of an event the query reads the time, the symbol's code, the price and the volume."""


def application(*windows: str) -> str:
    """Query 3 over each of these windows; they are named q1, q2 and so on."""
    return f"""
        CREATE STREAM {STREAM} (
            Timestamp TIMESTAMP NOT NULL, Symbol STRING NOT NULL, Price DOUBLE NOT NULL, Volume INT NOT NULL,
            EVENT TIME Timestamp
        );
    """ + "".join(
        f"SELECT Symbol, SUM(Volume * Price) / SUM(Volume) AS vwap FROM {STREAM} [{window}] GROUP BY Symbol;\n"
        for window in windows
    )


def ring(batches: int, rows: int) -> Ring:
    """Ticks of the generated stock stream, the symbols dictionary-encoded."""
    ticks = stock.generator(rate=1, seconds=0, seed=1, start=0)
    names = pa.array([f"SYM{i:03d}" for i in range(stock.SYMBOLS)])
    made = []
    for number in range(batches):
        batch = ticks.batch(number * rows, rows, ["Symbol", "Price", "Volume"])
        codes = pa.compute.index_in(batch.column(0), names)
        made.append([pa.DictionaryArray.from_arrays(codes, names), batch.column(1), batch.column(2)])
    return Ring(("Timestamp", "Symbol", "Price", "Volume"), made)


class Hour:
    """An hour of ticks, and single events behind it. A stretch of at least `dense` events, which leaves when as many
    have come behind the hour, has the full rate; the rest is thinner."""

    def __init__(self, per_second: int, dense: int, thinning: int, batch_rows: int) -> None:
        self._spacing = 1_000_000 // per_second
        self._thin_spacing = self._spacing * thinning
        self._dense = -(-dense // batch_rows) * batch_rows
        self.rows = self._dense + max(1, (_HOUR - self._dense * self._spacing) // self._thin_spacing)
        self._batch_rows = batch_rows
        self._next = 0

    def fill(self, app: App) -> None:
        Feed(app, STREAM, ring(8, self._batch_rows), self._times).fill(self.rows)

    def _times(self, first: int, count: int) -> NDArray[np.int64]:
        rows = np.minimum(np.arange(first, first + count), self.rows - 1)
        thin = self._dense * self._spacing + (rows - self._dense) * self._thin_spacing
        return np.where(rows < self._dense, rows * self._spacing, thin)

    def next_events(self, count: int) -> list[dict[str, Any]]:
        """The next events, as dicts."""
        random = np.random.default_rng(2)
        prices = (np.floor(random.random(count) * 10_000) / 100).tolist()
        volumes = random.integers(1, 10_001, count).tolist()
        numbers = range(self._next, self._next + count)
        self._next += count
        return [
            {
                "Timestamp": _HOUR + number * self._spacing,
                "Symbol": f"SYM{number % stock.SYMBOLS:03d}",
                "Price": price,
                "Volume": volume,
            }
            for number, price, volume in zip(numbers, prices, volumes, strict=True)
        ]
