"""The search of joins with LEFT, RIGHT and FULL sides, where rows without a match remain.

Such a join goes from left to right: P(0) is the first window, and P(j) is the join of P(j-1) with side j. The rows of
P(j) with a given row of side j are found backwards: first the rows of an earlier side with the same key, then the rows
of P(j-1) that contain these, then those of them that pass the condition of step j. If there are none, the row stands
alone in a RIGHT or FULL join.

Why: docs/decisions/joins-by-position.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.arrays import Int64s
from penstock.operators.joins.kernels import spread
from penstock.operators.joins.key_index import ANSWERS_AT_ONCE
from penstock.operators.joins.rows import JoinRows
from penstock.operators.joins.search import NO_ROW, Found, Search, Windows, one_after_the_other, rows_of
from penstock.operators.stretches import stretches
from penstock.plan.joins.steps import Lookup, Step, outer_step
from penstock.plan.nodes import JoinNode
from penstock.rejects import Reject
from penstock.store.budget import Account


class OuterSearch(Search):
    def __init__(self, node: JoinNode, sides: Sequence[JoinRows], reject: Reject, account: Account) -> None:
        super().__init__(node, sides, reject, account)
        self._forwards = [outer_step(node, side) for side in range(self.count)]

    def containing(self, side: int, found: Found, windows: Windows) -> Found:
        return self._onwards(side + 1, self._backwards(side, found, windows), windows)

    def all_rows(self, evaluations: Int64s, windows: Windows) -> Found:
        return self._prefix(self.count, evaluations, windows)

    def _onwards(self, first: int, found: Found, windows: Windows, upto: int | None = None) -> Found:
        """Sides from `first` on joined to what was found; their own rows without a match are not asked for."""
        for side in range(first, self.count if upto is None else upto):
            found = self._forward(side, found, windows)
        return found

    def _forward(self, side: int, found: Found, windows: Windows) -> Found:
        step = self._forwards[side]
        known = found.origin
        tagged = Found(found.evaluation, found.at, np.arange(len(found)))
        matched = self.extend(step, tagged, windows)
        parts = [matched]
        if self.node.sides[side].kind.keeps_left:
            alone = np.ones(len(found), np.bool_)
            alone[matched.origin] = False
            parts.append(tagged.take(alone).bind(side, np.full(int(alone.sum()), NO_ROW, np.int64)))
        result = _by_origin(parts)
        result.origin = known[result.origin]
        return result

    def _backwards(self, side: int, found: Found, windows: Windows) -> Found:
        """The rows of P(side) that have these rows of the side; `origin` is the place in `found`."""
        if side == 0:
            return Found(found.evaluation, found.at, np.arange(len(found)))
        step = self._forwards[side]
        own = found.at[side]
        finds = []
        for before in self._before(side, step, found, windows):
            finds.append(self.checked(step, before.bind(side, own[before.origin])))
        matched = one_after_the_other(finds, self.count)
        parts = [matched]
        if self.node.sides[side].kind.keeps_right:
            alone = np.ones(len(found), np.bool_)
            alone[matched.origin] = False
            parts.append(self._alone(side, found.evaluation[alone], own[alone], np.flatnonzero(alone)))
        return _by_origin(parts)

    def _before(self, side: int, step: Step, found: Found, windows: Windows) -> Iterator[Found]:
        """The rows of P(side - 1) that may go with these rows of the side, in parts; `origin` says with which."""
        lookup = step.narrowed or step.lookup
        if lookup is None:
            windowed = [high - low for low, high in zip(windows.low[:side], windows.high[:side], strict=True)]
            sizes = np.add.reduce([np.maximum(size, 0)[found.evaluation] for size in windowed])
            for first, last in stretches(sizes, ANSWERS_AT_ONCE):
                origins, before = self._all_before(side, found.evaluation[first:last], windows)
                self.looked_at += len(before)
                before.origin = origins + first
                yield before
            return
        reverse = Lookup(side, lookup.keys, lookup.from_keys)
        by = (reverse, None) if step.narrowed is None else (None, reverse)
        back = Step(lookup.from_side, by[0], (), (), None, by[1])
        for origins, positions in self.candidates(back, found, windows):
            rows = rows_of(found.evaluation[origins], back.side, positions, self.count)
            before = self._onwards(back.side + 1, self._backwards(back.side, rows, windows), windows, side)
            before.origin = origins[before.origin]
            yield before

    def _alone(self, side: int, evaluation: Int64s, positions: Int64s, origin: Int64s) -> Found:
        """Rows of a side with NULLs for all sides before it."""
        alone = rows_of(evaluation, side, positions, self.count)
        for before in range(side):
            alone = alone.bind(before, np.full(len(positions), NO_ROW, np.int64))
        alone.origin = origin
        return alone

    def _all_before(self, side: int, asked: Int64s, windows: Windows) -> tuple[Int64s, Found]:
        """For each of the evaluations, which may repeat, all rows of P(side - 1), and whose they are."""
        evaluations, which = np.unique(asked, return_inverse=True)
        rows = self._prefix(side, evaluations, windows)
        low = np.searchsorted(rows.evaluation, evaluations, side="left")[which]
        high = np.searchsorted(rows.evaluation, evaluations, side="right")[which]
        origins, places = spread(low, high, int((high - low).sum()))
        return origins, rows.take(places)

    def _prefix(self, upto: int, evaluations: Int64s, windows: Windows) -> Found:
        """All rows of P(upto - 1) at these evaluations, which rise."""
        found = self.window_rows(0, evaluations, windows)
        for side in range(1, upto):
            found = self._forward(side, found, windows)
            if self.node.sides[side].kind.keeps_right:
                own = self.window_rows(side, evaluations, windows)
                taken = found.at[side] != NO_ROW
                matched = _pairs(found.evaluation[taken], found.at[side][taken])
                alone = ~np.isin(_pairs(own.evaluation, own.at[side]), matched)
                rest = self._alone(side, own.evaluation[alone], own.at[side][alone], np.flatnonzero(alone))
                found.origin = found.evaluation
                rest.origin = rest.evaluation
                found = _by_origin([found, rest])
        return found


def _pairs(evaluations: Int64s, positions: Int64s) -> Int64s:
    """An evaluation and a position as one number; evaluations are those of one run, a few ten thousand."""
    return (evaluations << 44) | positions


def _by_origin(parts: Sequence[Found]) -> Found:
    found = one_after_the_other(parts, len(parts[0].at))
    if sum(len(part) > 0 for part in parts) < 2:
        return found
    return found.take(np.argsort(found.origin, kind="stable"))
