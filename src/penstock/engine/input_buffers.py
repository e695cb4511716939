"""Where events wait to be taken, one buffer for each stream. Any thread may put, one at a time takes.

Invariants:
1. The events of a stream are taken in the order in which they were put.
2. What waits never holds more than `capacity` bytes, which the owner has from the memory budget for good: threads that
   put never touch the budget itself. Who puts into full buffers waits, or is refused; of what is larger than all
   buffers a part may be in then, and the refusal says how much.
3. What `take` gives is what the policy would pick event by event as long as nobody puts in between.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.aggregates.state import Int64s
from penstock.engine.policies import Key, Piece, Policy
from penstock.errors import BudgetError
from penstock.expressions.batch import Batch, Rows, arrow_of
from penstock.operators.chunk import from_bytes, joined, to_bytes

_PIECE_BYTES = 512
"""What a piece takes besides its columns."""

_LAST: Key = (1 << 62, 1 << 62)


@dataclass(frozen=True)
class Run:
    """Events of one stream that are taken together; `came` has the instant and the number of those that came then."""

    stream: str
    rows: Rows
    came: list[tuple[int, int]]

    @property
    def events(self) -> int:
        return self.rows.num_rows


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

    def take(self, most: Callable[[str], int], limit: int | None = None) -> Run | None:
        """The next events by the policy, at most `most` of their stream and `limit` at all; None if none waits."""
        with self.lock:
            heads = [(self.policy.key(pieces[0]), stream) for stream, pieces in self._pieces.items() if pieces]
            if not heads:
                return None
            heads.sort()
            impatient = self._impatient(heads)
            stream = impatient or heads[0][1]
            before = heads[1][0] if len(heads) > 1 else _LAST
            wanted = 1 if impatient else most(stream)
            run = self._take(stream, wanted if limit is None else min(wanted, limit), before)
            for _, other in heads:
                self._passed[other] = 0 if other == stream else self._passed.get(other, 0) + run.events
            self.lock.notify_all()
            return run

    def _impatient(self, heads: list[tuple[Key, str]]) -> str | None:
        patience = self.policy.patience
        if patience is None:
            return None
        return next((stream for _, stream in heads if self._passed.get(stream, 0) >= patience), None)

    def _take(self, stream: str, limit: int, before: Key) -> Run:
        """At least one event, and further ones while their keys are below `before`."""
        pieces = self._pieces[stream]
        parts: list[Rows] = []
        came: list[tuple[int, int]] = []
        taken = 0
        while pieces and taken < limit:
            piece = pieces[0]
            count = min(limit - taken, max(self.policy.run(piece, before), 0 if taken else 1))
            if count == 0:
                break
            whole = piece.start == 0 and count == len(piece.stamps)
            parts.append(piece.rows if whole else arrow_of(piece.rows).slice(piece.start, count))
            came.append((piece.came, count))
            taken += count
            piece.start += count
            if piece.waiting == 0:
                pieces.popleft()
                self.held -= piece.nbytes
        self._events[stream] -= taken
        rows = parts[0] if len(parts) == 1 else joined([arrow_of(part) for part in parts])
        return Run(stream, rows, came)

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
