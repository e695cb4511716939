"""Takes events from the input buffers, one round after the other, and calls `serve` with them.

    offer (any thread) -> input buffers -> [policy] -> serve (one thread) -> recognised

A round holds the events that the policy would pick one after the other, as many as are served within about a
millisecond, judged by what earlier events of their streams took. So an event that comes meanwhile, and would go before
them, waits at most about that long. Events that take longer than a millisecond are taken one by one.

Invariant: only one thread at a time serves: the one that calls `work`, or the dispatcher's own while it is `started`.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.arrays import Int64s
from penstock.engine.clock import Clock
from penstock.engine.guard import Guard
from penstock.engine.input_buffers import MOST, InputBuffers, Round
from penstock.engine.policies import policy_named
from penstock.engine.service_times import DispatchMetrics, Durations
from penstock.errors import BudgetError, PenstockError
from penstock.expressions.batch import Rows

_TURN = 1000
"""Microseconds that a round may take."""

_IDLE_SECONDS = 0.05
"""How often time passes for the queries while no event comes."""


class Dispatcher:
    """`serve` gets each round and returns how long each stream took. `idle` is called now and then while nothing waits.
    `own` is told which thread serves (None: the calling thread)."""

    def __init__(
        self,
        policy: str,
        capacity: int,
        clock: Clock,
        serve: Callable[[Round], dict[str, int]],
        idle: Callable[[], None],
        guard: Guard,
    ) -> None:
        self.buffers = InputBuffers(policy_named(policy), capacity)
        self._clock = clock
        self._serve = serve
        self._idle = idle
        self._own, self._heed = guard.own, guard.heed
        self._turn = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = self._draining = self._pausing = False
        self._failure: BaseException | None = None
        self._server: int | None = None
        """The thread that serves a round now."""
        self._costs: dict[str, float] = {}
        self._waiting: defaultdict[str, Durations] = defaultdict(Durations)
        self._service: defaultdict[str, Durations] = defaultdict(Durations)
        self._matches: defaultdict[str, Durations] = defaultdict(Durations)
        self._recognised: list[tuple[str, Int64s]] = []

    # Events in

    def put(self, stream: str, rows: Rows, stamps: Int64s, wait: Callable[[], None]) -> None:
        """Into the stream's buffer; `wait` is called while that is full."""
        self.buffers.put(stream, rows, stamps, self._clock.elapsed(), wait)

    def check(self) -> None:
        if self._failure is not None:
            raise PenstockError(f"the dispatcher stopped: {self._failure}") from self._failure

    def wait(self, timeout: float | None) -> None:
        """Waits until events have been taken. Refused if no thread takes events, also in a subscriber: its
        own thread would have to take them."""
        self.check()
        is_own = self._server == threading.get_ident()
        if is_own or (timeout is None and self._thread is None) or not self.buffers.lock.wait(timeout):
            raise BudgetError(
                f"the input buffers are full: {self.buffers.held:,} bytes wait\n"
                "  hint: offer while app.dispatching() takes events, call app.work(), or give the app more memory"
            )

    # Events out

    def work(self, limit: int | None = None) -> int:
        """Takes events until nothing waits, or so many; returns how many."""
        done = 0
        while limit is None or done < limit:
            self._heed()
            taken = self.buffers.take(self._cost, _TURN, None if limit is None else limit - done)
            if taken is None:
                break
            self._work_off(taken)
            done += taken.events
        return done

    def work_a_round(self) -> None:
        """Makes room for more."""
        self._work_once()

    def _cost(self, stream: str) -> float:
        """What an event of a stream takes, in microseconds; a turn, as long as that is not known."""
        return self._costs.get(stream, _TURN)

    def _work_off(self, taken: Round) -> None:
        began = self._clock.elapsed()
        self._server = threading.get_ident()
        try:
            spent = self._serve(taken)
        finally:
            self._server = None
        done = self._clock.elapsed()
        for run in taken.runs:
            waiting, service = self._waiting[run.stream], self._service[run.stream]
            for came, count in run.came:
                waiting.add(began - came, count)
                service.add(done - came, count)
            each = spent[run.stream] / len(run.places)
            self._costs[run.stream] = max(each, self._cost(run.stream) / 2, _TURN / MOST)
        now = self._clock.now()
        for query, first in self._recognised:
            self._matches[query].add_all(now - first)
        self._recognised.clear()

    def recognised(self, query: str, first: Int64s) -> None:
        """Rows of a query have come out; `first` are the instants at which the first events of their incidents came."""
        self._recognised.append((query, first))

    # A thread of its own

    @contextmanager
    def started(self) -> Iterator[Dispatcher]:
        """A thread takes what is offered; at the end it works off what waits."""
        if self._thread is not None:
            raise PenstockError("this app is dispatching already")
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="penstock-dispatch", daemon=True)
        self._thread.start()
        self._own(self._thread.ident)
        drained = False
        try:
            yield self
            drained = True
        finally:
            with self.buffers.lock:
                self._stopping = True
                self._draining = drained
                self.buffers.lock.notify_all()
            self._thread.join()
            self._thread = None
            self._own(None)
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The thread rests after the round at work, and the app can be used: its results read, a checkpoint made."""
        self._pausing = True
        with self._turn:
            self._own(None)
            try:
                yield
            finally:
                self._pausing = False
                self._own(None if self._thread is None else self._thread.ident)
        with self.buffers.lock:
            self.buffers.lock.notify_all()

    def _loop(self) -> None:
        lock = self.buffers.lock
        try:
            while True:
                with self._turn:
                    done = self._work_once()
                with lock:
                    if self._stopping and (not self._draining or self.buffers.is_empty):
                        return
                    if self._pausing or not (done or self._stopping):
                        lock.wait_for(self._called, _IDLE_SECONDS)
        except BaseException as error:
            with lock:
                self._failure = error
                lock.notify_all()

    def _called(self) -> bool:
        return self._stopping or not (self._pausing or self.buffers.is_empty)

    def _work_once(self) -> bool:
        self._heed()
        taken = self.buffers.take(self._cost, _TURN)
        if taken is None:
            self._idle()
            return False
        self._work_off(taken)
        return True

    # Looking in and keeping

    @property
    def metrics(self) -> DispatchMetrics:
        return DispatchMetrics(
            self.buffers.policy.name,
            self.buffers.all_events(),
            {stream: durations.spread for stream, durations in self._waiting.items()},
            {stream: durations.spread for stream, durations in self._service.items()},
            {query: durations.spread for query, durations in self._matches.items()},
        )

    def snapshot(self) -> dict[str, Any]:
        return self.buffers.snapshot(self._clock.elapsed())

    def restore(self, snapshot: dict[str, Any], streams: Container[str]) -> None:
        """Waiting events of streams that are gone are forgotten."""
        self.buffers.restore(snapshot, streams, self._clock.elapsed())
