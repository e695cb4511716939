"""Which queries are due: the paper's strategies and the calendar, on random slides as in "Knowing When to Slide".

Slides are drawn from 2 to 200, 800 and 2,000 for 10 to 10,000 queries over one stream. Operations are counted as the
paper does: a test is one, a push eleven; for the calendar, a date written on a page is two. Finding the groups of equal
slides that are due is what is counted and timed, for all strategies; naming their queries then costs each the same.
Figures at 10,000 queries are ratios of operations per tuple, those that end in `_time` of processor time.

The graph is optimised with both of the paper's parameter sets, (0, 0) and, `limited`, (0.001, 0.01). By default the
pushes of extra nodes are weighed, too; weighed `by_tests` alone, as in the paper's formula, extra nodes may cost more
operations than they spare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import lcm
from statistics import mean
from typing import Any

import numpy as np

from penstock.instruments import Calendar, GroupedStrategy
from penstock_bench.benches.memory import PeakMemory
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import timed
from penstock_bench.sliding.graph import Graph
from penstock_bench.sliding.optimised import Limits, Optimised
from penstock_bench.sliding.plain import Plain

_STRATEGIES: dict[str, Callable[[], GroupedStrategy]] = {
    "plain": Plain,
    "graph": Graph,
    "optimised": Optimised,
    "limited": lambda: Optimised(Limits(0.001, 0.01)),
    "by_tests": lambda: Optimised(Limits(push_weight=0)),
    "by_tests_limited": lambda: Optimised(Limits(0.001, 0.01, push_weight=0)),
    "calendar": Calendar,
}
_SECONDS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
"""Twenty granularities for 100 analyses of 10,000 symbols: the paper's 20 million queries."""


@dataclass(frozen=True)
class _Plan:
    """`registered` is how many queries are registered at once to see what they take."""

    queries: tuple[int, ...]
    tuples: int
    repeats: int
    registered: int


_PLANS = {
    Size.TINY: _Plan((10, 300), 1000, 1, 10_000),
    Size.QUICK: _Plan((10, 30, 50, 100, 1000, 5000, 10_000), 20_000, 3, 1_000_000),
    Size.FULL: _Plan((10, 30, 50, 100, 1000, 5000, 10_000), 100_000, 10, 20_000_000),
}
_BOUNDS = (200, 800, 2000)

_BATCH = 1000
"""Tuples that come together: those of a second, in the paper."""

_Cell = dict[str, float]


@dataclass(frozen=True)
class _Measured:
    """Per tuple and strategy, the mean of the repeats."""

    operations: _Cell
    tests: _Cell
    nanoseconds: _Cell


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    _compile()
    cells: dict[tuple[int, int], _Measured] = {}
    for bound in _BOUNDS:
        report.step(f"slides up to {bound:,}")
        for queries in plan.queries:
            cells[bound, queries] = _cell(bound, queries, plan)
    for title, of in (("operations", "operations"), ("nodes tested", "tests"), ("ns", "nanoseconds")):
        report.step(f"{title} per tuple")
        table = _table(cells, of)
        report.table(tuple(table[0]), [tuple(row.values()) for row in table])
    report.step(f"registering {plan.registered:,} queries")
    return {
        **_ratios({bound: cells[bound, plan.queries[-1]] for bound in _BOUNDS}),
        **_optimisations(list(cells.values())),
        **_figure_4(),
        **_registered(plan.registered),
        "calendar_operations_with_10_times_the_queries": _more_of_the_same(plan),
        "queries": plan.queries[-1],
        "tuples": plan.tuples,
        "repeats": plan.repeats,
        "operations_per_tuple": _table(cells, "operations"),
        "nodes_tested_per_tuple": _table(cells, "tests"),
        "ns_per_tuple": _table(cells, "nanoseconds"),
    }


def _cell(bound: int, queries: int, plan: _Plan) -> _Measured:
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in _STRATEGIES}
    for repeat in range(plan.repeats):
        slides = np.random.default_rng([bound, queries, repeat]).integers(2, bound + 1, queries)
        for name, make in _STRATEGIES.items():
            strategy = make()
            strategy.register_many(np.arange(queries), slides)
            strategy.due(0)  # the graph is built
            timing = timed(plan.tuples, partial(_pass, strategy, plan.tuples))
            work = strategy.work
            taken[name].append((work.operations / plan.tuples, work.tests / plan.tuples, 1e9 / timing.cpu_rate))
    means = {name: [mean(column) for column in zip(*found, strict=True)] for name, found in taken.items()}
    return _Measured(*({name: columns[i] for name, columns in means.items()} for i in range(3)))


