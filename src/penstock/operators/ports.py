"""Rows of several inputs that wait until no row can come that belongs before them.

The order is (time, input, sequence), and an input with watermark w can still bring rows with times from w on. So a row
of input i with time t is due when w > t for each input before i, and w >= t for each input behind i. Of its own input
only rows can come that belong behind it.

    least watermark 12, of the inputs 1 and 2    input 0 (at 15)   1 (at 12)   2 (at 12)   3 (at 14)
    due                                          up to 12          up to 12    below 12    below 12

So the slowest input decides, the first of those with the least watermark: a row is due if its (time, input) is at most
(watermark, input) of the slowest.

Invariants:

1. Rows that `take_due` gives never belong before rows that it gave earlier.
2. When a call ends, the waiting rows are on the account, with Arrow's own memory for their batches. Rows of a much
   larger batch are copied, and many small batches are put together, so that no other memory is kept alive. Where memory
   is short, fewer batches are put together.
3. `heads` has the first waiting time of each input with waiting rows, and of no other input. So a call visits only the
   inputs with rows that are due.
4. `_slow` has one watermark of each input, which may be an old one: the least is brought up to date when it is needed.

Why: docs/decisions/slowest-input-decides.md
"""

from __future__ import annotations

import heapq
import sys
from collections import deque
from typing import Any

import numpy as np

from penstock.components import component
from penstock.expressions.batch import Batch
from penstock.operators.chunk import Chunk, from_bytes, joined, to_bytes
from penstock.operators.reorder import START
from penstock.store.batches import compact, kept_bytes
from penstock.store.budget import Account

Due = dict[int, list[Chunk]]
"""The rows that are due, by input; those with none are left out."""

_SMALL_ROWS, _LOOSE = 64, 256
"""Batches of fewer rows are small, and so many of them are put together."""


@component("Ports")
class Ports:
    """One queue of chunks for each input; `account` holds what waits."""

    def __init__(self, count: int, account: Account) -> None:
        self._waiting: list[deque[Chunk]] = [deque() for _ in range(count)]
        self._watermarks = [START] * count
        self.heads: list[tuple[int, int]] = []
        self._slow = [(START, port) for port in range(count)]
        self._account = account
        account.on_need(self._give_up)
        self._held = 0
        self._loose = [0] * count

    def put(self, port: int, chunk: Chunk, watermark: int) -> int:
        """Takes what an input gave; returns how far all inputs have come: rows below that time come no more."""
        if chunk.rows:
            waiting = self._waiting[port]
            if not waiting:
                heapq.heappush(self.heads, (int(chunk.times[0]), port))
            waiting.append(chunk)
            self._held += _nbytes(chunk)
            self._loose[port] = self._loose[port] + 1 if chunk.rows < _SMALL_ROWS else 0
            if self._loose[port] >= _LOOSE:
                self._put_together(port)
        self._watermarks[port] = max(self._watermarks[port], watermark)
        return self._slowest()[0]

    @property
    def has_rows(self) -> bool:
        """Whether rows wait."""
        return bool(self.heads)

    def _slowest(self) -> tuple[int, int]:
        """The least watermark, and the first input that has it."""
        slow = self._slow
        while (current := self._watermarks[slow[0][1]]) != slow[0][0]:
            heapq.heapreplace(slow, (current, slow[0][1]))
        return slow[0]

    def take_due(self) -> Due:
        """The waiting rows before which nothing more comes."""
        return self._take(self._slowest())

    def take(self, before: int) -> Due:
        """The waiting rows with times below `before`."""
        return self._take((before - 1, sys.maxsize))

    def _take(self, last: tuple[int, int]) -> Due:
        """The waiting rows whose (time, input) is at most `last`."""
        due: Due = {}
        while self.heads and self.heads[0] <= last:
            _, port = heapq.heappop(self.heads)
            waiting, before = self._waiting[port], last[0] + (port <= last[1])
            own = due[port] = []
            while waiting and waiting[0].times[0] < before:
                chunk = waiting.popleft()
                self._held -= _nbytes(chunk)
                count = int(np.searchsorted(chunk.times, before))
                if count == chunk.rows:
                    own.append(chunk)
                    continue
                own.append(chunk.slice(0, count))
                rest = chunk.slice(count, chunk.rows)
                waiting.appendleft(Chunk(rest.times.copy(), compact(rest.arrow)))
                self._held += _nbytes(waiting[0])
            if waiting:
                heapq.heappush(self.heads, (int(waiting[0].times[0]), port))
        if not self._account.try_resize(self._held):
            for port in range(len(self._waiting)):
                self._put_together(port)
            self._account.resize(self._held)
        return due

    def _give_up(self) -> bool:
        """Others need memory: small batches take less of it together. Answers whether that was anything."""
        for port in range(len(self._waiting)):
            self._put_together(port)
        if self._held >= self._account.nbytes:
            return False
        self._account.resize(self._held)
        return True

    def _put_together(self, port: int) -> None:
        """The small batches at the end become one."""
        waiting = self._waiting[port]
        small = [waiting.pop() for _ in range(min(self._loose[port], len(waiting)))][::-1]
        self._loose[port] = 0
        if small:
            whole = Chunk(np.concatenate([chunk.times for chunk in small]), joined([chunk.arrow for chunk in small]))
            self._held += _nbytes(whole) - sum(map(_nbytes, small))
            waiting.append(whole)
            self._loose[port] = int(whole.rows < _SMALL_ROWS)

    def snapshot(self) -> dict[str, Any]:
        return {
            "watermarks": list(self._watermarks),
            "waiting": [
                [{"times": chunk.times, "rows": to_bytes(chunk.arrow)} for chunk in waiting]
                for waiting in self._waiting
            ],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._watermarks = list(snapshot["watermarks"])
        self._waiting = [
            deque(Chunk(c["times"], from_bytes(c["rows"])) for c in saved) for saved in snapshot["waiting"]
        ]
        self.heads = [(int(waiting[0].times[0]), port) for port, waiting in enumerate(self._waiting) if waiting]
        self._slow = [(watermark, port) for port, watermark in enumerate(self._watermarks)]
        heapq.heapify(self.heads)
        heapq.heapify(self._slow)
        self._loose = [0] * len(self._waiting)
        self._held = sum(_nbytes(chunk) for waiting in self._waiting for chunk in waiting)
        self._account.resize(self._held)


def _nbytes(chunk: Chunk) -> int:
    columns = chunk.columns
    return chunk.times.nbytes + (columns.nbytes if isinstance(columns, Batch) else kept_bytes(columns))
