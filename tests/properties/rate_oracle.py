"""What a rate-sized window holds, from its definition, in plain Python."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from penstock.windows.spec import RateSized

Event = tuple[int, bool]
"""A time, and whether the event is the side's own."""


def by_definition(events: list[Event], spec: RateSized) -> list[int]:
    """How many rows of the side are gone at each event."""
    own: list[int] = []
    size = tail = 0
    tails = []
    boundary = None
    for time, is_own in events:
        if boundary is None:
            boundary = time // spec.every * spec.every
        while boundary + spec.every <= time:
            boundary += spec.every
            sample = [t for t in own if boundary - spec.sample <= t < boundary]
            if not own or boundary - spec.sample < own[0]:
                continue
            if len(sample) > 1 and sample[-1] > sample[0]:
                wanted = ceil(Fraction((len(sample) - 1) * spec.micros, sample[-1] - sample[0]))
            else:
                wanted = ceil(Fraction(len(sample) * spec.micros, spec.sample))
            wanted = max(1, wanted)
            if size == 0 or abs(wanted - size) * 100 > spec.percent * size:
                size = wanted
            tail = max(tail, len(own) - size)
        if is_own:
            own.append(time)
        tail = max(tail, len(own) - size if size else sum(t <= time - spec.micros for t in own))
        tails.append(tail)
    return tails
