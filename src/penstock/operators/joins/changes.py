"""ISTREAM and DSTREAM of an inner join per event: what has come and what has gone, without looking at the rest.

    R(k) = R(k-1) + rows in which the arriving event takes part - rows of which a part has left its window

As multisets R(k) - R(k-1) is then what has come less what has gone, and the other way round for DSTREAM; a row that
comes while an equal one goes is neither.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s, Slots
from penstock.expressions.evaluate import compile_expression, is_total
from penstock.expressions.vector import ColumnView, Evaluated
from penstock.lang.query import Emit
from penstock.operators.groups import GroupTable
from penstock.operators.joins.kernels import spread
from penstock.operators.joins.piece import Piece
from penstock.operators.joins.search import Found, Search, Windows, rows_of, together
from penstock.plan.nodes import JoinNode
from penstock.types import SqlType


def can_tell_changes(node: JoinNode) -> bool:
    """Whether the differences of such a join can be told from what comes and goes."""
    emission = node.emission
    return (
        node.is_inner
        and emission.emit in (Emit.ISTREAM, Emit.DSTREAM)
        and not emission.distinct
        and node.sides[0].window.is_per_event
        and all(is_total(output.expression) for output in emission.outputs)
    )


class JoinChanges:
    def __init__(self, node: JoinNode, search: Search, shown: Sequence[str]) -> None:
        self._search = search
        self._shown = shown
        self._outputs = [compile_expression(output.expression) for output in node.emission.outputs]
        self._types = (SqlType.BIGINT, *(output.expression.type for output in node.emission.outputs))

    def gone(self, piece: Piece, windows: Windows, before: Sequence[int]) -> Found:
        """The rows of the relation before each event that are not in the one after it; `before` are the tails of the
        windows before the first. A row of which several parts leave at once is found with the first of them."""
        count = len(windows.low)
        low = [np.append(tail, tails[:-1]) for tail, tails in zip(before, windows.low, strict=True)]
        high = [np.append(head, heads[:-1]) for head, heads in zip(piece.before, windows.high, strict=True)]
        parts = []
        for side in range(count):
            until = np.minimum(windows.low[side], high[side])
            events, positions = spread(low[side], until, int(np.maximum(until - low[side], 0).sum()))
            passing = self._search.sides[side].passing(positions)
            if passing is not None:
                events, positions = events[passing], positions[passing]
            then = Windows([windows.low[other] if other < side else low[other] for other in range(count)], high)
            parts.append(self._search.containing(side, rows_of(events, side, positions, count), then))
        return together(parts, count)

    def less(self, one: Found, other: Found) -> Bools:
        """Which of some rows remain when others are taken away, event by event: of each value's copies those beyond
        the others' number, the last ones."""
        groups = GroupTable(self._types)
        mine = self._slots(groups, one)
        theirs = np.bincount(self._slots(groups, other), minlength=groups.capacity)
        by_slot = np.argsort(mine, kind="stable")
        ordered = mine[by_slot]
        copy: Int64s = np.empty(len(mine), np.int64)
        copy[by_slot] = np.arange(len(mine)) - np.searchsorted(ordered, ordered, "left")
        remain: Bools = copy >= theirs[mine]
        return remain

    def _slots(self, groups: GroupTable, found: Found) -> Slots:
        if len(found) == 0:
            return np.empty(0, np.int32)
        rows = self._search.batch(found, self._shown)
        columns: list[Evaluated] = [ColumnView(pa.array(found.evaluation), SqlType.BIGINT)]
        columns += [output(rows) for output in self._outputs]
        return groups.assign(columns, len(found), None)
