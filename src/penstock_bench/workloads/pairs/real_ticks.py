"""Real ticks in place of generated ones: which symbols they have, and which of these move together.

Correlations are read from a file, or found: the pairs whose average prices in slices of five seconds change together
most, no symbol twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
from numpy.typing import NDArray

from penstock.errors import InputError
from penstock_bench.workloads.pairs.configuration import Configuration
from penstock_bench.workloads.pairs.market import STRATEGIES_PER_SCALE
from penstock_bench.workloads.pairs.periods import PeriodSums
from penstock_bench.workloads.pairs.setup_xml import NAME, NAME_RULE
from penstock_bench.workloads.pairs.strategies import STRATEGIES_PER_CORRELATION
from penstock_bench.workloads.pairs.tick_files import Auxiliary, TickReader, write_auxiliary, write_ticks

MOST_SYMBOLS: Final = 4_000
_SLICE = 5


def take_over(settings: Configuration, path: Path, progress: Callable[[int], None] = lambda _: None) -> Auxiliary:
    """Checks the ticks of a file, finds or reads their correlations, and writes all in the kit's own form.

    There are no more strategies than the correlations have room for.
    """
    if path.parent.resolve() == settings.data_folder.resolve():
        raise InputError(f"{path}: real ticks must not be in {settings.data_folder}, where the ticks go: move them")
    symbols = symbols_of(path, progress)[0]
    if settings.real_pairs is not None:
        pairs = read_pairs(settings.real_pairs, symbols)
    else:
        pairs = correlated(path, symbols, settings.correlations or max(1, len(symbols) // 4))
    wanted = settings.strategies or STRATEGIES_PER_SCALE * settings.scale_factor
    reader = TickReader([path])
    files = write_ticks(
        reader.ticks(), symbols, settings.data_folder, settings.file_count, settings.tick_format, progress
    )
    auxiliary = Auxiliary(
        settings.scale_factor,
        min(wanted, STRATEGIES_PER_CORRELATION * len(pairs)),
        pairs,
        tuple(file.name for file in files),
    )
    write_auxiliary(settings.data_folder, auxiliary)
    return auxiliary


def symbols_of(path: Path, progress: Callable[[int], None] = lambda _: None) -> tuple[list[str], int]:
    """The symbols of a file by their first ticks, and the number of ticks; all rows are checked."""
    reader = TickReader([path])
    count = 0
    for piece in reader.ticks():
        count += len(piece)
        progress(count)
    if count == 0:
        raise InputError(f"{path}: there are no ticks in it")
    for symbol in reader.symbols:
        if not NAME.fullmatch(symbol):
            raise InputError(f"{path}: {symbol[:80]!r} cannot be a symbol: {NAME_RULE}")
    return reader.symbols, count


def correlated(path: Path, symbols: list[str], count: int) -> tuple[tuple[str, str], ...]:
    """The `count` pairs of symbols that move together most, the most correlated first."""
    if len(symbols) > MOST_SYMBOLS:
        raise InputError(f"{path}: {len(symbols)} symbols are too many to compare: give the pairs (realPairs)")
    if not 1 <= count <= len(symbols) // 2:
        raise InputError(f"{path}: {count} correlations do not fit into {len(symbols)} symbols")
    sums = PeriodSums(symbols, [_SLICE])
    reader = TickReader([path])
    for piece in reader.ticks():
        sums.take(piece, reader.symbols)
    periods = sums.of(_SLICE)
    if len(periods.closed_by) < 3:
        raise InputError(f"{path}: less than three slices of {_SLICE} seconds are too few to find correlations in")
    with np.errstate(invalid="ignore"):
        changes = np.diff(np.log(_carried(periods.sums / periods.counts)), axis=0)
        related = np.nan_to_num(np.corrcoef(np.nan_to_num(changes), rowvar=False), nan=-2.0)
    first, second = np.triu_indices(len(symbols), 1)
    free = np.ones(len(symbols), np.bool_)
    pairs: list[tuple[str, str]] = []
    for place in np.argsort(-related[first, second], kind="stable"):
        one, other = first[place], second[place]
        if free[one] and free[other]:
            free[[one, other]] = False
            pairs.append((symbols[one], symbols[other]))
            if len(pairs) == count:
                break
    return tuple(pairs)


def read_pairs(path: Path, symbols: list[str]) -> tuple[tuple[str, str], ...]:
    """Pairs that a user has written down: a CSV of two symbols a line, without a header."""
    try:
        read = csv.read_csv(
            path,
            csv.ReadOptions(column_names=["one", "other"]),
            convert_options=csv.ConvertOptions(column_types={"one": pa.string(), "other": pa.string()}),
        )
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except pa.ArrowException as error:
        raise InputError(f"{path}: this is no CSV of two symbols a line: {str(error).splitlines()[0]}") from None
    known = set(symbols)
    pairs = tuple(zip(read["one"].to_pylist(), read["other"].to_pylist(), strict=True))
    for line, (one, other) in enumerate(pairs, 1):
        for symbol in (one, other):
            if symbol not in known:
                raise InputError(f"{path}, line {line}: {symbol!r} is no symbol of the ticks")
        if one == other:
            raise InputError(f"{path}, line {line}: {one!r} is there twice: write two symbols")
    return pairs


def _carried(averages: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where a symbol has no tick in a slice, its average before; NaN before the first."""
    rows = np.where(np.isnan(averages), 0, np.arange(len(averages))[:, np.newaxis])
    np.maximum.accumulate(rows, axis=0, out=rows)
    return np.take_along_axis(averages, rows, axis=0)
