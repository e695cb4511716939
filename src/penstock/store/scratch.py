"""Directories for blocks that no checkpoint names: they are gone with the process that made them, however it ends.

    <temporary>/penstock-blocks-<random>/.owner   locked as long as the process lives

Invariants:
1. A directory goes when it is closed, when its object is collected, or at the end of the interpreter; what a killed
   process left goes when a process of the same user makes its first one.
2. A directory whose process lives is never removed by another. `.owner` gets its name once it is locked, so a directory
   with an `.owner` that can be locked has lost its process.
3. A forked process removes nothing of its parent's.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import stat
import tempfile
import time
import weakref
from pathlib import Path

_PREFIX = "penstock-blocks-"
_OWNER = ".owner"
_DRAFT = ".owner.draft"
_UNCLAIMED_SECONDS = 86400


class Scratch:
    """A new directory, `path`, for this user alone."""

    def __init__(self) -> None:
        remove_left_behind(tempfile.gettempdir())
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._remove = weakref.finalize(self, _remove, self.path, _claim(self.path), os.getpid())

    def close(self) -> None:
        self._remove()


def _claim(directory: Path) -> int:
    owner = os.open(directory / _DRAFT, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):  # a file system without locks: nothing there is ever taken to be left behind
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(directory / _DRAFT, directory / _OWNER)
    return owner


def _remove(directory: Path, owner: int, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)
    os.close(owner)


@functools.cache
def remove_left_behind(temporary: str) -> None:
    """Removes the directories of processes of this user that are there no more. Once in a process."""
    with contextlib.suppress(OSError), os.scandir(temporary) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_left(Path(entry.path))


def _remove_if_left(directory: Path) -> None:
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    try:
        owner = os.open(directory / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        # A process was killed before it had claimed the directory, or another is about to.
        if found.st_mtime < time.time() - _UNCLAIMED_SECONDS and set(os.listdir(directory)) <= {_DRAFT}:
            shutil.rmtree(directory, ignore_errors=True)
        return
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(owner)
