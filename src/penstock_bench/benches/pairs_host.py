"""The process of a system under test in a Pairs run: takes frames of ticks, pushes them, sends the answers to the sink.

It is the measuring framework's host with one thread: what has come by the time the system is free is pushed together.
Its argument is the system's name. It is told `{"do": "run", "load": DIR, "sink": PORT, "token": …}` for each run, and
says `listening` with its port, `history` when all history is worked off, and `done`.
"""

from __future__ import annotations

import gc
import resource
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock_bench.benches.pairs_load import STRATEGIES
from penstock_bench.benches.pairs_systems import STREAMS, SYSTEMS, PairsSystem
from penstock_bench.measure.running.child import Child
from penstock_bench.measure.running.wire import WELCOME, FrameReader, FrameWriter, accept, connect, listen
from penstock_bench.workloads.pairs.setup_xml import read_strategies

_TOGETHER = 65_536


def main() -> None:
    child = Child()
    # Arrow loads pandas when it first meets numpy.
    pa.array([0]).to_numpy()
    child.say("ready")
    while (command := child.command()) is not None and command["do"] == "run":
        system = SYSTEMS[sys.argv[1]]()
        try:
            _run(child, system, command)
        except PenstockError as error:
            child.say("failed", why=str(error))
        finally:
            system.close()
            del system
            gc.unfreeze()
            gc.collect()


def _run(child: Child, system: PairsSystem, command: dict[str, Any]) -> None:
    sink = connect(int(command["sink"]), {"sink": "sink", "token": command["token"]})
    frames = FrameWriter(sink)
    numbers = {name: number for number, name in enumerate(STREAMS)}

    def emit(stream: str, answers: pa.RecordBatch) -> None:
        frames.write(numbers[stream], answers, time.monotonic_ns())

    system.start(read_strategies(Path(command["load"]) / STRATEGIES), emit)
    server = listen()
    child.say("listening", port=server.getsockname()[1])
    connected, _ = server.accept()
    server.close()
    accept(connected, command["token"])
    connected.sendall(WELCOME)
    done, last, begun, pushes = time.monotonic_ns(), None, _cpu(), 0
    for batch in _arriving(connected):
        if batch.num_rows == 0:
            # The harness's own objects shall not make the collector's pauses longer than the system's would.
            gc.collect()
            gc.freeze()
            child.say("history")
            begun, pushes = _cpu(), 0
            continue
        system.push(batch)
        done, last = time.monotonic_ns(), batch
        pushes += 1
    used = _cpu() - begun
    connected.close()
    if last is not None:
        system.end(last.column("tickTS")[-1].as_py(), last.column("TS")[-1].as_py())
    frames.end()
    sink.close()
    child.say("done", done_ns=done, cpu_s=used, pushes=pushes)


def _arriving(connected: socket.socket) -> Any:
    """The ticks as they come; batches that wait already come as one. A batch without rows comes alone."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for frame in FrameReader(connected).frames():
        assert frame is not None
        waiting.append(frame.batch)
        rows += frame.batch.num_rows
        if frame.batch.num_rows and rows < _TOGETHER and _more(connected):
            continue
        if not frame.batch.num_rows:
            waiting.pop()
        if waiting:
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
        if not frame.batch.num_rows:
            yield frame.batch
        waiting, rows = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def _more(connected: socket.socket) -> bool:
    try:
        return bool(connected.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
