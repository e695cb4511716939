"""The server of the pages: one in a process, in front or in a thread beside the program's own work.

Invariant: whatever is wrong with the address is told before anything has been started.
"""

from __future__ import annotations

import errno
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn

from penstock.errors import InputError, PenstockError
from penstock.web.gate import Gate
from penstock.web.site import Site, application

_START_SECONDS = 30


@dataclass(frozen=True)
class Address:
    """Where the pages are served, and the socket that is already open there."""

    listening: socket.socket
    host: str
    port: int
    token: str

    def url_of(self, page: str = "") -> str:
        """With the token, as a browser needs it first."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/{page}?token={self.token}"


def take_address(host: str, port: int, token: str | None) -> Address:
    """Opens the port. The token is the one given, or a new one."""
    if token is not None and not re.fullmatch(r"[A-Za-z0-9_.~-]{8,}", token):
        raise InputError("--token: write at least 8 letters, digits or -_.~")
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, OverflowError, UnicodeError):
        raise InputError(f"--host {host}: no such address; 127.0.0.1 is this machine alone, 0.0.0.0 is all") from None
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(place)
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise InputError(_why(error, host, port)) from None
    return Address(listening, host, listening.getsockname()[1], token or secrets.token_urlsafe(24))


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another one, or 0 for any that is free"
    if error.errno == errno.EACCES:
        return f"port {port} of {host} is not ours to open; choose one above 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host}: this machine has no such address; 127.0.0.1 is this machine alone, 0.0.0.0 is all"
    return f"{host}:{port} cannot be opened: {error.strerror}"


class Serving:
    """The pages of a site at an address."""

    def __init__(self, site: Site, address: Address) -> None:
        self.address = address
        gate = Gate(application(site), address.token, address.port)
        self._server = uvicorn.Server(
            uvicorn.Config(gate, log_level="error", access_log=False, timeout_graceful_shutdown=1, lifespan="on")
        )

    def in_front(self, ready: Callable[[], None]) -> None:
        """Serves until Ctrl-C; `ready` is called once pages can be had."""
        threading.Thread(target=self._tell, args=(ready,), daemon=True).start()
        self._server.run(sockets=[self.address.listening])

    def beside(self) -> None:
        """Serves in a thread; returns when pages can be had."""
        thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self.address.listening]}, name="penstock-web", daemon=True
        )
        thread.start()
        if not self._wait(thread):
            raise PenstockError("the pages could not be served; see the messages above")

    def _tell(self, ready: Callable[[], None]) -> None:
        if self._wait(None):
            ready()

    def _wait(self, thread: threading.Thread | None) -> bool:
        until = time.monotonic() + _START_SECONDS
        while not self._server.started and time.monotonic() < until and (thread is None or thread.is_alive()):
            time.sleep(0.02)
        return self._server.started
