"""The open loop: sends events when they are due, whatever the system does.

The pacer takes all that is due, sends it, and sleeps until more is due, but at least `linger` after the last send. An
event is never dropped: if the system does not take events as fast as they are due, the pacer is behind, and what is
late is sent as fast as it is taken; the times in the events stay those of the schedule, so that the delay shows in
their latency. How far behind it is, is its *lag*: how long the oldest event of a batch had been due when the batch was
sent. While it has time it makes events ahead.

Invariants:
1. Every event of every leg is sent exactly once and in order, unless the run is stopped; then those sent are the first.
2. Stamps never go back, and are `share.number` modulo `share.total` but where a replay keeps its own times.
3. A pause moves what is left of the schedule by its length; legs begin where the ones before them were to end, however
   late those were.

Callers: `load.driver`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from penstock_bench.measure.load.arrivals import Times
from penstock_bench.measure.load.legs import Leg, Stretch
from penstock_bench.measure.load.share import Share

BATCH_ROWS = 65_536
"""The longest batch; no stretch is longer."""
STRETCH_ROWS = 8_192
"""Events made at a time while the schedule is kept: soon enough done not to delay the next send."""

AHEAD = 3
LATE_US = 100_000
"""A lag that is told."""

PROGRESS_NS = 250_000_000


class Control(Protocol):
    """What a driver was asked to do, and how it sleeps."""

    paused: bool
    stopped: bool

    def wait(self, seconds: float) -> None:
        """Sleeps; ends early when something is asked. With 0 it only looks."""


class Sent(NamedTuple):
    """One batch; `due_ns` is when its last event was due (in a closed loop: when it was sent)."""

    stream: str
    phase: int
    first_us: int
    last_us: int
    events: int
    due_ns: int
    sent_ns: int
    done_ns: int


class Outlet(Protocol):
    """Where the pacer's batches and reports go."""

    def send(self, stream: str, columns: Mapping[str, pa.Array], stamps: Times) -> None: ...

    def log(self, sent: Sent) -> None: ...

    def progress(self, report: dict[str, object]) -> None: ...

    def note(self, text: str) -> None: ...


