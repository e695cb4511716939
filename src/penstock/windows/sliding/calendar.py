"""The calendar: the queries that are due are written down a page ahead. A tick then only reads them.

    page        ticks 4096 ... 8191, with the slides that are due at each: reading a tick is a slice
    regulars    slides of at most a page: they are on every page
    wheel       longer slides hang in bucket (page of their next due tick mod number of buckets), and move on by their
                length when that page has passed

Writing a page takes a step per slide on it and two per date. So the cost of a tick grows with the number of slides that
are due there. It does not grow with the number of queries, nor with slides that are not due: a long slide costs
something once in its length. A query with a slide that is there already joins the group of that slide. Where a slide
comes or goes, the page is written again when it is next read.

Slides may have an offset here, as the windows of the language do. A tick is a position; with local time it is the
greatest common divisor of all slides and offsets. Pages on which no query is due are skipped.

Invariants:
1. `_page` is the number of the page that is written down, if there is one. If `_page_is_true`, it holds every live
   group that is due on it.
2. A live group of more than a page hangs in the bucket of `_dues[group]`: its first due tick after the position or, for
   dates of the present page, one that the position has passed.
3. `_next` and `_previous` link the groups of a bucket, -1 at the ends; groups that hang nowhere have -2 for
   `_previous`.

Why: docs/decisions/sliding-calendar.md
"""

from __future__ import annotations

from math import gcd

import numpy as np

from penstock.arrays import Int64s
from penstock.jit import kernel
from penstock.windows.sliding.groups import grown
from penstock.windows.sliding.strategy import Due, GroupedStrategy, none_due

PAGE = 4096
"""Ticks on a page."""

_LEAST_BUCKETS = 1024
_APART = -2


class Calendar(GroupedStrategy):
    """
    >>> calendar = Calendar()
    >>> calendar.register(7, slide=5)
    >>> calendar.register(8, slide=11)
    >>> calendar.candidates(12)
    Candidates(positions=array([ 5, 10, 11]), queries=array([7, 7, 8]))
    >>> calendar.next_due
    15
    """

    def __init__(self, start: int = 0, *, local_time: bool = False) -> None:
        super().__init__(start, local_time=local_time)
        self._period = 1
        self._page: int | None = None
        self._page_is_true = False
        self._first, self._dates = np.zeros(PAGE + 1, np.int64), none_due()
        self._regulars: set[int] = set()
        self._heads = np.full(_LEAST_BUCKETS, -1, np.int64)
        self._dues = np.zeros(16, np.int64)
        self._next = np.full(16, -1, np.int64)
        self._previous = np.full(16, _APART, np.int64)
        self._earliest: int | None = None
        self._earliest_is_known = False

    def register(self, query: int, slide: int, offset: int = 0) -> None:
        """Due at the positions `offset + k * slide`."""
        group, is_new = self.groups.add(query, slide, offset)
        if is_new:
            self._slides_came([group])

    @property
    def next_due(self) -> int | None:
        """The first position after the last at which a query is due: when a timer should call."""
        if not self._earliest_is_known:
            live = self.groups.live()
            self._earliest = int(self._dues_after_position(live).min()) if len(live) else None
            self._earliest_is_known = True
        return self._earliest

    def overtaken(self, upto: int) -> Int64s:
        """The queries that are due at least once up to here, each query once: for a caller that handles missed ticks by
        itself. For a clock that was set back there are none."""
        if self.next_due is None or upto < self.next_due:
            self.position = max(self.position, upto)
            return np.empty(0, np.int64)
        self._refresh()
        live = self.groups.live()
        groups = live[self._dues_after_position(live) <= upto]
        self.position = upto
        self._move_on(groups)
        self._earliest_is_known = False
        return np.sort(self.groups.members(groups))

    def _dues_after_position(self, groups: Int64s) -> Int64s:
        slides, offsets = self.groups.slides[groups], self.groups.offsets[groups]
        return (self.position - offsets) // slides * slides + slides + offsets

    # Slides come and go

    def _slides_came(self, groups: list[int]) -> None:
        if not groups:
            return
        self._earliest_is_known = self._page_is_true = False
        slides, offsets = self.groups.slides[groups], self.groups.offsets[groups]
        too_fine = self._local_time and bool((slides % self._period).any() or (offsets % self._period).any())
        if self._stale or too_fine or len(self.groups) > len(self._heads):
            self._stale = True
        else:
            self._enter(np.array(groups, np.int64))

    def _slide_went(self, group: int) -> None:
        self._earliest_is_known = self._page_is_true = False
        if self._stale:
            return
        if group in self._regulars:
            self._regulars.remove(group)
        else:
            _unhang(np.array([group]), self._dues, self._heads, self._next, self._previous)

    def _prepare(self, live: Int64s) -> None:
        """Begins anew: with ticks that are fine enough for all slides, and as many buckets as slides at least."""
        slides, offsets = self.groups.slides[live], self.groups.offsets[live]
        self._period = gcd(*slides.tolist(), *offsets.tolist()) if self._local_time and len(live) else 1
        self._heads = np.full(max(_LEAST_BUCKETS, 1 << (2 * len(live)).bit_length()), -1, np.int64)
        self._regulars = set()
        self._previous[:] = _APART
        self._page, self._page_is_true = None, False
        self._enter(live)

    def _enter(self, groups: Int64s) -> None:
        if len(self._dues) < len(self.groups.slides):
            size = len(self.groups.slides)
            self._dues = grown(self._dues, size)
            self._next, self._previous = grown(self._next, size, -1), grown(self._previous, size, _APART)
        are_regular = self.groups.slides[groups] <= PAGE * self._period
        self._regulars.update(groups[are_regular].tolist())
        self._hang(groups[~are_regular])

    def _hang(self, groups: Int64s) -> None:
        self._dues[groups] = self._dues_after_position(groups) // self._period
        _hang(groups, self._dues, self._heads, self._next, self._previous)

    def _move_on(self, groups: Int64s) -> None:
        """Long slides that were due go to their next date."""
        hanging = groups[self._previous[groups] != _APART]
        _unhang(hanging, self._dues, self._heads, self._next, self._previous)
        self._hang(hanging)
        self.work.pushes += len(hanging)

    # Positions pass

    def _due(self, upto: int) -> Due:
        self._earliest_is_known = False
        tick, last = self.position // self._period, upto // self._period
        pieces = [none_due()]
        while tick < last:
            page = (tick + 1) // PAGE
            if page != self._page or not self._page_is_true:
                if not self._regulars and last // PAGE > page + 1:
                    first = int(self._dues_after_position(self.groups.live()).min()) // self._period
                    tick = min(max(tick, first - 1), last - 1)
                    page = (tick + 1) // PAGE
                self._turn_to(page)
            stop = min(last, page * PAGE + PAGE - 1)
            begin, end = self._first[tick + 1 - page * PAGE], self._first[stop + 1 - page * PAGE]
            pieces.append(Due(self._dates.positions[begin:end], self._dates.groups[begin:end]))
            self.work.add(stop - tick, stop - tick, 0)
            tick = stop
            self.position = max(self.position, tick * self._period)
        if len(pieces) == 2:
            return pieces[1]
        return Due(np.concatenate([p.positions for p in pieces]), np.concatenate([p.groups for p in pieces]))

    def _turn_to(self, page: int) -> None:
        """Writes a page down, as a new one or again."""
        if self._page is not None and self._page != page:
            passed, _ = _on_page(self._page, self._dues, self._heads, self._next)
            self._move_on(passed)
        hanging, looked_at = _on_page(page, self._dues, self._heads, self._next)
        regulars = np.fromiter(self._regulars, np.int64, len(self._regulars))
        groups = np.concatenate([regulars, hanging])
        lengths, offsets = self.groups.slides[groups] // self._period, self.groups.offsets[groups] // self._period
        self._first, positions, due = _written(page * PAGE, self._period, groups, lengths, offsets)
        self._dates = Due(positions, due)
        self._page, self._page_is_true = page, True
        self.work.add(0, len(regulars) + looked_at + 2 * len(due), 0)


