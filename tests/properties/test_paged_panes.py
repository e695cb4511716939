"""Families whose groups go to shards, at any moment: answers are the oracle's, whoever comes, goes or changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conformance.description import Event, Query, Stream
from conformance.runtimes import Drive
from penstock.errors import BudgetError
from penstock.operators.paged import runs, shards
from penstock.operators.paged.log import RowLog
from penstock.operators.panes import family, held
from penstock.operators.panes.family import PaneFamily
from penstock.operators.panes.held import HeldPanes
from penstock.operators.panes.paged import PagedPanes
from penstock.operators.panes.totals import PaneTotals
from properties.generate import COLUMNS, event_lists
from properties.test_paged_groups import _counted
from properties.test_panes import UNIT, alike, paned
from properties.test_shared import assert_answers, assert_undisturbed, stories
from properties.test_windows import drives

BY_KEY = alike().filter(lambda chosen: bool(chosen[0].keys))

EXAMPLES = pytest.mark.parametrize("examples", [40, pytest.param(200, marks=pytest.mark.slow)])


class Moment:
    """When groups go to shards: after so many rows, also in the middle of a pane if rows are added by and by; or when
    memory is refused for the n-th time that it is needed."""

    def __init__(self) -> None:
        self.set(0, None, 0)
        self.has_groups = False

    def set(self, rows: int, refused: int | None, row_bytes: int) -> None:
        self.rows, self.refused, self.row_bytes, self._calls = rows, refused, row_bytes, 0

    def refuse(self) -> None:
        self._calls += self.has_groups
        if self.has_groups and self._calls == self.refused:
            raise BudgetError("refused by the test")


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> Moment:
    moment = Moment()

    def is_short(family: PaneFamily) -> bool:
        return bool(family._node.group_by) and family._events >= moment.rows

    def refused(method: Callable[..., Any]) -> Callable[..., Any]:
        def asks(panes: HeldPanes, *args: Any) -> Any:
            moment.has_groups = bool(panes._groups.types)
            found = method(panes, *args)
            moment.refuse()
            return found

        return asks

    monkeypatch.setattr(PaneFamily, "_is_short", property(is_short))
    monkeypatch.setattr(held, "_LEAST_TOGETHER", 3)
    monkeypatch.setattr(held, "_most_bytes", lambda state: moment.row_bytes)
    monkeypatch.setattr(family, "_LEAST_GROUP_BYTES", 0)
    monkeypatch.setattr(HeldPanes, "take", refused(HeldPanes.take))
    monkeypatch.setattr(HeldPanes, "close_pane", refused(HeldPanes.close_pane))
    monkeypatch.setattr(HeldPanes, "leave", refused(HeldPanes.leave))
    entering = PaneTotals.enter

    def enter(totals: PaneTotals, *args: Any) -> None:
        if totals.pages:
            moment.refuse()
        entering(totals, *args)

    monkeypatch.setattr(PaneTotals, "enter", enter)
    return moment


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Shards are small. Counts how often they were played, and how often one was divided."""
    monkeypatch.setattr(shards, "_BITS", 1)
    monkeypatch.setattr(shards, "_SHARD", 1 << 10)
    monkeypatch.setattr(runs, "_HEADS", 1 << 20)
    monkeypatch.setattr(runs, "_LEAST_MERGED", 2)
    monkeypatch.setattr(family, "_TOGETHER", 5)
    counts = {"played": 0, "divided": 0}
    monkeypatch.setattr(PagedPanes, "play", _counted(PagedPanes.play, counts, "played"))
    monkeypatch.setattr(RowLog, "divide", _counted(RowLog.divide, counts, "divided"))
    return counts


def with_room(named: dict[str, Query], drive: Drive) -> Drive:
    """What is known of shards alone takes some dozens of kilobytes."""
    drive = paned(named, drive)
    return replace(drive, memory="4MB") if drive.memory != "64MB" else drive


moments = st.tuples(
    st.sampled_from((0, 0, 5, 20, 60, 1 << 30)), st.none() | st.integers(1, 30), st.sampled_from((0, 1 << 40))
)


def careful(examples: int) -> settings:
    quiet = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    return settings(quiet, phases=[Phase.generate, Phase.shrink])


@EXAMPLES
def test_families_in_shards_give_the_answers_of_the_contract(
    examples: int, moment: Moment, paging: dict[str, int]
) -> None:
    cases = 0

    @careful(examples)
    @given(BY_KEY, st.sampled_from((0, 2)), st.data(), drives, moments)
    def holds(
        chosen: list[Query], lateness: int, data: st.DataObject, drive: Drive, when: tuple[int, int | None, int]
    ) -> None:
        nonlocal cases
        before = paging["played"]
        moment.set(*when)
        stream = Stream("s", COLUMNS, lateness=lateness * UNIT)
        events: list[Event] = data.draw(event_lists(UNIT, lateness))
        named = {f"q{i}": query for i, query in enumerate(chosen)}
        assert_answers(stream, named, events, with_room(named, drive))
        cases += paging["played"] > before

    holds()
    assert cases > 0.4 * examples, f"families were in shards in {cases} of {examples} cases"
    assert paging["divided"] > 0, "no shard was divided"


@EXAMPLES
def test_queries_over_families_in_shards_come_and_go_and_change(
    examples: int, moment: Moment, paging: dict[str, int]
) -> None:
    cases = 0

    @careful(examples)
    @given(BY_KEY, st.data(), drives, moments)
    def holds(chosen: list[Query], data: st.DataObject, drive: Drive, when: tuple[int, int | None, int]) -> None:
        nonlocal cases
        before = paging["played"]
        moment.set(*when)
        stream = Stream("s", COLUMNS)
        events = sorted(data.draw(event_lists(UNIT, 0)), key=lambda event: event["t"])
        named = {f"q{i}": query for i, query in enumerate(chosen)}
        assert_undisturbed(stream, named, data.draw(stories(named, len(events))), events, with_room(named, drive))
        cases += paging["played"] > before

    holds()
    assert cases > 0.3 * examples, f"families were in shards in {cases} of {examples} cases"
