"""One copy of a driver, a process of a run: `python -m penstock_bench.measure.load.driver RUN NAME COPY`.

It makes its first events, says that it is ready, and sends its events on the schedule that begins at the `start` it is
told; `running.child` has the protocol. It logs one row for each batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.types import SqlType
from penstock_bench.measure.adapters.adapter import Sender, adapter_class
from penstock_bench.measure.load.arrivals import Times
from penstock_bench.measure.load.legs import Leg, made_legs
from penstock_bench.measure.load.pacing import Pacer, Sent
from penstock_bench.measure.load.share import Share, share_of
from penstock_bench.measure.running.child import Child, run_child
from penstock_bench.measure.running.directory import RunDirectory
from penstock_bench.measure.running.logs import RowLog
from penstock_bench.measure.setup.model import Driver, Setup, Stream

SENT = pa.schema(
    [
        ("stream", pa.string()),
        ("phase", pa.int16()),
        ("first_us", pa.int64()),
        ("last_us", pa.int64()),
        ("events", pa.int64()),
        ("due_ns", pa.int64()),
        ("sent_ns", pa.int64()),
        ("done_ns", pa.int64()),
    ]
)


class Commands:
    """The controller's wishes as the pacer sees them."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.paused = False
        self.stopped = False
        self.at_ns: int | None = None

    def wait(self, seconds: float) -> None:
        command = self._child.command(seconds)
        if command is not None:
            self._take(command)

    def await_start(self) -> bool:
        """Whether the run began; False if it was stopped before."""
        while self.at_ns is None and not self.stopped:
            command = self._child.command()
            if command is not None:
                self._take(command)
        return not self.stopped

    def _take(self, command: Mapping[str, Any]) -> None:
        what = command["do"]
        if what == "start":
            self.at_ns = int(command["at_ns"])
        elif what in ("pause", "resume"):
            self.paused = what == "pause"
        elif what == "stop":
            self.stopped = True


class Line:
    """Takes the pacer's batches to the system and its reports to the controller."""

    def __init__(self, streams: Mapping[str, Stream], sender: Sender, log: RowLog, child: Child) -> None:
        self._streams = {name: (stream.time, stream.schema_.arrow) for name, stream in streams.items()}
        self._sender = sender
        self._log = log
        self._child = child

    def send(self, stream: str, columns: Mapping[str, pa.Array], stamps: Times) -> None:
        time, schema = self._streams[stream]
        times = pa.Array.from_buffers(SqlType.TIMESTAMP.arrow, len(stamps), [None, pa.py_buffer(stamps)])
        arrays = [times if name == time else columns[name] for name in schema.names]
        self._sender.send(stream, pa.RecordBatch.from_arrays(arrays, schema=schema))

    def log(self, sent: Sent) -> None:
        self._log.append(*sent)

    def progress(self, report: dict[str, object]) -> None:
        self._child.say("progress", **report)
        self._log.roll()

    def note(self, text: str) -> None:
        self._child.say("note", text=text)


def legs_of(driver: Driver, setup: Setup, share: Share) -> list[Leg]:
    if driver.replay is not None:
        # The readers of files take a second to load, which a driver of made events need not wait for.
        from penstock_bench.measure.load.replay import ReplayLeg

        return [ReplayLeg(driver.replay, setup.streams, share, f"drivers.{driver.name}.replay")]
    return made_legs(driver, setup.streams, share)


def drive(child: Child, run: RunDirectory, arguments: list[str]) -> dict[str, Any]:
    name, copy = arguments[0], int(arguments[1])
    setup = run.setup()
    driver, share = share_of(setup, name, copy)
    legs = legs_of(driver, setup, share)
    adapter = adapter_class(setup.system.adapter)(setup)
    sender = adapter.sender(run.facts()["place"], f"{name}-{copy}")
    log = RowLog(run.driver(name, copy), SENT)
    commands = Commands(child)
    line = Line(setup.streams, sender, log, child)
    pacer = Pacer(legs, line, commands, run.clock().ns, share, setup.measuring.linger)
    try:
        pacer.prepare()
        child.say("ready")
        if commands.await_start():
            assert commands.at_ns is not None
            pacer.run(commands.at_ns)
        sender.close()
    except (OSError, PenstockError):
        # A system that goes away once the run is stopped is no failure of the driver.
        commands.wait(0)
        if not commands.stopped:
            raise
    finally:
        log.close()
    return {
        "sent": pacer.sent,
        "due": pacer.due,
        "max_lag_us": pacer.max_lag_us,
        "kept": pacer.kept,
        "paused_us": pacer.pauses_us,
    }


if __name__ == "__main__":
    run_child(drive)
