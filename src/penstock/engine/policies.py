"""Which event is taken next: first come first served, or earliest job first.

The head of a buffer with the smallest key is taken; only heads are compared, so the order within a stream stays. First
come first served has the number of the arrival as key, earliest job first the timestamp and then that number.

Taking head after head is the same as sorting all events by a running maximum: the largest key of the event and of those
before it in its buffer. The reason: an event is taken after all events before it in its buffer, and the last of these
is taken with the largest of their keys.

Earliest job first does not starve an event: only events with smaller timestamps go before it, and there are finitely
many of these while timestamps grow. A stream whose clock stands still would break that. So there is a bound: a head
that `PATIENCE` events have overtaken is taken next, whatever its timestamp is.

Why: docs/decisions/taking-order-is-a-time.md
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.arrays import Int64s
from penstock.errors import InputError
from penstock.expressions.batch import Rows

PATIENCE = 1 << 20


@dataclass(slots=True)
class Piece:
    """Events that came together: `number` counts the arrivals of an app, `came` is the instant (elapsed time). Events
    before `start` have been taken."""

    rows: Rows
    stamps: Int64s
    came: int
    number: int
    nbytes: int
    start: int = 0

    @property
    def waiting(self) -> int:
        return len(self.stamps) - self.start


class Policy(Protocol):
    name: str
    patience: int | None
    """How many events may pass over a head; None if the policy needs no bound."""

    def keys(self, stamps: Int64s, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """The largest keys so far, in two parts, of a stream's events from its head on."""


class FirstCome:
    name = "fcfs"
    patience: int | None = None

    def keys(self, stamps: Int64s, numbers: Int64s) -> tuple[Int64s, Int64s]:
        return numbers, numbers


class EarliestJob:
    """
    >>> EarliestJob().keys(np.array([1, 5, 3, 5]), np.array([7, 7, 8, 9]))
    (array([1, 5, 5, 5]), array([7, 7, 7, 9]))
    """

    name = "ejf"

    def __init__(self, patience: int = PATIENCE) -> None:
        self.patience: int | None = patience

    def keys(self, stamps: Int64s, numbers: Int64s) -> tuple[Int64s, Int64s]:
        largest = np.maximum.accumulate(stamps)
        last = np.maximum.accumulate(np.where(stamps == largest, np.arange(len(stamps)), 0))
        return largest, numbers[last]


def policy_named(name: str) -> Policy:
    if name == "fcfs":
        return FirstCome()
    if name == "ejf":
        return EarliestJob()
    raise InputError(
        f"there is no dispatch {name!r}; write dispatch='fcfs' (first come first served) or 'ejf' (earliest job first)"
    )
