"""A process of a run as its controller sees it: started, told what to do, heard, ended."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

TAIL = 2_000
"""How much of a log an error shows, in characters."""

Heard = tuple["Process", dict[str, Any]]


class Process:
    """Its messages go to `heard`; the last one, when it has ended, is `{"is": "exit", "code": …}`."""

    def __init__(
        self, kind: str, name: str, module: str, arguments: list[str], log: Path, heard: queue.SimpleQueue[Heard]
    ) -> None:
        self.kind = kind
        self.name = name
        self.log = log
        self.ready = False
        self.over = False
        """Whether it has said its last: done, failed, or exit."""
        self.exited = False
        self.heard_at = time.monotonic()
        """When it last sent a message, for threads that wait for one."""
        with log.open("ab") as errors:
            # A session of its own: Ctrl-C does not reach it, and what it starts can be ended with it.
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._heard = heard
        threading.Thread(target=self._hear, name=f"hear {name}", daemon=True).start()

    @property
    def title(self) -> str:
        return self.name if self.kind == "system" else f"{self.kind} {self.name}"

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict) and "is" in message:
                self._heard.put((self, message))
        self._heard.put((self, {"is": "exit", "code": self._process.wait()}))

    def tell(self, what: str, **more: Any) -> None:
        assert self._process.stdin is not None
        # One that is gone hears nothing; its end is told by `exit`.
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps({"do": what, **more}).encode() + b"\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """It and whatever it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def death(self, code: int) -> str:
        """What can be said of a process that ended without a word."""
        if code == -signal.SIGKILL:
            how = "was killed; if nobody did that, the machine has run out of memory"
        elif code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        return f"{self.title} {how}{self.tail()}"

    def tail(self) -> str:
        """The end of its log, for an error."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""
        return f"\nthe end of {self.log}:\n{text[-TAIL:]}" if text else ""
