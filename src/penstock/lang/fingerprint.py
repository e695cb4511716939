"""A name for what a typed subplan computes, the same in every process and however the text was laid out.

State on disk is keyed by it: equal fingerprints mean that the state fits. Left out is what changes no value: the name
of a query, what it inserts into, the names of the columns that come out last, places in the text and the text itself.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from penstock.lang.query import Query, Select

FORMAT = b"penstock fingerprint 1"
"""Changes whenever the encoding below does, so that an old state is never taken for a new one."""


def fingerprint(node: Any) -> str:
    """32 hexadecimal digits for any frozen dataclass of the typed query, an expression or a window, or tuples of them.

    >>> from penstock.windows.spec import Range, Rows
    >>> fingerprint(Range(5)) == fingerprint(Range(5)), fingerprint(Range(5)) == fingerprint(Rows(5))
    (True, False)
    """
    digest = hashlib.sha256(FORMAT)
    for part in _encoded(_unnamed(node)):
        digest.update(part)
    return digest.hexdigest()[:32]


def _unnamed(node: Any) -> Any:
    """A query without the names of its outputs. Those of a subquery stay, since the outer query reads by them."""
    if isinstance(node, Query):
        return _unnamed(node.body)
    if isinstance(node, Select):
        kept = (getattr(node, field.name) for field in fields(node) if field.name not in ("outputs", "schema"))
        return ("Select", *kept, tuple(output.expression for output in node.outputs))
    return node


def _encoded(node: Any) -> Iterator[bytes]:
    """An encoding that no two different nodes share: every part is tagged and has its length in front."""
    if isinstance(node, Enum):
        yield _text(b"e", f"{type(node).__name__}.{node.name}")
    elif is_dataclass(node) and not isinstance(node, type):
        compared = [field for field in fields(node) if field.compare]
        yield _text(b"d", type(node).__name__) + struct.pack("<I", len(compared))
        for field in compared:
            yield _text(b"f", field.name)
            yield from _encoded(getattr(node, field.name))
    elif isinstance(node, tuple):
        yield b"t" + struct.pack("<I", len(node))
        for item in node:
            yield from _encoded(item)
    elif node is None:
        yield b"n"
    elif isinstance(node, bool):
        yield b"b1" if node else b"b0"
    elif isinstance(node, int):
        yield _text(b"i", str(node))
    elif isinstance(node, float):
        yield b"r" + struct.pack("<d", node)
    elif isinstance(node, str):
        yield _text(b"s", node)
    else:
        raise TypeError(f"{type(node).__name__} is no part of a typed query")


def _text(tag: bytes, text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return tag + struct.pack("<I", len(encoded)) + encoded
