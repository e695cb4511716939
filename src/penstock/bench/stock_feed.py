"""The stream and the query of the SlideM paper's VWAP experiment (Query 3): 100 symbols in turn."""

from __future__ import annotations

import pyarrow as pa

from penstock.bench.feed import Ring
from penstock.workloads import stock

STREAM = stock.STREAM
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
