"""Where events wait to be taken, one buffer for each stream. Any thread may put, one at a time takes.

Invariants:
1. The events of a stream are taken in the order in which they were put.
2. Waiting events never hold more than `capacity` bytes. The owner charges these once to the memory budget, so threads
   that put never use the budget. A put into full buffers waits, or is refused. A part of a put that is larger than all
   buffers may be in by then; the refusal says how much.
3. A round holds the events that the policy would pick one by one if nothing were put in between.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Int64s
from penstock.components import component
from penstock.engine.policies import Piece, Policy
from penstock.errors import BudgetError
from penstock.expressions.batch import Batch, Rows, arrow_of
from penstock.operators.chunk import from_bytes, joined, to_bytes

_PIECE_BYTES = 512
"""What a piece takes besides its columns."""

MOST = 4096
"""Events that a round has at most."""


@dataclass(frozen=True)
class StreamRun:
    """Events of one stream that are taken in a round, and their places in its order; `came` has the instants at which
    they came, each with how many did."""

    stream: str
    rows: Rows
    places: Int64s
    came: list[tuple[int, int]]


@dataclass(frozen=True)
class Round:
    """Events that are taken together, as if one after the other."""

    runs: list[StreamRun]
    events: int


@component("InputBuffers")
class InputBuffers:
    def __init__(self, policy: Policy, capacity: int) -> None:
        self.policy = policy
        self.capacity = capacity
        self.lock = threading.Condition(threading.RLock())
        self.held = 0
        self._pieces: dict[str, deque[Piece]] = {}
        self._passed: dict[str, int] = {}
        self._events: dict[str, int] = {}
        self._numbers = 0

    def put(self, stream: str, rows: Rows, stamps: Int64s, came: int, wait: Callable[[], None]) -> None:
        """Takes events in; where there is no room, `wait` is called until there is, or raises."""
        total, nbytes = len(stamps), _nbytes(rows) + stamps.nbytes + _PIECE_BYTES
        if nbytes <= self.capacity:
            self._put(stream, rows, stamps, came, nbytes, wait)
            return
        step = max(1, total * self.capacity // (4 * nbytes))
        batch = arrow_of(rows)
        for start in range(0, total, step):
            part, own = batch.slice(start, step), stamps[start : start + step]
            try:
                self._put(stream, part, own, came, _nbytes(part) + own.nbytes + _PIECE_BYTES, wait)
            except BudgetError as error:
                raise BudgetError(f"{error}\n  the first {start:,} of these {total:,} events are in") from None

    def _put(self, stream: str, rows: Rows, stamps: Int64s, came: int, nbytes: int, wait: Callable[[], None]) -> None:
        if nbytes > self.capacity:
            raise BudgetError(
                f"an event of {nbytes:,} bytes is larger than the input buffers, which have {self.capacity:,}\n"
                "  hint: give the app a larger memory budget; the buffers have an eighth of it"
            )
        if len(stamps) == 0:
            return
        with self.lock:
            while self.held + nbytes > self.capacity:
                wait()
            self.held += nbytes
            self._numbers += 1
            self._pieces.setdefault(stream, deque()).append(Piece(rows, stamps, came, self._numbers, nbytes))
            self._events[stream] = self._events.get(stream, 0) + len(stamps)
            self.lock.notify_all()

    def take(self, cost: Callable[[str], float], turn: float, limit: int | None = None) -> Round | None:
        """The next events by the policy: as many as cost no more than a turn, by what one of each stream costs, but one
        in any case; None if none waits."""
        with self.lock:
            waiting = [stream for stream, pieces in self._pieces.items() if pieces]
            if not waiting:
                return None
            impatient = self._impatient(waiting)
            most = MOST if limit is None else min(limit, MOST)
            if impatient is not None:
                waiting, most = [impatient], 1
            rooms = [max(1, min(most, int(turn / cost(stream)))) for stream in waiting]
            if len(waiting) == 1:
                count = min(rooms[0], self._events[waiting[0]])
                runs = [self._take(waiting[0], np.arange(count))]
            else:
                whose = self._order(waiting, rooms, np.array([cost(stream) for stream in waiting]), turn)[:most]
                places = [np.flatnonzero(whose == number) for number in range(len(waiting))]
                runs = [self._take(stream, own) for stream, own in zip(waiting, places, strict=True) if len(own)]
            taken = Round(runs, sum(len(run.places) for run in runs))
            self._note_passed(taken)
            self.lock.notify_all()
            return taken

    def _order(self, streams: list[str], rooms: list[int], costs: NDArray[np.float64], turn: float) -> Int64s:
        """The stream of each event, in the order in which the policy takes them."""
        keys, whose = [], []
        for number, (stream, room) in enumerate(zip(streams, rooms, strict=True)):
            own = self.policy.keys(*self._heads(stream, room))
            keys.append(own)
            whose.append(np.full(len(own[0]), number))
        owners = np.concatenate(whose)
        order = np.lexsort([np.concatenate([second for _, second in keys]), np.concatenate([k for k, _ in keys])])
        owners = owners[order]
        count = max(1, int(np.searchsorted(np.cumsum(costs[owners]), turn, "right")))
        for number, (stream, room) in enumerate(zip(streams, rooms, strict=True)):
            if self._events[stream] > room:  # what comes after the last one looked at is not known
                count = min(count, int(np.flatnonzero(owners == number)[-1]) + 1)
        return owners[:count]

    def _heads(self, stream: str, count: int) -> tuple[Int64s, Int64s]:
        """The timestamps and numbers of the first events of a stream."""
        stamps, numbers, found = [], [], 0
        for piece in self._pieces[stream]:
            own = piece.stamps[piece.start : piece.start + count - found]
            stamps.append(own)
            numbers.append(np.full(len(own), piece.number))
            found += len(own)
            if found >= count:
                break
        return np.concatenate(stamps), np.concatenate(numbers)

    def _impatient(self, waiting: list[str]) -> str | None:
        patience = self.policy.patience
        if patience is None:
            return None
        return next((stream for stream in waiting if self._passed.get(stream, 0) >= patience), None)

    def _note_passed(self, taken: Round) -> None:
        for stream in self._pieces:
            self._passed[stream] = self._passed.get(stream, 0) + taken.events if self._pieces[stream] else 0
        for run in taken.runs:
            self._passed[run.stream] = 0

    def _take(self, stream: str, places: Int64s) -> StreamRun:
        """As many events as there are places."""
        pieces, left = self._pieces[stream], len(places)
        parts: list[Rows] = []
        came: list[tuple[int, int]] = []
        while left:
            piece = pieces[0]
            count = min(left, piece.waiting)
            whole = piece.start == 0 and count == len(piece.stamps)
            parts.append(piece.rows if whole else arrow_of(piece.rows).slice(piece.start, count))
            came.append((piece.came, count))
            left -= count
            piece.start += count
            if piece.waiting == 0:
                pieces.popleft()
                self.held -= piece.nbytes
        self._events[stream] -= len(places)
        rows = parts[0] if len(parts) == 1 else joined([arrow_of(part) for part in parts])
        return StreamRun(stream, rows, places, came)

    def events(self, stream: str) -> int:
        """How many events of a stream wait."""
        return self._events.get(stream, 0)

    def all_events(self) -> dict[str, int]:
        """The same for all streams that have had one."""
        with self.lock:
            return dict(self._events)

    @property
    def is_empty(self) -> bool:
        return not any(self._pieces.values())

    def snapshot(self, now: int) -> dict[str, Any]:
        with self.lock:
            return {
                "numbers": self._numbers,
                "passed": dict(self._passed),
                "waiting": {
                    stream: [
                        {
                            "rows": to_bytes(arrow_of(piece.rows).slice(piece.start)),
                            "stamps": np.ascontiguousarray(piece.stamps[piece.start :]),
                            "waited": now - piece.came,
                            "number": piece.number,
                        }
                        for piece in pieces
                    ]
                    for stream, pieces in self._pieces.items()
                },
            }

    def restore(self, snapshot: dict[str, Any], streams: Container[str], now: int) -> None:
        self._numbers, self._passed = snapshot["numbers"], dict(snapshot["passed"])
        for stream, saved in snapshot["waiting"].items():
            if stream not in streams:
                continue
            pieces = deque[Piece]()
            for one in saved:
                rows = from_bytes(one["rows"])
                nbytes = _nbytes(rows) + one["stamps"].nbytes + _PIECE_BYTES
                pieces.append(Piece(rows, one["stamps"], now - one["waited"], one["number"], nbytes))
            self._pieces[stream] = pieces
            self._events[stream] = sum(piece.waiting for piece in pieces)
        self.held = sum(piece.nbytes for pieces in self._pieces.values() for piece in pieces)


def _nbytes(rows: Rows) -> int:
    """Of a few rows that never were Arrow, about."""
    return 64 * rows.num_rows * len(rows.kinds) if isinstance(rows, Batch) else int(rows.nbytes)
