"""Groups of tumbling windows that go to shards: in nearly every case they do, and answers are the oracle's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conformance.description import Query, Range, TimeSlide
from conformance.runtimes import Drive
from penstock.operators import closing
from penstock.operators.groups import TooManyGroups
from penstock.operators.paged import runs, shards
from penstock.operators.paged.log import RowLog
from penstock.operators.paged.windows import PagedWindows
from properties.generate import Scenario, scenarios
from properties.test_paged_groups import _counted
from properties.test_windows import check, drives


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Groups go to shards as soon as a few rows are in, and shards are small. Counts what is done."""
    monkeypatch.setattr(closing, "_LEAST_FREE", 0)
    monkeypatch.setattr(closing, "_MANY_GROUPS", 1 << 60)
    monkeypatch.setattr(closing, "_LEAST_GROUP_BYTES", 0)
    monkeypatch.setattr(closing.ClosingAggregate, "_most_groups", _most_groups)
    monkeypatch.setattr(shards, "_BITS", 1)
    monkeypatch.setattr(shards, "_SHARD", 1 << 12)
    monkeypatch.setattr(runs, "_HEADS", 1 << 20)
    monkeypatch.setattr(runs, "_LEAST_MERGED", 2)
    counts = {"played": 0, "divided": 0, "held": 0, "back": 0}
    for kind, method, name in (
        (PagedWindows, "play", "played"),
        (PagedWindows, "_play_held", "held"),
        (RowLog, "divide", "divided"),
        (closing.ClosingAggregate, "_shrink", "back"),
    ):
        monkeypatch.setattr(kind, method, _counted(getattr(kind, method), counts, name))
    return counts


def _most_groups(operator: closing.ClosingAggregate) -> int:
    """A few come to be in memory."""
    if operator._intake.groups.size >= 3:
        raise TooManyGroups
    return 1 << 20


@st.composite
def tumbling(draw: st.DrawFn) -> Scenario:
    """A scenario over a sliding window, which is made to tumble."""
    scenario = draw(scenarios("range by time", shapes=("few", "crowd", "crowd", "wide")))
    query = scenario.query
    assert isinstance(query.window.extent, Range)
    assert isinstance(query.window.slide, TimeSlide)
    length = query.window.extent.micros
    slide = replace(query.window.slide, micros=length)
    calls = tuple(replace(call, over=None) for call in query.aggregates)
    own = replace(query, window=replace(query.window, slide=slide), aggregates=calls)
    return replace(scenario, query=own)


def may_page(scenario: Scenario) -> bool:
    """ISTREAM and DSTREAM, and aggregates of texts, store the rows."""
    return bool(scenario.query.keys) and scenario.query.emit in (None, "RSTREAM") and not _reads_texts(scenario.query)


def _reads_texts(query: Query) -> bool:
    return any(argument.sql == "k" for call in query.aggregates for argument in call.args)


@pytest.mark.parametrize("stays", ["in shards", "until a window closes"])
@pytest.mark.parametrize("examples", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_groups_in_shards_give_the_answer_of_the_contract(
    stays: str, examples: int, paging: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without groups that go back to memory, and so are in both places in most windows."""
    monkeypatch.setattr(closing, "_FEW_GROUPS", 1 << 60 if stays == "in shards" else 0)
    cases = 0

    @settings(
        settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck)),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(tumbling().filter(may_page), drives)
    def holds(scenario: Scenario, drive: Drive) -> None:
        nonlocal cases
        before = paging["played"]
        # What is known of shards alone takes some dozens of kilobytes.
        check(scenario, replace(drive, memory="1MB") if drive.memory == "32KB" else drive)
        cases += paging["played"] > before

    holds()
    assert cases > 0.25 * examples, f"groups were in shards in {cases} of {examples} cases"
    assert paging["divided"] > 0, "no shard was divided"
    assert paging["held"] > 0, "no groups were in memory and in shards"
