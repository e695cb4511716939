"""Groups that go to shards: in nearly every case they do, with large budgets, too, and answers are the oracle's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from conformance.description import Since
from conformance.runtimes import Drive
from penstock.operators import shared_window
from penstock.operators.paged import shards
from penstock.operators.paged.events import PagedEvents
from penstock.operators.paged.log import RowLog
from penstock.operators.paged.results import PagedResults
from penstock.operators.paged.saved import SavedGroups
from penstock.operators.paged.sweeps import Sweeps
from properties.generate import Scenario, scenarios
from properties.test_windows import HOLISTIC, check, drives


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Groups go to shards as soon as there are some, and shards are small. Counts how often shards were played, and how
    often one was divided."""
    monkeypatch.setattr(shared_window, "_LEAST_FREE", 0)
    monkeypatch.setattr(shared_window, "_MANY_GROUPS", 1 << 60)
    monkeypatch.setattr(shared_window, "_LEAST_GROUP_BYTES", 0)
    monkeypatch.setattr(shards, "_BITS", 1)
    monkeypatch.setattr(shards, "_SHARD", 1 << 12)
    monkeypatch.setattr(shards.Shards, "has_many", property(_keeps_groups))
    counts = {"played": 0, "divided": 0, "entered": 0}
    for kind, method, name in (
        (PagedResults, "play", "played"),
        (Sweeps, "_enter_shard", "entered"),
        (PagedEvents, "play", "played"),
        (RowLog, "divide", "divided"),
    ):
        monkeypatch.setattr(kind, method, _counted(getattr(kind, method), counts, name))
    return counts


def _keeps_groups(found: shards.Shards) -> bool:
    """Where no row leaves, rows enter at once."""
    return isinstance(found._saved, SavedGroups)


def _counted(method: Callable[..., object], counts: dict[str, int], name: str) -> Callable[..., object]:
    def counted(*args: object) -> object:
        counts[name] += 1
        return method(*args)

    return counted


def may_page(scenario: Scenario) -> bool:
    """ISTREAM and DSTREAM compare whole relations, and so does RSTREAM at every event: these stay in memory."""
    query = scenario.query
    shown = (None,) if query.window.slide is None else (None, "RSTREAM")
    if isinstance(query.window.extent, Since) and HOLISTIC & {call.function for call in query.aggregates}:
        return False  # these need rows, which a landmark window does not keep
    return bool(query.keys) and query.emit in shown and not query.window.partition_by


@pytest.mark.parametrize("kind", ["range by time", "range at every event", "since", "rows", "range by count"])
@pytest.mark.parametrize("examples", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_groups_in_shards_give_the_answer_of_the_contract(kind: str, examples: int, paging: dict[str, int]) -> None:
    cases = 0
    paged = scenarios(kind, shapes=("few", "crowd", "crowd", "wide")).filter(may_page)
    careful = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))

    @settings(careful, phases=[Phase.generate, Phase.shrink])
    @given(paged, drives)
    def holds(scenario: Scenario, drive: Drive) -> None:
        nonlocal cases
        before = paging["played"]
        # What is known of shards alone takes some dozens of kilobytes.
        check(scenario, replace(drive, memory="1MB") if drive.memory == "32KB" else drive)
        cases += paging["played"] > before

    holds()
    assert cases > 0.4 * examples, f"groups were in shards in {cases} of {examples} cases"
    assert paging["divided"] > 0, "no shard was divided"
    assert (paging["entered"] > 0) == (kind == "since"), "rows enter between evaluations where none leaves"