def _pass(strategy: GroupedStrategy, tuples: int) -> None:
    for upto in range(_BATCH, tuples + 1, _BATCH):
        strategy.due(upto)


def _compile() -> None:
    """The first call of a strategy compiles its loop."""
    for make in _STRATEGIES.values():
        strategy = make()
        strategy.register_many(np.arange(2), np.array([2, 3]))
        _pass(strategy, 20 * _BATCH)


def _table(cells: dict[tuple[int, int], _Measured], of: str) -> list[dict[str, Any]]:
    return [{"slides_upto": bound, "queries": queries, **getattr(cell, of)} for (bound, queries), cell in cells.items()]


def _ratios(cells: dict[int, _Measured]) -> dict[str, float]:
    """How many times the second's work the first spares, with most queries: by bound, the largest without a suffix."""
    found: dict[str, float] = {}
    for bound, suffix in ((2000, ""), (800, "_800"), (200, "_200")):
        work, time = cells[bound].operations, cells[bound].nanoseconds
        found[f"graph_to_plain{suffix}"] = work["plain"] / work["graph"]
        found[f"optimised_to_graph{suffix}"] = work["graph"] / work["optimised"]
        found[f"limited_to_graph{suffix}"] = work["graph"] / work["limited"]
        found[f"calendar_to_graph{suffix}"] = work["graph"] / work["calendar"]
        found[f"graph_to_plain{suffix}_time"] = time["plain"] / time["graph"]
        found[f"calendar_to_graph{suffix}_time"] = time["graph"] / time["calendar"]
    return found


def _optimisations(cells: list[_Measured]) -> dict[str, float]:
    """The least and the most that optimising gains over all numbers of queries, bounds and both parameter sets."""

    def gains(*names: str) -> list[float]:
        return [cell.operations["graph"] / cell.operations[name] for cell in cells for name in names]

    weighed, by_tests = gains("optimised", "limited"), gains("by_tests", "by_tests_limited")
    return {
        "optimised_to_graph_least": min(weighed),
        "optimised_to_graph_most": max(weighed),
        "by_tests_to_graph_least": min(by_tests),
        "by_tests_to_graph_most": max(by_tests),
    }


def _figure_4() -> dict[str, float]:
    """The paper's own example: nodes tested per tuple before and after the optimisation."""
    slides = np.array([7, 8, 12, 20])
    tested = {}
    for name, strategy in (("graph", Graph()), ("optimised", Optimised(Limits(push_weight=0)))):
        strategy.register_many(np.arange(4), slides)
        strategy.due(lcm(*slides.tolist()))
        tested[f"figure_4_nodes_tested_{name}"] = strategy.work.tests / strategy.work.positions
    return tested


def _registered(queries: int) -> dict[str, float]:
    """What so many queries take in the calendar, the arrays they come in included, and what a second costs then."""
    memory = PeakMemory()
    calendar = Calendar(local_time=True)
    numbers = np.arange(queries)
    registering = timed(queries, lambda: calendar.register_many(numbers, np.array(_SECONDS)[numbers % len(_SECONDS)]))
    taken = timed(86_400, lambda: calendar.due(86_400))
    return {
        "registered_queries": queries,
        "registered_mb": memory.added / 1e6,
        "registered_seconds": registering.wall,
        "registered_ns_per_tick": 1e9 / taken.cpu_rate,
    }


def _more_of_the_same(plan: _Plan) -> float:
    """Operations per tuple with ten times as many queries over the same slides, against without."""
    slides = np.random.default_rng(1).integers(2, 2001, plan.queries[-1])
    taken = []
    for copies in (1, 10):
        calendar = Calendar()
        calendar.register_many(np.arange(copies * len(slides)), np.tile(slides, copies))
        calendar.due(plan.tuples)
        taken.append(calendar.work.operations)
    return taken[1] / taken[0]
