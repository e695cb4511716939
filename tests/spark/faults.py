"""Python workers that fail at random points of the library, in place of `penstock.spark.daemon`.

A task attempt that is to fail does so in a call of one of the functions below: with an error, with kill -9 of its
worker, or with kill -9 in the middle of writing a block or a state. Or it is slow, so that Spark starts a speculative
attempt beside it. All of it follows from the seed, the micro-batch, the task and the number of the attempt. Every fault
is noted in a file.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from penstock.spark import bucket_state
from penstock.spark.daemon import run
from penstock.spark.live import LiveObjects
from penstock.spark.packing import Packer
from penstock.spark.publications import InStateStore
from penstock.spark.segment_device import SegmentDevice
from penstock.spark.state_files import StateFiles
from penstock.store import differences
from penstock.store.differences import Differences

differences.SMALL = bucket_state.INSIDE = 0  # the state of these tests is small, and is to be changes in files

POINTS: list[tuple[Any, str, int]] = [
    (LiveObjects, "take", 1),
    (LiveObjects, "put", 1),
    (SegmentDevice, "begin", 3),
    (SegmentDevice, "write", 3),
    (SegmentDevice, "sync", 6),
    (Differences, "part", 1),
    (Differences, "keep", 1),
    (StateFiles, "write_file", 1),
    (InStateStore, "publish", 1),
]
"""Functions that a stateful task calls, and how often it surely does: a fault comes at one of these calls."""

PACKING = "pack"
"""The one point of a task that packs events."""

ENVIRONMENT = "PENSTOCK_TEST_FAULTS"
ATTEMPTS = 2
"""Only the first attempts of a task fail, so that it gets through at last."""


def settings(log: Path, seed: int, kinds: list[str], share: float) -> dict[str, str]:
    """Spark settings with which `share` of the first attempts get a fault of one of the kinds."""
    plan = {"log": str(log), "seed": seed, "kinds": kinds, "share": share}
    return {
        "spark.python.daemon.module": "spark.faults",
        f"spark.executorEnv.{ENVIRONMENT}": json.dumps(plan),
        "spark.task.maxFailures": "8",
    }


class Fault:
    """What is to happen in one task attempt: once, at one point."""

    def __init__(self, plan: dict[str, Any], context: TaskContext) -> None:
        batch = context.getLocalProperty("streaming.sql.batchId")
        self.attempt = (context.stageId(), context.partitionId(), context.attemptNumber())
        self._plan = plan
        self._name = f"batch {batch} stage {self.attempt[0]} task {self.attempt[1]} attempt {self.attempt[2]}"
        chance = random.Random(f"{plan['seed']} {batch} {self.attempt}")
        comes = self.attempt[2] < ATTEMPTS and chance.random() < plan["share"]
        self._kind = chance.choice(plan["kinds"]) if comes else None
        _, self._point, calls = chance.choice(POINTS)
        self._calls_left = chance.randrange(calls)
        self._seconds = chance.uniform(0.5, 4.0)

    def call(self, point: str, half: Callable[[], None]) -> None:
        """A point is reached; `half` does half of what would be done there."""
        if point not in (PACKING, self._point) or self._kind is None:
            return
        if point == self._point and self._calls_left:
            self._calls_left -= 1
            return
        kind, self._kind = self._kind, None
        with open(self._plan["log"], "a") as log:
            log.write(f"{kind} at {point} in {self._name}\n")
        if kind == "error":
            raise OSError("an error for the test")
        if kind == "slow":
            time.sleep(self._seconds)
        else:
            half()
            os.kill(os.getpid(), signal.SIGKILL)


_current: list[Fault] = []


def fault_of_this_attempt(plan: dict[str, Any]) -> Fault | None:
    context = TaskContext.get()
    if context is None:
        return None
    attempt = (context.stageId(), context.partitionId(), context.attemptNumber())
    if not _current or _current[0].attempt != attempt:
        _current[:] = [Fault(plan, context)]
    return _current[0]


def failing(original: Callable[..., Any], plan: dict[str, Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        fault = fault_of_this_attempt(plan)
        if fault is not None:
            fault.call(original.__name__, lambda: write_half(original.__name__, arguments))
        return original(*arguments, **named)

    return call


def write_half(name: str, arguments: tuple[Any, ...]) -> None:
    """Leaves a file that ends in the middle of a block or of a state, if one is to be written."""
    if name == "write":
        device, payload = arguments
        stream = device._open or device._new_segment()
        stream.write(bytes(payload)[: len(payload) // 2])
        stream.flush()
    elif name == "write_file":
        files, batch, chain, pieces = arguments
        files.write_file.__wrapped__(files, batch, chain, [bytes(pieces[0])[: len(pieces[0]) // 2]])


if __name__ == "__main__":
    faults = json.loads(os.environ[ENVIRONMENT])
    for owner, name, _ in [*POINTS, (Packer, PACKING, 1)]:
        setattr(owner, name, failing(getattr(owner, name), faults))
    run()
