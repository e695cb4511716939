"""How many rows an operator takes at once, so that its memory depends little on how the input is cut.

Rows that are taken together enter before any of them leaves. Where a part of a chunk lasts longer than a window, groups
and strings that would never be there together are. So a part that lasts that long has few rows: what they take is a
small share of the memory that is free, and where memory is nearly full it is one row. Parts that lie within a small
part of a window, or within one tumbling window, may have all the rows that go together at all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.arrays import Int64s
from penstock.operators.chunk import CHUNK_ROWS
from penstock.plan.nodes import AggregateNode, RelationNode
from penstock.store.budget import Account
from penstock.types import SqlType
from penstock.windows.spec import Range, Rows, Session

_BYTES_FOR_A_ROW = 16384
"""So many bytes must be free for each row of a part that lasts long."""

_SHARE = 8
"""A part within this part of a window is short."""

_CONSTANT = ("COUNT", "SUM", "MOMENTS", "COMOMENTS")
"""The kinds of states that do not grow with the rows of a group."""


class Cuts:
    """`until` says up to which time rows may be taken together with a row of the time given; at most `rows` of them.
    What they take is on the `account`."""

    def __init__(self, account: Account, until: Callable[[int], int], rows: int = CHUNK_ROWS) -> None:
        self._account = account
        self._until = until
        self._rows = max(1, min(rows, CHUNK_ROWS))

    def count(self, times: Int64s, start: int) -> int:
        """How many rows from `start` on are taken at once."""
        few = min(CHUNK_ROWS, max(1, self._account.free // _BYTES_FOR_A_ROW))
        if few >= min(CHUNK_ROWS, len(times) - start):
            return few
        near = times[start : start + self._rows]
        return max(few, int(np.searchsorted(near, self._until(int(times[start])))))


def cuts_of(node: AggregateNode | RelationNode, account: Account) -> Cuts | None:
    """Those of a window whose rows leave one by one; None where nothing grows."""
    extent = node.window.extent
    if not _grows(node):
        return None
    if isinstance(extent, Range):
        return Cuts(account, lambda time: time + max(1, extent.micros // _SHARE))
    if isinstance(extent, Session):
        return Cuts(account, lambda time: time + max(1, extent.gap // _SHARE))
    rows = extent.count // _SHARE if isinstance(extent, Rows) else CHUNK_ROWS
    return Cuts(account, lambda time: _FOREVER, rows)


_FOREVER = 1 << 62


def _grows(node: AggregateNode | RelationNode) -> bool:
    if isinstance(node, RelationNode):
        return any(output.expression.type is SqlType.STRING for output in node.emission.outputs)
    texts = any(arg.type is SqlType.STRING for state in node.states for arg in state.args)
    return bool(node.group_by) or texts or any(state.kind not in _CONSTANT for state in node.states)
