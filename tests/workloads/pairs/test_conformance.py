"""The strategies in SQL against the validator where ticks are rare: gaps, silent symbols, equal times, few funds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock_bench.benches.pairs_systems import TICKS
from penstock_bench.workloads.pairs.answers import compared
from penstock_bench.workloads.pairs.application import PairsApp
from penstock_bench.workloads.pairs.strategies import Strategy
from penstock_bench.workloads.pairs.validator import INDICATOR, MARKET_ORDER, Answers

from .by_hand import Row, validated


def in_sql(rows: Sequence[Row], strategies: Sequence[Strategy], folder: Path, chunk: int) -> Answers:
    found: dict[str, list[pa.RecordBatch]] = {"indicators": [], "orders": []}
    with PairsApp(strategies, folder) as app:
        app.subscribe(
            indicator=lambda batch: found["indicators"].append(batch.select(INDICATOR.names).cast(INDICATOR)),
            market_order=lambda batch: found["orders"].append(batch.select(MARKET_ORDER.names).cast(MARKET_ORDER)),
        )
        for start in range(0, len(rows), chunk):
            names, prices, times = zip(*rows[start : start + chunk], strict=True)
            count = len(names)
            app.push(pa.record_batch([list(names), prices, [100] * count, times, [0] * count], schema=TICKS))
        app.end()
    return Answers(
        pa.Table.from_batches(found["indicators"], INDICATOR), pa.Table.from_batches(found["orders"], MARKET_ORDER)
    )


@pytest.mark.parametrize(("seed", "chunk"), [(0, 37), (2, 100), (7, 5000)])
def test_random_ticks(tmp_path: Path, seed: int, chunk: int) -> None:
    random = np.random.default_rng(seed)
    times = random.integers(0, 400, 900) * 1000 if seed == 0 else random.integers(0, 400_000, 600)
    times = np.sort(times[(times < 150_000) | (times > 190_000)]) + 1_700_000_000_123 * (seed == 7)
    levels = np.exp(np.cumsum(random.normal(0, 0.03, len(times))))
    names = random.choice(["AAA", "BBB", "CCC", "DDD"], len(times), p=[0.2, 0.2, 0.5, 0.1])
    rows = [(str(name), int(1000 * level), int(time)) for name, level, time in zip(names, levels, times, strict=True)]
    strategies = [
        Strategy(f"st_{length}_{count}_{one}", funds, one, other, length, count, multiplier, 0.05)
        for funds, length, count, multiplier, one, other in (
            (1_000_000, 5, 3, 0.8, "AAA", "BBB"),
            (12_000, 3, 2, 0.5, "DDD", "AAA"),
            (1_000_000, 10, 4, 1.2, "BBB", "AAA"),
            (1_000_000, 2, 5, 1.0, "AAA", "DDD"),
        )
    ]
    expected = validated(rows, strategies)
    assert expected.orders.num_rows > 40
    report = compared(expected, in_sql(rows, strategies, tmp_path, chunk))
    assert report.passed, report.text()


def test_a_symbol_that_comes_late_has_no_ratio_with_what_was_before(tmp_path: Path) -> None:
    """BBB has its first tick in the second period, where AAA has none."""
    rows = [("AAA", 100, 0), ("BBB", 100, 5_000), ("AAA", 110, 10_000), ("BBB", 100, 10_001)]
    rows += [("AAA", 120, 15_000), ("BBB", 100, 15_001), ("AAA", 100, 20_000)]
    strategy = Strategy("st_00001", 1_000_000, "AAA", "BBB", 5, 2, 1.0, 0.1)
    found = in_sql(rows, [strategy], tmp_path, 3)
    assert found.indicators["ratio"].to_pylist() == [1.2]
    assert compared(validated(rows, [strategy]), found).passed


def test_without_a_receiver_the_answers_wait(tmp_path: Path) -> None:
    rows: list[Row] = []
    for number, price in enumerate([100, 110, 100, 130, 145, 90, 95]):
        rows += [("AAA", price, number * 5000), ("BBB", 100, number * 5000 + 2)]
    strategy = Strategy("st_00001", 1_000_000, "AAA", "BBB", 5, 3, 1.0, 0.1)
    with PairsApp([strategy], tmp_path) as app:
        names, prices, times = zip(*rows, strict=True)
        app.push(pa.record_batch([list(names), prices, [100] * 14, times, [0] * 14], schema=TICKS))
        assert app.orders()["type"].to_pylist() == ["BUY", "SELL", "BUY"]
        app.end()
        assert app.orders()["type"].to_pylist() == ["SELL"]
        assert app.indicators().num_rows == 4
