"""The search for the L-rating: the most expressways whose questions are all answered within five seconds.

A trial is held if every answer comes within `LIMIT` of the arrival of what asked for it, and if the system works for
less than a minute in a minute: a stretch is short, and a load that is ten percent too high would take a minute to be
five seconds late. From how busy a trial keeps the system follows the next number of expressways to try, until a held
one and one that is not are within `PRECISION`, or time is up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LIMIT = 5.0
"""Seconds from arrival to the sink."""

PRECISION = 1.1
MOST_ROADS = 2000
"""The numbers of cars end there."""
_AIM, _FAR_AIM, _IDLE = 0.9, 0.75, 0.3
"""How busy the next trial is to keep the system; less where the last one left it idle, since that is a long way."""


@dataclass(frozen=True)
class Trial:
    """`responses` are seconds, one for each answer, in the order in which they came."""

    roads: int
    seconds: int
    reports: int
    responses: NDArray[np.float64]
    busy: float
    """The part of a minute for which the system is at work; above 1 it falls behind."""

    @property
    def why(self) -> str:
        """What speaks against it; empty if it was held."""
        if not len(self.responses):
            return "there were no answers"
        slowest = float(self.responses.max())
        if slowest > LIMIT:
            return f"an answer took {slowest:.1f} s"
        return f"a minute of reports takes {60 * self.busy:.0f} s" if self.busy > 1 else ""

    @property
    def held(self) -> bool:
        return not self.why

    def figures(self) -> dict[str, Any]:
        p50, p99, most = (
            np.quantile(self.responses if len(self.responses) else [0.0], [0.5, 0.99, 1.0]) * 1e3
        ).tolist()
        return {
            "roads": self.roads,
            "held": self.held,
            "p50_ms": p50,
            "p99_ms": p99,
            "max_ms": most,
            "busy": self.busy,
            "reports_per_second": self.reports / self.seconds,
            "answers": len(self.responses),
            "why": self.why,
        }


def search(
    trial: Callable[[int], Trial],
    start: int,
    seconds: float,
    told: Callable[[Trial], None],
    *,
    known: Sequence[Trial] = (),
    most: int = MOST_ROADS,
) -> list[Trial]:
    """Trials in the order of trying, those that are known already first. None is begun that would probably not end
    within so many seconds from now, unless what was found so far is no rating (`_settled`)."""
    trials = list(known)
    roads = next_roads(trials, most) if trials else min(start, most)
    began = time.monotonic()
    while roads is not None:
        since = time.monotonic()
        trials.append(trial(roads))
        told(trials[-1])
        taken = time.monotonic() - since
        following = next_roads(trials, most)
        if following is None:
            break
        expected = taken * max(1.0, following / roads)
        if _settled(trials) and time.monotonic() + expected > began + seconds:
            break
        roads = following
    return trials


def _settled(trials: Sequence[Trial]) -> bool:
    """Whether what was found is a rating, if a rough one: it is at least half of what is known to be too much."""
    held = max((trial.roads for trial in trials if trial.held), default=0)
    failed = min((trial.roads for trial in trials if not trial.held and trial.roads > held), default=0)
    return held > 0 and failed <= 2 * held


def best(trials: list[Trial]) -> Trial | None:
    """The one with the most expressways that was held."""
    return max((trial for trial in trials if trial.held), key=lambda trial: trial.roads, default=None)


def next_roads(trials: list[Trial], most: int = MOST_ROADS) -> int | None:
    """How many expressways to try after these; None if it is known closely enough.

    >>> idle, full = (Trial(roads, 6, 0, np.ones(1), busy) for roads, busy in ((100, 0.2), (500, 1.2)))
    >>> next_roads([idle]), next_roads([idle, full])
    (375, 375)
    """
    held = max((trial.roads for trial in trials if trial.held), default=0)
    failed = min((trial.roads for trial in trials if not trial.held and trial.roads > held), default=math.inf)
    if failed - held <= 1 or (held and failed / held <= PRECISION):
        return None
    last = trials[-1]
    guess = last.roads * (_FAR_AIM if last.busy < _IDLE else _AIM) / max(last.busy, 0.01)
    if math.isinf(failed):
        # Held so far: what the system's idle time promises, at least a step that is worth a trial.
        following = min(max(round(guess), math.ceil(held * PRECISION)), most)
        return following if following > held else None
    if not held:
        guess = min(guess, failed / PRECISION)
    elif not held * math.sqrt(PRECISION) < guess < failed / math.sqrt(PRECISION):
        guess = math.sqrt(held * failed)
    return min(max(round(guess), held + 1), int(failed) - 1)
