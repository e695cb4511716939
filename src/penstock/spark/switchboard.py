"""The switchboard: a process beside the workers that Spark's daemon forks, which knows what keeper has which bucket.

    Spark's daemon ─┬─ worker ─┐
                    ├─ worker ─┼─ which keeper? ─▶ switchboard ─┬─ keeper
                    └─ worker ─┘                                └─ keeper

A bucket keeps its keeper. One that is new goes to a keeper that is free, and a keeper is forked when none is: so there
are as many as tasks of buckets run at once. A task whose keeper is busy waits; a bucket that had to wait again and
again gets another keeper.

Everything is inherited, and nothing has a name in a file system or a port. The switchboard ends with the daemon, and
its keepers with it. Where there is none, workers run the tasks of buckets themselves.

Why: docs/decisions/buckets-stay.md
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from penstock.spark.keeper import FREE, PATIENCE_SECONDS, keep

IDLE_SECONDS = 60.0
"""A keeper that was not used for so long ends, as Spark's idle workers do."""

MOST_WAITS = 8
"""A bucket that found its keeper busy so many times in a row gets another one."""

_LOOK_SECONDS = 1.0
_LONGEST_NAME = 4096


class Request(Protocol):
    """A worker that asks: its end of a pair of sockets."""

    def close(self) -> None: ...


class Line(Protocol):
    """The connection to a keeper's process."""

    def give(self, request: Request) -> None:
        """Tells the keeper which worker asks; raises OSError if the keeper is gone."""

    def close(self) -> None:
        """Has the keeper end."""


@dataclass(eq=False)
class Keeper:
    line: Line
    used: float
    serving: bytes | None = None
    waiting: deque[tuple[bytes, Request]] = field(default_factory=deque)


@dataclass
class _Place:
    """Where a bucket is."""

    keeper: Keeper
    used: float
    waits: int = 0


class Switchboard:
    """Which keeper serves which request. `start` makes a keeper; it raises OSError where there can be none."""

    def __init__(self, start: Callable[[], Line], clock: Callable[[], float] = time.monotonic) -> None:
        self._start = start
        self._clock = clock
        self._places: dict[bytes, _Place] = {}
        self.keepers: list[Keeper] = []

    def ask(self, bucket: bytes, request: Request) -> None:
        """A request that cannot be served is closed."""
        try:
            keeper = self._keeper_of(bucket)
        except OSError:
            request.close()
            return
        keeper.waiting.append((bucket, request))
        self._next(keeper)

    def free(self, keeper: Keeper) -> None:
        """A keeper has run its task."""
        keeper.used = self._clock()
        if keeper.serving in self._places:
            self._places[keeper.serving].used = keeper.used
        keeper.serving = None
        self._next(keeper)

    def gone(self, keeper: Keeper) -> None:
        """The process of a keeper has ended, or is to end."""
        keeper.line.close()
        self.keepers.remove(keeper)
        self._places = {bucket: place for bucket, place in self._places.items() if place.keeper is not keeper}
        while keeper.waiting:
            self.ask(*keeper.waiting.popleft())

    def tidy(self) -> None:
        """Lets keepers and buckets go that are not used."""
        before = self._clock() - IDLE_SECONDS
        for keeper in [keeper for keeper in self.keepers if keeper.serving is None and keeper.used < before]:
            self.gone(keeper)
        busy = {keeper.serving for keeper in self.keepers}
        self._places = {
            bucket: place for bucket, place in self._places.items() if place.used >= before or bucket in busy
        }

    def _keeper_of(self, bucket: bytes) -> Keeper:
        place = self._places.get(bucket)
        if place is None:
            place = self._places[bucket] = _Place(self._free_one(), self._clock())
        elif place.keeper.serving is None:
            place.waits = 0
        else:
            place.waits += 1
            if place.waits == MOST_WAITS:
                place.keeper, place.waits = self._free_one(), 0
        return place.keeper

    def _next(self, keeper: Keeper) -> None:
        """Gives a keeper that is free what waits for it."""
        if keeper.serving is not None or not keeper.waiting:
            return
        bucket, request = keeper.waiting[0]
        try:
            keeper.line.give(request)
        except OSError:
            self.gone(keeper)
            return
        keeper.waiting.popleft()
        request.close()
        keeper.serving, keeper.used = bucket, self._clock()

    def _free_one(self) -> Keeper:
        """A keeper that does nothing now, of these the one with the fewest buckets."""
        kept = [place.keeper for place in self._places.values()]
        free = [keeper for keeper in self.keepers if keeper.serving is None]
        if free:
            return min(free, key=kept.count)
        made = Keeper(self._start(), self._clock())
        self.keepers.append(made)
        return made


class _Process:
    """A keeper's process, by our end of a pair of sockets."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def give(self, request: Request) -> None:
        assert isinstance(request, socket.socket)
        socket.send_fds(self.end, [b"?"], [request.fileno()])

    def close(self) -> None:
        self.end.close()

    def is_free(self) -> bool:
        """What the keeper says; it says nothing more when it has ended."""
        try:
            return self.end.recv(len(FREE)) == FREE
        except OSError:
            return False


def start() -> socket.socket:
    """Forks the switchboard; returns where workers ask. Called in a process without threads, before it has workers."""
    asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    # All workers have this socket; a timeout of Python's would change it for the others while one uses it.
    asking.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(PATIENCE_SECONDS), 0))
    daemon = os.getpid()
    if os.fork():
        asked.close()
        return asking
    try:
        asking.close()
        _Office(asked, daemon).serve()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


class _Office:
    """The switchboard's process."""

    def __init__(self, asked: socket.socket, daemon: int) -> None:
        self._asked = asked
        self._daemon = daemon
        self._requests: list[socket.socket] = []
        self._board = Switchboard(self._fork)

    def serve(self) -> None:
        """Until the daemon has ended."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with open(os.devnull, encoding="utf-8") as nothing:
            os.dup2(nothing.fileno(), 0)  # the daemon's is where Spark tells it of its end
        tidied = time.monotonic()
        while os.getppid() == self._daemon:
            self._look()
            if time.monotonic() - tidied >= _LOOK_SECONDS:
                tidied = time.monotonic()
                self._board.tidy()

    def _look(self) -> None:
        """Does what there is to do, or waits for it for a while."""
        keepers = {self._process(keeper).end.fileno(): keeper for keeper in self._board.keepers}
        poller = select.poll()
        for number in (self._asked.fileno(), *keepers):
            poller.register(number, select.POLLIN)
        ready = [number for number, _ in poller.poll(_LOOK_SECONDS * 1000)]
        for keeper in [keepers[number] for number in ready if number in keepers]:
            if self._process(keeper).is_free():
                self._board.free(keeper)
            elif keeper in self._board.keepers:
                self._board.gone(keeper)
        if self._asked.fileno() in ready:
            bucket, given, _, _ = socket.recv_fds(self._asked, _LONGEST_NAME, 1)
            for number in given:
                self._requests = [request for request in self._requests if request.fileno() >= 0]
                self._requests.append(socket.socket(fileno=number))
                self._board.ask(bucket, self._requests[-1])

    def _fork(self) -> Line:
        ours, its = socket.socketpair()
        if os.fork():
            its.close()
            return _Process(ours)
        try:
            # What is open in several processes does not tell when one of them ends.
            for other in (ours, self._asked, *(self._process(keeper).end for keeper in self._board.keepers)):
                other.close()
            for request in self._requests:
                request.close()
            keep(its)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    @staticmethod
    def _process(keeper: Keeper) -> _Process:
        assert isinstance(keeper.line, _Process)
        return keeper.line
