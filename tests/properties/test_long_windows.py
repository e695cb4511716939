"""Windows that do not fit the budget: long streams of hostile numbers, sampled against math.fsum and sorting."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable

import pyarrow as pa
import pytest

import penstock as ps

EVENTS = 60_000
WINDOW = 20_000
SAMPLES = 50

TEXT = f"""
CREATE STREAM s (t TIMESTAMP, x DOUBLE, n BIGINT, EVENT TIME t);
SELECT SUM(x) AS total, COUNT(x) AS numbers, MIN(x) AS low, MAX(x) AS high, SUM(n) AS whole, AVG(n) AS mean,
       VAR_POP(n) AS spread
FROM s [ROWS {WINDOW}];
"""


def drifting(chance: random.Random) -> float:
    """Magnitudes from the least to nearly the greatest, both signs: a running sum would be lost at once."""
    return chance.choice((-1.0, 1.0)) * chance.random() * 10.0 ** chance.randrange(-300, 290)


def cancelling(chance: random.Random) -> float:
    return chance.choice((1e16, -1e16, 1.0, -1.0, 1e-16, 0.1, -0.1))


def tame(chance: random.Random) -> float:
    return round(chance.uniform(0, 1000), 2)


@pytest.mark.parametrize("draw", [drifting, cancelling, tame])
@pytest.mark.parametrize("passing", [(), (math.nan, math.inf, -math.inf)], ids=["finite", "with NaN and infinities"])
def test_a_window_larger_than_its_memory(draw: Callable[[random.Random], float], passing: tuple[float, ...]) -> None:
    chance = random.Random(5)
    xs = [draw(chance) for _ in range(EVENTS)]
    ns = [chance.randrange(-(10**9), 10**9) for _ in range(EVENTS)]
    for i, value in enumerate(passing):
        xs[1_000 + 9_000 * i] = value
    times = pa.array(range(EVENTS), pa.timestamp("us", tz="UTC"))
    events = pa.table({"t": times, "x": pa.array(xs), "n": pa.array(ns)})
    with ps.App(TEXT, memory="512KB", block_size=4096) as app:
        start = 0
        while start < EVENTS:
            size = chance.choice((1, 100, 5_000, 20_000))
            app.push("s", events.slice(start, size))
            start += size
        app.finish()
        rows = app.results("q1")
        assert app.metrics.blocks_read > 0, "the window was meant not to fit"
    assert rows.num_rows == EVENTS
    for place in sorted({0, WINDOW - 1, WINDOW, EVENTS - 1, *chance.sample(range(EVENTS), SAMPLES)}):
        row = rows.slice(place, 1).to_pylist()[0]
        window = xs[max(0, place + 1 - WINDOW) : place + 1]
        counted = ns[max(0, place + 1 - WINDOW) : place + 1]
        specials = {value for value in window if math.isinf(value)}
        hurt = any(map(math.isnan, window)) or len(specials) == 2
        total = math.nan if hurt else specials.pop() if specials else math.fsum(window)
        numbers = [value for value in window if not math.isnan(value)]
        assert row["total"] == total or (math.isnan(row["total"]) and math.isnan(total))
        assert row["numbers"] == len(window)
        assert row["low"] == min(numbers)
        assert row["high"] == max(numbers) if len(numbers) == len(window) else math.isnan(row["high"])
        assert row["whole"] == sum(counted)
        assert row["mean"] == float(sum(counted)) / len(counted)
        assert row["spread"] == pytest.approx(statistics.pvariance(counted), rel=1e-15)
