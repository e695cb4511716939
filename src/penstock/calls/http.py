"""Functions outside, called by HTTP POST: the arguments as a JSON object, the key in the header Idempotency-Key.

Data goes into the body and nowhere else; addresses and headers are those of the declaration. An answer 2xx takes the
call in, whatever becomes of its body. No connection, no answer in time, 408, 425, 429 and 5xx are tried again, after
twice the time before and some more at random, or after what Retry-After says; anything else gives the call up.
Redirections are not followed: the data was meant for the address that was declared.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Mapping
from datetime import date, datetime
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3

from penstock.calls.deadline import POOLS
from penstock.calls.function import CallFailed, Pause
from penstock.errors import QueryError
from penstock.lang.bind_function import ENVIRONMENT
from penstock.lang.query import FunctionDef

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
_MOST_READ = 1 << 16
"""Of an answer's body; it is read so that the connection can be used again, and means nothing."""

_LATER = frozenset({408, 425, 429})
_PLAIN = "".join(map(chr, range(33, 127))).replace("%", "")
"""What of a key stands in its header as it is: the name of a rule may have any letters."""


class HttpFunction:
    def __init__(self, definition: FunctionDef, environment: Mapping[str, str] = os.environ) -> None:
        self._definition = definition
        self._environment = environment
        self._url = definition.url
        self._retries = definition.retries
        self._timeout = urllib3.Timeout(total=definition.timeout)
        self._shown = urlsplit(definition.url)._replace(query="").geturl()
        self._pool = urllib3.PoolManager(num_pools=1)
        self._pool.pool_classes_by_scheme = POOLS

    def check(self) -> None:
        """What stands in headers is there. Plans can be made without it."""
        _ = self._headers

    @cached_property
    def _headers(self) -> dict[str, str]:
        declared = self._definition.headers
        values = {name: _value(self._definition, value, self._environment) for name, value in declared}
        return {"Content-Type": "application/json", "User-Agent": "penstock", **values}

    def call(self, arguments: Mapping[str, Any], key: str, pause: Pause) -> None:
        body = json_of(arguments)
        for attempt in range(self._retries + 1):
            reason, after = self._try(body, key)
            if reason is None:
                return
            if after is None:
                raise CallFailed(f"{self._shown}: {reason}")
            wait = after or min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE) * (0.5 + random.random())
            if attempt == self._retries or not pause(min(wait, LONGEST_PAUSE * 1.5)):
                raise CallFailed(f"{self._shown}: {reason}; tried {attempt + 1} times")

    def _try(self, body: bytes, key: str) -> tuple[str | None, float | None]:
        """Why it did not work, and how long the other side wants to be left alone: 0 if it does not say, None if there
        is no use in trying again."""
        headers = {**self._headers, "Idempotency-Key": quote(key, safe=_PLAIN)}
        try:
            answer = self._pool.request(
                "POST",
                self._url,
                body=body,
                headers=headers,
                timeout=self._timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return f"{type(error).__name__}: {error}", 0.0
        _finish(answer)
        if 200 <= answer.status < 300:
            return None, None
        reason = f"answered {answer.status} {answer.reason or ''}".rstrip()
        if answer.status not in _LATER and answer.status < 500:
            return reason, None
        return reason, _retry_after(answer)

    def close(self) -> None:
        self._pool.clear()


def _finish(answer: urllib3.BaseHTTPResponse) -> None:
    """Gives the connection back if the answer can be read to its end, and drops it otherwise."""
    try:
        answer.read(_MOST_READ, decode_content=False)
        if answer.length_remaining == 0:
            return answer.release_conn()
    except (urllib3.exceptions.HTTPError, OSError):
        pass
    answer.close()


def _retry_after(answer: urllib3.BaseHTTPResponse) -> float:
    try:
        return max(urllib3.Retry().get_retry_after(answer) or 0.0, 0.0)
    except (urllib3.exceptions.HTTPError, ValueError, OverflowError):
        return 0.0  # no date, or none that there is


def _value(definition: FunctionDef, value: str, environment: Mapping[str, str]) -> str:
    if not value.startswith(ENVIRONMENT):
        return value
    name = value.removeprefix(ENVIRONMENT)
    found = environment.get(name)
    if found is None:
        raise QueryError(
            f"function {definition.name} needs the environment variable {name}, and there is none",
            hint=f"set it before the start: export {name}=...",
        )
    if any(ord(c) < 32 or ord(c) > 126 for c in found):
        raise QueryError(f"the environment variable {name}, a header of {definition.name}, is not printable ASCII")
    return found


def json_of(arguments: Mapping[str, Any]) -> bytes:
    """The arguments as results are written in JSON lines.

    >>> json_of({"k": "a", "x": float("nan"), "n": None})
    b'{"k":"a","x":"NaN","n":null}'
    """
    plain = {name: _plain(value) for name, value in arguments.items()}
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else value
