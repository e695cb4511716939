"""The sliding-graph strategy: the paper's Algorithm 1, a walk down the sliding tree that stops where nothing is due.

The graph changes with the slides; the walk runs over a flat copy of its tree, made anew when slides have come or gone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.arrays import Int64s
from penstock.instruments import Due, GroupedStrategy, SlidingGraph, kernel


class _FlatTree(NamedTuple):
    """Nodes from the root down: the slide, the group (-1: a dummy), and where the children are, which are in a row."""

    slides: Int64s
    groups: Int64s
    first_child: Int64s
    child_count: Int64s


class Graph(GroupedStrategy):
    """
    >>> graph = Graph()
    >>> for query, slide in enumerate((7, 8, 12, 20)):
    ...     graph.register(query, slide)
    >>> graph.candidates(12)
    Candidates(positions=array([ 7,  8, 12]), queries=array([0, 1, 2]))
    >>> graph.work.tests / 12
    5.0
    """

    def __init__(self, start: int = 0, *, local_time: bool = False) -> None:
        super().__init__(start, local_time=local_time)
        self._slides = SlidingGraph()

    @property
    def graph(self) -> SlidingGraph:
        """The graph that is walked, as the slides are now."""
        self._slides.change_to(set(self.groups.slides[self.groups.live()].tolist()))
        return self._slides

    def _prepare(self, live: Int64s) -> None:
        if len(live):
            groups = dict(zip(self.groups.slides[live].tolist(), live.tolist(), strict=True))
            self._tree = _flattened(self.graph.tree(), self.graph.root, groups)
            self._period = self.tick_period()

    def _due(self, upto: int) -> Due:
        positions, groups, looked_at, tests, pushes = _walk(self.position, upto, self._period, *self._tree)
        self.work.add(looked_at, tests, pushes)
        return Due(positions, groups)


def _flattened(tree: dict[int, list[int]], root: int, groups: dict[int, int]) -> _FlatTree:
    order = [root]
    first, count = [], []
    for slide in order:  # grows while it is read: children follow in a row
        first.append(len(order))
        count.append(len(tree[slide]))
        order += tree[slide]
    of_group = [groups.get(slide, -1) for slide in order]
    return _FlatTree(*(np.array(column, np.int64) for column in (order, of_group, first, count)))


@kernel
def _walk(
    after: int, upto: int, period: int, slides: Int64s, groups: Int64s, first_child: Int64s, child_count: Int64s
) -> tuple[Int64s, Int64s, int, int, int]:
    positions = np.empty(64, np.int64)
    found = np.empty(64, np.int64)
    stack = np.empty(len(slides), np.int64)
    count = 0
    looked_at = 0
    tests = 0
    pushes = 0
    position = after // period * period + period
    while position <= upto:
        looked_at += 1
        tests += 1
        height = 0
        if position % slides[0] == 0:
            stack[0] = 0
            height = 1
            pushes += 1
        while height > 0:
            height -= 1
            node = stack[height]
            if groups[node] >= 0:
                if count == len(positions):
                    positions = np.concatenate((positions, np.empty(count, np.int64)))
                    found = np.concatenate((found, np.empty(count, np.int64)))
                positions[count] = position
                found[count] = groups[node]
                count += 1
            tests += child_count[node]
            for child in range(first_child[node], first_child[node] + child_count[node]):
                if position % slides[child] == 0:
                    stack[height] = child
                    height += 1
                    pushes += 1
        position += period
    return positions[:count], found[:count], looked_at, tests, pushes
