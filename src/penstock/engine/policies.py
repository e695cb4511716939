"""Which event is taken next: first come first served, or earliest job first.

A policy gives each waiting event a key, and the head of a buffer with the smallest key is taken; only heads are
compared, so the order within a stream stays. First come first served has the number of the arrival as key, earliest
job first the timestamp and then that number.

Earliest job first never starves an event whose stream mates have been taken: it is passed over only by events with
smaller timestamps, of which there are finitely many where timestamps grow. A stream whose clock stands still would
break that, so there is a bound besides: a head that `PATIENCE` events have passed over is taken whatever its timestamp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.aggregates.state import Int64s
from penstock.errors import InputError
from penstock.expressions.batch import Rows

PATIENCE = 1 << 20

Key = tuple[int, int]


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

    def key(self, head: Piece) -> Key: ...

    def run(self, piece: Piece, before: Key) -> int:
        """How many events of a piece, from its head on, have keys below `before`."""


class FirstCome:
    name = "fcfs"
    patience: int | None = None

    def key(self, head: Piece) -> Key:
        return head.number, 0

    def run(self, piece: Piece, before: Key) -> int:
        return piece.waiting if piece.number < before[0] else 0


class EarliestJob:
    name = "ejf"

    def __init__(self, patience: int = PATIENCE) -> None:
        self.patience: int | None = patience

    def key(self, head: Piece) -> Key:
        return int(head.stamps[head.start]), head.number

    def run(self, piece: Piece, before: Key) -> int:
        stamps = piece.stamps[piece.start :]
        after = stamps > before[0] if piece.number < before[1] else stamps >= before[0]
        first = int(np.argmax(after))
        return first if after[first] else len(stamps)


def policy_named(name: str) -> Policy:
    if name == "fcfs":
        return FirstCome()
    if name == "ejf":
        return EarliestJob()
    raise InputError(
        f"there is no dispatch {name!r}; write dispatch='fcfs' (first come first served) or 'ejf' (earliest job first)"
    )
