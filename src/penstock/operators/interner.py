"""Strings to small codes and back, for as long as some row in a window or some group uses them.

Blocks and kernels know only fixed-width values; a STRING travels through them as the int32 code it has here.

Invariants:
1. A code stands for one string as long as its use count is above zero; then the code may be given to another.
2. `ranks()` orders the codes in use as their strings are ordered by UTF-8 bytes.
3. A string is on the account before it is kept. Strings are kept as UTF-8 bytes (`text_table`), without a Python object
   for each. The codes of a few strings that came singly are known to Python, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.aggregates.columns import INT32, plain
from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.jit import kernel
from penstock.operators.text_order import TextOrder
from penstock.operators.text_table import TextTable
from penstock.store.budget import Account
from penstock.store.charged import UNLIMITED, ChargedArray

_AT_ONCE = 1 << 16
"""About so many bytes of new strings are charged together, and put together with those that are known."""

_TABLE_SHARE = 64
"""The last dictionary is remembered if it takes no more than this part of the memory."""

_WORTH_KEEPING = 16
"""Dictionaries of fewer strings are not remembered: they would take the place of a larger one."""

_MOST_KNOWN, _LONGEST_KNOWN = 1024, 64
"""So many strings, of so many characters at most, are known to Python."""


_NO_STRING = -1
"""The number of uses of a code that stands for none."""


@kernel
def _count(codes: Slots, uses: Int64s) -> None:
    for code in codes:
        uses[code] += 1


@kernel
def _uncount(codes: Slots, by: int, uses: Int64s) -> Slots:
    """Takes uses away, none or one, and returns the codes that have none left."""
    unused = np.empty(len(codes), np.int32)
    found = 0
    for code in codes:
        uses[code] -= by
        if uses[code] == 0:
            uses[code] = _NO_STRING
            unused[found] = code
            found += 1
    return unused[:found]


@component("Interner")
class Interner:
    def __init__(self, account: Account = UNLIMITED) -> None:
        self._account = account
        self._texts = TextTable(account)
        self._order = TextOrder(self._texts, account)
        self._uses = ChargedArray(account, np.int64)
        self._unused = ChargedArray(account, np.int32)
        """Codes of strings that came since the last sweep."""
        self._begin()

    def _begin(self) -> None:
        self._fresh = 0
        """How many of `_unused` there are."""
        self._known: dict[str, int] = {}
        self._last_table: tuple[pa.Array, Slots, int] | None = None
        self._forgotten = 0

    def close(self) -> None:
        """Forgets everything and gives its memory back."""
        for part in (self._texts, self._order, self._uses, self._unused):
            part.clear()
        self._begin()

    # Codes

    def encode(self, values: pa.Array | list[str | None]) -> Slots:
        """The code of each value (0 for NULL, whose validity is kept elsewhere). Uses are counted by `use`."""
        if isinstance(values, list):
            known = self._known_codes(values)
            return np.array(self._encode_texts(values) if known is None else known, np.int32)
        if not pa.types.is_dictionary(values.type):
            return self._encode(_as_strings(values))
        table = self._table(values.dictionary)
        if not len(table):
            return np.zeros(len(values), np.int32)
        found: Slots = table[_indices(values)]
        return found

    def _encode_texts(self, values: list[str | None]) -> list[int]:
        """The same for Python's texts: single events need none of Arrow's functions."""
        texts = list(dict.fromkeys([value for value in values if value is not None]))
        strings = _array_of(texts)
        codes = dict(zip(texts, self._texts.find(strings).tolist(), strict=True))
        new = [text for text, code in codes.items() if code < 0]
        rows = max(1, _AT_ONCE * len(strings) // max(1, strings.nbytes))
        for start in range(0, len(new), rows):
            part = new[start : start + rows]
            codes |= zip(part, self._add_new(_array_of(part)).tolist(), strict=True)
        self._remember(texts, list(codes.values()))
        return [0 if value is None else codes[value] for value in values]

    def _encode(self, strings: pa.StringArray) -> Slots:
        codes = self._texts.find(strings)
        if strings.null_count:
            codes[strings.is_null().to_numpy(zero_copy_only=False)] = 0
        new = np.flatnonzero(codes < 0)
        if len(new):
            rows = max(1, _AT_ONCE * len(strings) // max(1, strings.nbytes))
            for start in range(0, len(new), rows):
                part = new[start : start + rows]
                codes[part] = self._add(strings if len(part) == len(strings) else strings.take(pa.array(part)))
        return codes

    def _add(self, strings: pa.StringArray) -> Slots:
        """The codes of strings of which most are new."""
        encoded = strings.dictionary_encode()
        distinct = encoded.dictionary
        table = self._texts.find(distinct)
        is_new = table < 0
        if is_new.any():
            table[is_new] = self._add_new(distinct if is_new.all() else distinct.filter(pa.array(is_new)))
        found: Slots = table[encoded.indices.to_numpy()]
        return found

    def _add_new(self, strings: pa.StringArray) -> Slots:
        """The codes of strings of which none is known and none is there twice."""
        count = len(strings)
        self._uses.fit(self._texts.codes + count)
        self._unused.fit(self._fresh + count)
        self._order.make_room(count)
        codes = self._texts.add(strings)
        self._uses.array[codes] = 0
        self._unused.array[self._fresh : self._fresh + count] = codes
        self._fresh += count
        self._order.come(codes)
        return codes

    def _table(self, dictionary: pa.Array) -> Slots:
        """The code of each entry of a dictionary; a source that sends the same dictionary again pays for it once."""
        known = self._last_table
        if known is not None and known[2] == self._forgotten and known[0].equals(dictionary):
            return known[1]
        table = self._encode(_as_strings(dictionary))
        if len(dictionary) >= _WORTH_KEEPING:
            is_small = dictionary.nbytes * _TABLE_SHARE <= self._account.total
            self._last_table = (dictionary, table, self._forgotten) if is_small else None
        return table

    def find(self, values: pa.Array | list[str | None]) -> Slots:
        """The code of each value, -1 for one that is not known; nothing is added."""
        if isinstance(values, list):
            found = np.array(self.codes_of([value or "" for value in values]), np.int32)
            found[[value is None for value in values]] = -1
            return found
        if not pa.types.is_dictionary(values.type):
            return self._texts.find(_as_strings(values))
        known = self._texts.find(_as_strings(values.dictionary))
        if not len(known):
            return np.full(len(values), -1, np.int32)
        codes: Slots = known[_indices(values)]
        return codes

    def __len__(self) -> int:
        """How many strings have a code."""
        return self._texts.strings_kept

    @property
    def strings(self) -> pa.StringArray:
        """Those that have a code."""
        return self.decode(np.flatnonzero(self._texts.is_kept).astype(np.int32))

    def codes_of(self, texts: Sequence[str]) -> list[int]:
        """The code of each string, -1 for one that is not known. Those that were asked for last are found at once."""
        known = self._known_codes(texts)
        if known is not None:
            return known
        found: list[int] = self._texts.find(_array_of(texts)).tolist()
        self._remember(texts, found)
        return found

    def _remember(self, texts: Sequence[str | None], codes: list[int]) -> None:
        if len(self._known) + len(texts) > _MOST_KNOWN:
            self._known.clear()
        for text, code in zip(texts[:_MOST_KNOWN], codes, strict=False):
            if code >= 0 and text is not None and len(text) <= _LONGEST_KNOWN:
                self._known[text] = code

    def _known_codes(self, texts: Sequence[str | None]) -> list[int] | None:
        """The codes of strings that Python knows; None if there are others."""
        try:
            return list(map(self._known.__getitem__, texts))  # type: ignore[arg-type]
        except KeyError:
            return None

    # Uses

    def use(self, codes: Slots) -> None:
        if len(codes):
            _count(plain(codes, INT32), self._uses.array)

    def release(self, codes: Slots) -> None:
        """Gives uses back; strings without a use are forgotten."""
        if len(codes):
            self._forget(_uncount(plain(codes, INT32), 1, self._uses.array))

    def sweep(self) -> None:
        """Forgets what was encoded since the last sweep and then not used (rows that failed WHERE)."""
        if self._fresh:
            codes, self._fresh = self._unused.array[: self._fresh], 0
            self._forget(_uncount(codes, 0, self._uses.array))

    def _forget(self, codes: Slots) -> None:
        """Codes that have no use left, each once."""
        if len(codes):
            self._order.leave(codes)
            self._texts.forget(codes)
            self._forgotten += len(codes)
            self._known.clear()

    def decode(self, codes: Slots) -> pa.StringArray:
        """The strings of codes, as an Arrow array without NULLs."""
        return self._texts.strings(plain(codes, INT32))

    def ranks(self) -> Int64s:
        """A number for each code in use: the greater the string, the greater the number."""
        return self._order.ranks()

    # Memory and durability

    def room_for(self, strings: int, nbytes: int) -> int:
        """About the most bytes that so many new strings of so many bytes take besides those that are on the account."""
        numbers = 8 * max(0, len(self) + strings - len(self._uses)) + 4 * max(0, strings - len(self._unused))
        return self._texts.room_for(strings, nbytes) + numbers + numbers // 8

    @property
    def nbytes(self) -> int:
        return self._texts.nbytes + self._order.nbytes + self._uses.nbytes + self._unused.nbytes

    def snapshot(self) -> dict[str, Any]:
        return {**self._texts.snapshot(), "uses": self._uses.array[: self._texts.codes]}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.close()
        self._texts.restore(snapshot)
        uses = snapshot["uses"]
        self._uses.fit(len(uses))[: len(uses)] = uses


def _array_of(texts: Sequence[str]) -> pa.StringArray:
    """As Arrow's own function makes it, which loads pandas."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def _indices(values: pa.DictionaryArray) -> Slots:
    """Those of a dictionary; 0 for NULL."""
    indices = values.indices.fill_null(0) if values.null_count else values.indices
    found: Slots = indices.to_numpy(zero_copy_only=False)
    return found


def _as_strings(values: pa.Array) -> pa.StringArray:
    return values if pa.types.is_string(values.type) else values.cast(pa.string())
