"""Pairs at work in one process: ticks are pushed as Arrow batches, indicators and orders come out as they are made.

The run ends with `end`: all strategies sell what they own at the last prices. That it has ended is told to the program
by an event of the stream `ends`, which carries the times of the last tick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from penstock import App
from penstock_bench.workloads.pairs.strategies import Strategy
from penstock_bench.workloads.pairs.translator import bar_length, translate

INDICATOR: Final = "indicator"
ORDERS: Final = ("sell_order", "buy_order", "final_order")
"""The queries that give the stream MarketOrder. Of one move the sale comes before the purchase."""
Receive = Callable[[pa.RecordBatch], None]
MEMORY: Final = "1GB"


class PairsApp:
    """`folder` is for the table of the strategies. Batches have the columns symbol, price, size, tickTS and TS; what
    comes out has those of the thesis' Figure 7.8."""

    def __init__(self, strategies: Sequence[Strategy], folder: Path, **options: Any) -> None:
        self._bar = bar_length(strategies)
        self.app = App(translate(strategies, folder), **{"memory": MEMORY, **options})
        self._last: tuple[int, int | None] | None = None
        self._told = 0

    def subscribe(self, *, indicator: Receive | None = None, market_order: Receive | None = None) -> None:
        """Batches are handed over while a push is at work. Without a receiver they wait for `results`."""
        if indicator is not None:
            self.app.subscribe(INDICATOR, indicator)
        if market_order is not None:
            for query in ORDERS:
                self.app.subscribe(query, market_order)

    def push(self, ticks: pa.RecordBatch) -> None:
        if ticks.num_rows:
            self.app.push("ticks", ticks)
            last = ticks.num_rows - 1
            tick = ticks.column("tickTS")[last].as_py()
            self._last = tick, ticks.column("TS")[last].as_py()
            if tick >= self._told + self._bar:
                self._tell(tick)

    def _tell(self, tick: int) -> None:
        """The run has not ended by now: tables need not keep what they were before for the stream `ends`."""
        self._told = tick // self._bar * self._bar
        self.app.advance("ends", self._told * 1000)

    def end(self) -> None:
        """The run is over: what is owned is sold."""
        if self._last is not None:
            tick, arrived = self._last
            finished = (tick // self._bar + 1) * self._bar
            self.app.push("ends", {"finished": finished, "tickTS": tick, "TS": arrived})
        self.app.finish()

    def indicators(self) -> pa.Table:
        """Those since the last call, where nothing has subscribed."""
        return self.app.results(INDICATOR)

    def orders(self) -> pa.Table:
        """Those since the last call, where nothing has subscribed."""
        first, *others = [self.app.results(query) for query in ORDERS]
        return pa.concat_tables([first, *(table.cast(first.schema) for table in others)]).sort_by("inputTickTS")

    def close(self) -> None:
        self.app.close()

    def __enter__(self) -> PairsApp:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
