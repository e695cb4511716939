"""The optimised graph: extra nodes where slides have a common divisor that is no slide itself (Algorithm 3).

    slides 7 8 12 20        1                         1
                      ┌──┬──┴┬───┐      with 4:     ┌─┴─┐
                      7  8  12  20                  7   4          5 tests per position become 3.75
                                                     8 12 20

An extra node spares tests and costs a test and a push of its own. What an optimisation of node n with σ extra nodes is
worth is O = (C0 - C1) / C0 / slide(n), where C0 and C1 are what the children of n cost with each visit before and
after, and θ = O / cost(σ). Algorithm 3 takes them in the order of θ, those below θ_l never, and each only if the sum
of all O over the cost of all extra nodes stays above θ_g. A node that was optimised is looked at again, and so are
the extra nodes, until nothing is left to gain.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.instruments import PUSH_OPERATIONS, SlidingGraph
from penstock_bench.sliding.graph import Graph

_CHILDREN_COMPARED = 1024
"""Of more children the common divisors of pairs would take too long; the least are compared."""

_LARGEST_SIGMA = 4
"""How many extra nodes one optimisation of a node may have; more come when the node is looked at again."""


def number_of_nodes(sigma: int) -> float:
    """The paper's cost function: an extra node costs one."""
    return float(sigma)


@dataclass(frozen=True)
class Limits:
    """Which optimisations are made. `push_weight` is what a push counts for in C0 and C1: the paper counts tests alone,
    0, though an extra node is pushed, too, wherever it is due; with 11 an optimisation never costs more
    operations than it spares."""

    theta_l: float = 0.0
    theta_g: float = 0.0
    cost: Callable[[int], float] = number_of_nodes
    push_weight: float = PUSH_OPERATIONS


class _Option(NamedTuple):
    """One way to optimise a node, by extra nodes below it."""

    theta: float
    worth: float
    extra: tuple[int, ...]


class Optimised(Graph):
    """
    >>> optimised = Optimised(Limits(push_weight=0))
    >>> for query, slide in enumerate((7, 8, 12, 20)):
    ...     optimised.register(query, slide)
    >>> optimised.graph.tree()
    {1: [4, 7], 4: [8, 12, 20], 7: [], 8: [], 12: [], 20: []}
    """

    def __init__(self, limits: Limits | None = None, start: int = 0, *, local_time: bool = False) -> None:
        super().__init__(start, local_time=local_time)
        self._limits = limits or Limits()
        self._optimised: SlidingGraph | None = None
        self._made_for: set[int] = set()

    @property
    def graph(self) -> SlidingGraph:
        slides = set(self.groups.slides[self.groups.live()].tolist())
        if self._optimised is None or slides != self._made_for:
            self._optimised, self._made_for = optimise(super().graph, self._limits), slides
        return self._optimised


def optimise(graph: SlidingGraph, limits: Limits) -> SlidingGraph:
    """A graph with the extra nodes that Algorithm 3 adds; the one given stays as it is."""
    if len(graph) == 0:
        return graph
    better = graph.copy()
    better.insert(graph.root)
    options: dict[int, list[_Option]] = {}
    queue: list[tuple[float, int, int]] = []
    _look_at(list(better.parents), better, limits, options, queue)
    worth, sigma = 0.0, 0
    while queue:
        theta, node, choice = heapq.heappop(queue)
        if choice >= len(options[node]) or options[node][choice].theta != -theta:
            continue  # the node has other children by now
        option = options[node][choice]
        if (worth + option.worth) / limits.cost(sigma + len(option.extra)) > limits.theta_g:
            worth, sigma = worth + option.worth, sigma + len(option.extra)
            _look_at(_add(option.extra, better), better, limits, options, queue)
        else:
            _offer([i for i, o in enumerate(options[node]) if len(o.extra) < len(option.extra)], node, options, queue)
    return better


def _add(extra: tuple[int, ...], graph: SlidingGraph) -> list[int]:
    """Inserts nodes; those that have other children now."""
    touched: set[int] = set()
    for slide in extra:
        before = {child: graph.strong_parent(child) for child in _multiples(slide, graph)}
        graph.insert(slide)
        touched |= {slide, graph.strong_parent(slide)}
        touched |= {parent for child, parent in before.items() if graph.strong_parent(child) != parent}
    return sorted(touched)


def _multiples(slide: int, graph: SlidingGraph) -> list[int]:
    return [node for node in graph.parents if node % slide == 0]


def _look_at(
    nodes: list[int],
    graph: SlidingGraph,
    limits: Limits,
    options: dict[int, list[_Option]],
    queue: list[tuple[float, int, int]],
) -> None:
    """Finds the options of nodes and puts the best of each in the queue."""
    for node in nodes:
        options[node] = [o for o in _options(node, graph.strong_children(node), limits) if o.theta >= limits.theta_l]
        _offer(list(range(len(options[node]))), node, options, queue)


def _offer(
    choices: list[int], node: int, options: dict[int, list[_Option]], queue: list[tuple[float, int, int]]
) -> None:
    if choices:
        best = max(choices, key=lambda choice: options[node][choice].theta)
        heapq.heappush(queue, (-options[node][best].theta, node, best))


def _options(node: int, children: list[int], limits: Limits) -> list[_Option]:
    """With one extra node, with two and so on, each the best that is left."""
    found: list[_Option] = []
    extra: list[int] = []
    spared = 0.0
    below = np.array(children, np.int64)
    cost = len(below) + limits.push_weight * float((node / below).sum()) if len(below) else 0.0
    while len(below) > 2 and len(extra) < _LARGEST_SIGMA:
        least = np.sort(below)[:_CHILDREN_COMPARED]
        divisors = np.unique(np.gcd.outer(least, least))
        divisors = divisors[(divisors > node) & ~np.isin(divisors, below)]
        if len(divisors) == 0:
            break
        counts = np.array([int((below % divisor == 0).sum()) for divisor in divisors.tolist()])
        gains = counts - 1 - (counts + limits.push_weight) * (node / divisors)
        best = int(gains.argmax())
        if gains[best] <= 1e-9:
            break
        divisor = int(divisors[best])
        spared += float(gains[best])
        extra.append(divisor)
        below = np.append(below[below % divisor != 0], divisor)
        worth = spared / cost / node
        found.append(_Option(worth / limits.cost(len(extra)), worth, tuple(extra)))
    return found
