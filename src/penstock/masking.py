"""What of a query text is never shown: passwords and other secrets that it holds.

Errors show lines of the text, and errors go into logs. A stretch that is masked keeps its length and its line ends, so
that places in the text stay where they are. A text may end in the middle of a literal, and may be hostile: each
character is looked at a bounded number of times.
"""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"""(?<=://)(?:\\.|''|""|[^\s'"\\])+""", re.DOTALL)

_SPACE = r"(?:\s|--[^\n]{0,200}\n|/\*.{0,200}?\*/)*"
_NAME = r"""['"](?:header\.|[\w.-]*(?:password|passwd|secret|token|credential|jaas))[^'"]*['"]"""
_OPTION = re.compile(
    rf"""({_NAME}{_SPACE}={_SPACE})('(?!env:)(?:\\.|''|[^'\\])*|"(?!env:)(?:\\.|""|[^"\\])*)""",
    re.DOTALL | re.IGNORECASE,
)
"""Headers, and options whose names say that they are secret. A value that begins with env: names a variable."""


def masked(text: str) -> str:
    """
    >>> masked("FROM 'postgresql://ann:pass@word@db/x?sslpassword=p'")
    "FROM 'postgresql://*************@db/x?*************'"
    >>> masked("WITH ('header.Authorization' = 'Bearer abc', 'header.X' = 'env:TOKEN', 'retries' = '3')")
    "WITH ('header.Authorization' = '**********', 'header.X' = 'env:TOKEN', 'retries' = '3')"
    """
    text = _ADDRESS.sub(lambda found: _masked_address(found[0]), text)
    return _OPTION.sub(lambda found: found[1] + found[2][0] + _stars(found[2][1:]), text)


def _masked_address(address: str) -> str:
    """Without the name and password before the last @, and without what stands behind the ?."""
    place, question, rest = address.partition("?")
    if "@" in rest:  # the ? is part of a password, or it is not
        return _stars(address)
    account, at, place = place.rpartition("@")
    return (_stars(account) if ":" in account else account) + at + place + question + _stars(rest)


def _stars(text: str) -> str:
    return re.sub(r"[^\n]", "*", text)
