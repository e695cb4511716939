"""Batches of events and results over a socket between processes of a run.

A connection begins with a greeting (who is there, and the run's token). Then come frames, each for one number (of a
stream, or of a query): a schema whenever it is new or has changed, batches in Arrow's IPC format, which the reader
uses where they were received, and at last an end: a connection that breaks without it has failed.
"""

from __future__ import annotations

import json
import secrets
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError

WELCOME = b"\x01"

_HEADER = struct.Struct("<BIqQ")
_BUFFER = 1 << 17
"""Keep socket buffers small: bytes queued in the kernel do not show up in our latency."""

_LONGEST = 1 << 32


class WireError(PenstockError):
    """The other side is gone, or speaks another language."""


class _Kind(IntEnum):
    GREETING = 0
    SCHEMA = 1
    BATCH = 2
    END = 3


@dataclass(frozen=True)
class Frame:
    number: int
    stamp_ns: int
    batch: pa.RecordBatch


def listen() -> socket.socket:
    """On loopback, at a port that the system chooses."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    _buffers(server)
    server.bind(("127.0.0.1", 0))
    server.listen(64)
    return server


def connect(port: int, greeting: dict[str, Any], timeout: float = 30.0) -> socket.socket:
    try:
        connected = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        _buffers(connected)
        connected.settimeout(timeout)
        connected.connect(("127.0.0.1", port))
    except OSError as error:
        raise WireError(f"the system under test cannot be reached at port {port}: {error.strerror or error}") from None
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    payload = json.dumps(greeting).encode()
    _send(connected, [_HEADER.pack(_Kind.GREETING, 0, 0, len(payload)), payload])
    try:
        welcome = connected.recv(1)
    except OSError:
        welcome = b""
    if welcome != WELCOME:
        raise WireError(f"the system under test at port {port} does not take part in this run")
    connected.settimeout(None)
    return connected


def accept(connected: socket.socket, token: str, timeout: float = 10.0) -> dict[str, Any]:
    """What the other side says first, if it knows the token. It waits until it is sent the welcome."""
    connected.settimeout(timeout)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    kind, _, _, length = _header(connected, _give_up)
    if kind is not _Kind.GREETING or length > 65536:
        raise WireError("a connection did not begin with a greeting")
    said = json.loads(bytes(_receive(connected, length, _give_up)))
    if not isinstance(said, dict) or not secrets.compare_digest(str(said.get("token")), token):
        raise WireError("a connection does not belong to this run")
    connected.settimeout(None)
    return said


class FrameWriter:
    """Writes frames to a connection. One thread at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._schemas: dict[int, pa.Schema] = {}

    def write(self, number: int, batch: pa.RecordBatch, stamp_ns: int = 0) -> None:
        if any(pa.types.is_dictionary(field.type) for field in batch.schema):
            batch = _plain(batch)
        parts: list[Any] = []
        if self._schemas.get(number) != batch.schema:
            self._schemas[number] = batch.schema
            schema = batch.schema.serialize()
            parts += [_HEADER.pack(_Kind.SCHEMA, number, 0, schema.size), memoryview(schema)]
        payload = batch.serialize()
        parts += [_HEADER.pack(_Kind.BATCH, number, stamp_ns, payload.size), memoryview(payload)]
        _send(self._socket, parts)

    def end(self) -> None:
        _send(self._socket, [_HEADER.pack(_Kind.END, 0, 0, 0)])


class FrameReader:
    """Reads the frames of a connection until its end."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._schemas: dict[int, pa.Schema] = {}

    def frames(self, quiet: float | None = None) -> Iterator[Frame | None]:
        """With `quiet`, None comes whenever so many seconds have passed without a frame."""
        self._socket.settimeout(quiet)
        while True:
            try:
                kind, number, stamp, length = _header(self._socket, _wait_on if quiet else None)
            except _Quiet:
                yield None
                continue
            if kind is _Kind.END:
                return
            # Fresh memory for each frame: the batch goes on living in it.
            payload = pa.py_buffer(_receive(self._socket, length, None))
            if kind is _Kind.SCHEMA:
                self._schemas[number] = pa.ipc.read_schema(payload)
            elif kind is _Kind.BATCH and number in self._schemas:
                yield Frame(number, stamp, pa.ipc.read_record_batch(payload, self._schemas[number]))
            else:
                raise WireError("a frame came out of turn")


def _give_up(_: int) -> None:
    raise WireError("a connection says nothing")


class _Quiet(Exception):
    pass


def _wait_on(received: int) -> None:
    """Called when time is out: between frames that is told, within a frame one waits on."""
    if received == 0:
        raise _Quiet


def _header(connected: socket.socket, timed_out: Callable[[int], None] | None) -> tuple[_Kind, int, int, int]:
    kind, number, stamp, length = _HEADER.unpack(_receive(connected, _HEADER.size, timed_out))
    if kind > max(_Kind) or length > _LONGEST:
        raise WireError("a frame cannot be read")
    return _Kind(kind), number, stamp, length


def _receive(connected: socket.socket, length: int, timed_out: Callable[[int], None] | None) -> bytearray:
    taken = bytearray(length)
    view, received = memoryview(taken), 0
    while received < length:
        try:
            count = connected.recv_into(view[received:])
        except TimeoutError:
            if timed_out is not None:
                timed_out(received)
            continue
        except OSError as error:
            raise WireError(f"a connection broke: {error.strerror or error}") from None
        if count == 0:
            raise WireError("a connection ended before its end was told")
        received += count
    return taken


def _send(connected: socket.socket, parts: list[Any]) -> None:
    try:
        total = sum(len(part) for part in parts)
        sent = connected.sendmsg(parts)
        if sent < total:
            for part in parts:
                view = memoryview(part)
                if sent >= len(view):
                    sent -= len(view)
                    continue
                connected.sendall(view[sent:])
                sent = 0
    except OSError as error:
        raise WireError(f"a connection broke: {error.strerror or error}") from None


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _buffers(connected: socket.socket) -> None:
    for kind in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connected.setsockopt(socket.SOL_SOCKET, kind, _BUFFER)
