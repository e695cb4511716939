"""The order of an interner's strings by their UTF-8 bytes, as a number for each code.

Invariants:
1. `_order` has the codes that have a rank, in the order of their strings; the greater the string, the greater the rank.
2. A new string changes no other's rank, except when there is no number left between its neighbours', or when many come.
3. Strings that came since the ranks were asked for wait. What waits may be gone, or be there twice: it is looked at
   when the ranks are asked for. Where more wait than there are codes, the order is given up and made anew.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Int64s, Slots, UInt64s
from penstock.jit import kernel
from penstock.operators.text_table import Bytes, TextTable, is_less
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray

_SINGLY = 64
"""Up to so many strings find their places in the order one by one."""

_FIRST, _LAST = -(1 << 62), 1 << 62
"""Ranks lie between these."""

_NO_RANK = -(1 << 63)

_STEP = 1 << 32
"""How far behind the last one a string's rank is that comes behind all others."""


@kernel
def _sort(codes: Slots, other: Slots, text: Bytes, records: UInt64s) -> None:
    """Merges ever longer runs, from one array into the other and back."""
    count, width = len(codes), 1
    source, target = codes, other
    while width < count:
        for begin in range(0, count, 2 * width):
            middle, end = min(begin + width, count), min(begin + 2 * width, count)
            i, j = begin, middle
            for at in range(begin, end):
                if i < middle and (j == end or not is_less(text, records, source[j], source[i])):
                    target[at] = source[i]
                    i += 1
                else:
                    target[at] = source[j]
                    j += 1
        source, target = target, source
        width *= 2
    codes[:] = source


@kernel
def _merge(order: Slots, count: int, new: Slots, text: Bytes, records: UInt64s) -> None:
    """Puts sorted codes between the first `count` ones of the order."""
    i, j = count - 1, len(new) - 1
    while j >= 0:
        if i >= 0 and is_less(text, records, new[j], order[i]):
            order[i + j + 1] = order[i]
            i -= 1
        else:
            order[i + j + 1] = new[j]
            j -= 1


@kernel
def _number(order: Slots, step: int, ranks: Int64s) -> None:
    count = len(order)
    for place in range(count):
        ranks[order[place]] = (place - count // 2) * step


@kernel
def _place_of(order: Slots, code: int, text: Bytes, records: UInt64s) -> int:
    """How many strings are less than that of the code."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if is_less(text, records, order[middle], code):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _still_ranked(order: Slots, ranks: Int64s) -> int:
    """Closes the gaps of codes without a rank; returns how many codes are left."""
    count = 0
    for code in order:
        if ranks[code] != _NO_RANK:
            order[count] = code
            count += 1
    return count


class TextOrder:
    def __init__(self, texts: TextTable, account: Account) -> None:
        self._texts = texts
        self._account = account
        self._order = ChargedArray(account, np.int32)
        self._waiting = ChargedArray(account, np.int32)
        self._ranks = ChargedArray(account, np.int64)
        self._count = self._new = 0
        """How many codes have a rank, and how many wait for one."""

    @property
    def nbytes(self) -> int:
        return self._order.nbytes + self._waiting.nbytes + self._ranks.nbytes

    def clear(self) -> None:
        """No string has a rank."""
        for array in (self._order, self._waiting, self._ranks):
            array.clear()
        self._count = self._new = 0

    def make_room(self, strings: int) -> None:
        """So many may come."""
        if self._count:
            if self._new > self._texts.codes:
                self.clear()
            else:
                self._waiting.fit(self._new + strings)
                self._ranks.fit(self._texts.codes + strings)

    def come(self, codes: Slots) -> None:
        """Strings that are new; there is room for them."""
        if self._count:
            self._waiting.array[self._new : self._new + len(codes)] = codes
            self._ranks.array[codes] = _NO_RANK
            self._new += len(codes)

    def leave(self, codes: Slots) -> None:
        """Strings that are about to be forgotten."""
        if not self._count:
            return
        order, ranks = self._order.array, self._ranks.array
        ranked = codes[ranks[codes] != _NO_RANK]
        if len(ranked) > _SINGLY:
            ranks[ranked] = _NO_RANK
            self._count = _still_ranked(order[: self._count], ranks)
        else:
            for code in ranked.tolist():
                place = _place_of(order[: self._count], code, self._texts.text, self._texts.records)
                order[place : self._count - 1] = order[place + 1 : self._count]
                ranks[code] = _NO_RANK
                self._count -= 1
        if not self._count:
            self.clear()

    def ranks(self) -> Int64s:
        """A number for each code in use: the greater the string, the greater the number."""
        ranks: Int64s = self._ranks.fit(max(1, self._texts.codes))
        if not self._count:
            self._add(np.flatnonzero(self._texts.is_kept).astype(np.int32), ranks)
        elif self._new:
            new = np.unique(self._waiting.array[: self._new])
            new = new[self._texts.is_kept[new] & (ranks[new] == _NO_RANK)]
            if len(new) > _SINGLY:
                self._add(new, ranks)
            else:
                self._order.fit(self._count + len(new))
                for code in new.tolist():
                    self._enter(code, ranks)
        self._new = 0
        return ranks

    def _add(self, new: Slots, ranks: Int64s) -> None:
        """Many strings; all get new ranks."""
        text, records = self._texts.text, self._texts.records
        order = self._order.fit(self._count + len(new))
        with self._account.borrowed(new.nbytes):
            _sort(new, np.empty_like(new), text, records)
        _merge(order, self._count, new, text, records)
        self._count += len(new)
        self._number(ranks)

    def _number(self, ranks: Int64s) -> None:
        step = min(_STEP, (_LAST - _FIRST) // (self._count + 1))
        _number(self._order.array[: self._count], step, ranks)

    def _enter(self, code: int, ranks: Int64s) -> None:
        order, count = self._order.array, self._count
        place = _place_of(order[:count], code, self._texts.text, self._texts.records)
        below = int(ranks[order[place - 1]]) if place else None
        above = int(ranks[order[place]]) if place < count else None
        order[place + 1 : count + 1] = order[place:count]
        order[place] = code
        self._count += 1
        if below is not None and above is not None:
            rank = (below + above) // 2
        else:
            rank = below + _STEP if below is not None else (above or 0) - _STEP
        if rank == below or not _FIRST < rank < _LAST:
            self._number(ranks)
        else:
            ranks[code] = rank
