"""The sliding graph: the paper's figures, and any sequence of changes against the definition."""

from __future__ import annotations

from math import lcm

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.windows.sliding.graph_nodes import Edge, SlidingGraph
from penstock_bench.sliding.graph import Graph
from penstock_bench.sliding.optimised import Limits, Optimised, optimise


def test_figure_3() -> None:
    graph = SlidingGraph([2, 4, 8, 24, 15, 12, 5, 22, 3, 11, 9])
    strong = [(e.start, e.end) for e in graph.edges() if e.strong]
    weak = [(e.start, e.end) for e in graph.edges() if not e.strong]
    assert graph.root == 1
    assert sorted(strong) == [
        (1, 2), (1, 3), (1, 5), (1, 11), (2, 4), (3, 9), (4, 8), (4, 12), (5, 15), (11, 22), (12, 24),
    ]  # fmt: skip
    assert sorted(weak) == [(2, 22), (3, 12), (3, 15), (8, 24)]


@pytest.mark.parametrize(("limits", "tested"), [(None, 5.0), (Limits(push_weight=0), 3.75)], ids=["4(a)", "4(b)"])
def test_figure_4_nodes_tested_per_tuple(limits: Limits | None, tested: float) -> None:
    strategy = Graph() if limits is None else Optimised(limits)
    strategy.register_many(np.arange(4), np.array([7, 8, 12, 20]))
    period = lcm(7, 8, 12, 20)
    strategy.due(period)
    assert strategy.work.tests / period == tested
    assert strategy.graph.nodes_tested() == tested


def by_definition(slides: set[int]) -> set[tuple[int, int]]:
    """Pairs that divide with no third in between."""
    return {
        (a, b)
        for a in slides
        for b in slides
        if a != b and b % a == 0 and not any(m % a == 0 and b % m == 0 for m in slides - {a, b})
    }


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 120)), max_size=60))
def test_any_changes_keep_the_graph(changes: list[tuple[bool, int]]) -> None:
    graph = SlidingGraph()
    slides: set[int] = set()
    for comes, slide in changes:
        if comes:
            graph.insert(slide)
            slides.add(slide)
        elif slide in slides:
            graph.remove(slide)
            slides.discard(slide)
        assert {(p, s) for s, parents in graph.parents.items() for p in parents} == by_definition(slides)
        assert {(s, c) for s, children in graph.children.items() for c in children} == by_definition(slides)
    for edge in graph.edges():
        assert edge.strong == (edge.start == max((e.start for e in graph.edges() if e.end == edge.end), default=0))


@given(st.sets(st.integers(2, 400), min_size=1, max_size=40))
def test_optimising_never_costs_operations(slides: set[int]) -> None:
    """In the long run: a node is tested where its parent is due and pushed where it is due itself."""

    def operations(graph: SlidingGraph) -> float:
        tree = graph.tree()
        return graph.nodes_tested() + 11 * sum(1 / slide for slide in tree)

    before = SlidingGraph(slides)
    after = optimise(before, Limits())
    assert operations(after) <= operations(before) + 1e-9
    assert optimise(before, Limits(push_weight=0)).nodes_tested() <= before.nodes_tested() + 1e-9
    assert set(before.parents) == slides


def extra(slides: list[int], limits: Limits) -> set[int]:
    graph = SlidingGraph(slides)
    return set(optimise(graph, limits).parents) - set(slides) - {graph.root}


def test_limits_decide_which_extra_nodes_there_are() -> None:
    """4 spares the root 1.25 of 5 tests, hence θ = 0.25; 404 spares node 101 as much of 3, hence θ = 1.25/3/101."""
    slides = [7, 8, 12, 20, 101, 808, 1212, 2020]
    assert extra(slides, Limits(push_weight=0)) == {4, 404}
    assert extra(slides, Limits(theta_l=0.0042, push_weight=0)) == {4}
    assert extra(slides, Limits(theta_l=0.26, push_weight=0)) == set()
    assert extra(slides, Limits(theta_g=0.12, push_weight=0)) == {4, 404}
    assert extra(slides, Limits(theta_g=0.13, push_weight=0)) == {4}, "(0.25 + 0.004) / 2 is less"
    assert extra(slides, Limits()) == set(), "the pushes of 4 and 404 cost more than the tests they spare"


def test_a_cost_function_that_favours_many_nodes_at_once() -> None:
    """7 spares 1.57 of 6 tests and 4 spares 1.25: neither is worth 0.4 alone."""
    slides = [8, 12, 20, 77, 91, 119]
    assert extra(slides, Limits(theta_l=0.4, push_weight=0)) == set()
    assert extra(slides, Limits(theta_l=0.4, cost=lambda sigma: 1.0, push_weight=0)) == {4, 7}


def test_where_an_optimisation_is_too_dear_a_smaller_one_is_taken() -> None:
    """Node 101 would be optimised by two nodes, 404 and 707; with the root's 4 they are three, which cost too much."""
    slides = [7, 8, 12, 20, 101, *(101 * factor for factor in (8, 12, 20, 77, 91, 119))]
    prices = {1: 1.0, 2: 1.2, 3: 1.3}
    assert extra(slides, Limits(theta_g=0.1, cost=lambda sigma: prices.get(sigma, 9.0), push_weight=0)) == {4, 404, 707}
    prices[3] = 10.0
    assert extra(slides, Limits(theta_g=0.1, cost=lambda sigma: prices.get(sigma, 99.0), push_weight=0)) == {4, 707}


def test_an_edge_says_what_it_is() -> None:
    assert list(SlidingGraph([2, 4]).edges()) == [Edge(2, 4, True)]