class Pacer:
    def __init__(
        self,
        legs: Sequence[Leg],
        outlet: Outlet,
        control: Control,
        now_ns: Callable[[], int],
        share: Share,
        linger_us: int,
    ) -> None:
        self._ahead = _Ahead(legs)
        self._outlet = outlet
        self._control = control
        self._now_ns = now_ns
        self._share = share
        self._linger_us = linger_us
        self._begin_us = 0  # when the leg began, by its schedule
        self._offset_us = 0  # how far the stamps are ahead of the schedule, after a closed loop
        self._next = 0  # the first event of the stretch that has not been sent
        self._last_stamp = -1
        self._last_time = -1  # of the last event sent in this leg
        self._earliest_us = 0  # the next send
        self._leg: Leg | None = None
        self._sent_before = 0  # in legs that have ended
        self._sent = 0
        self._lag_us = 0  # the largest since the last report
        self._told: set[int] = set()
        self._report_at = 0
        self._finished = False
        self.max_lag_us = 0
        self.pauses_us = 0

    @property
    def sent(self) -> int:
        return self._sent

    @property
    def due(self) -> int:
        """How many events have been due so far; when all are sent, those."""
        return self._sent if self._finished else self._due(self._leg, self._now_ns() // 1000)

    @property
    def kept(self) -> bool:
        """Whether no event was sent much later than it was due."""
        return not self._told

    def prepare(self) -> None:
        """Makes the first events, so that the first send is not late."""
        while self._ahead.make(STRETCH_ROWS):
            pass

    def run(self, at_ns: int) -> None:
        """Sends everything, beginning at a time; returns when all is sent or the run is stopped."""
        self._begin_us = self._share.stamp(-(-at_ns // 1000))
        while True:
            self._control.wait(0)
            if self._control.stopped:
                break
            if self._control.paused:
                self._pause()
                continue
            now = self._now_ns() // 1000
            if now < self._begin_us:
                self._idle(self._begin_us, now)
                continue
            turn = self._ahead.first(BATCH_ROWS if self._behind else STRETCH_ROWS)
            if turn is None:
                self._finished = True
                break
            leg, stretch = turn
            if leg is not self._leg:
                self._enter(leg, now)
                continue
            if stretch is None:
                self._leave(leg, now)
            elif leg.paced:
                self._step(leg, stretch, now)
            elif leg.length_us is not None and now >= self._begin_us + leg.length_us:
                if leg.events is not None:
                    sent = f"{self._sent - self._sent_before:,} of {leg.events:,}"
                    self._outlet.note(f"phase '{leg.name}': ended by its duration, with {sent} events")
                self._ahead.skip()
            else:
                self._send(leg, stretch, len(stretch.times))
                self._report(now)
        self._report(None)

    @property
    def _behind(self) -> bool:
        return self._lag_us > LATE_US // 10

    def _enter(self, leg: Leg, now: int) -> None:
        if not leg.paced:
            self._begin_us = self._share.stamp(max(self._begin_us, now))
        ahead = self._last_stamp + 1 - self._begin_us
        self._offset_us = self._share.stamp(ahead) if ahead > 0 else 0
        self._leg = leg
        self._last_time = -1
        self._sent_before = self._sent

    def _leave(self, leg: Leg, now: int) -> None:
        """The leg's events are sent: the next leg begins when this one's time is over."""
        end = self._begin_us + max(leg.length_us or 0, self._last_time + 1) if leg.paced else now
        if now < end:
            self._idle(end, now)
        else:
            self._begin_us = self._share.stamp(end)
            self._ahead.drop()

    def _step(self, leg: Leg, stretch: Stretch, now: int) -> None:
        """Sends what is due, or sleeps until something may be sent."""
        due = int(np.searchsorted(stretch.times, now - self._begin_us, side="right"))
        if due == self._next:
            self._idle(max(self._begin_us + int(stretch.times[due]), self._earliest_us), now)
        elif now < self._earliest_us and due < len(stretch.times):
            self._idle(self._earliest_us, now)
        else:
            lag = now - self._begin_us - int(stretch.times[self._next])
            self._note_lag(leg, lag)
            # When more may be due there is nothing to wait for.
            self._earliest_us = now + (self._linger_us if due < len(stretch.times) else 0)
            self._send(leg, stretch, due)
            self._report(now)

    def _send(self, leg: Leg, stretch: Stretch, stop: int) -> None:
        """Sends the events of a stretch up to `stop`, a batch for each stream."""
        first, self._next = self._next, stop
        stamps = stretch.stamps if stretch.stamps is not None else stretch.times + (self._begin_us + self._offset_us)
        self._last_time = int(stretch.times[stop - 1])
        self._last_stamp = int(stamps[stop - 1])
        for part in stretch.parts:
            low, high = part.within(first, stop)
            if low == high:
                continue
            places = slice(low, high) if part.places is None else part.places[low:high]
            times = stamps[places]
            columns = {name: column.slice(low, high - low) for name, column in part.columns.items()}
            sent_ns = self._now_ns()
            due_ns = (self._begin_us + int(stretch.times[places][-1])) * 1000 if leg.paced else sent_ns
            self._outlet.send(part.stream, columns, times)
            done_ns = self._now_ns()
            self._sent += high - low
            ends = int(times[0]), int(times[-1])
            self._outlet.log(Sent(part.stream, leg.number, *ends, high - low, due_ns, sent_ns, done_ns))
        if stop == len(stretch.times):
            self._ahead.drop()
            self._next = 0

    def _note_lag(self, leg: Leg, lag: int) -> None:
        self._lag_us = max(self._lag_us, lag)
        self.max_lag_us = max(self.max_lag_us, lag)
        if lag > LATE_US + self._linger_us and leg.number not in self._told:
            self._told.add(leg.number)
            self._outlet.note(
                f"phase '{leg.name}': the schedule cannot be kept, events are sent {lag / 1000:,.0f} ms after they"
                " were due"
            )

    def _idle(self, until_us: int, now: int) -> None:
        """Sleeps until a time, or makes events for later if there is time for it."""
        self._report(now)
        if until_us - now >= self._ahead.cost_us and self._ahead.make(STRETCH_ROWS):
            return
        left = until_us * 1000 - self._now_ns()
        if left > 0:
            self._control.wait(min(left, PROGRESS_NS) / 1e9)

    def _pause(self) -> None:
        began = self._now_ns()
        while self._control.paused and not self._control.stopped:
            self._report(self._now_ns() // 1000)
            self._control.wait(PROGRESS_NS / 1e9)
        pause = self._share.stamp((self._now_ns() - began) // 1000)
        self.pauses_us += pause
        self._begin_us += pause

    def _report(self, now: int | None) -> None:
        """Tells how far it is, now and then; with None for the last time."""
        if now is not None and now * 1000 < self._report_at:
            return
        if now is not None:
            self._report_at = now * 1000 + PROGRESS_NS
        leg = self._leg
        self._outlet.progress(
            {
                "phase": leg.number if leg else 0,
                "name": leg.name if leg else "",
                "sent": self._sent,
                "due": self._due(leg, self._now_ns() // 1000),
                "lag_us": self._lag_us,
                "finished": now is None,
            }
        )
        self._lag_us = 0

    def _due(self, leg: Leg | None, now: int) -> int:
        """How many events are due by now. Beyond those that are made it is what the rate says."""
        if leg is None or not leg.paced:
            return self._sent
        since = now - self._begin_us
        known = self._sent - self._next
        for stretch in self._ahead.of(leg):
            here = int(np.searchsorted(stretch.times, since, side="right"))
            known += here
            if here < len(stretch.times):
                return max(known, self._sent)
        return max(known, self._sent, self._sent_before + int(leg.due(since)))


class _Ahead:
    """What the legs have to send, in order: `(leg, stretch)`, and `(leg, None)` at the end of each leg."""

    def __init__(self, legs: Sequence[Leg]) -> None:
        self._legs = deque(legs)
        self._ready: deque[tuple[Leg, Stretch | None]] = deque()
        self.cost_us = 0
        """What making a stretch took of late."""

    def make(self, rows: int) -> bool:
        """Makes one more; False if there are enough, or no more."""
        if len(self._ready) >= AHEAD or not self._legs:
            return False
        began = time.perf_counter_ns()
        leg = self._legs[0]
        stretch = leg.take(rows if leg.paced else BATCH_ROWS)
        self._ready.append((leg, stretch))
        if stretch is None:
            self._legs.popleft()
        self.cost_us = (time.perf_counter_ns() - began) // 1000
        return True

    def first(self, rows: int) -> tuple[Leg, Stretch | None] | None:
        """The one that is next; made now if there is none; None when all legs have ended."""
        if not self._ready and not self.make(rows):
            return None
        return self._ready[0]

    def drop(self) -> None:
        self._ready.popleft()

    def skip(self) -> None:
        """Goes to the end of the first leg, whatever it has left."""
        leg = self._ready[0][0]
        while self._ready and self._ready[0][0] is leg and self._ready[0][1] is not None:
            self._ready.popleft()
        if not self._ready:
            self._legs.popleft()
            self._ready.append((leg, None))

    def of(self, leg: Leg) -> list[Stretch]:
        return [stretch for one, stretch in self._ready if one is leg and stretch is not None]
