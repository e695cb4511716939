"""The clock of a stream: the same whatever the order of clock rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.clock import Clock


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1), st.integers(0, 9))
def test_least_and_greatest_of_all_rows(rows: list[tuple[int, int]], lateness: int) -> None:
    clock = Clock()
    for t_min, extent in rows:
        clock = clock.advanced(t_min, t_min + extent)
    assert clock.first == min(t for t, _ in rows)
    assert clock.last == max(t + extent for t, extent in rows)
    assert clock.watermark(lateness) == clock.last - lateness - 1
