"""The calls of one function, made one after the other in the order in which rules fired, on a thread of their own.

Invariants:
1. A call waits from the moment at which its rule fires until the function has taken it, or until its failure has been
   reported. `snapshot` saves all calls that wait, also the one under way, so each call is made at least once.
2. A call's key is the rule's name and the number of the firing. It is the same if the call is made again.
3. At most `MOST_WAITING` calls wait, besides those of one push, within the memory budget. A push that brings more
   blocks.
4. Only the app's thread uses the budget and reports failures; the worker's thread does neither.

Why: docs/decisions/calls-are-numbered.md
"""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.arrays import Int64s
from penstock.calls.function import CallFailed, Function
from penstock.components import component
from penstock.errors import BudgetError
from penstock.operators.chunk import from_bytes, readable, to_bytes
from penstock.rejects import Reject
from penstock.store.budget import Account

MOST_WAITING = 10_000
_CLOSING_SECONDS = 5.0


class _Abandoned(Exception):
    """The worker ends in the middle of a call, which goes on waiting."""


@dataclass
class _Calls:
    """Calls whose keys begin with a name: the arguments of each, and the numbers of their firings; `done` are made."""

    name: str
    numbers: Int64s
    arguments: pa.RecordBatch
    done: int = 0

    @property
    def left(self) -> int:
        return len(self.numbers) - self.done

    def next(self) -> tuple[str, dict[str, Any]]:
        arguments = readable(self.arguments.slice(self.done, 1))[0] if self.arguments.num_columns else {}
        return f"{self.name}:{self.numbers[self.done]}", arguments


@component("Worker")
class Worker:
    """With `synchronous` the thread that calls `put` makes the calls, before `put` returns."""

    def __init__(self, name: str, function: Function, account: Account, reject: Reject, *, synchronous: bool) -> None:
        self.name = name
        self._function = function
        self._account = account
        self._reject = reject
        self._synchronous = synchronous
        self._waiting: deque[_Calls] = deque()
        self._failures: deque[tuple[str, dict[str, Any]]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._hurries = self._abandons = self._ends = False
        self.made = 0

    # From the app's thread

    def check(self) -> None:
        self._function.check()

    @property
    def waiting(self) -> int:
        with self._changed:
            return sum(calls.left for calls in self._waiting)

    def put(self, name: str, numbers: Int64s, arguments: pa.RecordBatch) -> None:
        """Takes in what a rule fired; waits while too many calls do. Synchronous calls are made for that: only this
        thread can make them."""
        more = arguments.nbytes + numbers.nbytes
        if self._synchronous:
            self._drain()  # calls of a checkpoint, or one that was interrupted: no other thread makes them
        while not self._has_room(more):
            if self._synchronous:
                self._drain()
            else:
                with self._changed:
                    self._changed.wait(1.0)
            self.settle()
        self._add(_Calls(name, numbers, arguments))
        if self._synchronous:
            self._drain()
            self.settle()

    def _has_room(self, more: int) -> bool:
        with self._changed:
            held = self._held()
            waiting = sum(calls.left for calls in self._waiting)
        if waiting >= MOST_WAITING:
            return False
        try:
            self._account.resize(held + more)
        except BudgetError:
            if waiting == 0:
                raise
            return False
        return True

    def _held(self) -> int:
        return sum(calls.arguments.nbytes + calls.numbers.nbytes for calls in self._waiting)

    def _add(self, calls: _Calls) -> None:
        with self._changed:
            self._waiting.append(calls)
            self._changed.notify_all()
        if self._thread is None and not self._synchronous:
            self._thread = threading.Thread(target=self._run, name=f"penstock calls of {self.name}", daemon=True)
            self._thread.start()

    def settle(self) -> None:
        """Tells what has failed, and gives back memory."""
        with self._changed:
            held = self._held()
        while self._failures:
            reason, row = self._failures[0]
            self._reject(reason, row)
            self._failures.popleft()
        self._account.resize(held)

    def wait(self, timeout: float | None = None) -> bool:
        """Until no call waits; False if that takes longer."""
        if self._synchronous:
            return self._drain()
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, timeout)

    def close(self, *, abandon: bool) -> None:
        """Ends the thread: at once, with the calls that wait (they are saved, or will come again), or once each of them
        has been tried."""
        with self._changed:
            self._hurries, self._abandons, self._ends = True, abandon, True
            self._changed.notify_all()
        if not abandon:
            self.wait()
        if self._thread is not None:
            self._thread.join(_CLOSING_SECONDS)
        self._function.close()

    # Durability

    def snapshot(self) -> dict[str, Any]:
        with self._changed:
            waiting = [
                {
                    "name": calls.name,
                    "numbers": calls.numbers[calls.done :].copy(),
                    "arguments": to_bytes(calls.arguments.slice(calls.done)),
                }
                for calls in self._waiting
            ]
            failures = [{"reason": reason, "row": json.dumps(row, default=str)} for reason, row in self._failures]
            return {"waiting": waiting, "failures": failures, "made": self.made}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.made = snapshot["made"]
        for saved in snapshot["failures"]:
            self._failures.append((saved["reason"], json.loads(saved["row"])))
        for saved in snapshot["waiting"]:
            self._add(_Calls(saved["name"], saved["numbers"], from_bytes(saved["arguments"])))

    # The calls

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ends)
                if self._abandons or not self._waiting:
                    return
            if not self._call():
                return

    def _drain(self) -> bool:
        """Makes all calls that wait; False if they were abandoned."""
        while self._waiting:
            if not self._call():
                return False
        return True

    def _call(self) -> bool:
        """Makes the next call; False if it was abandoned."""
        calls = self._waiting[0]
        key, arguments = calls.next()
        failure = None
        try:
            self._function.call(arguments, key, self._pause)
        except _Abandoned:
            return False
        except CallFailed as error:
            failure = str(error)
        except BaseException as error:
            if self._synchronous and not isinstance(error, Exception):
                raise  # an interrupt of the pushing thread; the call stays waiting
            failure = f"{type(error).__name__}: {error}"
        with self._changed:
            if failure is not None:
                self._failures.append((f"CALL {self.name}: {failure}", {"idempotency_key": key, **arguments}))
            calls.done += 1
            self.made += failure is None
            if calls.left == 0:
                self._waiting.popleft()
            self._changed.notify_all()
        return True

    def _pause(self, seconds: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._hurries, seconds)
            if self._abandons:
                raise _Abandoned
            return not self._hurries