@kernel
def _hang(groups: Int64s, dues: Int64s, heads: Int64s, following: Int64s, previous: Int64s) -> None:
    for group in groups:
        bucket = dues[group] // PAGE & (len(heads) - 1)
        first = heads[bucket]
        following[group] = first
        previous[group] = -1
        if first >= 0:
            previous[first] = group
        heads[bucket] = group


@kernel
def _unhang(groups: Int64s, dues: Int64s, heads: Int64s, following: Int64s, previous: Int64s) -> None:
    for group in groups:
        before, after = previous[group], following[group]
        if before >= 0:
            following[before] = after
        else:
            heads[dues[group] // PAGE & (len(heads) - 1)] = after
        if after >= 0:
            previous[after] = before
        previous[group] = _APART


@kernel
def _on_page(page: int, dues: Int64s, heads: Int64s, following: Int64s) -> tuple[Int64s, int]:
    """The groups of a page's bucket that are due on it and not a turn of the wheel later, and how many were there."""
    bucket = page & (len(heads) - 1)
    looked_at = 0
    group = heads[bucket]
    while group >= 0:
        looked_at += 1
        group = following[group]
    found = np.empty(looked_at, np.int64)
    count = 0
    group = heads[bucket]
    while group >= 0:
        if dues[group] // PAGE == page:
            found[count] = group
            count += 1
        group = following[group]
    return found[:count], looked_at


@kernel
def _written(
    start: int, period: int, groups: Int64s, lengths: Int64s, offsets: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """Where each tick's dates begin, and the dates: the position and the group."""
    first = np.zeros(PAGE + 2, np.int64)
    for i in range(len(groups)):
        for tick in range((offsets[i] - start) % lengths[i], PAGE, lengths[i]):
            first[tick + 2] += 1
    for tick in range(2, PAGE + 2):
        first[tick] += first[tick - 1]
    positions = np.empty(first[PAGE + 1], np.int64)
    due = np.empty(first[PAGE + 1], np.int64)
    for i in range(len(groups)):
        for tick in range((offsets[i] - start) % lengths[i], PAGE, lengths[i]):
            at = first[tick + 1]
            positions[at] = (start + tick) * period
            due[at] = groups[i]
            first[tick + 1] = at + 1
    return first[: PAGE + 1], positions, due
