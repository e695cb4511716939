"""Queries grouped by slide, in columns: twelve bytes per query and an entry per slide.

    slide     2        5        30                 one group each; the index is the group's number
    members   [0 3 7]  [1 2]    [4 5 6]            segments of one pool

A group is a slide with an offset: its queries are due at the positions `offset + k * slide`. Strategies decide which
groups are due; only then are the groups replaced by their queries.

Invariants:
1. `_group_of[query]` is the query's group or -1, and `_pool[_start[group] + _place_of[query]]` is the query.
2. A group's segment is full from its start: a removed query's place is taken by the last one.
3. A group without queries has no key; its number is given to the next new slide.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Int32s, Int64s
from penstock.errors import InputError
from penstock.jit import kernel

Number = TypeVar("Number", np.int32, np.int64)

LARGEST_QUERY = (1 << 31) - 2
LARGEST_SLIDE = 1 << 61


class SlideGroups:
    """Queries are numbers from 0; the columns are as long as the largest that was registered."""

    def __init__(self) -> None:
        self.slides = np.zeros(16, np.int64)
        self.offsets = np.zeros(16, np.int64)
        self.sizes = np.zeros(16, np.int32)
        self._start = np.zeros(16, np.int64)
        self._capacity = np.zeros(16, np.int32)
        self._pool = np.empty(64, np.int32)
        self._used = 0
        self._group_of = np.full(16, -1, np.int32)
        self._place_of = np.zeros(16, np.int32)
        self._by_key: dict[tuple[int, int], int] = {}
        self._free: list[int] = []
        self.queries = 0

    def __len__(self) -> int:
        """How many slides there are."""
        return len(self._by_key)

    def live(self) -> Int64s:
        """The numbers of the groups that have queries."""
        return np.fromiter(self._by_key.values(), np.int64, len(self._by_key))

    def add(self, query: int, slide: int, offset: int = 0) -> tuple[int, bool]:
        """The query's group, and whether it is new."""
        _check_slide(slide)
        _check_query(query)
        if query < len(self._group_of) and self._group_of[query] >= 0:
            raise _registered_already(query)
        self._room_for_query(query)
        group, is_new = self._group(slide, offset % slide)
        self._reserve(group, int(self.sizes[group]) + 1)
        size = int(self.sizes[group])
        self._pool[self._start[group] + size] = query
        self._group_of[query], self._place_of[query] = group, size
        self.sizes[group] = size + 1
        self.queries += 1
        return group, is_new

    def add_many(self, queries: Int64s, slides: Int64s) -> list[int]:
        """Many at once, all or none; the groups that are new."""
        if len(queries) == 0:
            return []
        self._check_many(queries, slides)
        self._room_for_query(int(queries.max()))
        distinct, which = np.unique(slides, return_inverse=True)
        wanted = np.bincount(which, minlength=len(distinct))
        groups = np.empty(len(distinct), np.int32)
        new = []
        for index, slide in enumerate(distinct.tolist()):
            group, is_new = self._group(slide, 0)
            groups[index] = group
            if is_new:
                new.append(group)
            self._reserve(group, int(self.sizes[group]) + int(wanted[index]))
        _place(queries, groups[which], self._pool, self._start, self.sizes, self._group_of, self._place_of)
        self.queries += len(queries)
        return new

    def _check_many(self, queries: Int64s, slides: Int64s) -> None:
        _check_slide(int(slides.min()))
        _check_slide(int(slides.max()))
        _check_query(int(queries.min()))
        _check_query(int(queries.max()))
        ordered = np.sort(queries)
        known = queries[queries < len(self._group_of)]
        again = np.concatenate([ordered[1:][ordered[1:] == ordered[:-1]], known[self._group_of[known] >= 0]])
        if len(again):
            raise _registered_already(int(again[0]))

    def discard(self, query: int) -> tuple[int, bool]:
        """The group that the query was in, and whether it is empty now."""
        if not 0 <= query < len(self._group_of) or self._group_of[query] < 0:
            raise InputError(f"query {query} is not registered")
        group, place = int(self._group_of[query]), int(self._place_of[query])
        last = int(self.sizes[group]) - 1
        moved = self._pool[self._start[group] + last]
        self._pool[self._start[group] + place] = moved
        self._place_of[moved] = place
        self._group_of[query] = -1
        self.sizes[group] = last
        self.queries -= 1
        if last == 0:
            del self._by_key[int(self.slides[group]), int(self.offsets[group])]
            self._free.append(group)
        return group, last == 0

    def expand(self, positions: Int64s, groups: Int64s) -> tuple[Int64s, Int64s]:
        """Positions with groups as positions with queries."""
        total = int(self.sizes[groups].sum())
        return _expand(positions, groups, self._pool, self._start, self.sizes, total)

    def members(self, groups: Int64s) -> Int64s:
        """The queries of some groups."""
        return self.expand(groups, groups)[1]

    def _group(self, slide: int, offset: int) -> tuple[int, bool]:
        known = self._by_key.get((slide, offset))
        if known is not None:
            return known, False
        group = self._free.pop() if self._free else len(self._by_key)
        if group >= len(self.slides):
            size = 2 * len(self.slides)
            self.slides, self.offsets = grown(self.slides, size), grown(self.offsets, size)
            self.sizes, self._capacity = grown(self.sizes, size), grown(self._capacity, size)
            self._start = grown(self._start, size)
        self.slides[group], self.offsets[group] = slide, offset
        self._by_key[slide, offset] = group
        return group, True

    def _reserve(self, group: int, size: int) -> None:
        """Moves a group that grows beyond its segment to the end of the pool."""
        if size <= self._capacity[group]:
            return
        capacity = max(size, 2 * int(self._capacity[group]))
        if self._used + capacity > len(self._pool):
            self._pool = grown(self._pool, max(2 * len(self._pool), self._used + capacity))
        old, count = int(self._start[group]), int(self.sizes[group])
        self._pool[self._used : self._used + count] = self._pool[old : old + count]
        self._start[group], self._capacity[group] = self._used, capacity
        self._used += capacity

    def _room_for_query(self, query: int) -> None:
        if query >= len(self._group_of):
            size = max(query + 1, len(self._group_of) * 3 // 2)
            self._group_of, self._place_of = grown(self._group_of, size, -1), grown(self._place_of, size)


def grown(array: NDArray[Number], size: int, fill: int = 0) -> NDArray[Number]:
    """A longer array with the same beginning."""
    longer = np.full(size, fill, array.dtype)
    longer[: len(array)] = array
    return longer


def _check_slide(slide: int) -> None:
    if not 1 <= slide <= LARGEST_SLIDE:
        raise InputError(f"a slide of {slide} cannot be: slides are whole numbers from 1 to {LARGEST_SLIDE}")


def _check_query(query: int) -> None:
    if not 0 <= query <= LARGEST_QUERY:
        raise InputError(f"{query} cannot be the number of a query: they go from 0 to {LARGEST_QUERY}")


def _registered_already(query: int) -> InputError:
    return InputError(f"query {query} is registered already; remove it first")


@kernel
def _place(
    queries: Int64s,
    groups: Int32s,
    pool: Int32s,
    start: Int64s,
    sizes: Int32s,
    group_of: Int32s,
    place_of: Int32s,
) -> None:
    for i in range(len(queries)):
        query, group = queries[i], groups[i]
        pool[start[group] + sizes[group]] = query
        group_of[query] = group
        place_of[query] = sizes[group]
        sizes[group] += 1


@kernel
def _expand(
    positions: Int64s, groups: Int64s, pool: Int32s, start: Int64s, sizes: Int32s, total: int
) -> tuple[Int64s, Int64s]:
    of_position = np.empty(total, np.int64)
    queries = np.empty(total, np.int64)
    at = 0
    for i in range(len(groups)):
        first = start[groups[i]]
        for k in range(sizes[groups[i]]):
            of_position[at] = positions[i]
            queries[at] = pool[first + k]
            at += 1
    return of_position, queries
