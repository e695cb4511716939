"""Sessions that go to shards: in most cases they do, and answers are the oracle's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from conformance.runtimes import Drive
from penstock.operators import closing
from penstock.operators.groups import TooManyGroups
from penstock.operators.paged import runs, sessions, shards
from penstock.operators.paged.log import RowLog
from penstock.operators.paged.sessions import PagedSessions
from penstock.operators.paged.windows import PagedWindows
from properties.generate import Scenario, scenarios
from properties.test_paged_groups import _counted
from properties.test_windows import check, drives


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Sessions go to shards as soon as a few are open, and shards are small. Counts what is done."""
    monkeypatch.setattr(closing, "_LEAST_FREE", 0)
    monkeypatch.setattr(closing, "_MANY_GROUPS", 1 << 60)
    monkeypatch.setattr(closing, "_LEAST_GROUP_BYTES", 0)
    monkeypatch.setattr(closing.ClosingAggregate, "_most_groups", _most_groups)
    monkeypatch.setattr(shards, "_BITS", 1)
    monkeypatch.setattr(shards, "_SHARD", 1 << 10)
    monkeypatch.setattr(runs, "_HEADS", 1 << 20)
    monkeypatch.setattr(runs, "_LEAST_MERGED", 2)
    counts = {"swept": 0, "played": 0, "divided": 0, "held": 0}
    for kind, method, name in (
        (PagedSessions, "sweep", "swept"),
        (PagedWindows, "play", "played"),
        (PagedSessions, "_play_held", "held"),
        (RowLog, "divide", "divided"),
    ):
        monkeypatch.setattr(kind, method, _counted(getattr(kind, method), counts, name))
    return counts


def _most_groups(operator: closing.ClosingAggregate) -> int:
    """A few come to be in memory."""
    if operator._intake.groups.size >= 3:
        raise TooManyGroups
    return 1 << 20


def may_page(scenario: Scenario) -> bool:
    """What is compared with the session before, and aggregates of texts, stay in memory."""
    query = scenario.query
    reads_texts = any(argument.sql == "k" for call in query.aggregates for argument in call.args)
    return bool(query.keys) and query.emit in (None, "RSTREAM") and not reads_texts


@pytest.mark.parametrize("delay", [1, 2, 1 << 30], ids=["by a gap", "by half a gap", "at once"])
@pytest.mark.parametrize("examples", [30, pytest.param(400, marks=pytest.mark.slow)])
def test_sessions_of_keys_in_shards_give_the_answer_of_the_contract(
    delay: int, examples: int, paging: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever results wait for."""
    monkeypatch.setattr(sessions, "_DELAY", delay)
    cases = _check_scenarios(lambda scenario: bool(scenario.query.window.partition_by), examples, paging, "swept")
    assert cases > 0.4 * examples, f"sessions were in shards in {cases} of {examples} cases"
    assert paging["divided"] > 0, "no shard was divided"
    assert paging["held"] > 0, "no sessions were in memory and in shards"


@pytest.mark.parametrize("examples", [30, pytest.param(400, marks=pytest.mark.slow)])
def test_sessions_of_a_stream_in_shards_give_the_answer_of_the_contract(examples: int, paging: dict[str, int]) -> None:
    cases = _check_scenarios(lambda scenario: not scenario.query.window.partition_by, examples, paging, "played")
    assert cases > 0.05 * examples, f"groups were in shards in {cases} of {examples} cases"


def _check_scenarios(is_asked: Callable[[Scenario], bool], examples: int, counts: dict[str, int], what: str) -> int:
    """Returns the number of cases that counted something."""
    cases = 0

    @settings(
        settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck)),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(scenarios("session", shapes=("few", "crowd", "crowd", "wide")).filter(may_page).filter(is_asked), drives)
    def holds(scenario: Scenario, drive: Drive) -> None:
        nonlocal cases
        before = counts[what]
        # What is known of shards alone takes some dozens of kilobytes.
        check(scenario, replace(drive, memory="1MB") if drive.memory == "32KB" else drive)
        cases += counts[what] > before

    holds()
    return cases
