"""How many rows an operator takes at once, so that its memory depends little on how the input is cut.

Rows that are taken together enter before any of them leaves. If a part of a chunk spans more time than a window, groups
and strings are in memory together that otherwise never would be. So a part that spans that much time has few rows:
they take a small share of the free memory, and if memory is nearly full the part is one row. A part that spans a small
fraction of a window, or lies within one tumbling window, may have all rows of a chunk. Where no groups and no strings
grow, it is known how much a row takes at most, and parts have more rows.

Why: docs/decisions/pushes-in-pieces.md
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import numpy as np

from penstock.arrays import Int64s
from penstock.operators.chunk import CHUNK_ROWS
from penstock.plan.nodes import AggregateNode, RelationNode
from penstock.store.budget import Account
from penstock.types import SqlType
from penstock.windows.spec import Range, RateSized, Rows, RowsOf, Session, Since

_BYTES_FOR_A_ROW = 16384
"""So many bytes must be free for each row of a part that lasts long."""

_SHARE = 8
"""A part within this part of a window is short."""


class Cuts:
    """`until` says up to which time rows may be taken together with a row of the time given; at most `rows` of them.
    What they take is on the `account`: where so many bytes are free for each row, it does not matter how long they
    last."""

    def __init__(
        self,
        account: Account,
        until: Callable[[int], int],
        rows: int = CHUNK_ROWS,
        row_bytes: int = _BYTES_FOR_A_ROW,
    ) -> None:
        self._account = account
        self._row_bytes = row_bytes
        self._until = until
        self._rows = max(1, min(rows, CHUNK_ROWS))

    def count(self, times: Int64s, start: int) -> int:
        """How many rows from `start` on are taken at once."""
        few = min(CHUNK_ROWS, max(1, self._account.free // self._row_bytes))
        if few >= min(CHUNK_ROWS, len(times) - start):
            return few
        near = times[start : start + self._rows]
        return max(few, int(np.searchsorted(near, self._until(int(times[start])))))


def cuts_of(node: AggregateNode | RelationNode, account: Account) -> Cuts | None:
    """Those of a window whose rows leave one by one; None where nothing grows."""
    extent = node.window.extent
    row_bytes = _row_bytes(node)
    if row_bytes == 0:
        return None
    match extent:
        case Range(micros=lasting) | Session(gap=lasting):
            return Cuts(account, lambda time: time + max(1, lasting // _SHARE), row_bytes=row_bytes)
        case Rows(count):
            return Cuts(account, lambda time: _FOREVER, count // _SHARE, row_bytes)
        case RowsOf() | Since() | RateSized():
            return Cuts(account, lambda time: _FOREVER, row_bytes=row_bytes)
        case other:
            assert_never(other)


_FOREVER = 1 << 62


def _row_bytes(node: AggregateNode | RelationNode) -> int:
    """What must be free for each row of a part that lasts long; 0 where nothing grows."""
    match node:
        case RelationNode():
            texts = any(output.expression.type is SqlType.STRING for output in node.emission.outputs)
            return _BYTES_FOR_A_ROW if texts else 0
        case AggregateNode():
            texts = any(arg.type is SqlType.STRING for state in node.states for arg in state.args)
            if node.group_by or texts:
                return _BYTES_FOR_A_ROW
            # A state that is paged takes rows one after the other: what leaves in between makes room.
            grown = [state.traits for state in node.states if state.traits.grows and not state.traits.is_paged]
            return sum(_BYTES_FOR_A_ROW if kind.row_bytes is None else kind.row_bytes for kind in grown)
        case other:
            assert_never(other)
