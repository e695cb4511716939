"""Pane rows in a log: what a shard of a family has of its closed panes.

    time                       | the keys | words                      | extras
    the last moment of a pane  | k        | row count, state by state  | NULL, or a length and its words, state by state

A pane row may come twice for a pane and a group, each time with a part of the pane's rows. Both enter and leave the
windows at the same moments.

Called by `panes.paged` and `panes.shard`.

Why: docs/decisions/families-in-shards.md
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.aggregates.panes import Extras
from penstock.aggregates.wide import Words
from penstock.arrays import Int64s
from penstock.expressions.vector import ColumnView, Evaluated
from penstock.operators.paged.log import LoggedRows
from penstock.types import SqlType

_WORD = 8


def packed(parts: Sequence[Words | None]) -> Words:
    """The extras of a row, one for each state, as words."""
    words = [np.zeros(1, np.uint64) if part is None else np.append(np.uint64(len(part)), part) for part in parts]
    return np.concatenate(words)


def unpacked(words: Words, states: int) -> list[Words | None]:
    """The inverse of `packed`."""
    parts: list[Words | None] = []
    at = 0
    for _ in range(states):
        size = int(words[at])
        parts.append(words[at + 1 : at + 1 + size] if size else None)
        at += 1 + size
    return parts


class PaneColumns:
    """The columns of a log of pane rows of so many `words`, behind the time. There are keys of these types, and extras
    of so many `states`."""

    def __init__(self, key_types: tuple[SqlType, ...], words: int, states: int) -> None:
        self.key_types = key_types
        self._width = words
        self._states = states
        self._words = pa.binary(_WORD * words)
        keys = [pa.field(f"#{i}", kind.arrow) for i, kind in enumerate(key_types)]
        self.schema = pa.schema([*keys, pa.field("words", self._words), pa.field("extras", pa.binary())])

    def of(self, keys: Sequence[pa.Array], words: Words, extras: Sequence[Extras]) -> list[pa.Array]:
        """Pane rows as they are logged."""
        held = pa.py_buffer(np.ascontiguousarray(words))
        stored = pa.Array.from_buffers(self._words, len(words), [None, held])
        more: list[bytes | None] = [None] * len(words)
        for row in set().union(*extras):
            more[row] = packed([own.get(row) for own in extras]).tobytes()
        return [*keys, stored, pa.array(more, pa.binary())]

    def keys(self, rows: LoggedRows) -> list[Evaluated]:
        return [ColumnView(rows.batch.column(1 + i), kind) for i, kind in enumerate(self.key_types)]

    def positions(self, rows: LoggedRows) -> Int64s:
        return np.arange(rows.first, rows.first + rows.batch.num_rows)

    def words(self, rows: LoggedRows) -> Words:
        stored = rows.batch.column(1 + len(self.key_types))
        begin, count = stored.offset * self._width, len(stored) * self._width
        held = np.frombuffer(stored.buffers()[1], np.uint64, begin + count)
        return held[begin:].reshape(-1, self._width).copy()

    def extras(self, rows: LoggedRows) -> list[Extras]:
        stored = rows.batch.column(2 + len(self.key_types))
        found: list[Extras] = [{} for _ in range(self._states)]
        if stored.null_count == len(stored):
            return found
        for row in np.flatnonzero(stored.is_valid().to_numpy(zero_copy_only=False)).tolist():
            parts = unpacked(np.frombuffer(stored[row].as_py(), np.uint64), self._states)
            for own, part in zip(found, parts, strict=True):
                if part is not None:
                    own[row] = part.copy()
        return found
