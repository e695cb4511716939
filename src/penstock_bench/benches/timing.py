"""Timing of variants that are compared: in turns, so that what disturbs the machine disturbs all of them.

Wall time is what the figures are made of, since waiting for a disk counts. Processor time is taken beside it: on a
busy machine it tells how much of a difference is the machine's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple


class Timing(NamedTuple):
    """What one round of a variant took."""

    events: int
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        """Events per second of wall time."""
        return self.events / self.wall

    @property
    def cpu_rate(self) -> float:
        """Events per second of processor time."""
        return self.events / self.cpu if self.cpu else self.rate


def timed(events: int, work: Callable[[], object]) -> Timing:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Timing(events, time.perf_counter() - wall, time.process_time() - cpu)


Rounds = dict[str, list[Timing]]


def in_turns(variants: Mapping[str, Callable[[], Timing]], rounds: int) -> Rounds:
    """Every variant once a round, in alternating order."""
    taken: Rounds = {name: [] for name in variants}
    names = list(variants)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            taken[name].append(variants[name]())
    return taken


def rate(rounds: list[Timing]) -> float:
    return median(t.rate for t in rounds)


def cpu_rate(rounds: list[Timing]) -> float:
    return median(t.cpu_rate for t in rounds)


def ratio(one: list[Timing], other: list[Timing]) -> float:
    """How fast one is as a multiple of the other: the median over the rounds."""
    return median(a.rate / b.rate for a, b in zip(one, other, strict=True))


def cpu_ratio(one: list[Timing], other: list[Timing]) -> float:
    return median(a.cpu_rate / b.cpu_rate for a, b in zip(one, other, strict=True))
