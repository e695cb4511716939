"""The sampler looks at real processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from penstock_bench.measure.clock import Clock
from penstock_bench.measure.results.resources import ResourceSampler
from penstock_bench.measure.running.logs import read_log

BUSY = """
import subprocess, sys, os
child = subprocess.Popen([sys.executable, "-c", '''
import os, sys
held = bytearray(60_000_000)
held[::4096] = b"x" * len(held[::4096])
with open(sys.argv[1], "wb") as file:
    file.write(os.urandom(4_000_000)); file.flush(); os.fsync(file.fileno())
while os.times().user < 0.3: pass
print("busy", flush=True)
sys.stdin.read()
''', sys.argv[1]], stdin=subprocess.PIPE)
sys.stdin.read()
child.communicate()
print("alone", flush=True)
sys.stdin.buffer.raw.read(1)
"""


def until(reached: object) -> None:
    assert callable(reached)
    limit = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_a_process_and_its_child(tmp_path: Path) -> None:
    clock = Clock.now_set()
    sampler = ResourceSampler(tmp_path / "resources", clock, 10_000)
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY, str(tmp_path / "written")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        sampler.watch("system", process.pid)
        sampler.watch("nobody", 2**22 + 1)
        sampler.start()
        assert process.stdout.readline() == "busy\n"
        until(lambda: (seen := sampler.latest().get("system")) is not None and seen.cpu_s > 0.3)
        with_child = sampler.latest()["system"]
        process.stdin.close()
        assert process.stdout.readline() == "alone\n"
        process.wait(30)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    until(lambda: sampler.latest()["system"].rss_bytes >= 0)
    sampler.stop()
    assert with_child.rss_bytes > 60_000_000
    log = read_log(tmp_path / "resources")
    assert log is not None
    assert set(log.column("process").to_pylist()) == {"system"}
    cpu = log.column("cpu_s").to_numpy()
    # What the child has used stays in the sum after its end.
    assert (np.diff(cpu) >= -1e-9).all()
    assert cpu[-1] >= with_child.cpu_s
    assert log.column("written_bytes").to_numpy().max() >= 4_000_000
    times = log.column("time_ns").to_numpy()
    assert (np.diff(times) > 0).all()
    assert abs(times[-1] - clock.ns()) < 60e9


def test_stopped_before_it_began(tmp_path: Path) -> None:
    sampler = ResourceSampler(tmp_path / "resources", Clock.now_set(), 10_000)
    sampler.stop()
    assert sampler.latest() == {}
