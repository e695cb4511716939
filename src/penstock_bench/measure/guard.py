"""Servers and other programs that we start end with us, also if we are killed and can end nothing ourselves.

A small process of its own, a shell that waits for the end of a pipe, kills the program when we are gone. The system's
own means for this (`prctl`) is Linux's alone, and goes by the thread that started the program, not by the process.
"""

from __future__ import annotations

import contextlib
import subprocess

_WATCH = 'read -r released || kill -s KILL -- "-$1"'


class Guard:
    """Watches over a program that leads a process group of its own (`start_new_session=True`): when this process ends,
    all of the group do. `release` once the program has ended otherwise: its number may soon be another's."""

    def __init__(self, leader: int) -> None:
        # Not of our group either: what kills that must leave the watch.
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "guard", str(leader)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def release(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._watch.communicate(b"released\n")
