"""Wide sums: exact for every double there is, one table row per slot that needs one.

A slot needs a row while its window holds a value that the narrow accumulator cannot take: one whose exponent is too
far from the others, a NaN or an infinity. That is rare, so rows are handed out on demand and taken back when the
last such value has left.

A row is 38 unsigned words: 34 of one two's complement integer in units of 2**-1074 (the least double; 78 bits of
headroom above the greatest), then how many finite values (or merged sums of such), NaN, +inf and -inf are in it.

Invariants:
1. `row_of[s]` is 0, or 1 + the row of slot s; a row belongs to at most one slot.
2. A row's counts are those of the slot's window; a row whose counts are all zero is free.
3. Free rows are all zero but for word 0, which links them: it holds 1 + the next free row, or 0.
   `links[FREE]` starts the chain the same way and `links[USED]` counts the rows in use.

Used by the sums alone.

Why: docs/decisions/exact-sums.md
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.aggregates.rounding import U0, U1, nearest_double, normalise
from penstock.aggregates.state import Snapshot
from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.jit import kernel
from penstock.store.budget import Account
from penstock.store.charged import UNLIMITED, ChargedArray

Words = NDArray[np.uint64]

_LIMBS = 34
FINITE, _NAN, _PLUS_INFINITY, _MINUS_INFINITY = 34, 35, 36, 37
ROW_WORDS = 38
_UNIT_EXPONENT = -1074

FREE, USED = 0, 1

_U6 = np.uint64(6)
_U52 = np.uint64(52)
_U63 = np.uint64(63)
_EXPONENT_MASK = np.uint64(0x7FF)
_FRACTION_MASK = np.uint64((1 << 52) - 1)


@component("WideSums")
class WideSums:
    """The table of rows and the slot that owns each row. The kernels below work on its arrays."""

    def __init__(self, account: Account = UNLIMITED) -> None:
        self._row_of = ChargedArray(account, np.int32)
        self._table = ChargedArray(account, np.uint64, (ROW_WORDS,))
        self.links: Int64s = np.zeros(2, dtype=np.int64)

    @property
    def row_of(self) -> Slots:
        return self._row_of.array

    @property
    def table(self) -> Words:
        return self._table.array

    def ensure(self, slots: int) -> None:
        """Room for exactly these slots; the caller grows geometrically."""
        self._row_of.resize(slots)

    def add_rows(self) -> None:
        """Called when a kernel found no free row: doubles the table and chains the new rows."""
        before = len(self.table)
        after = max(4, 2 * before)
        self._table.resize(after)
        self.table[before : after - 1, 0] = np.arange(before + 2, after + 1)
        self.table[after - 1, 0] = self.links[FREE]
        self.links[FREE] = before + 1

    def reset(self, slots: Slots) -> None:
        for slot in slots[self.row_of[slots] > 0]:
            release(self.table, self.row_of, self.links, int(slot))

    def rows(self, slots: Slots) -> dict[int, Words]:
        """The rows of those of the slots that have one, by place."""
        owned = self.row_of[slots]
        return {int(place): self.table[owned[place] - 1].copy() for place in np.flatnonzero(owned)}

    def enter(self, row: Words, slots: Slots) -> None:
        """The rows of all these slots take in another."""
        done = 0
        while done < len(slots):
            done = _add_rows(self.table, self.row_of, self.links, slots, row, done)
            if done < len(slots):
                self.add_rows()

    def leave(self, row: Words, slot: int) -> None:
        """The inverse of `enter`, for one slot."""
        _subtract_row(self.table, self.row_of, self.links, slot, row)
        self.trim()

    def rearrange(self, kept: Slots) -> None:
        """From now on slot i is what was slot kept[i]."""
        self._row_of.set(self.row_of[kept])

    def trim(self) -> None:
        """Gives the memory back once no slot needs a row."""
        if self.links[USED] == 0 and len(self.table):
            self._table.clear()
            self.links[FREE] = 0

    @property
    def in_use(self) -> bool:
        """Whether some slot has a row."""
        return bool(self.links[USED])

    @property
    def nbytes(self) -> int:
        return self._row_of.nbytes + self._table.nbytes

    def snapshot(self) -> Snapshot:
        return {"row_of": self.row_of, "table": self.table, "links": self.links}

    def restore(self, snapshot: Snapshot) -> None:
        self._row_of.set(snapshot["row_of"])
        self._table.set(snapshot["table"])
        self.links = np.array(snapshot["links"], dtype=np.int64)


@kernel
def release(table: Words, row_of: Slots, links: Int64s, slot: int) -> None:
    """Frees the row of a slot."""
    row = row_of[slot] - 1
    table[row, :] = U0
    table[row, 0] = np.uint64(links[FREE])
    links[FREE] = row + 1
    links[USED] -= 1
    row_of[slot] = 0


@kernel
def take_row(table: Words, row_of: Slots, links: Int64s, slot: int) -> bool:
    """Gives the slot a row if it has none. False: there is no free row, nothing was done."""
    if row_of[slot] == 0:
        if links[FREE] == 0:
            return False
        row_of[slot] = links[FREE]
        links[FREE] = np.int64(table[row_of[slot] - 1, 0])
        links[USED] += 1
        table[row_of[slot] - 1, 0] = U0
    return True


@kernel
def change_wide(table: Words, row_of: Slots, links: Int64s, slot: int, bits: np.uint64, leaves: bool) -> bool:
    """A value (as its bits) enters or leaves the row of a slot. False: there is no free row, nothing was done."""
    if not take_row(table, row_of, links, slot):
        return False
    words = table[row_of[slot] - 1]
    negative = (bits >> _U63) != U0
    biased = (bits >> _U52) & _EXPONENT_MASK
    fraction = bits & _FRACTION_MASK
    if biased == _EXPONENT_MASK:
        counter = _NAN if fraction != U0 else (_MINUS_INFINITY if negative else _PLUS_INFINITY)
    else:
        counter = FINITE
        if biased != U0:
            fraction |= U1 << _U52
            biased -= U1
        _add_shifted(words, fraction, biased, negative != leaves)
    if leaves:
        words[counter] -= U1
        if words[FINITE] | words[_NAN] | words[_PLUS_INFINITY] | words[_MINUS_INFINITY] == U0:
            release(table, row_of, links, slot)
    else:
        words[counter] += U1
    return True


@kernel
def _add_shifted(words: Words, mantissa: np.uint64, shift: np.uint64, negative: bool) -> None:
    """words += ±mantissa · 2**shift, modulo the width."""
    at = np.int64(shift >> _U6)
    bit = shift & _U63
    part = mantissa << bit
    following = (mantissa >> U1) >> (_U63 - bit)
    if negative:
        borrow = np.uint64(words[at] < part)
        words[at] -= part
        at += 1
        part = following + borrow
        while part != U0 and at < _LIMBS:
            borrow = np.uint64(words[at] < part)
            words[at] -= part
            part = borrow
            at += 1
    else:
        words[at] += part
        part = following + np.uint64(words[at] < part)
        at += 1
        while part != U0 and at < _LIMBS:
            words[at] += part
            part = np.uint64(words[at] < part)
            at += 1


@kernel
def add_narrow(words: Words, low: np.uint64, middle: np.uint64, high: np.uint64, shift: np.uint64) -> None:
    """words += the two's complement integer (high, middle, low) · 2**shift, modulo the width."""
    bit = shift & _U63
    sign = U0 - (high >> _U63)
    previous = carry = U0
    for index in range(_LIMBS - np.int64(shift >> _U6)):
        word = sign
        if index == 0:
            word = low
        elif index == 1:
            word = middle
        elif index == 2:
            word = high
        shifted = (word << bit) | ((previous >> U1) >> (_U63 - bit))
        previous = word
        at = index + np.int64(shift >> _U6)
        part = words[at] + shifted
        overflow = np.uint64(part < shifted)
        words[at] = part + carry
        carry = overflow | np.uint64(words[at] < carry)


