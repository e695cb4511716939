"""Pairs for Esper: its statements (EPL) and the rows of its tables, made from the strategies.

The texts are `esper_indicators.epl`, `esper_securities.epl`, `esper_bands.epl` and `esper_orders.epl`. Strategies are
rows of a table, with what they own; a security's sums are kept once for all strategies. Only the count windows need a
statement for each of the ten numbers of periods, for the length of a window is part of a statement. There are no
user-defined functions.

Times in Esper are microseconds, as its clock has them: tickTS goes in, and inputTickTS comes out, in that unit.

Esper sums ratios as plain doubles, adding what comes and taking off what leaves. So avgRatio and the bands differ
from the exact ones in the last digits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template

import pyarrow as pa

from penstock.errors import InputError
from penstock_bench.workloads.pairs.strategies import Strategy

_SECOND = 1_000_000
_SYMBOLS = 2_000
"""A statement becomes a Java class; its methods have a limit, which some more symbols pass."""
_SYMBOL = re.compile(r"[A-Za-z0-9._]+")


@dataclass(frozen=True)
class EsperPairs:
    """`queries` are texts by the names of the output streams, in the order in which Esper needs them; `rows` are events
    that come before the first tick, by the names of their streams."""

    queries: Mapping[str, str]
    rows: Mapping[str, pa.RecordBatch]


def translated(strategies: Sequence[Strategy]) -> EsperPairs:
    """What Esper runs for these strategies.

    >>> one = Strategy("st_00001", 1_000_000, "MCBEIV", "AYFBLW", 20, 5, 1.2, 0.3)
    >>> made = translated([one])
    >>> list(made.queries), {name: rows.num_rows for name, rows in made.rows.items()}
    (['Indicator', 'MarketOrder'], {'PeriodLengthRow': 1, 'AverageRow': 2, 'StrategyRow': 1})
    """
    symbols = sorted({symbol for strategy in strategies for symbol in (strategy.symbol1, strategy.symbol2)})
    for symbol in symbols:
        if not _SYMBOL.fullmatch(symbol):
            raise InputError(f"symbol '{symbol}': write letters, digits, '.' and '_' alone for Esper")
    lengths = sorted({strategy.period_length for strategy in strategies})
    if not lengths:
        raise InputError("there are no strategies; Esper needs one at least")
    if any(length % lengths[0] for length in lengths):
        raise InputError(f"periodLength: {lengths} are not all multiples of {lengths[0]}, as these statements need it")
    bands = _text("esper_bands.epl")
    periods = sorted({strategy.num_periods for strategy in strategies})
    indicators = Template(_text("esper_indicators.epl")).substitute(
        SECURITIES="\n".join(_securities(symbols[i : i + _SYMBOLS]) for i in range(0, len(symbols), _SYMBOLS)),
        SHORTEST=lengths[0] * _SECOND,
        BANDS="\n".join(Template(bands).substitute(PERIODS=count) for count in periods),
    )
    return EsperPairs({"Indicator": indicators, "MarketOrder": _text("esper_orders.epl")}, _rows(strategies, lengths))


def _securities(symbols: Sequence[str]) -> str:
    return Template(_text("esper_securities.epl")).substitute(SYMBOLS=", ".join(f"'{symbol}'" for symbol in symbols))


def _rows(strategies: Sequence[Strategy], lengths: Sequence[int]) -> dict[str, pa.RecordBatch]:
    averages: dict[tuple[int, str], int] = {}
    for strategy in strategies:
        for symbol in (strategy.symbol1, strategy.symbol2):
            averages.setdefault((strategy.period_length, symbol), len(averages))
    spans = pa.array([length * _SECOND for length in lengths], pa.int64())
    nothing = pa.nulls(len(strategies), pa.float64())
    zeros = pa.array([0] * len(strategies), pa.int32())
    none_yet = pa.array([0] * len(averages), pa.int64())
    return {
        "PeriodLengthRow": pa.record_batch({"span": spans, "ends": spans}),
        "AverageRow": pa.record_batch(
            {
                "id": pa.array(averages.values(), pa.int32()),
                "span": pa.array([length * _SECOND for length, _ in averages], pa.int64()),
                "symbol": pa.array([symbol for _, symbol in averages]),
                "total": none_yet,
                "ticks": none_yet,
                "price": pa.nulls(len(averages), pa.float64()),
            }
        ),
        "StrategyRow": pa.record_batch(
            {
                "strategy": pa.array([s.alias for s in strategies]),
                "symbol1": pa.array([s.symbol1 for s in strategies]),
                "symbol2": pa.array([s.symbol2 for s in strategies]),
                "span": pa.array([s.period_length * _SECOND for s in strategies], pa.int64()),
                "periods": pa.array([s.num_periods for s in strategies], pa.int32()),
                "multiplier": pa.array([s.bands_multiplier for s in strategies], pa.float64()),
                "stopLoss": pa.array([s.stop_loss_perc for s in strategies], pa.float64()),
                "average1": pa.array([averages[s.period_length, s.symbol1] for s in strategies], pa.int32()),
                "average2": pa.array([averages[s.period_length, s.symbol2] for s in strategies], pa.int32()),
                "balance": pa.array([s.available_funds for s in strategies], pa.int64()),
                "position": zeros,
                "shares": zeros,
                "entry": nothing,
                "ratio": nothing,
                "upperBand": nothing,
                "lowerBand": nothing,
            }
        ),
    }


def _text(name: str) -> str:
    return files("penstock_bench.workloads.pairs").joinpath(name).read_text(encoding="utf-8")
