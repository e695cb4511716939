"""Takes events from the input buffers, one run after the other, and has them served.

    offer (any thread) -> input buffers -> [policy] -> serve (one thread) -> recognised

A run is as many events as the policy would pick of one stream in a row, but not more than are served within about a
millisecond, by what events of that stream took before: an event that comes meanwhile and goes before them then waits
no longer. Events that take longer than that are taken one by one.

Invariant: only one thread at a time serves: the one that calls `work`, or the dispatcher's own while it is `started`.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.aggregates.state import Int64s
from penstock.engine.clock import Clock
from penstock.engine.input_buffers import InputBuffers, Run
from penstock.engine.policies import policy_named
from penstock.engine.service_times import DispatchMetrics, Durations
from penstock.errors import BudgetError, PenstockError
from penstock.expressions.batch import Rows

_TURN = 1000
"""Microseconds that a run may take."""

_MOST = 4096
"""Events that a run has at most."""

_IDLE_SECONDS = 0.05
"""How often time passes for the queries while nothing comes."""


class Dispatcher:
    """`serve` is handed each run; `idle` is called now and then while nothing waits; `own` is told which thread serves
    (None: whoever calls)."""

    def __init__(
        self,
        policy: str,
        capacity: int,
        clock: Clock,
        serve: Callable[[str, Rows], None],
        idle: Callable[[], None],
        own: Callable[[int | None], None],
    ) -> None:
        self.buffers = InputBuffers(policy_named(policy), capacity)
        self._clock = clock
        self._serve = serve
        self._idle = idle
        self._own = own
        self._turn = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = self._draining = self._pausing = False
        self._failure: BaseException | None = None
        self._most: dict[str, int] = {}
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
        """Until something has been taken; refused where that cannot happen."""
        self.check()
        served = self._thread is not None and self._thread is not threading.current_thread()
        if (timeout is None and not served) or not self.buffers.lock.wait(timeout):
            raise BudgetError(
                f"the input buffers are full: {self.buffers.held:,} bytes wait\n"
                "  hint: offer while app.dispatching() takes events, call app.work(), or give the app more memory"
            )

    # Events out

    def work(self, limit: int | None = None) -> int:
        """Takes events until nothing waits, or so many; returns how many."""
        done = 0
        while limit is None or done < limit:
            run = self.buffers.take(self._run_length, None if limit is None else limit - done)
            if run is None:
                break
            self._work_off(run)
            done += run.events
        return done

    def work_a_run(self) -> None:
        """Makes room for more."""
        self._work_once()

    def _run_length(self, stream: str) -> int:
        """How many events of a stream are served within a turn, as far as is known."""
        return self._most.get(stream, 1)

    def _work_off(self, run: Run) -> None:
        taken = self._clock.elapsed()
        self._serve(run.stream, run.rows)
        done = self._clock.elapsed()
        waiting, service = self._waiting[run.stream], self._service[run.stream]
        for came, count in run.came:
            waiting.add(taken - came, count)
            service.add(done - came, count)
        now = self._clock.now()
        for query, first in self._recognised:
            self._matches[query].add_all(now - first)
        self._recognised.clear()
        fitting = run.events * _TURN // max(done - taken, 1)
        self._most[run.stream] = max(1, min(_MOST, fitting, 2 * self._run_length(run.stream)))

    def recognised(self, query: str, first: Int64s) -> None:
        """Rows of a query are out; `first` are the instants at which the first events of their incidents came."""
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
        """The thread rests after the run at work, and the app can be used: its results read, a checkpoint made."""
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
        run = self.buffers.take(self._run_length)
        if run is None:
            self._idle()
            return False
        self._work_off(run)
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
        """What waits of streams that are no longer there is forgotten with them."""
        self.buffers.restore(snapshot, streams, self._clock.elapsed())