@kernel
def add_row(words: Words, other: Words) -> None:
    """A row takes in another: the integers and the counts are added."""
    carry = U0
    for at in range(_LIMBS):
        part = words[at] + other[at]
        overflow = np.uint64(part < other[at])
        words[at] = part + carry
        carry = overflow | np.uint64(words[at] < carry)
    for at in range(_LIMBS, ROW_WORDS):
        words[at] += other[at]


@kernel
def _add_rows(table: Words, row_of: Slots, links: Int64s, slots: Slots, other: Words, first: int) -> int:
    """From slot number `first` on; returns how many are done. When that is not all, there is no free row."""
    for number in range(first, len(slots)):
        if not take_row(table, row_of, links, int(slots[number])):
            return number
        add_row(table[row_of[slots[number]] - 1], other)
    return len(slots)


@kernel
def _subtract_row(table: Words, row_of: Slots, links: Int64s, slot: int, other: Words) -> None:
    """Takes back what `add_row` added, and frees the row when no value is left in it."""
    words = table[row_of[slot] - 1]
    borrow = U0
    for at in range(_LIMBS):
        before = words[at]
        part = before - other[at]
        words[at] = part - borrow
        borrow = np.uint64(before < other[at]) | np.uint64(part < borrow)
    for at in range(_LIMBS, ROW_WORDS):
        words[at] -= other[at]
    if words[FINITE] | words[_NAN] | words[_PLUS_INFINITY] | words[_MINUS_INFINITY] == U0:
        release(table, row_of, links, slot)


@kernel
def wide_total(words: Words, low: np.uint64, middle: np.uint64, high: np.uint64, shift: np.uint64) -> float:
    """The sum in a row plus the narrow integer (high, middle, low) · 2**(shift - 1074), correctly rounded."""
    plus, minus = words[_PLUS_INFINITY] != U0, words[_MINUS_INFINITY] != U0
    if words[_NAN] != U0 or (plus and minus):
        return np.nan
    if plus:
        return np.inf
    if minus:
        return -np.inf
    total = words[:_LIMBS].copy()
    add_narrow(total, low, middle, high, shift)
    return _round_words(total)


@kernel
def _round_words(total: Words) -> float:
    """The two's complement integer `total` (overwritten) in units of 2**-1074, correctly rounded."""
    negative = (total[_LIMBS - 1] >> _U63) != U0
    if negative:
        carry = U1
        for at in range(_LIMBS):
            total[at] = ~total[at] + carry
            carry = carry & np.uint64(total[at] == U0)
    top = _LIMBS - 1
    while top > 0 and total[top] == U0:
        top -= 1
    if total[top] == U0:
        return 0.0
    leading, shift = normalise(total[top], total[top - 1] if top > 0 else U0)
    rest = top > 0 and (total[top - 1] << shift) != U0
    for at in range(top - 1):
        rest = rest or total[at] != U0
    return nearest_double(leading, rest, _UNIT_EXPONENT + 64 * top - int(np.int64(shift)), negative)
