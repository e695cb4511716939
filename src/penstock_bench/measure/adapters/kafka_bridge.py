"""An engine in the host behind a broker: takes events from topics, pushes them, publishes what it emits.

Invariants:
1. One thread subscribes, pushes and finishes, as an engine wants it.
2. The engine is finished when every driver has marked its end in every partition; the marks of results come after the
   last result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock_bench.measure.adapters.engine import Engine
from penstock_bench.measure.adapters.kafka_client import Publisher, Subscriber, by_topic, end_marks
from penstock_bench.measure.adapters.kafka_messages import decode, encode
from penstock_bench.measure.running.child import PROGRESS_EVERY
from penstock_bench.measure.running.directory import RunDirectory
from penstock_bench.measure.running.logs import RowLog
from penstock_bench.measure.running.serving import PUSHED
from penstock_bench.measure.setup.model import Setup

_TAKEN_AT_ONCE = 20_000
_QUIET_SECONDS = 0.1
_END_SECONDS = 10.0

Streams = Mapping[str, tuple[str, Mapping[str, pa.DataType]]]
"""By topic, the stream and the types of its columns."""


class Bridge:
    def __init__(self, setup: Setup, run: Path, engine: Engine, form: str, bootstrap: str) -> None:
        self._setup = setup
        self._run = RunDirectory(run)
        self._clock = self._run.clock()
        self._engine = engine
        self._form = form
        self._bootstrap = bootstrap
        self._drivers = sum(driver.copies for driver in setup.drivers)
        self._accepted = dict.fromkeys(setup.streams, 0)
        self._status: dict[str, Any] = {}
        self._failure: BaseException | None = None
        self._started = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(
        self,
        positions: Mapping[tuple[str, int], int],
        streams: Streams,
        queries: Mapping[str, str],
        partitions: Mapping[str, int],
    ) -> None:
        """Starts the engine. `queries` are the topics of results, with as many `partitions` as it says."""
        arguments = (positions, streams, queries, partitions)
        self._thread = threading.Thread(target=self._work, args=arguments, name="bridge", daemon=True)
        self._thread.start()
        self._started.wait()
        self._raise_failure()

    def finish(self) -> None:
        assert self._thread is not None
        self._thread.join()
        self._raise_failure()

    def end(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
        self._engine.close()

    def progress(self) -> dict[str, Any]:
        self._raise_failure()
        return {"accepted": dict(self._accepted), "status": self._status}

    def _work(
        self,
        positions: Mapping[tuple[str, int], int],
        streams: Streams,
        queries: Mapping[str, str],
        partitions: Mapping[str, int],
    ) -> None:
        try:
            publisher = Publisher(self._bootstrap)

            def emit(query: str, batch: pa.RecordBatch) -> None:
                if batch.num_rows:
                    publisher.publish(queries[query], encode(batch, self._form))

            tables = {name: self._run.tables / f"{name}.parquet" for name in self._setup.tables}
            self._engine.start(self._setup, tables, emit)
            subscriber = Subscriber(self._bootstrap, positions)
            self._started.set()
            log = RowLog(self._run.host, PUSHED)
            try:
                if self._push_all(subscriber, streams, len(positions), log):
                    self._engine.finish()
                    for query, topic in queries.items():
                        publisher.end(topic, partitions[topic], query)
                    publisher.close()
                    self._status = self._engine.status()
            finally:
                log.close()
                subscriber.close()
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    def _push_all(self, subscriber: Subscriber, streams: Streams, partitions: int, log: RowLog) -> bool:
        """Whether the drivers have ended; otherwise we have been told to."""
        awaited = partitions * self._drivers
        looked = 0.0
        while awaited and not self._over.is_set():
            messages = subscriber.take(_TAKEN_AT_ONCE, _QUIET_SECONDS)
            for topic, values in by_topic(messages).items():
                stream, types = streams[topic]
                self._push(stream, decode(values, self._form, types, others=False), log)
            awaited -= len(end_marks(messages))
            log.roll()
            now = time.monotonic()
            if now - looked >= PROGRESS_EVERY:
                looked = now
                self._status = self._engine.status()
        return not awaited

    def _push(self, stream: str, batch: pa.RecordBatch, log: RowLog) -> None:
        begun = self._clock.ns()
        self._engine.push(stream, batch)
        done = self._clock.ns()
        self._accepted[stream] += batch.num_rows
        times = batch.column(self._setup.streams[stream].time).cast(pa.int64()).to_numpy()
        # Events of several drivers come together here; their times tell whose they are, and the log keeps them apart.
        owners = times % self._drivers
        for driver in range(self._drivers):
            own = times[owners == driver] if self._drivers > 1 else times
            if len(own):
                log.append(stream, int(own.min()), int(own.max()), len(own), begun, done)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
