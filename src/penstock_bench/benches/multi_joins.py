"""N joins with tables of their own, in the three settings of the thesis' multi-query scenario (Figure 5.12, d to f).

A batch of keys is looked up in each of N tables, by hash join and by batch grace hash join: the same batch in all
(one stream), a batch for each (N streams), and a batch and a thread for each. The figure is the output rate: matches
of all joins per second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from penstock.arrays import Int64s
from penstock.instruments import KeyedStore
from penstock_bench.benches.join_table import COLUMNS, filled
from penstock_bench.benches.report import Report
from penstock_bench.benches.timing import Timing, in_turns, rate, timed

WAYS = ("hash", "grace")

Rates = dict[str, dict[str, dict[str, float]]]


def measure_joins(counts: tuple[int, ...], rows: int, batch: int, rounds: int, report: Report) -> Rates:
    """By setting, way and number of joins."""
    stores = [filled(rows) for _ in range(max(counts))]
    random = np.random.default_rng(1)
    keys = [random.integers(0, rows, (batch, 1)) for _ in stores]
    settings = ("one stream", "N streams", "N threads")
    found: Rates = {setting: {way: {} for way in WAYS} for setting in settings}
    with ThreadPoolExecutor(max(counts)) as pool:
        for count in counts:
            report.step(f"{count} joins with tables of {rows:,} rows")
            variants: dict[str, Callable[[], Timing]] = {}
            for way in WAYS:
                asked = [partial(_look_up, store, keys[0], way == "grace") for store in stores[:count]]
                each = [partial(_look_up, store, own, way == "grace") for store, own in zip(stores, keys, strict=True)]
                work: tuple[Callable[[], None], ...] = (
                    partial(_one_by_one, asked),
                    partial(_one_by_one, each[:count]),
                    partial(_at_once, pool, each[:count]),
                )
                for setting, run in zip(settings, work, strict=True):
                    variants[f"{setting}/{way}"] = partial(timed, count * batch, run)
            in_turns(variants, 1)
            for name, taken in in_turns(variants, rounds).items():
                setting, _, way = name.partition("/")
                found[setting][way][str(count)] = rate(taken)
    for store in stores:
        store.close()
    report.table(
        ("joins", *(f"{setting}, {way}" for setting in settings for way in WAYS)),
        [(n, *(found[setting][way][str(n)] for setting in settings for way in WAYS)) for n in counts],
    )
    return found


def _look_up(store: KeyedStore, keys: Int64s, grace: bool) -> None:
    places = store.find(keys, None, grace)
    for column in range(COLUMNS):
        store.column(column, places)


def _one_by_one(joins: Sequence[Callable[[], None]]) -> None:
    for join in joins:
        join()


def _at_once(pool: ThreadPoolExecutor, joins: Sequence[Callable[[], None]]) -> None:
    for done in [pool.submit(join) for join in joins]:
        done.result()
