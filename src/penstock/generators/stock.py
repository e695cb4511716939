"""The stock stream of the SlideM paper's Query 3: symbols in turn, random prices and volumes.

Ticks cycle through 100 symbols; row i has symbol i mod 100. A price stays near its symbol's own level and is in whole
cents; a volume is from 1 to 10,000.

`generate:stock?rate=50000&seconds=3600&seed=1&start=2024-01-01T00:00:00&symbols=100`; seconds=0 goes on without end.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa

from penstock.connect.generate import Parameters
from penstock.generators.chunks import CHUNK_ROWS, ChunkedGenerator, Rows, event_times, random_source
from penstock.types import Field, Schema, SqlType

STREAM = "Stock"
SYMBOLS = 100
_PRICE, _VOLUME = 1, 2


def schema() -> Schema:
    return Schema(
        (
            Field("Timestamp", SqlType.TIMESTAMP, nullable=False),
            Field("Symbol", SqlType.STRING),
            Field("Price", SqlType.DOUBLE),
            Field("Volume", SqlType.INT),
        )
    )


def from_parameters(parameters: Parameters) -> ChunkedGenerator:
    return generator(
        rate=parameters.integer("rate", 50_000, least=1),
        seconds=parameters.integer("seconds", 3600),
        seed=parameters.integer("seed", 1),
        start=parameters.time("start", datetime(2024, 1, 1)),
        symbols=parameters.integer("symbols", SYMBOLS, least=1),
    )


def generator(*, rate: int, seconds: int, seed: int, start: int, symbols: int = SYMBOLS) -> ChunkedGenerator:
    """`start` in microseconds since the epoch; `seconds` 0: without end."""
    names = pa.array([f"SYM{i:03d}" for i in range(symbols)])

    def times(chunk: int, rows: Rows) -> pa.Array:
        return pa.array(event_times(start, rate, rows))

    def symbol(chunk: int, rows: Rows) -> pa.Array:
        return names.take(pa.array(rows % symbols))

    def price(chunk: int, rows: Rows) -> pa.Array:
        drawn = random_source(seed, _PRICE, chunk).random(CHUNK_ROWS)
        level = 1_000 + rows % symbols * 97
        return pa.array(np.floor(level * (0.95 + 0.1 * drawn)) / 100)

    def volume(chunk: int, rows: Rows) -> pa.Array:
        return pa.array(random_source(seed, _VOLUME, chunk).integers(1, 10_001, CHUNK_ROWS))

    makers = {"Timestamp": times, "Symbol": symbol, "Price": price, "Volume": volume}
    return ChunkedGenerator(schema(), rate * seconds or None, makers)
