"""However results are cut into pieces and however long a stream is silent: the oracle's answer, in its order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.runtimes import Drive
from penstock.operators import outgoing
from penstock.windows.steps import LONG
from properties.generate import WINDOWS, Scenario, scenarios
from properties.test_windows import check, drives

MOST_EXAMPLES = 12 if settings().max_examples < 500 else settings().max_examples

silences = st.tuples(st.integers(0, 40), st.sampled_from((0, LONG - 1, LONG + 1, 2 * LONG + 3)))
"""After which event a stream is silent, and for how many units of time."""


@pytest.fixture(autouse=True)
def _single_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is a piece."""
    monkeypatch.setattr(outgoing, "PIECE_ROWS", 1)
    monkeypatch.setattr(outgoing, "_LEAST_PIECE", 1)


def with_silence(scenario: Scenario, after: int, length: int) -> Scenario:
    slide = getattr(scenario.query.window.slide, "micros", 0)
    moved = [{**event, "t": event["t"] + length * slide} for event in scenario.events[after:]]
    return replace(scenario, events=scenario.events[:after] + moved)


@pytest.mark.parametrize("kind", sorted(WINDOWS))
def test_pieces_and_silence_change_no_answer(kind: str) -> None:
    @settings(max_examples=MOST_EXAMPLES, deadline=None)
    @given(scenarios(kind, most=25), silences, drives)
    def holds(scenario: Scenario, silence: tuple[int, int], drive: Drive) -> None:
        check(with_silence(scenario, *silence), drive)

    holds()
