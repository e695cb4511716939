"""Equality of results, bit for bit: NaN equals NaN, 1 is not 1.0, and 0.0 is not -0.0."""

from __future__ import annotations

import struct
from typing import Any

from conformance.cases import Table


def bits(value: Any) -> Any:
    """A value as something whose plain equality is equality to the bit; every NaN is the same."""
    if isinstance(value, float):
        return ("double", "NaN" if value != value else struct.pack(">d", value))
    return (type(value).__name__, value)


def same(left: Any, right: Any) -> bool:
    return bool(bits(left) == bits(right))


def assert_same(actual: Table, expected: Table, what: str) -> None:
    """Fails with both tables and the first row that differs."""
    assert actual.columns == expected.columns, f"{what}: columns {actual.columns}, expected {expected.columns}"
    mine = [tuple(map(bits, row)) for row in actual.rows]
    theirs = [tuple(map(bits, row)) for row in expected.rows]
    if mine == theirs:
        return
    place = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))
    raise AssertionError(f"{what}: row {place + 1} differs\n--- expected\n{expected}\n--- came out\n{actual}")
