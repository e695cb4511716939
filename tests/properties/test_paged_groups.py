"""Groups that go to shards: in nearly every case they do, with large budgets, too, and answers are the oracle's."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings

from conformance.runtimes import Drive
from penstock.operators import shared_window
from penstock.operators.paged import results
from penstock.operators.paged.results import PagedResults
from properties.generate import Scenario, scenarios
from properties.test_windows import check, drives


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Groups go to shards as soon as there are some, and shards are small; counts the evaluations that were played."""
    monkeypatch.setattr(shared_window, "_LEAST_FREE", 0)
    monkeypatch.setattr(shared_window, "_MANY_GROUPS", 1 << 60)
    monkeypatch.setattr(results, "_BITS", 1)
    monkeypatch.setattr(results, "_SHARD", 1 << 12)
    played = [0]
    play = PagedResults.play

    def counted(paged: PagedResults, *steps: object) -> None:
        played[0] += 1
        play(paged, *steps)  # type: ignore[arg-type]

    monkeypatch.setattr(PagedResults, "play", counted)
    return played


@pytest.mark.parametrize("shape", ["few", "crowd", "wide"])
def test_groups_in_shards_give_the_answer_of_the_contract(shape: str, paging: list[int]) -> None:
    paged: list[bool] = []

    @settings(max_examples=40, deadline=None, phases=[Phase.generate, Phase.shrink])
    @given(scenarios("range by time", shapes=(shape,)), drives)
    def holds(scenario: Scenario, drive: Drive) -> None:
        before = paging[0]
        check(scenario, drive)
        if len(scenario.events) > 20 and scenario.query.keys and not scenario.query.where:
            paged.append(paging[0] > before)

    holds()
    assert sum(paged) > 0.5 * len(paged), f"groups were in shards in {sum(paged)} of {len(paged)} cases"
