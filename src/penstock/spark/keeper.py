"""A keeper: a process that runs the tasks of some buckets, so that these find their live objects (`spark.live`).

Spark has no connection to it. A worker that is given a task for a bucket asks the switchboard, which tells the keeper
who asks; then these two talk, over a pair of sockets:

    keeper  ─ ready ──▶ worker
    worker  ─ the connection to Spark, the first message of the task ──▶ keeper, which runs the task
    keeper  ─ exit code ──▶ worker, which goes on with its connection

Invariants:
1. A worker that does not hear `ready` in time runs the task itself. A keeper whose `ready` is not heard runs nothing.
2. Either the worker or the keeper reads from the connection, and never both: the worker gives it away between the first
   message and the data, and has it back when the task has ended.
3. Worker and keeper live and die together while a task runs: Spark kills the worker to stop a task, and sees by the
   worker's end that a keeper died.
4. A keeper ends when a task fails, as a worker does, when the switchboard is gone, and when it is not used.

Why: docs/decisions/buckets-stay.md
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import struct
import threading
from typing import NoReturn

from penstock.spark.worker_task import run_on

PATIENCE_SECONDS = 5.0
"""A worker waits so long for a keeper that is busy, then has the state read back. The keeper may be busy for long, or
the task that it runs may itself be waiting for this one."""

FREE = b"f"
"""What a keeper says to the switchboard after a task."""

_READY = b"r"
_SIZE = struct.Struct("!q")
_CODE = struct.Struct("!i")


def hand_over(message: bytes, connection: int, bucket: bytes, switchboard: socket.socket) -> int | None:
    """Has the keeper of the bucket run the task that begins with the message and goes on over the connection; returns
    the exit code that it left. None if this process is to run the task: there is no keeper, or none has time."""
    mine, its = socket.socketpair()
    with mine:
        mine.settimeout(PATIENCE_SECONDS)
        try:
            with its:
                socket.send_fds(switchboard, [bucket], [its.fileno()])
            if mine.recv(len(_READY)) != _READY:
                return None
            mine.settimeout(None)
            socket.send_fds(mine, [_SIZE.pack(len(message))], [connection])
            mine.sendall(message)
        except OSError:  # the message was not read to its end
            return None
        told = _received(mine, _CODE.size)
        if told is None:
            # The keeper died, in the middle of the task for all that is known.
            os._exit(1)
        return int(_CODE.unpack(told)[0])


def keep(switchboard: socket.socket) -> NoReturn:
    """What the process of a keeper does."""
    for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    while True:
        told, given, _, _ = socket.recv_fds(switchboard, 1, 1)
        if not told:
            os._exit(0)
        for asking in given:
            _serve(socket.socket(fileno=asking))
        gc.collect()
        try:
            switchboard.sendall(FREE)
        except OSError:
            os._exit(0)


def _serve(asking: socket.socket) -> None:
    ended = threading.Event()
    message, given = None, list[int]()
    with asking:
        with contextlib.suppress(OSError):
            asking.sendall(_READY)
            told, given, _, _ = socket.recv_fds(asking, _SIZE.size, 1)
            message = _received(asking, _SIZE.unpack(told)[0]) if len(told) == _SIZE.size else None
        if message is None or not given:
            for connection in given:
                os.close(connection)  # Spark does not hear of its end as long as it is open here
            return  # the worker has run the task itself, or has been killed
        threading.Thread(target=_end_with, args=(asking.dup(), ended), daemon=True).start()
        code = run_on(given[0], message)
        ended.set()
        try:
            asking.sendall(_CODE.pack(code))
        except OSError:
            code = 1
    if code:
        os._exit(1)


def _end_with(asking: socket.socket, ended: threading.Event) -> None:
    """Ends this process if the worker that asked ends before its task has."""
    with asking, contextlib.suppress(OSError):
        asking.recv(1)
    if not ended.is_set():
        os._exit(1)


def _received(sender: socket.socket, size: int) -> bytes | None:
    """So many bytes; None if the sender has ended."""
    found = bytearray()
    while len(found) < size:
        part = sender.recv(min(size - len(found), 1 << 20))
        if not part:
            return None
        found += part
    return bytes(found)
