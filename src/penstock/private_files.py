"""Directories and files of this user alone: for what is run when it is read, and for data that others must not see.

Invariants:
1. What is read was written by this user: the directory is looked at through the descriptor that it was opened by, and
   each file through its own, so nothing can be exchanged between the look and the reading. Links are not followed.
2. What is made has the modes 0700 and 0600, whatever the umask says.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class NotPrivateError(Exception):
    """Another user made it or can change it; the message says so in a few words that begin with the path."""


def make_private(directory: Path) -> None:
    """Makes the directory and those above it that are missing, or looks whether it is this user's alone.

    A directory of this user that others can write is replaced by an empty one: they may have put something into it.
    """
    with contextlib.suppress(FileExistsError):
        _make(directory)
    found = directory.lstat()
    _check(directory, found)
    if found.st_mode & _WRITABLE_BY_OTHERS:
        aside = directory.with_name(f"{directory.name}.{secrets.token_hex(8)}.old")
        with contextlib.suppress(FileNotFoundError):  # another process of this user was faster
            directory.rename(aside)
        with contextlib.suppress(FileExistsError):
            _make(directory)
        shutil.rmtree(aside, ignore_errors=True)


def _make(directory: Path) -> None:
    if not directory.parent.exists():
        with contextlib.suppress(FileExistsError):
            _make(directory.parent)
    elif directory.parent.stat().st_uid not in (os.geteuid(), 0):
        raise NotPrivateError(f"{directory.parent} belongs to another user")
    os.mkdir(directory, 0o700)
    os.chmod(directory, 0o700)  # a umask can take rights away that the user needs


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[int]:
    """The descriptor of a directory of this user alone. OSError where there is none."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        if directory.is_symlink():
            raise NotPrivateError(f"{directory} is a link") from None
        raise
    try:
        found = os.fstat(descriptor)
        _check(directory, found)
        if found.st_mode & _WRITABLE_BY_OTHERS:
            raise NotPrivateError(f"{directory} can be written by other users")
        yield descriptor
    finally:
        os.close(descriptor)


def read(directory: int, name: str) -> bytes:
    """A file of an open directory. OSError where there is none that this user alone can write."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        alone = stat.S_ISREG(found.st_mode) and not found.st_mode & _WRITABLE_BY_OTHERS
        if found.st_uid != os.geteuid() or not alone:
            raise PermissionError(f"{name} was not written by this user alone")
        return file.read()


def write(directory: int, name: str, data: bytes) -> None:
    """Replaces a file of an open directory at once."""
    draft = f"{name}.{secrets.token_hex(8)}.tmp"
    descriptor = os.open(
        draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=directory)
        raise


def _check(directory: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise NotPrivateError(f"{directory} is a link")
    if not stat.S_ISDIR(found.st_mode):
        raise NotPrivateError(f"{directory} is no directory")
    if found.st_uid != os.geteuid():
        raise NotPrivateError(f"{directory} belongs to another user")
