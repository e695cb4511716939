"""What we have started ends when we are killed, and only then."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from penstock_bench.measure.guard import Guard

LONG = 60.0

_STARTS = """
import subprocess, sys, time
from penstock_bench.measure.guard import Guard
# The program has a child of its own.
program = subprocess.Popen(["/bin/sh", "-c", "sleep 600 & wait"], start_new_session=True)
guard = Guard(program.pid)
print(program.pid, '', flush=True)
time.sleep(600)
"""

_BROKER = """
import time
from penstock_bench.measure.adapters.kafka_broker import KafkaBroker
broker = KafkaBroker()
broker.start()
print(broker._process.pid, broker.directory, flush=True)
time.sleep(600)
"""

_POSTGRES = """
import time
from penstock_bench.measure.postgres import PostgresServer
with PostgresServer() as server:
    print(server._server.pid, server._home, flush=True)
    time.sleep(600)
"""


def until(reached: Callable[[], bool]) -> None:
    limit = time.monotonic() + LONG
    while not reached():
        assert time.monotonic() < limit
        time.sleep(0.02)


def family(pid: int) -> list[psutil.Process]:
    leader = psutil.Process(pid)
    return [leader, *leader.children(recursive=True)]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(
    "script", [_STARTS, pytest.param(_BROKER, marks=pytest.mark.slow), pytest.param(_POSTGRES, marks=pytest.mark.slow)]
)
def test_a_program_ends_with_the_one_that_started_it(tmp_path: Path, script: str) -> None:
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as starter:
        assert starter.stdout is not None
        number, _, directory = starter.stdout.readline().strip().partition(" ")
        pid = int(number)
        if script is _STARTS:
            until(lambda: len(family(pid)) == 2)
        started = family(pid)
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        until(lambda: not alive(started))
    if directory:
        # Nobody else is left to remove it.
        shutil.rmtree(directory)


def test_a_program_that_was_released_stays() -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as program:
        Guard(program.pid).release()
        assert program.poll() is None
        program.kill()
