"""From the neutral form of the strategies to Penstock's SQL: tables with a row for each strategy, and one program.

The program is `pairs.sql`, the same for any number of strategies. Filled in are the files of its tables and the length
of a *bar*, the greatest common divisor of the lengths of all periods. What the strategies say stands in the files and
never in the text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as parquet

from penstock.errors import InputError
from penstock_bench.workloads.pairs.setup_xml import read_strategies
from penstock_bench.workloads.pairs.strategies import Strategy

PROGRAM_FILE: Final = "pairs.sql"


def tables(strategies: Sequence[Strategy]) -> dict[str, pa.Table]:
    """What the program's tables begin with. Strategies are numbered in their order, symbols by their names."""
    names = sorted({name for one in strategies for name in (one.symbol1, one.symbol2)})
    shares = {name: number for number, name in enumerate(names)}
    ids = range(len(strategies))
    share1 = [shares[one.symbol1] for one in strategies]
    share2 = [shares[one.symbol2] for one in strategies]
    zeros = [0] * len(strategies)
    symbols: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
        "symbol": (pa.string(), names),
        "share": (pa.int32(), range(len(names))),
    }
    watching: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
        "id": (pa.int32(), ids),
        "strategy": (pa.string(), [one.alias for one in strategies]),
        "symbol1": (pa.string(), [one.symbol1 for one in strategies]),
        "symbol2": (pa.string(), [one.symbol2 for one in strategies]),
        "share1": (pa.int32(), share1),
        "share2": (pa.int32(), share2),
        "period": (pa.int64(), [one.period_length * 1000 for one in strategies]),
        "periods": (pa.int32(), [one.num_periods for one in strategies]),
    }
    unknown = [None] * len(strategies)
    positions: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
        "id": (pa.int32(), ids),
        "multiplier": (pa.float64(), [one.bands_multiplier for one in strategies]),
        "stop": (pa.float64(), [one.stop_loss_perc for one in strategies]),
        "ratio": (pa.float64(), unknown),
        "upper": (pa.float64(), unknown),
        "lower": (pa.float64(), unknown),
        "wants": (pa.int32(), zeros),
        "owns": (pa.int32(), zeros),
        "entered": (pa.float64(), unknown),
        "shares": (pa.int64(), zeros),
        "balance": (pa.int64(), [one.available_funds for one in strategies]),
    }
    none = [0] * len(names)
    traded: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
        "share": (pa.int32(), range(len(names))),
        "total": (pa.int64(), none),
        "ticks": (pa.int64(), none),
        "price": (pa.int32(), none),
    }
    marks: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
        "id": (pa.int32(), ids),
        "total1": (pa.int64(), zeros),
        "ticks1": (pa.int64(), zeros),
        "total2": (pa.int64(), zeros),
        "ticks2": (pa.int64(), zeros),
        "ratio": (pa.float64(), unknown),
    }
    whole = {
        "symbols": symbols,
        "strategies": watching,
        "traded": traded,
        "marks": marks,
        "positions": positions,
    }
    return {
        table: pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})
        for table, columns in whole.items()
    }


def bar_length(strategies: Sequence[Strategy]) -> int:
    """In milliseconds: all periods are whole numbers of bars."""
    if not strategies:
        raise InputError("there is no strategy to translate: give at least one")
    return math.gcd(*(one.period_length for one in strategies)) * 1000


def translate(strategies: Sequence[Strategy], folder: Path) -> str:
    """Writes the program's tables into the folder and returns its text, which reads them there."""
    text = files("penstock_bench.workloads.pairs").joinpath(PROGRAM_FILE).read_text(encoding="utf-8")
    text = text.replace("{bar}", str(bar_length(strategies)))
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables(strategies).items():
        path = (folder / f"{name}.parquet").resolve()
        parquet.write_table(table, path)
        text = text.replace(f"{{{name}}}", str(path).replace("'", "''"))
    return text


def translate_file(xml: Path, folder: Path) -> Path:
    """Translates a file of strategies; the folder then has the program, which is returned, and its tables."""
    text = translate(read_strategies(xml), folder)
    program = folder / PROGRAM_FILE
    program.write_text(text, encoding="utf-8")
    return program
