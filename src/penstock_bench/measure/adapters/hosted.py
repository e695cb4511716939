"""The adapter of every system that the framework runs itself: an `Engine` in the host process.

Drivers and sinks speak to the host over sockets of the loopback; what a system needs is an `Engine` and the few lines
that name it:

    class Mine(Hosted):
        dialect = "mine"

        def engine(self) -> Engine:
            return MyEngine()
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock_bench.measure.adapters.adapter import Adapter, Receiver, Results, Sender
from penstock_bench.measure.adapters.engine import Engine
from penstock_bench.measure.running.wire import FrameReader, FrameWriter, connect
from penstock_bench.measure.setup.generators import Scalar

QUIET = 0.2


class Hosted(Adapter):
    @abstractmethod
    def engine(self) -> Engine:
        """The system, not yet started. Called in the host alone."""

    def check(self) -> None:
        """Nothing is needed by default."""

    def begin(self, run: Path) -> Mapping[str, Scalar]:
        from penstock_bench.measure.running.serving import Serving

        self._serving = Serving(self.setup, run, self.engine())
        return self._serving.begin()

    def finish(self) -> None:
        self._serving.finish()

    def end(self) -> None:
        serving = getattr(self, "_serving", None)
        if serving is not None:
            serving.end()

    def progress(self) -> dict[str, Any]:
        return self._serving.progress()

    def sender(self, place: Mapping[str, Scalar], driver: str) -> Sender:
        return _SocketSender(place, driver, list(self.setup.streams))

    def receiver(self, place: Mapping[str, Scalar], sink: str) -> Receiver:
        return _SocketReceiver(place, sink, list(self.setup.queries))


class _SocketSender(Sender):
    def __init__(self, place: Mapping[str, Scalar], driver: str, streams: list[str]) -> None:
        self._numbers = {name: number for number, name in enumerate(streams)}
        self._socket = connect(int(place["port"]), {"driver": driver, "token": place["token"]})
        self._frames = FrameWriter(self._socket)

    def send(self, stream: str, batch: pa.RecordBatch) -> None:
        self._frames.write(self._numbers[stream], batch)

    def close(self) -> None:
        self._frames.end()
        self._socket.close()


class _SocketReceiver(Receiver):
    def __init__(self, place: Mapping[str, Scalar], sink: str, queries: list[str]) -> None:
        self._queries = queries
        self._socket = connect(int(place["port"]), {"sink": sink, "token": place["token"]})

    def __iter__(self) -> Iterator[Results | None]:
        for frame in FrameReader(self._socket).frames(QUIET):
            yield None if frame is None else Results(self._queries[frame.number], frame.batch, frame.stamp_ns)

    def close(self) -> None:
        self._socket.close()
