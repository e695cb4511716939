"""Starts an application, `interrupted.py` on made-up events, kills it, and says what it must have written."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
import pyarrow.parquet as pq

import penstock.spark

from . import interrupted
from .runs import Events, Row, embedded, in_order, write_batches

SECOND = 1_000_000
TESTS = Path(__file__).parents[1]


def made_up_events(seed: int, count: int) -> list[dict[str, Any]]:
    """200 a second, out of order by less than the stream's LATENESS, no two at the same time."""
    chance = random.Random(seed)
    return [
        {
            "t": 1000 * SECOND + i * 5_000 + chance.randrange(1_900) * 1_000 + i % 1_000,
            "k": f"key {chance.randrange(12)}",
            "v": chance.choice([chance.random(), -1e16, 1e16, 1e-16]),
            "n": chance.randrange(1_000_000),
        }
        for i in range(count)
    ]


class Application:
    """One run of a script in `directory`, with everything that it starts."""

    def __init__(
        self, directory: Path, command: Sequence[str] = (sys.executable,), script: str = interrupted.__file__
    ) -> None:
        self._ready = directory / "ready"
        self._ready.unlink(missing_ok=True)
        self._log = directory / "log"
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [*command, script, str(directory)],
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": import_path(), "PYSPARK_PYTHON": sys.executable},
            )

    def __enter__(self) -> Application:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def is_ready(self) -> bool:
        """Whether Spark is up and the query begins."""
        return self._ready.exists()

    def wait_until_ready(self) -> None:
        self.wait_for(self._ready)

    def wait_for(self, file: Path) -> None:
        """Until the application has made a file."""
        while not file.exists():
            assert self.is_running, f"the application ended early, see {self._log}"
            time.sleep(0.02)

    def processes(self) -> list[psutil.Process]:
        """The driver's Python first, then its JVM, then Python workers."""
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def workers(self) -> list[psutil.Process]:
        """Python workers, the switchboard and the keepers, forked by the one daemon that the JVM has started."""
        jvms = [process for process in self.processes()[1:] if named(process, "java")]
        daemons = [child for jvm in jvms for child in children(jvm)]
        return [worker for daemon in daemons for worker in children(daemon, recursive=True)]

    def keepers(self) -> list[psutil.Process]:
        """Of these the keepers, forked by the switchboard."""
        parents = {worker.pid for worker in self.workers()}
        return [worker for worker in self.workers() if parent(worker) in parents]

    def kill(self, first: psutil.Process | None = None) -> None:
        """kill -9 of everything at once, `first` first."""
        everything = self.processes()
        for process in sorted(everything, key=lambda process: process != first):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 30
        while any(map(is_alive, everything)) and time.monotonic() < deadline:
            time.sleep(0.01)
        self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout: float) -> None:
        assert self._process.wait(timeout) == 0, f"the application failed, see {self._log}"


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def named(process: psutil.Process, name: str) -> bool:
    try:
        return bool(process.name() == name)
    except psutil.NoSuchProcess:
        return False


def parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None


def children(process: psutil.Process, *, recursive: bool = False) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=recursive)
    except psutil.NoSuchProcess:
        return []
    return found


def import_path() -> str:
    """Where the application and its workers find the tests and the library."""
    return os.pathsep.join([str(TESTS), str(Path(penstock.spark.__file__).parents[2])])


def prepare(directory: Path, settings: interrupted.Settings, events: Events, batches: int) -> None:
    size = -(-len(events) // batches)
    write_batches(directory / "in", interrupted.PROGRAM, [events[i : i + size] for i in range(0, len(events), size)])
    settings.write(directory)


def check(directory: Path, events: Events) -> None:
    """Nothing lost, nothing twice, and a micro-batch that was run again gave the same rows."""
    results: list[Row] = in_order(pq.read_table(directory / "results.parquet"))
    assert results == embedded(interrupted.PROGRAM, events)
    assert not list((directory / "out").glob("*.differs"))


def segments(directory: Path) -> list[Path]:
    return sorted((directory / "checkpoint").rglob("*.segment"))
