"""The texts of a table's rows that are in memory: codes, and how often each is used.

Invariants:
1. Every row of the store, every key that is gone from the disk and every entry of the history holds one use of each of
   its texts.
2. Uses that are given up are released by `settle`, which is called when no code is at work: not within a run of changes
   or a look-up, where rows may leave the store while their codes are still to be read. Until then a code stands for
   its text.

Why: docs/decisions/cold-texts-in-rows.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Int32s, Int64s
from penstock.columns import Argument
from penstock.errors import BudgetError
from penstock.operators.interner import Interner
from penstock.store.budget import Account
from penstock.types import Field, SqlType

Uses = tuple[Interner, Int32s]
"""One code for each use."""


class TableTexts:
    """`in_key` are the words of a key that are texts, `in_columns` the places of such columns besides the key."""

    def __init__(self, keys: Sequence[Field], others: Sequence[Field], account: Account) -> None:
        self._account = account
        texts = [field.name for field in (*keys, *others) if field.type is SqlType.STRING]
        self.interners = {name: Interner(account) for name in texts}
        self.in_key = {w: field.name for w, field in enumerate(keys) if field.type is SqlType.STRING}
        self.in_columns = {place: field.name for place, field in enumerate(others) if field.type is SqlType.STRING}
        self._given_up: list[Uses] = []

    # Which there are

    def of_keys(self, words: Int64s) -> Iterator[Uses]:
        for w, name in self.in_key.items():
            yield self.interners[name], words[:, w].astype(np.int32)

    def of_columns(self, columns: Sequence[Argument]) -> Iterator[Uses]:
        """Those of all columns besides the key."""
        for place, name in self.in_columns.items():
            yield self.interners[name], present(columns[place])

    def of_rows(self, words: Int64s, columns: Sequence[Argument]) -> Iterator[Uses]:
        yield from self.of_keys(words)
        yield from self.of_columns(columns)

    # Uses

    def give_up(self, uses: Iterable[Uses]) -> None:
        self._given_up += uses

    def settle(self) -> None:
        """Forgets texts that nothing uses."""
        for interner, codes in self._given_up:
            interner.release(codes)
        self._given_up.clear()
        for interner in self.interners.values():
            interner.sweep()

    def shrink(self) -> None:
        """Gives the memory of columns back of which no text is left."""
        for interner in self.interners.values():
            if not len(interner):
                interner.close()

    def clear(self) -> None:
        self._given_up.clear()
        for interner in self.interners.values():
            interner.close()

    # Memory

    @property
    def nbytes(self) -> int:
        return sum(interner.nbytes for interner in self.interners.values())

    def room_for(self, rows: int, nbytes: int) -> int:
        """About the most bytes that the texts of so many rows take, of so many bytes together, if all are new."""
        return sum(interner.room_for(rows, nbytes) for interner in self.interners.values())

    def can_take(self, nbytes: int) -> bool:
        """Whether there is memory for so much more: it is asked for, and given back until it is needed."""
        if nbytes <= self._account.free:
            return True
        try:
            with self._account.borrowed(nbytes):
                return True
        except BudgetError:
            return False

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {name: interner.snapshot() for name, interner in self.interners.items()}

    def restore(self, snapshot: Mapping[str, dict[str, Any]]) -> None:
        for name, interner in self.interners.items():
            interner.restore(snapshot[name])


class SavedTexts:
    """The texts of a snapshot, read where they are. Rows that are not restored give their uses up."""

    def __init__(self, texts: TableTexts, snapshot: Mapping[str, dict[str, Any]]) -> None:
        self._texts = texts
        self._strings = {name: _strings_of(snapshot[name]) for name in texts.interners}
        self._uses = {name: np.array(snapshot[name]["uses"], np.int64) for name in texts.interners}

    def decode(self, name: str, codes: Int32s) -> pa.StringArray:
        return self._strings[name].take(pa.array(codes)).cast(pa.string())

    def give_up(self, words: Int64s, columns: Sequence[Argument]) -> None:
        for w, name in self._texts.in_key.items():
            np.subtract.at(self._uses[name], words[:, w], 1)
        for place, name in self._texts.in_columns.items():
            np.subtract.at(self._uses[name], present(columns[place]), 1)

    def left(self) -> dict[str, dict[str, Any]]:
        """A snapshot of the texts that something else uses."""
        return {name: self._left(name) for name in self._texts.interners}

    def _left(self, name: str) -> dict[str, Any]:
        codes = np.flatnonzero(self._uses[name] > 0)
        count = int(codes[-1]) + 1 if len(codes) else 0
        texts = [text.encode() for text in self._strings[name].take(pa.array(codes)).to_pylist()]
        lengths, uses = np.zeros(count, np.int64), np.full(count, -1, np.int64)
        lengths[codes], uses[codes] = list(map(len, texts)), self._uses[name][codes]
        return {"text": b"".join(texts), "ends": np.cumsum(lengths), "alive": uses > 0, "uses": uses}


def _strings_of(saved: Mapping[str, Any]) -> pa.LargeStringArray:
    ends = np.append(0, np.asarray(saved["ends"], np.int64))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(saved["text"])]
    return pa.Array.from_buffers(pa.large_string(), len(ends) - 1, buffers)


def present(column: Argument) -> Int32s:
    """The codes of values that are not NULL."""
    codes: Int32s = column.values if column.valid is None else column.values[column.valid]
    return codes
