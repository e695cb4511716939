"""Strings to small codes and back, for as long as some row in a window or some group uses them.

Blocks and kernels know only fixed-width values; a STRING travels through them as the int32 code it has here.

Invariants:
1. A code stands for one string as long as its use count is above zero; then the code may be given to another.
2. `ranks()` orders the codes in use as their strings are ordered by UTF-8 bytes. A new string changes no other's rank,
   except when there is no number left between its neighbours'.
3. A string is on the account before it is kept. Strings are kept as UTF-8 bytes, so its bytes are what it takes.
4. The index (`text_index`) is on the account, too, and is given up where memory is short: the dictionary has all that
   it has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.aggregates.columns import INT32, plain
from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.jit import kernel
from penstock.operators.text_index import TextIndex
from penstock.store.budget import Account
from penstock.store.charged import UNLIMITED, ChargedArray

_OVERHEAD = 136
"""Bytes of Python bookkeeping per string, as measured: entries of the dictionary and of lists, the objects' headers."""

_AT_ONCE = 1 << 16
"""About so many bytes of strings leave Arrow at once, and are charged together."""

_ENCODED_AT_ONCE = 1 << 22
"""Columns of more bytes are put together with the strings that are known piece by piece."""

_TABLE_SHARE = 64
"""The last dictionary is remembered if it takes no more than this part of the memory."""

_WORTH_KEEPING = 16
"""Dictionaries of fewer strings are not remembered: they would take the place of a larger one."""

_WORTH_INDEXING = 64
"""Columns of so many rows are worth an index of the strings for compiled loops."""

_INDEX_SHARE, _INDEX_FREE = 64, 4
"""The index takes no more than these parts of the memory, and of what is free of it."""

_SINGLY = 64
"""Up to so many strings find their places in the order one by one."""

_FIRST, _LAST = -(1 << 62), 1 << 62
"""Ranks lie between these."""

_STEP = 1 << 32
"""How far behind the last one a string's rank is that comes behind all others."""


@kernel
def _count(codes: Slots, uses: Int64s) -> None:
    for code in codes:
        uses[code] += 1


@kernel
def _uncount(codes: Slots, uses: Int64s) -> Slots:
    """Returns the codes that have no use left."""
    unused = np.empty(len(codes), np.int32)
    found = 0
    for code in codes:
        uses[code] -= 1
        if uses[code] <= 0:
            unused[found] = code
            found += 1
    return unused[:found]


