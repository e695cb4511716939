"""COUNT(DISTINCT) of texts that go to shards: in nearly every case they do, and answers are the oracle's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conformance.description import Aggregate, Event, Range, Term, TimeSlide, column
from conformance.runtimes import Drive
from penstock.operators import shared_window
from penstock.operators.paged import shards
from penstock.operators.paged.log import RowLog
from penstock.operators.paged.texts import PagedTexts
from properties.generate import CONDITIONS, Scenario, scenarios
from properties.test_paged_groups import _counted
from properties.test_windows import check, drives


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Texts go to shards as soon as there are some, and shards are small. Counts what is done."""
    monkeypatch.setattr(shared_window, "_LEAST_FREE", 0)
    monkeypatch.setattr(shared_window, "_MANY_GROUPS", 1 << 60)
    monkeypatch.setattr(shared_window, "_LEAST_GROUP_BYTES", 0)
    monkeypatch.setattr(shards, "_BITS", 1)
    monkeypatch.setattr(shards, "_SHARD", 1 << 12)
    counts = {"begun": 0, "played": 0, "divided": 0}
    for kind, method, name in (
        (PagedTexts, "begin", "begun"),
        (PagedTexts, "play", "played"),
        (RowLog, "divide", "divided"),
    ):
        monkeypatch.setattr(kind, method, _counted(getattr(kind, method), counts, name))
    return counts


def _joined(event: Event) -> object:
    return None if event["k"] is None or event["g"] is None else event["k"] + str(event["g"])


TEXTS = (column("k"), column("k"), Term("k || CAST(g AS STRING)", _joined))
BESIDE = ("COUNT", "SUM", "MIN", "MEDIAN", "LAST", "COUNT_DISTINCT")


@st.composite
def counting(draw: st.DrawFn, kind: str) -> Scenario:
    """A scenario over a window without groups, sliding or tumbling, that counts different texts."""
    scenario = draw(scenarios(kind, shapes=("few", "crowd", "crowd")))
    query = scenario.query
    if isinstance(query.window.slide, TimeSlide) and draw(st.booleans()):
        assert isinstance(query.window.extent, Range)
        slide = replace(query.window.slide, micros=query.window.extent.micros)
        query = replace(query, window=replace(query.window, slide=slide))
    conditions = st.one_of(st.none(), st.sampled_from(CONDITIONS))
    calls = []
    for _ in range(draw(st.integers(1, 3))):
        text = draw(st.sampled_from(TEXTS))
        calls.append(Aggregate("COUNT_DISTINCT", (text,), f"a{len(calls)}", draw(conditions), None))
        if draw(st.booleans()):
            calls.append(Aggregate("COUNT", (text,), f"a{len(calls)}", draw(conditions), None))
    for function in draw(st.lists(st.sampled_from(BESIDE), max_size=2)):
        calls.append(Aggregate(function, (column("n"),), f"a{len(calls)}", draw(conditions), None))
    plain = replace(query, keys=(), columns=(), distinct=False, having=None, order_by=(), limit=None)
    if kind != "range at every event" or query.emit != "RSTREAM":
        plain = replace(plain, emit=None)
    return replace(scenario, query=replace(plain, aggregates=tuple(calls)))


@pytest.mark.parametrize("kind", ["range by time", "range at every event", "range by count"])
@pytest.mark.parametrize("examples", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_texts_in_shards_give_the_answer_of_the_contract(kind: str, examples: int, paging: dict[str, int]) -> None:
    cases = 0

    @settings(
        settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck)),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(counting(kind), drives)
    def holds(scenario: Scenario, drive: Drive) -> None:
        nonlocal cases
        before = paging["played"]
        # What is known of shards alone takes some dozens of kilobytes.
        check(scenario, replace(drive, memory="1MB") if drive.memory == "32KB" else drive)
        cases += paging["played"] > before

    holds()
    assert cases > 0.7 * examples, f"texts were in shards in {cases} of {examples} cases"
    assert paging["divided"] > 0, "no shard was divided"
