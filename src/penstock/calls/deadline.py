"""HTTP connections whose timeout is for the whole answer. A socket's own timeout is for each piece of it: a server that
sends a byte now and then would keep the call waiting without end."""

from __future__ import annotations

import io
import socket
import time
from http.client import HTTPResponse
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection


class _Reader(io.RawIOBase):
    """What a socket receives until its timeout has passed since the first wait."""

    def __init__(self, received: Any, connection: socket.socket) -> None:
        self._received = received
        self._socket = connection
        timeout = connection.gettimeout()
        self._until = None if timeout is None else time.monotonic() + timeout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._until is not None:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left)
        count: int | None = self._received.readinto(buffer)
        return count

    def close(self) -> None:
        self._received.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Reader(self.fp.detach(), sock))


class _Http(HTTPConnection):
    response_class = _Response


class _Https(HTTPSConnection):
    response_class = _Response


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Https


POOLS: dict[str, Any] = {"http": _HttpPool, "https": _HttpsPool}
