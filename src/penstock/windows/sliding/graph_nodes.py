"""The sliding graph: slides as nodes, and an edge where one divides another with no third in between.

    slides 2 4 8 24 15 12 5 22 3 11 9           1          the dummy root: the greatest common divisor
                                       ┌─────┬──┴──┬────┐
                                       2     3     5    11
                                       4     9    15    22     strong edges: from the greatest divisor there is
                                     8   12
                                         24                    (weak ones: 3→12, 3→15, 2→22, 8→24)

The strong edges are a tree, the sliding tree: a slide needs no test where its parent does not divide the position.
Weak edges serve changes: they say which nodes are concerned when a node comes or goes.

Invariants:
1. `parents[v]` are the divisors of v in the graph that divide no other divisor of v in the graph, and `children` is
   the same relation seen from the other side.
2. The root is no node unless it is a slide itself or was added: a graph with one top has that for its root, any other
   the greatest common divisor of all tops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd
from typing import NamedTuple

import numpy as np

from penstock.arrays import Int64s
from penstock.windows.sliding.groups import grown


class Edge(NamedTuple):
    start: int
    end: int
    strong: bool


class SlidingGraph:
    """
    >>> graph = SlidingGraph([2, 3, 12, 4])
    >>> sorted(graph.parents[12])
    [3, 4]
    >>> graph.tree()
    {1: [2, 3], 2: [4], 3: [], 4: [12], 12: []}
    >>> graph.remove(4)
    >>> graph.tree()
    {1: [2, 3], 2: [], 3: [12], 12: []}
    """

    def __init__(self, slides: Iterable[int] = ()) -> None:
        self.parents: dict[int, set[int]] = {}
        self.children: dict[int, set[int]] = {}
        self._place: dict[int, int] = {}
        self._values = np.zeros(16, np.int64)
        for slide in sorted(slides):
            self.insert(slide)

    def __contains__(self, slide: int) -> bool:
        return slide in self.parents

    def __len__(self) -> int:
        return len(self.parents)

    def insert(self, slide: int) -> None:
        if slide in self.parents:
            return
        values = self._values[: len(self.parents)]
        parents = _greatest(values[slide % values == 0])
        children = _least(values[values % slide == 0])
        for parent in parents:
            for child in children:
                self.children[parent].discard(child)
                self.parents[child].discard(parent)
        self._remember(slide)
        self.parents[slide], self.children[slide] = set(parents), set(children)
        for parent in parents:
            self.children[parent].add(slide)
        for child in children:
            self.parents[child].add(slide)

    def remove(self, slide: int) -> None:
        parents, children = self.parents.pop(slide), self.children.pop(slide)
        self._forget(slide)
        for parent in parents:
            self.children[parent].discard(slide)
        for child in children:
            self.parents[child].discard(slide)
        for child in children:
            for parent in parents:
                if not any(between % parent == 0 for between in self.parents[child]):
                    self.parents[child].add(parent)
                    self.children[parent].add(child)

    def change_to(self, slides: set[int]) -> None:
        """Inserts and removes until these are the nodes."""
        for slide in [slide for slide in self.parents if slide not in slides]:
            self.remove(slide)
        for slide in sorted(slides - self.parents.keys()):
            self.insert(slide)

    def copy(self) -> SlidingGraph:
        other = SlidingGraph()
        other.parents = {slide: set(found) for slide, found in self.parents.items()}
        other.children = {slide: set(found) for slide, found in self.children.items()}
        other._place, other._values = dict(self._place), self._values.copy()
        return other

    @property
    def root(self) -> int:
        """The only top, or the greatest common divisor of all; a graph without nodes has none."""
        return gcd(*(slide for slide, parents in self.parents.items() if not parents))

    def strong_parent(self, slide: int) -> int:
        """The node whose test decides about this one's; the root's is the root."""
        return max(self.parents[slide], default=self.root)

    def strong_children(self, slide: int) -> list[int]:
        return sorted(child for child in self.children[slide] if max(self.parents[child]) == slide)

    def tree(self) -> dict[int, list[int]]:
        """The sliding tree, the root included, by growing slides."""
        root = self.root
        tree: dict[int, list[int]] = {slide: [] for slide in sorted({root, *self.parents})}
        for slide in sorted(self.parents):
            if slide != root:
                tree[max(self.parents[slide], default=root)].append(slide)
        return tree

    def edges(self) -> Iterator[Edge]:
        """All edges, those from a dummy root included."""
        root = self.root
        for slide in sorted(self.parents):
            strongest = max(self.parents[slide], default=root)
            for parent in sorted(self.parents[slide]) or [root]:
                if parent != slide:
                    yield Edge(parent, slide, parent == strongest)

    def nodes_tested(self) -> float:
        """Tests per position in the long run: the root's, and each other node's wherever its parent is due.

        >>> SlidingGraph([7, 8, 12, 20]).nodes_tested(), SlidingGraph([7, 8, 12, 20, 4]).nodes_tested()
        (5.0, 3.75)
        """
        return 1 + sum(len(children) / slide for slide, children in self.tree().items())

    def _remember(self, slide: int) -> None:
        place = len(self.parents)
        if place == len(self._values):
            self._values = grown(self._values, 2 * place)
        self._values[place] = slide
        self._place[slide] = place

    def _forget(self, slide: int) -> None:
        """Called when the node has gone: the last value takes its place."""
        place, last = self._place.pop(slide), len(self.parents)
        if place != last:
            moved = int(self._values[last])
            self._values[place] = moved
            self._place[moved] = place


def _greatest(divisors: Int64s) -> list[int]:
    """Those that divide none of the others."""
    found: list[int] = []
    for divisor in sorted(divisors.tolist(), reverse=True):
        if not any(greater % divisor == 0 for greater in found):
            found.append(divisor)
    return found


def _least(multiples: Int64s) -> list[int]:
    """Those that no other divides."""
    found: list[int] = []
    left = np.sort(multiples)
    while len(left):
        found.append(int(left[0]))
        left = left[left % left[0] != 0]
    return found
