"""One run of Pairs: a driver process, the system in its own process, and the sink here, which stamps the answers.

The processes live for all runs of a bench, so that Java and the compiled kernels start once.

Latency of a MarketOrder is the moment at which the sink has it, minus inputTS: the moment at which the tick that led
to it was due. So what waited because the system or the driver was behind is in the latency.
"""

from __future__ import annotations

import queue
import secrets
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock_bench.benches.pairs_load import Load, Phases
from penstock_bench.benches.pairs_systems import STREAMS
from penstock_bench.measure.results.statistics import Statistics
from penstock_bench.measure.running.process import Heard, Process
from penstock_bench.measure.running.wire import WELCOME, FrameReader, accept, listen
from penstock_bench.workloads.pairs.score import p_score
from penstock_bench.workloads.pairs.validator import INDICATOR, MARKET_ORDER, Answers

_AHEAD_NS = 50_000_000
_KEPT = 0.01
"""The share of the stretch by which the last tick may be sent and worked off late."""
_MOST_P99 = 1.0
_PATIENCE = 600.0


@dataclass(frozen=True)
class Trial:
    """What came of a run. Latencies are those of MarketOrders in the measurement interval, in nanoseconds."""

    system: str
    phases: Phases
    scale_factor: int
    strategies: int
    ticks_per_second: float
    latencies: NDArray[np.int64]
    lateness: float
    """Seconds by which the last tick was worked off after it was due."""
    latest_send: float
    cpu: float
    """The share of one core that the system used in the stretch."""
    pushes: int
    answers: Answers

    @property
    def statistics(self) -> Statistics:
        return Statistics.exact(self.latencies)

    @property
    def p99(self) -> float:
        return self.statistics.p99 / 1e9

    @property
    def score(self) -> float:
        return p_score(self.scale_factor, self.p99) if len(self.latencies) else 0.0

    @property
    def sustained(self) -> bool:
        return bool(len(self.latencies)) and self.lateness <= _KEPT * self.phases.stretch and self.p99 < _MOST_P99


class TrialError(PenstockError):
    """A system gave up, for want of memory perhaps. `system` is the process that said so."""

    def __init__(self, system: str, why: str) -> None:
        super().__init__(f"pairs: {why}")
        self.system = system


class Stage:
    """The processes: a driver, and a host for each system that was asked for so far."""

    def __init__(self) -> None:
        self._heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self._logs = tempfile.TemporaryDirectory(prefix="penstock-pairs-")
        self._processes: dict[str, Process] = {}
        self._asked: dict[str, _Asked] = {}
        self._ports: dict[str, int] = {}
        self._kept: dict[tuple[str, str], dict[str, Any]] = {}

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes.values():
            process.kill()
        self._logs.cleanup()

    def ask(self, system: str, load: Load) -> None:
        """The system gets ready for this load while other things are done; `run` waits for it."""
        self._begin(system)
        token = secrets.token_hex(16)
        asked = _Asked(load, token, _Sink(token))
        self._asked[system] = asked
        self._processes[system].tell("run", load=str(load.directory), sink=asked.sink.port, token=token)

    def wait_for(self, systems: Iterable[str]) -> None:
        """Until those that were asked are ready."""
        for system in systems:
            if system in self._asked and system not in self._ports:
                self._ports[system] = int(self._hear(system, "listening")["port"])

    def run(self, system: str, load: Load) -> Trial:
        self._begin("driver")
        if system not in self._asked or self._asked[system].load is not load:
            self.ask(system, load)
        self.wait_for([system])
        asked, port = self._asked.pop(system), self._ports.pop(system)
        self._processes["driver"].tell("send", load=str(load.directory), port=port, token=asked.token)
        self._hear(system, "history")
        begin = time.monotonic_ns() + _AHEAD_NS
        self._processes["driver"].tell("start", at_ns=begin)
        sent = self._hear("driver", "sent")
        done = self._hear(system, "done")
        asked.sink.join()
        return _judged(system, load, asked.sink, begin, sent, done)

    def _begin(self, name: str) -> None:
        if name not in self._processes:
            module, arguments = ("pairs_driver", []) if name == "driver" else ("pairs_host", [name])
            log = Path(self._logs.name) / f"{name}.txt"
            self._processes[name] = Process(
                "system", name, f"penstock_bench.benches.{module}", arguments, log, self._heard
            )

    def _hear(self, name: str, kind: str) -> dict[str, Any]:
        """The next message of this kind; others that come before are kept for when they are asked for."""
        while (name, kind) not in self._kept:
            try:
                process, message = self._heard.get(timeout=_PATIENCE)
            except queue.Empty:
                why = f"{name} said nothing for {_PATIENCE:g} s{self._processes[name].tail()}"
                raise self._failed(name, why) from None
            if message["is"] == "exit":
                raise self._failed(process.name, process.death(int(message["code"])))
            if message["is"] == "failed":
                raise self._failed(process.name, f"{process.name}: {message['why']}")
            self._kept[process.name, message["is"]] = message
        return self._kept.pop((name, kind))

    def _failed(self, system: str, why: str) -> TrialError:
        """What was in the middle of the run begins anew with the next one."""
        for process in self._processes.values():
            process.kill()
        self._processes.clear()
        self._asked.clear()
        self._ports.clear()
        self._kept.clear()
        self._heard = queue.SimpleQueue()
        return TrialError(system, why)


