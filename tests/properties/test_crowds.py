"""Hundreds of keys that come and go: slots go from key to key in nearly every case, and answers are the oracle's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, given, settings

from conformance.runtimes import Drive
from penstock.operators.groups import GroupTable
from properties.generate import Scenario, scenarios
from properties.test_windows import check, drives


def test_slots_are_given_to_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    released = 0
    release = GroupTable._release

    def counted(table: GroupTable, dead: Any) -> None:
        nonlocal released
        released += 1
        release(table, dead)

    monkeypatch.setattr(GroupTable, "_release", counted)
    reused: list[bool] = []

    @settings(max_examples=40, deadline=None, phases=[Phase.generate])
    @given(scenarios("session", shapes=("crowd",)), drives)
    def holds(scenario: Scenario, drive: Drive) -> None:
        before = released
        check(scenario, drive)
        if drive.batches:  # in one push all sessions are open at once
            reused.append(released > before)

    holds()
    assert sum(reused) > 0.5 * len(reused), f"slots were reused in {sum(reused)} of {len(reused)} cases"
