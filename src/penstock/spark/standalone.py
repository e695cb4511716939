"""A Spark standalone cluster on this machine: a master and some workers, each a process as on many machines.

    python -m penstock.spark.standalone --workers 2      prints spark://..., runs until Ctrl-C
    spark-submit --master spark://... job.py

For trying a job before it goes to a real cluster, and for tests. Ports are chosen by the operating system. Every worker
has a loopback address of its own where the machine has several, so that Spark takes them for different machines.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

import psutil
import pyspark

from penstock.errors import PenstockError
from penstock.java import java_home

SPARK_HOME = Path(pyspark.__file__).parent

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_START_SECONDS = 120
_STOP_SECONDS = 20
_LAUNCHER_VARIABLES = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_CONF_DIR", "SPARK_LOCAL_IP")
"""What a Spark application leaves in its environment, and a cluster must not inherit."""


@dataclass
class _Daemon:
    process: subprocess.Popen[bytes]
    log: Path

    def wait_for(self, pattern: str) -> str:
        """What the pattern's group finds in the log."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            found = re.search(pattern, self.log.read_text(errors="replace"))
            if found:
                return found.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise PenstockError(f"a process of the Spark cluster did not start; its log is {self.log}")


class Cluster:
    """Started by `with`, stopped with everything in it when that ends.

    `cores` and `memory` are what each worker offers. Logs and the executors' directories go to `directory`. The
    executors and their Python workers get `environment` in addition to that of this process.
    """

    def __init__(
        self,
        directory: Path,
        *,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self._workers = workers
        self._offer = ["--cores", str(cores), "--memory", memory]
        inherited = {name: value for name, value in os.environ.items() if name not in _LAUNCHER_VARIABLES}
        self._environment = {
            **inherited,
            "SPARK_HOME": str(SPARK_HOME),
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            **(environment or {}),
        }
        self._daemons: list[_Daemon] = []
        self.url = ""

    def __enter__(self) -> Cluster:
        try:
            master = self._start("master", _MASTER, "127.0.0.1", [])
            self.url = master.wait_for(r"Starting Spark master at (spark://\S+)")
            for number in range(1, self._workers + 1):
                place = ["--work-dir", str(self._directory / f"worker-{number}")]
                self._start(f"worker-{number}", _WORKER, _address(number), [*self._offer, *place, self.url])
            for worker in self._daemons[1:]:
                worker.wait_for(r"(Successfully registered with master)")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def kill_worker(self, number: int) -> None:
        """kill -9 of a worker (1, 2, ...), its executors and their Python workers: the machine is gone."""
        _end(_with_descendants(self._daemons[number].process.pid), signal.SIGKILL)

    def executors(self, number: int) -> list[psutil.Process]:
        """The JVMs of the executors that a worker runs now."""
        return _with_descendants(self._daemons[number].process.pid, all_levels=False)[1:]

    def stop(self) -> None:
        """Asks all processes to end, and kills what has not ended."""
        everything = [found for daemon in self._daemons for found in _with_descendants(daemon.process.pid)]
        _end(everything, signal.SIGTERM)
        _end(everything, signal.SIGKILL)
        for daemon in self._daemons:
            daemon.process.wait()
        self._daemons.clear()

    def _start(self, name: str, main_class: str, host: str, arguments: Sequence[str]) -> _Daemon:
        self._directory.mkdir(parents=True, exist_ok=True)
        log = self._directory / f"{name}.log"
        command = [str(SPARK_HOME / "bin" / "spark-class"), main_class]
        ports = ["--host", host, "--port", "0", "--webui-port", "0"]
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [*command, *ports, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                cwd=self._directory,
                start_new_session=True,
            )
        daemon = _Daemon(process, log)
        self._daemons.append(daemon)
        return daemon


def _address(number: int) -> str:
    address = f"127.0.0.{number + 1}"
    with contextlib.closing(socket.socket()) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return "127.0.0.1"
    return address


def _with_descendants(pid: int, *, all_levels: bool = True) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=all_levels)]
    except psutil.NoSuchProcess:
        return []


def _end(processes: Sequence[psutil.Process], how: signal.Signals) -> None:
    """Sends the signal and waits until all have ended, for some time."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(how)
    deadline = time.monotonic() + _STOP_SECONDS
    while any(map(_is_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.02)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m penstock.spark.standalone", description="A local Spark cluster.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1, help="of each worker")
    parser.add_argument("--memory", default="1g", help="of each worker")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    with tempfile.TemporaryDirectory(prefix="penstock-cluster-") as directory:
        place = Path(directory)
        with (
            contextlib.suppress(KeyboardInterrupt),
            Cluster(place, workers=chosen.workers, cores=chosen.cores, memory=chosen.memory) as cluster,
        ):
            print(cluster.url, flush=True)
            print(f"{chosen.workers} workers; logs are in {place}; Ctrl-C stops the cluster", flush=True)
            signal.pause()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
