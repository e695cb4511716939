"""A real HTTP server for calls: in a thread, or as a process of its own that writes down what it was sent.

python servers.py FILE         prints its port, then appends a JSON line for each request before it answers
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Answer = tuple[int, dict[str, str]]


class Server:
    """`answer` is asked for the status and headers of each request; `seen` are the requests."""

    def __init__(self, answer: Callable[[dict[str, Any]], Answer] = lambda request: (200, {})) -> None:
        seen: list[dict[str, Any]] = []
        self.seen = seen

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = {"path": self.path, "headers": dict(self.headers.items()), "body": json.loads(body)}
                seen.append(request)
                status, headers = answer(request)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def main(path: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        lock = threading.Lock()

        def note(request: dict[str, Any]) -> Answer:
            with lock:
                file.write(json.dumps([request["headers"]["Idempotency-Key"], request["body"]]) + "\n")
                file.flush()
            return 200, {}

        server = Server(note)
        print(server.url, flush=True)
        server._server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
