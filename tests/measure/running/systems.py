"""Systems under test that do what a test tells them: adapters as a third party would write them.

A setup names one by its class, as in `adapter = "systems:Echo"`.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import InputError
from penstock_bench.measure.adapters.adapter import Receiver, Results
from penstock_bench.measure.adapters.engine import Emit, Engine
from penstock_bench.measure.adapters.hosted import Hosted
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.measure.setup.model import Setup


class EchoEngine:
    """Every event is a result of every query, `delay_ms` after it was pushed. Once `stall_after` events have come, the
    next push takes `stall_ms`; once `fail_after` have, it does not work any more, in one way or another."""

    def start(self, setup: Setup, tables: Mapping[str, Path], emit: Emit) -> None:
        options = setup.system.options
        if "refuse" in options:
            raise InputError(str(options["refuse"]))
        self._queries = list(setup.queries)
        self._delay_ns = int(options.get("delay_ms", 0)) * 1_000_000
        self._stall = int(options.get("stall_after", -1)), int(options.get("stall_ms", 0)) / 1000
        self._fail = int(options.get("fail_after", -1)), str(options.get("how", ""))
        self._finish = float(options.get("finish_s", 0))
        self._emit = emit
        self._pushed = 0
        self._waiting: queue.Queue[tuple[int, pa.RecordBatch] | None] = queue.Queue()
        self._worker = threading.Thread(target=self._work, daemon=True)
        self._worker.start()

    def _work(self) -> None:
        while (taken := self._waiting.get()) is not None:
            due, batch = taken
            while (left := due - time.monotonic_ns()) > 0:
                time.sleep(left / 1e9)
            for query in self._queries:
                self._emit(query, batch)

    def push(self, stream: str, batch: pa.RecordBatch) -> None:
        after, seconds = self._stall
        if 0 <= after <= self._pushed:
            self._stall = -1, 0
            time.sleep(seconds)
        after, how = self._fail
        if 0 <= after <= self._pushed:
            if how == "raise":
                raise ZeroDivisionError("this system cannot count")
            if how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "hang":
                time.sleep(3600)
        self._pushed += batch.num_rows
        self._waiting.put((time.monotonic_ns() + self._delay_ns, batch))

    def finish(self) -> None:
        time.sleep(self._finish)
        self._waiting.put(None)
        self._worker.join()

    def status(self) -> dict[str, Any]:
        return {"pushed": self._pushed}

    def close(self) -> None:
        print("closed", flush=True)


class Echo(Hosted):
    dialect = "echo"
    options: ClassVar[Mapping[str, str]] = {
        "delay_ms": "from push to result",
        "stall_after": "events",
        "stall_ms": "how long one push takes then",
        "fail_after": "events",
        "how": "raise, die or hang",
        "finish_s": "how long the end takes",
        "refuse": "what the system says instead of starting",
    }

    def engine(self) -> Engine:
        return EchoEngine()


class SlowSink(Echo):
    """A sink takes 5 ms for each result."""

    def receiver(self, place: Mapping[str, Scalar], sink: str) -> Receiver:
        return _Slow(super().receiver(place, sink))


class _Slow(Receiver):
    def __init__(self, quick: Receiver) -> None:
        self._quick = quick

    def __iter__(self) -> Iterator[Results | None]:
        for results in self._quick:
            time.sleep(0.005 * results.rows.num_rows if results is not None else 0)
            yield results

    def close(self) -> None:
        self._quick.close()
