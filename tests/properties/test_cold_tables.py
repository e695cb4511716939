"""Tables whose rows go to disk with the first change, and leave memory all the time: as simulated, and as in memory."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.operators.tables import cold
from penstock.operators.tables.cold import ColdRows
from penstock.store import hashed_pages
from properties import test_table_keys, test_tables


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Rows are on disk from the first change on, few to a page. Room has to be made every other time, mostly by giving
    up all rows in memory. Counts what happens."""
    monkeypatch.setattr(hashed_pages, "PAGE_BYTES", 64)
    monkeypatch.setattr(hashed_pages, "_LEAST_ROWS", 2)
    monkeypatch.setattr(cold, "_LEAST", 1 << 60)
    counts = {"asked": 0, "begun": 0, "kept": 0, "emptied": 0}
    has_room, begin, flush, empty = ColdRows._has_room, ColdRows._begin, ColdRows.flush, ColdRows._empty

    def tight(self: ColdRows, rows: int, gone: int, most: int) -> bool:
        counts["asked"] += 1
        return counts["asked"] % 5 in (0, 1, 4) and has_room(self, rows, gone, most)

    def begun(self: ColdRows) -> None:
        counts["begun"] += 1
        begin(self)
        self.keys_at_once = 3

    def flushed(self: ColdRows) -> None:
        emptied = counts["emptied"]
        flush(self)
        counts["kept"] += emptied == counts["emptied"]

    def gave_up(self: ColdRows) -> None:
        counts["emptied"] += 1
        empty(self)

    monkeypatch.setattr(ColdRows, "_fit", lambda self, words: False)
    monkeypatch.setattr(ColdRows, "_has_room", tight)
    monkeypatch.setattr(ColdRows, "_begin", begun)
    monkeypatch.setattr(ColdRows, "flush", flushed)
    monkeypatch.setattr(ColdRows, "_empty", gave_up)
    return counts


@pytest.mark.parametrize("examples", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_as_simulated(examples: int, paging: dict[str, int]) -> None:
    simulated = test_tables.test_as_simulated.hypothesis.inner_test  # type: ignore[attr-defined]

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        simulated(data)

    holds()
    assert paging["begun"] > examples / 2
    assert paging["kept"] and paging["emptied"]