@dataclass(frozen=True)
class _Asked:
    """A run that a system has been told of."""

    load: Load
    token: str
    sink: _Sink


class _Sink:
    """Takes the answers of one run on a thread of its own."""

    def __init__(self, token: str) -> None:
        self._server = listen()
        self.port = self._server.getsockname()[1]
        self._token = token
        self.taken: dict[str, list[pa.RecordBatch]] = {name: [] for name in STREAMS}
        self.stamps: dict[str, list[int]] = {name: [] for name in STREAMS}
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._take, name="sink", daemon=True)
        self._thread.start()

    def _take(self) -> None:
        try:
            connected, _ = self._server.accept()
            accept(connected, self._token)
            connected.sendall(WELCOME)
            names = list(STREAMS)
            for frame in FrameReader(connected).frames():
                assert frame is not None
                now = time.monotonic_ns()
                self.taken[names[frame.number]].append(frame.batch)
                self.stamps[names[frame.number]].append(now)
            connected.close()
        except BaseException as error:
            self._failure = error
        finally:
            self._server.close()

    def join(self) -> None:
        self._thread.join()
        if self._failure is not None:
            raise self._failure


def _judged(system: str, load: Load, sink: _Sink, begin: int, sent: dict[str, Any], done: dict[str, Any]) -> Trial:
    phases = load.phases
    last_due = begin + round(phases.stretch * 1e9)
    given = {name: _table(sink.taken[name], schema) for name, schema in STREAMS.items()}
    orders = given["MarketOrder"]
    stamps = np.repeat(sink.stamps["MarketOrder"], [batch.num_rows for batch in sink.taken["MarketOrder"]])
    ticks = orders.column("inputTickTS").to_numpy()
    measured = (ticks >= phases.begin * 1000) & (ticks < phases.end * 1000)
    latencies = (stamps - begin - orders.column("inputTS").to_numpy() * 1000)[measured]
    return Trial(
        system=system,
        phases=phases,
        scale_factor=load.scale_factor,
        strategies=len(load.strategies),
        ticks_per_second=load.peak_rate,
        latencies=latencies.astype(np.int64),
        lateness=max(0, int(done["done_ns"]) - last_due) / 1e9,
        latest_send=int(sent["latest_ns"]) / 1e9,
        cpu=float(done["cpu_s"]) / phases.stretch,
        answers=Answers(given["Indicator"].select(INDICATOR.names), orders.select(MARKET_ORDER.names)),
        pushes=int(done["pushes"]),
    )


def _table(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(batches) if batches else schema.empty_table()
