"""What every process of a run has in common: it is told what to do on standard input and answers on standard output.

Both are JSON, one object a line. To a child: `{"do": "start", "at_ns": …}`, `pause`, `resume`, `finish` (host),
`stop`. From a child: `{"is": "ready"}`, `progress`, `note`, `done`, `failed`. The end of standard input means that the
controller is gone, and is taken for a stop. Ctrl-C reaches the controller alone, which stops its children in order.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock_bench.measure.running.directory import RunDirectory

PROGRESS_EVERY = 0.25
"""Seconds between two progress messages of a child."""

PATIENCE = 20.0
"""Seconds that a child has for a clean end after its controller is gone."""


class Child:
    """The two ends of the line to the controller. `say` may be called by any thread."""

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # What a system under test prints must not come between the messages.
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._speaking = threading.Lock()
        self._commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.orphaned = False
        threading.Thread(target=self._listen, name="commands", daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._commands.put(json.loads(line))
        self.orphaned = True
        self._commands.put({"do": "stop"})
        # If the process hangs in something that cannot be stopped, it still must not outlive its controller for long.
        watch = threading.Timer(PATIENCE, os._exit, (1,))
        watch.daemon = True
        watch.start()

    def command(self, timeout: float | None = None) -> dict[str, Any] | None:
        """The next command; None if none came within `timeout` seconds (0 does not wait)."""
        try:
            return self._commands.get(block=timeout != 0, timeout=timeout or None)
        except queue.Empty:
            return None

    def say(self, kind: str, **message: Any) -> None:
        with self._speaking:
            try:
                print(json.dumps({"is": kind, **message}), file=self._out, flush=True)
            except BrokenPipeError:
                self.orphaned = True


def run_child(work: Callable[[Child, RunDirectory, list[str]], dict[str, Any]]) -> None:
    """Runs the work of a process whose arguments are the run's directory and whatever else `work` takes.

    What it returns is said as `done`. An error on purpose is told in its own words, any other by its last line (its
    traceback is in the log).
    """
    child = Child()
    # Arrow loads pandas when it first meets numpy, if there is one: half a second that no event shall wait for.
    pa.array(np.zeros(1)).to_numpy()
    try:
        result = work(child, RunDirectory(Path(sys.argv[1])), sys.argv[2:])
    except PenstockError as error:
        child.say("failed", error=str(error), told=True)
    except MemoryError:
        traceback.print_exc()
        child.say("failed", error="out of memory", told=False)
    except BaseException as error:
        traceback.print_exc()
        child.say("failed", error=f"{type(error).__name__}: {error}", told=False)
    else:
        child.say("done", **result)
        _leave(0)
    _leave(1)


def _leave(code: int) -> None:
    # Threads of a system under test, or of a library, may never end; everything of ours is closed by now.
    sys.stderr.flush()
    os._exit(code)
