"""Strings to small codes and back, for as long as some row in a window or some group uses them.

Blocks and kernels know only fixed-width values; a STRING travels through them as the int32 code it has here.

Invariants:
1. A code stands for one string as long as its use count is above zero; then the code may be given to another.
2. `ranks()` orders the codes in use as their strings are ordered by UTF-8 bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Int64s, Slots

_OVERHEAD = 120
"""Bytes of Python bookkeeping per string: dictionary entry, list entry, object header."""


class Interner:
    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._strings: list[str | None] = []
        self._uses = np.zeros(64, np.int64)
        self._free: list[int] = []
        self._unused: list[int] = []
        self._ranks: Int64s | None = None
        self._last_table: tuple[pa.Array, Slots, int] | None = None
        self._forgotten = 0
        self._bytes = 0

    def encode(self, values: pa.Array | list[str | None]) -> Slots:
        """The code of each value (0 for NULL, whose validity is kept elsewhere). Uses are counted by `use`."""
        if isinstance(values, list):
            return np.array([self._code(s) for s in values], np.int32)
        if not pa.types.is_dictionary(values.type):
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
        table = np.fromiter((self._code(s) for s in dictionary.to_pylist()), np.int32, len(dictionary))
        self._last_table = (dictionary, table, self._forgotten)
        return table

    def _code(self, string: str | None) -> int:
        if string is None:
            return 0
        code = self._codes.get(string)
        if code is None:
            if self._free:
                code = self._free.pop()
                self._strings[code] = string
            else:
                code = len(self._strings)
                self._strings.append(string)
                if code >= len(self._uses):
                    self._uses = np.concatenate([self._uses, np.zeros(len(self._uses), np.int64)])
            self._codes[string] = code
            self._unused.append(code)
            self._ranks = None
            self._bytes += len(string) + _OVERHEAD
        return code

    def use(self, codes: Slots) -> None:
        if len(codes):
            self._uses[: int(codes.max()) + 1] += np.bincount(codes)

    def release(self, codes: Slots) -> None:
        """Gives uses back; strings without a use are forgotten."""
        if not len(codes):
            return
        counts = np.bincount(codes)
        used = self._uses[: len(counts)]
        used -= counts
        for code in np.flatnonzero((used <= 0) & (counts > 0)):
            self._forget(int(code))

    def sweep(self) -> None:
        """Forgets what was encoded since the last sweep and then not used (rows that failed WHERE)."""
        if not self._unused:
            return
        for code in self._unused:
            if self._uses[code] == 0:
                self._forget(code)
        self._unused.clear()

    def _forget(self, code: int) -> None:
        string = self._strings[code]
        if string is not None:
            del self._codes[string]
            self._strings[code] = None
            self._forgotten += 1
            self._free.append(code)
            self._bytes -= len(string) + _OVERHEAD

    def decode(self, codes: Slots) -> pa.Array:
        """The strings of codes, as an Arrow array without NULLs."""
        distinct, where = np.unique(codes, return_inverse=True)
        strings = pa.array([self._strings[code] for code in distinct], pa.string())
        return strings.take(pa.array(where))

    def ranks(self) -> Int64s:
        if self._ranks is None:
            live = sorted(self._codes.items(), key=lambda item: item[0].encode())
            self._ranks = np.zeros(max(1, len(self._strings)), np.int64)
            self._ranks[[code for _, code in live]] = np.arange(len(live))
        return self._ranks

    @property
    def nbytes(self) -> int:
        return self._bytes + self._uses.nbytes

    def snapshot(self) -> dict[str, Any]:
        text = "".join(s or "" for s in self._strings).encode()
        ends = np.cumsum([len((s or "").encode()) for s in self._strings], dtype=np.int64)
        alive = np.array([s is not None for s in self._strings], np.bool_)
        return {"text": text, "ends": ends, "alive": alive, "uses": self._uses[: len(self._strings)]}

    def restore(self, snapshot: dict[str, Any]) -> None:
        text, begin = snapshot["text"], 0
        self.__init__()  # type: ignore[misc]
        for code, (end, alive) in enumerate(zip(snapshot["ends"].tolist(), snapshot["alive"].tolist(), strict=True)):
            string = text[begin:end].decode() if alive else None
            self._strings.append(string)
            if string is None:
                self._free.append(code)
            else:
                self._codes[string] = code
                self._bytes += len(string) + _OVERHEAD
            begin = end
        self._uses = np.zeros(max(64, 2 * len(self._strings)), np.int64)
        self._uses[: len(self._strings)] = snapshot["uses"]
