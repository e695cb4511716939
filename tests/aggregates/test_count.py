"""COUNT against counting."""

from __future__ import annotations

import numpy as np
from checks import Window, check_state

from penstock.aggregates.count import CountState
from penstock.aggregates.state import Argument


def test_count_of_values_skips_nulls() -> None:
    def draw(rng: np.random.Generator, count: int) -> tuple[Argument, ...]:
        values = rng.integers(0, 5, count).astype(np.int32)
        return (Argument(values, rng.random(count) < 0.6 if rng.random() < 0.7 else None),)

    def oracle(window: Window) -> list[object]:
        return [sum(value is not None for (value,) in window)]

    check_state(CountState, draw, oracle)


def test_count_of_rows_has_no_argument() -> None:
    check_state(CountState, lambda rng, count: (), lambda window: [len(window)])
