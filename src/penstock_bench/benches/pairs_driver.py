"""The process that sends the ticks of a Pairs run: history as fast as it is taken, then each frame when it is due.

Its arguments are the directory of the load. It is told `{"do": "send", "port": …, "token": …}`, and, when the system
has taken the history, `{"do": "start", "at_ns": …}`, the moment of the monotonic clock at which the stretch begins.
"""

from __future__ import annotations

import mmap
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from penstock_bench.benches.pairs_load import FRAMES, SCHEDULE
from penstock_bench.measure.running.child import Child
from penstock_bench.measure.running.wire import FrameWriter, connect


def main() -> None:
    child = Child()
    child.say("ready")
    while (command := child.command()) is not None and command["do"] == "send":
        directory = Path(command["load"])
        schedule = np.load(directory / SCHEDULE)
        with (directory / FRAMES).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as frames:
            connected = connect(int(command["port"]), {"driver": "driver", "token": command["token"]})
            child.say("sent", **_send(child, connected, memoryview(frames), schedule))
            FrameWriter(connected).end()
            connected.close()


def _send(child: Child, connected: Any, frames: memoryview, schedule: Any) -> dict[str, Any]:
    """Sends everything; returns how late the last frame and the latest one were, in nanoseconds."""
    ends, dues = schedule[:, 0].tolist(), schedule[:, 1].tolist()
    history = int(np.count_nonzero(schedule[:, 1] < 0))
    sent = 0
    if history:
        connected.sendall(frames[: ends[history - 1]])
        sent = ends[history - 1]
    command = child.command()
    if command is None or command["do"] != "start":
        sys.exit(0)
    begin = int(command["at_ns"])
    late = latest = 0
    clock, sleep = time.monotonic_ns, time.sleep
    number, count = history, len(ends)
    while number < count:
        due = begin + dues[number] * 1_000_000
        ahead = due - clock()
        if ahead > 0:
            sleep(ahead / 1e9)
        # What is late by now goes together.
        passed = (clock() - begin) // 1_000_000
        number += 1
        while number < count and dues[number] <= passed:
            number += 1
        connected.sendall(frames[sent : ends[number - 1]])
        sent = ends[number - 1]
        late = clock() - due
        latest = max(latest, late)
    frames.release()
    return {"late_ns": late, "latest_ns": latest}


if __name__ == "__main__":
    main()
