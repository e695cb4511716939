"""A real Kafka broker on this machine, for tests and for runs that have no other: one node, KRaft mode.

    python -m penstock_bench.measure.adapters.kafka_broker --port 9092 --directory out/kafka

It listens on loopback only. The jars come from Maven (see `maven`); Java is found as for Spark. In a directory where a
broker ran before it goes on with the topics that are there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from types import TracebackType

from penstock.errors import InputError, PenstockError
from penstock.instruments import java_home
from penstock_bench.measure.adapters.maven import class_path
from penstock_bench.measure.guard import Guard

VERSION = "4.3.1"
JARS = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.36")

HOST = "127.0.0.1"
_READY_SECONDS = 60.0
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.05
_STARTED = b"Kafka Server started"
_TAIL_LINES = 12

_PROPERTIES = """process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{control_port}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{control_port}
log.dirs={data}
num.partitions=1
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class KafkaBroker:
    """A broker that runs from `__enter__` to `__exit__`, or from `start` to `stop`.

    Without a port the system chooses a free one. Without a directory there is a temporary one that goes with it.
    """

    def __init__(self, port: int = 0, directory: Path | None = None, heap: str = "1g") -> None:
        self._port = port
        self._heap = heap
        self._kept = directory is not None
        self.directory = (directory or Path(tempfile.mkdtemp(prefix="penstock-kafka-"))).resolve()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return f"{HOST}:{self._port}"

    @property
    def log(self) -> Path:
        """What the broker says."""
        return self.directory / "broker.log"

    def start(self) -> None:
        """Returns when the broker serves clients."""
        try:
            self._start()
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        java = str(java_home() / "bin" / "java")
        path = class_path(JARS)
        with _free(self._port) as port, _free(0) as control:
            self._port, control_port = port.getsockname()[1], control.getsockname()[1]
        try:
            properties = self._configure(control_port)
        except OSError as error:
            raise InputError(f"directory {self.directory}: {error.strerror}") from None
        settings = [f"-Xmx{self._heap}", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        command = [java, *settings, "-cp", path]
        if not (self.directory / "data" / "meta.properties").exists():
            self._format([*command, "kafka.tools.StorageTool", "format"], properties)
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C reaches only this process, which then stops the broker in order.
            self._process = subprocess.Popen(
                [*command, "kafka.Kafka", str(properties)],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._guard = Guard(self._process.pid)

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Ends it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Ends it in order: what it has accepted is on disk."""
        if self._process is not None and self.running():
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        if self._guard is not None:
            self._guard.release()
            self._guard = None
        if not self._kept:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _configure(self, control_port: int) -> Path:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text(_PROPERTIES.format(host=HOST, port=self._port, control_port=control_port, data=data))
        return properties

    def _format(self, command: list[str], properties: Path) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Written with =, since an id that begins with a dash would be taken for an option.
        arguments = [f"--cluster-id={cluster}", "--config", str(properties)]
        ran = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise PenstockError(f"Kafka cannot use {self.directory}:\n{_tail(ran.stdout + ran.stderr)}")

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        until = time.monotonic() + _READY_SECONDS
        while _STARTED not in self.log.read_bytes():
            if self._process.poll() is not None:
                raise PenstockError(f"the Kafka broker ended while starting:\n{self.said()}")
            if time.monotonic() > until:
                raise PenstockError(f"the Kafka broker was not ready within {_READY_SECONDS:.0f} s:\n{self.said()}")
            time.sleep(_POLL_SECONDS)

    def said(self) -> str:
        """The end of its log."""
        return _tail(self.log.read_text(errors="replace"))


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-_TAIL_LINES:])


def _free(port: int) -> socket.socket:
    """A socket that holds the port until it is closed; Kafka's own complaint would come late and long."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise InputError(
            f"port {port}: {os.strerror(error.errno or 0)}; choose another, or 0 for any that is free"
        ) from None


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m penstock_bench.measure.adapters.kafka_broker",
        description=f"Runs a Kafka broker ({VERSION}) on this machine until Ctrl-C.",
    )
    parser.add_argument("--port", type=int, default=9092, help="0 takes one that is free (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="its data and log; without it they go when it ends")
    parser.add_argument("--heap", default="1g", help="memory of its Java (default: %(default)s)")
    given = parser.parse_args()
    for ends in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ends, _interrupted)
    try:
        with KafkaBroker(given.port, given.directory, given.heap) as broker:
            print(f"Kafka {VERSION} is ready: {broker.bootstrap} (log: {broker.log})", flush=True)
            while broker.running():
                time.sleep(_POLL_SECONDS)
            raise PenstockError(f"the Kafka broker ended by itself:\n{broker.said()}")
    except KeyboardInterrupt:
        return 0
    except PenstockError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
