"""Exactly once: however often the application, its workers and its tasks are killed, the results are the embedded ones.

Each test drives a real application (`interrupted.py`) whose windows are larger than its memory. Seeds are fixed and the
moments of kills are printed; what a kill hits depends on the machine, so many rounds are made.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from . import faults
from .application import Application, check, is_alive, made_up_events, prepare
from .interrupted import RETAINED_BATCHES, Settings

pytestmark = pytest.mark.spark

PATIENCE = 600
"""Seconds until a run that should end is given up."""


def beginning_of(directory: Path, batch: int) -> Path:
    """A file that Spark writes when a micro-batch begins."""
    return directory / "checkpoint" / "offsets" / str(batch)


def kill_rounds(directory: Path, kills: int, chance: random.Random) -> int:
    """Kills the application at random moments, then lets it end; returns how many kills came before its end."""
    done = 0
    for number in range(kills):
        with Application(directory) as application:
            # Mostly while some later micro-batch runs; now and then while the last one is run again.
            ahead, pause = chance.choice([0, 1, 1, 2]), chance.uniform(0, 1)
            target = beginning_of(directory, max(0, last_batch(directory) + ahead))
            while application.is_running and not (target.exists() and application.is_ready):
                time.sleep(0.01)
            time.sleep(pause if ahead else 3 * pause)
            if not application.is_running:
                break
            # The driver's Python, its JVM or a worker dies a moment before the rest.
            victim = chance.choice(application.processes())
            print(f"kill {number}: {pause:.2f} s after micro-batch {target.name} has begun, first {victim}")
            application.kill(first=victim)
            done += 1
    with Application(directory) as application:
        application.wait(PATIENCE)
    return done


def last_batch(directory: Path) -> int:
    """The last micro-batch that was begun; -1 if there is none."""
    begun = beginning_of(directory, 0).parent
    return max((int(file.name) for file in begun.glob("[0-9]*")), default=-1)


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["files", "batches", "paths"])
def test_kill_9_of_the_application(tmp_path: Path, sink: str) -> None:
    events = made_up_events(2, 96_000)
    prepare(tmp_path, Settings(sink), events, batches=12)
    assert kill_rounds(tmp_path, kills=4, chance=random.Random(sink)) >= 2
    check(tmp_path, events)


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["files", "paths"])
def test_kill_9_of_python_workers(tmp_path: Path, sink: str) -> None:
    """Spark runs the task again in another worker, which has no live objects and restores the state."""
    events = made_up_events(3, 128_000)
    prepare(tmp_path, Settings(sink), events, batches=16)
    chance = random.Random(sink)
    killed: Counter[int] = Counter()
    with Application(tmp_path) as application:
        application.wait_until_ready()
        while application.is_running:
            time.sleep(chance.uniform(0, 1.5))
            batch, workers = last_batch(tmp_path), application.workers()
            # More than this in one micro-batch, and on a slow machine no attempt would ever get through.
            if workers and killed[batch] < 3:
                victim = chance.choice(workers)
                print(f"kill of worker {victim.pid} in micro-batch {batch}")
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim.kill()
                killed[batch] += 1
        application.wait(PATIENCE)
    assert killed.total() >= 5
    check(tmp_path, events)


@pytest.mark.slow
def test_kill_9_of_keepers(tmp_path: Path) -> None:
    """Of processes with live buckets, while these run and in between. At the end none is left."""
    events = made_up_events(9, 96_000)
    prepare(tmp_path, Settings("paths"), events, batches=12)
    chance = random.Random(9)
    killed: Counter[int] = Counter()
    seen: dict[int, psutil.Process] = {}
    with Application(tmp_path) as application:
        application.wait_until_ready()
        while application.is_running:
            time.sleep(chance.uniform(0, 1))
            batch, keepers = last_batch(tmp_path), application.keepers()
            seen |= {process.pid: process for process in application.workers()}
            if keepers and killed[batch] < 2:
                with contextlib.suppress(psutil.NoSuchProcess):
                    chance.choice(keepers).kill()
                killed[batch] += 1
        application.wait(PATIENCE)
    assert killed.total() >= 5
    assert len(seen) > 2
    deadline = time.monotonic() + 10
    while any(map(is_alive, seen.values())) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_alive, seen.values()))
    check(tmp_path, events)


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["files", "batches", "paths"])
def test_faults_at_every_point_of_a_task(tmp_path: Path, sink: str) -> None:
    events = made_up_events(4, 128_000)
    log = tmp_path / "faults"
    conf = faults.settings(log, seed=5, kinds=["error", "kill"], share=0.7)
    prepare(tmp_path, Settings(sink, conf=conf), events, batches=16)
    with Application(tmp_path) as application:
        application.wait(PATIENCE)
    noted = log.read_text().splitlines()
    print(*noted, sep="\n")
    points = {line.split(" at ")[1].split(" in ")[0] for line in noted}
    assert len(noted) >= 16
    assert points >= {"pack", "take", "put", "write", "sync", "part"}
    check(tmp_path, events)
    for suffix in (".segment", ".state"):
        check_files(tmp_path, suffix)


def check_files(directory: Path, suffix: str) -> None:
    """Orphans of failed attempts are gone, except the latest: a state that names them might still be loaded."""
    named = set(json.loads((directory / "named.json").read_text()))
    files = {file.name for file in (directory / "checkpoint").rglob(f"*{suffix}")}
    last = max(int(file.name) for file in (directory / "checkpoint" / "commits").iterdir() if file.name.isdigit())
    orphans = [int(name.split("-")[0]) for name in files - named]
    print(f"{len(files)} files, {len(orphans)} orphans of the micro-batches {sorted(orphans)}, the last is {last}")
    assert files & named
    # They are looked for as often as Spark forgets a state.
    assert all(batch >= last - 2 * RETAINED_BATCHES - 2 for batch in orphans)
