"""A query that goes on and on: its answers stay right, and memory, files, state and open files stay within bounds.

`make soak` runs it for an hour, the slow tests for a few minutes. After the window has been full for a while, what is
measured in the second half of the time is held against the first half.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import psutil
import pytest

from . import endless
from .application import Application

SECONDS = float(os.environ.get("PENSTOCK_SOAK_SECONDS", "120"))
WARM_UP = LEAST = 3 * endless.WINDOW_SECONDS
"""Micro-batches before anything is measured, and those that are made afterwards, however slow the machine is."""

ALLOWED = {
    "segment files": 1.2,
    "bytes in segments": 1.2,
    "files of state": 1.3,
    "bytes in files of state": 1.5,
    "bytes in Spark's state store": 1.5,
    "resident bytes of the JVM": 1.3,
    "resident bytes of Python": 1.2,
    "open files of Python": 1.2,
}
"""How much greater a figure's median may be in the second half than in the first."""

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def sizes(directory: Path, pattern: str) -> list[int]:
    found = []
    for file in directory.rglob(pattern):
        try:
            found.append(file.stat().st_size)
        except FileNotFoundError:
            continue
    return found


def figures(application: Application, checkpoint: Path) -> dict[str, float]:
    """What the application takes at this moment."""
    segments, states = sizes(checkpoint, "*.segment"), sizes(checkpoint / "penstock", "*.state")
    jvm = python = files = 0
    for process in application.processes():
        try:
            if process.name() == "java":
                jvm += process.memory_info().rss
            else:
                python += process.memory_info().rss
                files += process.num_fds()
        except psutil.NoSuchProcess:
            continue
    committed = sum(sizes(checkpoint / "state", "*"))
    values = (len(segments), sum(segments), len(states), sum(states), committed, jvm, python, files)
    return dict(zip(ALLOWED, map(float, values), strict=True))


def windows(file: Path) -> list[tuple[int, ...]]:
    return [tuple(map(int, line.split())) for line in file.read_text().splitlines()]


def test_nothing_grows(tmp_path: Path) -> None:
    noted = tmp_path / "windows"
    samples: list[dict[str, float]] = []
    with Application(tmp_path, script=endless.__file__) as application:
        application.wait_for(noted)
        while len(windows(noted)) < WARM_UP:
            assert application.is_running, "it goes on until it is stopped"
            time.sleep(1)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or len(windows(noted)) < WARM_UP + LEAST:
            assert application.is_running, "it goes on until it is stopped"
            samples.append(figures(application, tmp_path / "checkpoint"))
            time.sleep(1)
    check_windows(windows(noted))
    half = len(samples) // 2
    grown = []
    for name, allowed in ALLOWED.items():
        before, after = (statistics.median(s[name] for s in part) for part in (samples[:half], samples[half:]))
        print(f"{name}: {before:,.0f}, then {after:,.0f}; at most {max(s[name] for s in samples):,.0f}")
        if after > allowed * before:
            grown.append(name)
    assert not grown
    assert samples[-1]["segment files"] > endless.WINDOW_SECONDS, "windows are larger than memory"


def check_windows(found: list[tuple[int, ...]]) -> None:
    """Every second once, in order, and no window has lost or doubled an event."""
    print(f"{len(found)} windows")
    for number, (end, events) in enumerate(found, 1):
        assert end == endless.START + number
        assert events == endless.EVENTS_PER_SECOND * min(number, endless.WINDOW_SECONDS)
