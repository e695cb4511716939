"""An engine and its connections, in the host: events in from the drivers, results out to the sinks.

    driver sockets -> a reader each -> intake -> one thread that pushes -> engine -> emit -> sink sockets

Invariants:
1. `Engine.start`, `push`, `status` and `finish` are called by one thread, the pusher; batches of a driver in its order.
2. A full intake makes the readers wait, hence the sockets, hence the drivers: nothing is dropped or grows without end.
3. A driver or sink that knows its connection is open is known here (it waits for the welcome).
4. Results of a query go to the sinks that take it in turn.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock_bench.measure.adapters.engine import Engine
from penstock_bench.measure.running.child import PROGRESS_EVERY
from penstock_bench.measure.running.directory import RunDirectory
from penstock_bench.measure.running.intake import Intake
from penstock_bench.measure.running.logs import RowLog
from penstock_bench.measure.running.wire import WELCOME, FrameReader, FrameWriter, WireError, accept, listen
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.measure.setup.model import Setup

PUSH_WITHIN = 3.0
"""Seconds for the last push of a system that is ended."""

PUSHED = pa.schema(
    [
        ("stream", pa.string()),
        ("first_us", pa.int64()),
        ("last_us", pa.int64()),
        ("events", pa.int64()),
        ("begun_ns", pa.int64()),
        ("done_ns", pa.int64()),
    ]
)


class Serving:
    def __init__(self, setup: Setup, run: Path, engine: Engine) -> None:
        self._setup = setup
        self._run = RunDirectory(run)
        self._clock = self._run.clock()
        self._engine = engine
        self._streams = list(setup.streams)
        self._times = {name: list(stream.columns).index(stream.time) for name, stream in setup.streams.items()}
        self._query_numbers = {name: number for number, name in enumerate(setup.queries)}
        self._intake = Intake()
        self._sinks = _Sinks(setup)
        self._token = secrets.token_hex(16)
        self._accepted = dict.fromkeys(self._streams, 0)
        self._status: dict[str, Any] = {}
        self._readers: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self._started = threading.Event()
        self._over = threading.Event()
        self._pusher = threading.Thread(target=self._push_all, name="pusher", daemon=True)

    def begin(self) -> Mapping[str, Scalar]:
        self._pusher.start()
        self._started.wait()
        self._raise_failure()
        self._server = listen()
        threading.Thread(target=self._accept_all, name="accept", daemon=True).start()
        return {"port": self._server.getsockname()[1], "token": self._token}

    def _accept_all(self) -> None:
        while not self._over.is_set():
            try:
                connected, _ = self._server.accept()
            except OSError:
                return
            # A stranger that connects and says nothing must not keep the others waiting.
            threading.Thread(target=self._welcome, args=(connected,), name="welcome", daemon=True).start()

    def _welcome(self, connected: socket.socket) -> None:
        try:
            greeting = accept(connected, self._token)
        except (WireError, ValueError, OSError):
            connected.close()
            return
        if "driver" in greeting:
            reader = threading.Thread(target=self._read, args=(connected,), name="reader", daemon=True)
            self._readers.append(reader)
            reader.start()
        else:
            self._sinks.add(str(greeting["sink"]), connected)
        connected.sendall(WELCOME)

    def _read(self, connected: socket.socket) -> None:
        """A driver that dies has no end of its own; the controller knows of it, here its events just end."""
        try:
            for frame in FrameReader(connected).frames():
                assert frame is not None
                if frame.batch.num_rows:
                    self._intake.put(self._streams[frame.number], frame.batch)
        except (WireError, pa.ArrowInvalid):
            pass
        finally:
            connected.close()

    def _push_all(self) -> None:
        try:
            tables = {name: self._run.tables / f"{name}.parquet" for name in self._setup.tables}
            self._engine.start(self._setup, tables, self._emit)
            self._started.set()
            log = RowLog(self._run.host, PUSHED)
            try:
                self._push_what_comes(log)
            finally:
                # Before the finish, which may take long and be given up.
                log.close()
            if not self._over.is_set():
                self._engine.finish()
                self._status = self._engine.status()
        except BaseException as error:
            self._failure = error
            self._intake.end()
        finally:
            self._started.set()
            self._over.set()
            self._sinks.end()

    def _push_what_comes(self, log: RowLog) -> None:
        looked = 0.0
        while not (self._intake.over or self._over.is_set()):
            taken = self._intake.take(PROGRESS_EVERY)
            if taken is None:
                log.roll()
            else:
                self._push(*taken, log)
            now = time.monotonic()
            if now - looked >= PROGRESS_EVERY:
                looked = now
                self._status = self._engine.status()

    def _push(self, stream: str, batches: list[pa.RecordBatch], log: RowLog) -> None:
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        begun = self._clock.ns()
        self._engine.push(stream, batch)
        done = self._clock.ns()
        self._accepted[stream] += batch.num_rows
        for part in batches:
            # Within a batch of a driver times grow, but for a replay that keeps recorded ones.
            bounds = pc.min_max(part.column(self._times[stream]).cast(pa.int64()))
            log.append(stream, bounds["min"].as_py(), bounds["max"].as_py(), part.num_rows, begun, done)

    def _emit(self, query: str, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._sinks.send(query, self._query_numbers[query], batch, self._clock.ns())

    def progress(self) -> dict[str, Any]:
        self._raise_failure()
        return {"accepted": dict(self._accepted), "status": self._status}

    def finish(self) -> None:
        """The drivers are gone: what they sent is worked off."""
        for reader in self._readers:
            reader.join()
        self._intake.end()
        self._pusher.join()
        self._raise_failure()

    def end(self) -> None:
        """Gives up batches that still wait, but keeps the log of those taken. Does not wait for a push that hangs."""
        self._over.set()
        self._intake.end()
        if hasattr(self, "_server"):
            self._server.close()
        if self._pusher.is_alive():
            self._pusher.join(PUSH_WITHIN)
        self._engine.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


class _Sinks:
    """The connections to sinks, by the queries that they take."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._lock = threading.Lock()
        self._writers: dict[str, list[_SinkConnection]] = {query: [] for query in setup.queries}
        self._turns = {query: cycle([0]) for query in setup.queries}
        self._all: list[_SinkConnection] = []

    def add(self, name: str, connected: socket.socket) -> None:
        sink = next((sink for sink in self._setup.sinks if name.rpartition("-")[0] == sink.name), None)
        if sink is None:
            raise PenstockError(f"unknown sink {name}")
        connection = _SinkConnection(connected)
        with self._lock:
            self._all.append(connection)
            for query in sink.queries or self._setup.queries:
                self._writers[query].append(connection)
                self._turns[query] = cycle(range(len(self._writers[query])))

    def send(self, query: str, number: int, batch: pa.RecordBatch, emitted_ns: int) -> None:
        with self._lock:
            writers = self._writers[query]
            if not writers:
                return
            connection = writers[next(self._turns[query])]
        connection.write(number, batch, emitted_ns)

    def end(self) -> None:
        for connection in self._all:
            connection.end()


class _SinkConnection:
    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._frames = FrameWriter(connected)
        self._lock = threading.Lock()
        self._gone = False

    def write(self, number: int, batch: pa.RecordBatch, emitted_ns: int) -> None:
        with self._lock:
            if not self._gone:
                try:
                    self._frames.write(number, batch, emitted_ns)
                except WireError:
                    # The controller sees that a sink is gone, and ends the run.
                    self._gone = True

    def end(self) -> None:
        with self._lock:
            if not self._gone:
                self._gone = True
                try:
                    self._frames.end()
                except WireError:
                    return
                self._socket.close()
