"""Whatever the stream, the window, the aggregates, the batches, the memory and the restarts: the oracle's answer."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.cases import Moment, Table
from conformance.compare import assert_same
from conformance.description import Query
from conformance.oracle import Outcome, expected
from conformance.runtimes import Drive, Run, drive_embedded
from penstock.errors import BudgetError
from penstock.store.budget import parse_size
from properties.counter import COUNTER
from properties.generate import COLUMNS, WINDOWS, Scenario, scenarios

ROOM = st.sampled_from((("64MB", 65536), ("1MB", 65536), ("64MB", 256), ("32KB", 256), ("32KB", 256)))
"""Budget and block size: in 32 KB with blocks of 256 bytes, windows of a few dozen events are paged."""

SEARCH = settings.get_profile("ci-long" if settings().max_examples >= 500 else "quick")
"""The profile of the command line if it is a long one; otherwise the quick one."""

drives = st.builds(
    lambda room, **how: Drive(memory=room[0], block_size=room[1], **how),
    room=ROOM,
    batches=st.one_of(
        st.just(()), st.just((1,) * 60), st.lists(st.sampled_from((0, 1, 1, 2, 5, 13, 40)), max_size=30).map(tuple)
    ),
    restart_at=st.one_of(st.none(), st.integers(0, 40), st.integers(0, 200)),
    lost=st.integers(0, 5),
)


HOLISTIC = {"MEDIAN", "PERCENTILE_CONT", "PERCENTILE_DISC", "COUNT_DISTINCT", "MODE"}
"""These keep every value, and are refused where that does not fit: they get a little more room, and so do windows of
several lengths."""


def with_room_for(query: Query, drive: Drive) -> Drive:
    if len(query.names) > 20:
        drive = replace(drive, block_size=max(drive.block_size, 4096))  # a block holds more than one row
    if drive.memory != "32KB":
        return drive
    if HOLISTIC & {call.function for call in query.aggregates}:
        return replace(drive, memory="1MB")
    return replace(drive, memory="200KB") if any(call.over for call in query.aggregates) else drive


TOLERANCE = 2 * 4096
"""So many bytes more or less may be needed where the input is cut in another way."""

LARGER = {"32KB": "200KB", "200KB": "8MB"}
"""Rows page, groups and keys of partitions do not: where ever new ones outgrow 32 KB, 200 KB do for dozens of events
and 8 MB for hundreds."""


def run(scenario: Scenario, drive: Drive) -> Run:
    program = f"{scenario.stream.sql()};\n{scenario.query.sql()}"
    arrivals = [("s", event) for event in scenario.events]
    drive = with_room_for(scenario.query, drive)
    try:
        with tempfile.TemporaryDirectory() as directory:
            return drive_embedded(program, arrivals, ("q1",), ("s",), replace(drive, directory=Path(directory)))
    except BudgetError:
        if drive.memory not in LARGER or (drive.memory != "32KB" and not is_large(scenario)):
            raise
        if drive.restart_at is None:
            check_refused(scenario, program, drive)
        return run(scenario, replace(drive, memory=LARGER[drive.memory]))


def check_refused(scenario: Scenario, program: str, drive: Drive) -> None:
    """What is refused is refused however the input is cut: all of it at once, or event by event."""
    arrivals = [("s", event) for event in scenario.events]
    less = replace(drive, memory=str(parse_size(drive.memory) - max(TOLERANCE, 2 * drive.block_size)))
    for batches in ((), (1,) * len(arrivals)):
        with pytest.raises(BudgetError):
            drive_embedded(program, arrivals, ("q1",), ("s",), replace(less, batches=batches))


def is_large(scenario: Scenario) -> bool:
    return len(scenario.events) > 100 or len(scenario.stream.columns) > len(COLUMNS)


def as_tables(scenario: Scenario, outcome: Outcome) -> tuple[Table, Table]:
    names = ("window_start", "window_end", *scenario.query.names)
    rows = [(Moment(start), Moment(end), *values) for start, end, *values in outcome.rows]
    late = [(Moment(event["t"]), *list(event.values())[1:]) for event in outcome.late]
    return Table(names, rows), Table(tuple(name for name, _ in scenario.stream.columns), late)


def check(scenario: Scenario, drive: Drive) -> None:
    outcome = expected(scenario.stream, scenario.query, scenario.events)
    rows, late = as_tables(scenario, outcome)
    came = run(scenario, drive)
    assert_same(came.table("q1"), rows, "results")
    assert_same(came.late_table("s"), late, "late events")
    assert came.rejects == outcome.rejected
    COUNTER.add(outcome)


@pytest.mark.parametrize("kind", sorted(WINDOWS))
def test_every_window_gives_the_answer_of_the_contract(kind: str) -> None:
    @settings(SEARCH)
    @given(scenarios(kind), drives)
    def holds(scenario: Scenario, drive: Drive) -> None:
        check(scenario, drive)

    holds()


@pytest.mark.slow
@settings(settings.get_profile("ci-long"))
@given(scenarios(most=150), drives)
def test_for_a_long_time(scenario: Scenario, drive: Drive) -> None:
    check(scenario, drive)
