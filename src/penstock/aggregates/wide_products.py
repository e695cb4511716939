"""Sums of values and products that no narrow accumulator takes, in Python's own integers.

A row goes here when an argument's exponent is too far from the base, which is rare. All integers are in units of
2**-1074 (sums) and 2**-2148 (products), so every double, every BIGINT and every product of two is exact.

Invariant: a slot has an entry exactly while its window holds such a row; the entry is the sums over those rows.
Used by the moments alone.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.aggregates.state import Snapshot
from penstock.arrays import Slots
from penstock.components import component
from penstock.store.budget import Account

_UNIT_BITS = 1074
_STORED_BYTES = 544  # a product has at most 2 · (1074 + 1024) bits; the rest holds the sign and 2**63 of them

STORED_WORDS = 5 * _STORED_BYTES // 8
"""How many 64-bit words the sums of a slot take when they are stored."""

_SLOT_BYTES = 5 * (_STORED_BYTES + 28) + 240
"""What a slot takes at most: five of Python's integers, their list, an entry of the dictionary."""

Sums = list[int]
"""[sum of x, of y, of x·y, of x·x, of y·y]"""


@component("WideProducts")
class WideProducts:
    """The sums of every slot that has any. A slot is on the account before it has them."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._sums: dict[int, Sums] = {}

    def change(self, slot: int, x: int | float, y: int | float, sign: int) -> None:
        """A row enters (sign 1) or leaves (sign -1)."""
        a, b = _units(x), _units(y)
        if slot not in self._sums:
            self._begin(slot)
        sums = self._sums[slot]
        for index, term in enumerate((a, b, a * b, a * a, b * b)):
            sums[index] += sign * term

    def add(self, slot: int, more: Sums) -> None:
        """Sums of several rows enter together."""
        if slot not in self._sums:
            self._begin(slot)
        self._sums[slot] = [a + b for a, b in zip(self.sums(slot), more, strict=True)]

    def _begin(self, slot: int) -> None:
        self._account.charge(_SLOT_BYTES)
        self._sums[slot] = [0] * 5

    def forget(self, slots: Slots) -> None:
        if self._sums:
            gone = [slot for slot in slots.tolist() if self._sums.pop(slot, None) is not None]
            self._account.release(_SLOT_BYTES * len(gone))

    def rearrange(self, kept: Slots) -> None:
        """From now on slot i is what was slot kept[i]."""
        moved = {before: now for now, before in enumerate(kept.tolist())} if self._sums else {}
        self._sums = {moved[slot]: sums for slot, sums in self._sums.items()}

    def sums(self, slot: int) -> Sums:
        return self._sums.get(slot, [0] * 5)

    @property
    def nbytes(self) -> int:
        return _SLOT_BYTES * len(self._sums)

    def snapshot(self) -> Snapshot:
        stored = b"".join(to_bytes(sums) for sums in self._sums.values())
        return {"slots": np.array(list(self._sums), dtype=np.int64), "sums": stored}

    def restore(self, snapshot: Snapshot) -> None:
        data = snapshot["sums"]
        slots = snapshot["slots"].tolist()
        self._account.charge(_SLOT_BYTES * (len(slots) - len(self._sums)))
        size = 5 * _STORED_BYTES
        self._sums = {slot: from_bytes(data[size * index : size * (index + 1)]) for index, slot in enumerate(slots)}


def to_bytes(sums: Sums) -> bytes:
    return b"".join(total.to_bytes(_STORED_BYTES, "little", signed=True) for total in sums)


def from_bytes(data: bytes) -> Sums:
    starts = range(0, len(data), _STORED_BYTES)
    return [int.from_bytes(data[at : at + _STORED_BYTES], "little", signed=True) for at in starts]


def exact_covariance(count: int, divisor: int, left: int, right: int, product: int) -> float:
    """(n·P - A·B) / divisor of sums in units, correctly rounded.

    >>> one = 2**1074
    >>> exact_covariance(2, 2, 4 * one, 4 * one, 10 * one * one)
    2.0
    """
    numerator = count * product - left * right
    try:
        return numerator / (divisor << 2 * _UNIT_BITS)
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def _units(value: int | float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * ((1 << _UNIT_BITS) // denominator)