@component("Interner")
class Interner:
    def __init__(self, account: Account = UNLIMITED) -> None:
        self._account = account
        self._uses = ChargedArray(account, np.int64)
        self._ranks = ChargedArray(account, np.int64)
        self._bytes = self._index_bytes = 0
        self._heeds_need = account is UNLIMITED
        self._begin()

    def _begin(self) -> None:
        self._codes: dict[bytes, int] = {}
        self._strings: list[bytes | None] = []
        self._free: list[int] = []
        self._unused: list[int] = []
        self._order: list[bytes] = []
        """Those strings that have a rank, in order."""
        self._unranked: dict[bytes, None] = {}
        """Strings that came since the others got one."""
        self._last_table: tuple[pa.Array, Slots, int] | None = None
        self._last_found: tuple[pa.Array, Slots, tuple[int, int]] | None = None
        self._index: TextIndex | None = None
        self._forgotten = self._added = 0

    def close(self) -> None:
        """Forgets everything and gives its memory back."""
        self._drop_index()
        self._account.release(self._bytes)
        self._bytes = 0
        self._uses.clear()
        self._ranks.clear()
        self._begin()

    # Codes

    @property
    def codes(self) -> Mapping[bytes, int]:
        """The code of each string that is known, by its UTF-8 bytes."""
        return self._codes

    @property
    def forgotten(self) -> int:
        """How many strings have lost their code since the beginning. While it stays the same, codes are what they
        were."""
        return self._forgotten

    def encode(self, values: pa.Array | list[str | None]) -> Slots:
        """The code of each value (0 for NULL, whose validity is kept elsewhere). Uses are counted by `use`."""
        if isinstance(values, list):
            return np.array(self._of_texts(values), np.int32)
        if (index := self._index_for(values)) is None:
            return self._by_dictionary(values)
        codes = index.find(values)
        if values.null_count:
            codes[values.is_null().to_numpy(zero_copy_only=False)] = 0
        new = np.flatnonzero(codes < 0)
        if len(new):
            codes[new] = self._by_dictionary(values if len(new) == len(values) else values.take(pa.array(new)))
        return codes

    def _index_for(self, values: pa.Array) -> TextIndex | None:
        """The index, where it can find the values."""
        return self._indexed(len(values)) if pa.types.is_string(values.type) else None

    def _indexed(self, rows: int) -> TextIndex | None:
        """The index; it is made when it is worth it for so many rows, and small enough."""
        if self._index is None and rows >= _WORTH_INDEXING and self._strings:
            nbytes = TextIndex.bytes_for(len(self._strings), self._bytes - _OVERHEAD * len(self._codes))
            if nbytes * _INDEX_SHARE <= self._account.total and nbytes * _INDEX_FREE <= self._account.free:
                self._heed_need()
                self._account.charge(nbytes)
                self._index_bytes = nbytes
                self._index = TextIndex(self._strings)
        return self._index

    def _heed_need(self) -> None:
        """From now on the index is given up before a request for memory is refused."""
        if not self._heeds_need:
            self._heeds_need = True
            others = self._account.give_up
            self._account.give_up = lambda: self._drop_index() or (others is not None and others())

    def _drop_index(self) -> bool:
        """Whether there was one."""
        self._account.release(self._index_bytes)
        self._index, self._index_bytes, had = None, 0, self._index is not None
        return had

    def _by_dictionary(self, values: pa.Array) -> Slots:
        if not pa.types.is_dictionary(values.type):
            if values.nbytes > _ENCODED_AT_ONCE and len(values) > 1:
                half = len(values) // 2
                halves = values.slice(0, half), values.slice(half)
                return np.concatenate([self._by_dictionary(part) for part in halves])
            values = values.dictionary_encode()
        table = self._table(values.dictionary)
        indices = values.indices
        if indices.null_count:
            indices = indices.fill_null(0)
            if not len(table):
                return np.zeros(len(values), np.int32)
        codes: Slots = table[indices.to_numpy(zero_copy_only=False)]
        return codes

    def _table(self, dictionary: pa.Array) -> Slots:
        """The code of each entry of a dictionary; a source that sends the same dictionary again pays for it once."""
        known = self._last_table
        if known is not None and known[2] == self._forgotten and known[0].equals(dictionary):
            return known[1]
        table = np.zeros(len(dictionary), np.int32)
        at = 0
        for strings in _in_pieces(dictionary):
            table[at : at + len(strings)] = self._codes_of(strings)
            at += len(strings)
        if len(dictionary) < _WORTH_KEEPING:
            return table
        is_small = dictionary.nbytes * _TABLE_SHARE <= self._account.total
        self._last_table = (dictionary, table, self._forgotten) if is_small else None
        return table

    def find(self, values: pa.Array | list[str | None]) -> Slots:
        """The code of each value, -1 for one that is not known; nothing is added."""
        if isinstance(values, list):
            return np.array([-1 if s is None else self._codes.get(s.encode(), -1) for s in values], np.int32)
        if (index := self._index_for(values)) is not None:
            return index.find(values)
        if not pa.types.is_dictionary(values.type):
            values = values.dictionary_encode()
        found = self._found(values.dictionary)
        if not len(found):
            return np.full(len(values), -1, np.int32)
        codes: Slots = found[values.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        return codes

    def _found(self, dictionary: pa.Array) -> Slots:
        """As `_table`, of what is known."""
        version = (self._added, self._forgotten)
        known = self._last_found
        if known is not None and known[2] == version and known[0].equals(dictionary):
            return known[1]
        found = np.empty(len(dictionary), np.int32)
        at = 0
        for strings in _in_pieces(dictionary):
            found[at : at + len(strings)] = [-1 if s is None else self._codes.get(s, -1) for s in strings]
            at += len(strings)
        if len(dictionary) >= _WORTH_KEEPING:
            is_small = dictionary.nbytes * _TABLE_SHARE <= self._account.total
            self._last_found = (dictionary, found, version) if is_small else None
        return found

    def _of_texts(self, texts: list[str | None]) -> list[int]:
        if len(texts) > 1 and sum([len(text) for text in texts if text is not None]) > _AT_ONCE:
            return [self._codes_of([None if text is None else text.encode()])[0] for text in texts]
        return self._codes_of([None if text is None else text.encode() for text in texts])

    def _codes_of(self, strings: Sequence[bytes | None]) -> list[int]:
        known = self._codes.get
        codes = [0 if s is None else known(s, -1) for s in strings]
        if -1 in codes:
            self._add([s for s, code in zip(strings, codes, strict=True) if s is not None and code < 0])
            codes = [0 if s is None else self._codes[s] for s in strings]
        return codes

    def _add(self, strings: list[bytes]) -> None:
        fresh = list(dict.fromkeys(strings))
        self._added += len(fresh)
        nbytes = _bytes_of(fresh)
        self._uses.fit(len(self._strings) + max(0, len(fresh) - len(self._free)))
        self._account.charge(nbytes)
        self._bytes += nbytes
        codes = []
        for string in fresh:
            if self._free:
                code = self._free.pop()
                self._strings[code] = string
            else:
                code = len(self._strings)
                self._strings.append(string)
            self._codes[string] = code
            codes.append(code)
        self._unused += codes
        if self._index is not None and not self._index.add(codes, fresh):
            self._drop_index()
        if self._order:
            self._unranked.update(dict.fromkeys(fresh))

    def use(self, codes: Slots) -> None:
        if len(codes):
            _count(plain(codes, INT32), self._uses.array)

    def release(self, codes: Slots) -> None:
        """Gives uses back; strings without a use are forgotten."""
        if len(codes):
            self._forget(_uncount(plain(codes, INT32), self._uses.array).tolist())

    def sweep(self) -> None:
        """Forgets what was encoded since the last sweep and then not used (rows that failed WHERE)."""
        if self._unused:
            codes = np.array(self._unused)
            self._unused.clear()
            self._forget(codes[self._uses.array[codes] == 0].tolist())

    def _forget(self, codes: list[int]) -> None:
        gone: list[bytes] = []
        free: list[int] = []
        for code in codes:
            string = self._strings[code]
            if string is not None:
                del self._codes[string]
                self._strings[code] = None
                free.append(code)
                gone.append(string)
        if not gone:
            return
        self._free += free
        if self._index is not None:
            self._index.forget(free)
        self._forgotten += len(gone)
        self._leave_order(gone)
        nbytes = _bytes_of(gone)
        self._bytes -= nbytes
        self._account.release(nbytes)

    def decode(self, codes: Slots) -> pa.Array:
        """The strings of codes, as an Arrow array without NULLs."""
        index = self._indexed(len(codes))
        if index is not None and (strings := index.strings(plain(codes, INT32))) is not None:
            return strings
        distinct, where = np.unique(codes, return_inverse=True)
        strings = pa.array([self._strings[code] for code in distinct], pa.string())
        return strings.take(pa.array(where))

    # Order

    def ranks(self) -> Int64s:
        """A number for each code in use: the greater the string, the greater the number."""
        ranks: Int64s = self._ranks.fit(max(1, len(self._strings)))
        if not self._order or len(self._unranked) > _SINGLY:
            self._order += sorted(self._unranked) if self._order else self._codes
            self._order.sort()
            self._number(ranks)
        else:
            for string in self._unranked:
                self._enter_order(string, ranks)
        self._unranked.clear()
        return ranks

    def _number(self, ranks: Int64s) -> None:
        count = len(self._order)
        codes = np.fromiter((self._codes[s] for s in self._order), np.int64, count)
        step = min(_STEP, (_LAST - _FIRST) // (count + 1))
        ranks[codes] = (np.arange(count) - count // 2) * step

    def _enter_order(self, string: bytes, ranks: Int64s) -> None:
        order = self._order
        place = bisect_left(order, string)
        below = int(ranks[self._codes[order[place - 1]]]) if place else None
        above = int(ranks[self._codes[order[place]]]) if place < len(order) else None
        order.insert(place, string)
        if below is not None and above is not None:
            rank = (below + above) // 2
        else:
            rank = below + _STEP if below is not None else (above or 0) - _STEP
        if rank == below or not _FIRST < rank < _LAST:
            self._number(ranks)
        else:
            ranks[self._codes[string]] = rank

    def _leave_order(self, gone: list[bytes]) -> None:
        if not self._order:
            return
        ranked = [s for s in gone if self._unranked.pop(s, s) is not None]
        if len(ranked) > _SINGLY:
            leaving = set(ranked)
            self._order = [s for s in self._order if s not in leaving]
        else:
            for string in ranked:
                del self._order[bisect_left(self._order, string)]
        if not self._order:
            self._unranked.clear()

    # Memory and durability

    @property
    def nbytes(self) -> int:
        return self._bytes + self._index_bytes + self._uses.nbytes + self._ranks.nbytes

    def snapshot(self) -> dict[str, Any]:
        ends = np.cumsum([len(s or b"") for s in self._strings], dtype=np.int64)
        alive = np.array([s is not None for s in self._strings], np.bool_)
        text = b"".join(s or b"" for s in self._strings)
        return {"text": text, "ends": ends, "alive": alive, "uses": self._uses.array[: len(self._strings)]}

    def restore(self, snapshot: dict[str, Any]) -> None:
        text, ends, alive = snapshot["text"], snapshot["ends"], snapshot["alive"]
        self.close()
        nbytes = len(text) + _OVERHEAD * int(alive.sum())
        self._account.charge(nbytes)
        self._bytes = nbytes
        uses = self._uses.fit(len(ends))
        uses[: len(ends)] = snapshot["uses"]
        begin = 0
        for code, (end, is_alive) in enumerate(zip(ends.tolist(), alive.tolist(), strict=True)):
            string = text[begin:end] if is_alive else None
            self._strings.append(string)
            if string is None:
                self._free.append(code)
            else:
                self._codes[string] = code
            begin = end


def _bytes_of(strings: Sequence[bytes]) -> int:
    return sum(map(len, strings)) + _OVERHEAD * len(strings)


def _in_pieces(strings: pa.Array) -> Iterator[list[bytes | None]]:
    """The strings as UTF-8, a few at a time: what does not fit into the memory is not all made before it is refused."""
    if not len(strings):
        return
    encoded = strings.cast(pa.binary())
    rows = max(1, _AT_ONCE * len(strings) // max(_AT_ONCE, strings.nbytes))
    for start in range(0, len(strings), rows):
        yield encoded.slice(start, rows).to_pylist()
