"""The check of access to the pages: every request, asset and websocket passes here first.

A request must bring the token: in the address once (`?token=…`), in a cookie from then on, or as
`Authorization: Bearer …`. So it is on the loopback too, which every account of the machine can reach. A request that
another site's page makes is refused by its Origin header.
"""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

_ASK = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Penstock: token needed</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:26rem;margin:18vh auto;padding:0 1rem}
h1{font-size:1.25rem}input,button{font:inherit;padding:.4rem .6rem}input{width:16rem}</style>
<h1>These pages need a token</h1>
<p>The command that serves them has printed it, with the address.</p>
<form><label for="token">Token</label><br>
<input id="token" name="token" type="password" autocomplete="off" autofocus> <button>Open</button></form></html>"""


class Gate:
    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app = app
        self._token = token
        self._cookie = f"penstock_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        host, origin = _place(headers.get("host", "")), headers.get("origin")
        if host is None:
            await _refuse(scope, send, 400, b"The Host header is no address.", "text/plain")
        elif origin is not None and _place(origin.partition("://")[2]) != host:
            await _refuse(scope, send, 403, b"This address belongs to another site.", "text/plain")
        elif scope["type"] == "http" and self._is_token(query.get("token", "")):
            await self._let_in(scope, send, query)
        elif self._is_token(self._shown(headers)):
            await self.app(scope, receive, send)
        else:
            await _refuse(scope, send, 401, _ASK.encode(), "text/html; charset=utf-8")

    def _shown(self, headers: dict[str, str]) -> str:
        """The token that the request brings besides its address."""
        bearer = headers.get("authorization", "")
        if bearer.startswith("Bearer "):
            return bearer.removeprefix("Bearer ")
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return "" if cookie is None else cookie.value

    def _is_token(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode(), self._token.encode())

    async def _let_in(self, scope: Scope, send: Send, query: dict[str, str]) -> None:
        """Gives the cookie and leads to the same page without the token in its address."""
        rest = urlencode({name: value for name, value in query.items() if name != "token"})
        # A path that began with two slashes would lead to another site.
        path = "/" + scope["path"].lstrip("/") + (f"?{rest}" if rest else "")
        headers = [
            (b"location", path.encode()),
            (b"set-cookie", f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Lax".encode()),
        ]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _place(written: str) -> tuple[str, int | None] | None:
    """The host and port of a header; None where it names none.

    >>> _place("LocalHost:80"), _place("[::1]"), _place("[::1"), _place("a:b"), _place("a/b"), _place("u@a"), _place("")
    (('localhost', 80), ('::1', None), None, None, None, None, None)
    """
    try:
        parts = urlsplit(f"//{written}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return None if not host or parts.netloc != written or "@" in written else (host, port)


async def _refuse(scope: Scope, send: Send, status: int, body: bytes, kind: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(b"content-type", kind.encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
