"""COUNT(DISTINCT) whose values are in pages: forced there at every chance, and answers are the oracle's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conformance.runtimes import Drive
from penstock.aggregates import distinct, value_pages
from penstock.aggregates.distinct import DistinctState
from penstock.aggregates.state import Emitted, Rows, Schedule
from penstock.aggregates.value_pages import ValuePages
from properties.generate import WINDOWS, Scenario, scenarios
from properties.test_windows import check, drives


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Whatever has a device pages at once; pages have two entries or so, and only some stay in memory. Counts how
    often values went to pages."""
    counts = {"paged": 0}
    advance = DistinctState.advance

    def paged(self: DistinctState, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        if self._paged is None and self._page():
            counts["paged"] += 1
        return advance(self, added, removed, schedule)

    monkeypatch.setattr(DistinctState, "advance", paged)
    monkeypatch.setattr(distinct, "_LEAST_TABLE", 0)
    monkeypatch.setattr(value_pages, "mean_entries", lambda capacity, work: 2)
    keep = ValuePages._may_keep
    monkeypatch.setattr(ValuePages, "_may_keep", lambda self, nbytes: nbytes % 16 == 0 and keep(self, nbytes))
    return counts


def counting(scenario: Scenario) -> Scenario:
    """What has one argument counts its distinct values."""
    query = scenario.query
    calls = [
        replace(call, function="COUNT_DISTINCT", parameter=None) if len(call.args) == 1 else call
        for call in query.aggregates
    ]
    return replace(scenario, query=replace(query, aggregates=tuple(calls)))


def counts_distinct(scenario: Scenario) -> bool:
    return any(call.function == "COUNT_DISTINCT" for call in scenario.query.aggregates)


@pytest.mark.parametrize("kind", sorted(WINDOWS))
@pytest.mark.parametrize("examples", [25, pytest.param(300, marks=pytest.mark.slow)])
def test_values_in_pages_give_the_answer_of_the_contract(
    kind: str, examples: int, paging: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = 0
    careful = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))

    @settings(careful, phases=[Phase.generate, Phase.shrink])
    @given(scenarios(kind).map(counting).filter(counts_distinct), drives, st.booleans())
    def holds(scenario: Scenario, drive: Drive, comes_back: bool) -> None:
        nonlocal cases
        monkeypatch.setattr(distinct, "_BACK", 0 if comes_back else 1 << 30)
        before = paging["paged"]
        check(scenario, drive)
        cases += paging["paged"] > before

    holds()
    assert cases > 0.4 * examples, f"values were in pages in {cases} of {examples} cases"
