"""CREATE FUNCTION as written to a typed `FunctionDef`: the address and the options, checked.

Data never goes into either: what a rule sends is the JSON body and the header Idempotency-Key.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from penstock.lang.durations import SECOND, duration
from penstock.lang.places import QueryText
from penstock.lang.query import FunctionDef
from penstock.lang.syntax import CreateFunction
from penstock.masking import masked

MOST_RETRIES = 100
HEADER = "header."
ENVIRONMENT = "env:"

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS = ("idempotency-key", "content-type", "content-length", "host", "transfer-encoding")


def bind_function(source: QueryText, statement: CreateFunction) -> FunctionDef:
    url, span = statement.url
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or any(ord(c) <= 32 or ord(c) == 127 for c in url):
        raise source.refusal(
            f"'{masked(url)[:80]}' is no address to call", span, "write 'https://host/path' or 'http://host:port/path'"
        )
    if parts.username is not None or parts.password is not None:
        raise source.refusal(
            "an address has no user and no password",
            span,
            "write WITH ('header.Authorization' = 'env:TOKEN'), which takes it from the environment",
        )
    timeout, retries = FunctionDef.timeout, FunctionDef.retries
    headers: list[tuple[str, str]] = []
    for key, value in statement.options:
        if key == "timeout":
            timeout = _seconds(source, statement, value)
        elif key == "retries":
            if not value.isascii() or not value.isdigit() or len(value) > 9 or int(value) > MOST_RETRIES:
                raise _refused(source, statement, key, value, f"write a number from 0 to {MOST_RETRIES}")
            retries = int(value)
        elif key.startswith(HEADER):
            headers.append(_header(source, statement, key, value))
        else:
            raise source.refusal(
                f"a function has no option '{key}'",
                statement.name.span,
                "it has 'timeout', 'retries' and 'header.NAME'",
            )
    return FunctionDef(statement.name.text, url, timeout, retries, tuple(headers), source.place(statement.name.span))


def _seconds(source: QueryText, statement: CreateFunction, value: str) -> float:
    seconds = (duration(value) or 0) / SECOND
    if not 0 < seconds <= 3600:
        raise _refused(source, statement, "timeout", value, "write a time such as '5 SECONDS', at most an hour")
    return seconds


def _header(source: QueryText, statement: CreateFunction, key: str, value: str) -> tuple[str, str]:
    name = key.removeprefix(HEADER)
    if _HEADER_NAME.fullmatch(name) is None or any(ord(c) < 32 or ord(c) > 126 for c in value):
        raise _refused(source, statement, key, value, "headers are printable ASCII")
    if name.lower() in _OURS:
        raise _refused(source, statement, key, value, "this header is set by itself")
    return name, value


def _refused(source: QueryText, statement: CreateFunction, key: str, value: str, hint: str) -> Exception:
    shown = "this" if key.startswith(HEADER) else f"'{value[:80]}'"
    return source.refusal(f"the option '{key}' cannot be {shown}", statement.name.span, hint)
