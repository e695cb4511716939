"""MEDIAN and percentiles whose values are in pages: forced there at every chance, and answers are the oracle's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conformance.runtimes import Drive
from penstock.aggregates import order_statistics, ordered_pages, paged_order
from penstock.aggregates.order_statistics import OrderState
from penstock.aggregates.packed_pages import PackedPages
from penstock.aggregates.paged_order import PagedOrder
from penstock.aggregates.state import Emitted, Rows, Schedule
from properties.generate import WINDOWS, Scenario, scenarios
from properties.test_windows import check, drives

FUNCTIONS = (("MEDIAN", None), ("PERCENTILE_DISC", 0.9), ("PERCENTILE_CONT", 0.3))


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Whatever has a device pages at once; pages have two entries or so, and only some stay in memory. Counts how
    often values went to pages."""
    counts = {"paged": 0}
    advance = OrderState.advance

    def paged(self: OrderState, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        if self._paged is None and self._page():
            counts["paged"] += 1
        return advance(self, added, removed, schedule)

    monkeypatch.setattr(OrderState, "advance", paged)
    monkeypatch.setattr(order_statistics, "_LEAST_TREE", 0)
    monkeypatch.setattr(PagedOrder, "bytes_for", lambda *_: -1)
    monkeypatch.setattr(ordered_pages, "mean_entries", lambda capacity, work: 2)
    monkeypatch.setattr(paged_order, "_UNEVEN", 1)
    keep = PackedPages._may_keep
    monkeypatch.setattr(PackedPages, "_may_keep", lambda self, nbytes: nbytes % 16 == 0 and keep(self, nbytes))
    return counts


def ranking(scenario: Scenario) -> Scenario:
    """What has one argument that is a number asks for a percentile of it."""
    query = scenario.query
    calls = []
    for at, call in enumerate(query.aggregates):
        if len(call.args) == 1 and call.args[0].sql in ("n", "x", "g"):
            function, fraction = FUNCTIONS[at % len(FUNCTIONS)]
            call = replace(call, function=function, parameter=fraction)
        calls.append(call)
    return replace(scenario, query=replace(query, aggregates=tuple(calls)))


def ranks(scenario: Scenario) -> bool:
    return any(call.function in dict(FUNCTIONS) for call in scenario.query.aggregates)


@pytest.mark.parametrize("kind", sorted(WINDOWS))
@pytest.mark.parametrize("examples", [25, pytest.param(300, marks=pytest.mark.slow)])
def test_values_in_pages_give_the_answer_of_the_contract(
    kind: str, examples: int, paging: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = 0
    careful = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))

    @settings(careful, phases=[Phase.generate, Phase.shrink])
    @given(scenarios(kind).map(ranking).filter(ranks), drives, st.booleans())
    def holds(scenario: Scenario, drive: Drive, comes_back: bool) -> None:
        nonlocal cases
        monkeypatch.setattr(order_statistics, "_BACK", 0 if comes_back else 1 << 30)
        before = paging["paged"]
        check(scenario, drive)
        cases += paging["paged"] > before

    holds()
    assert cases > 0.4 * examples, f"values were in pages in {cases} of {examples} cases"
