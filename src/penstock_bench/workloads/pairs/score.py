"""The metric of Pairs: the load of a scale factor (the thesis' Appendix A), and p_score = load / p99 latency."""

from __future__ import annotations

import math

from penstock.errors import InputError
from penstock_bench.workloads.pairs.market import markets


def load(scale_factor: int) -> int:
    """The work a second that a scale factor poses, in units of 25 strategies times the basis rate of a market.

    A tick costs 1 for each strategy, which is asked whether it wants the symbol, and 100 more for each that does.

    >>> [load(scale_factor) for scale_factor in (1, 2, 4, 10, 11)]
    [3, 6, 12, 30, 44]
    """
    if scale_factor < 1:
        raise InputError(f"the scale factor is {scale_factor}: write a whole number from 1 on")
    count = markets(scale_factor)
    return scale_factor * count + 2 * (10 * (count - 1) + (scale_factor - 1) % 10 + 1)


def p_score(scale_factor: int, latency: float) -> float:
    """`latency` is the 99th percentile of MarketOrder over the measurement interval, in seconds.

    >>> round(p_score(1, 0.063), 2), round(p_score(2, 0.024), 2)
    (47.62, 250.0)
    """
    if not (latency > 0 and math.isfinite(latency)):
        raise InputError(f"the latency is {latency:g} seconds: a score needs one above 0")
    return load(scale_factor) / latency
