"""The calendar of windows ON WALL CLOCK names those that are due by their own account, whatever the clock does."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.engine.ticking import Ticking, wall_clock_slides
from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.nodes import Node
from penstock.windows.spec import TimeSlide, last_boundary_upto

STREAM = "CREATE STREAM s (t TIMESTAMP, v BIGINT, EVENT TIME t);"
MICROS = 1_000


def plan(slides: list[tuple[int, int]], clock: str = "ON WALL CLOCK") -> Node:
    """A query whose inputs slide by so many milliseconds, with an offset."""
    inputs = [
        f"SELECT COUNT(*) AS n FROM s [ROWS 5 SLIDE {slide} MILLISECONDS "
        + (f"OFFSET {offset} MILLISECONDS " if offset else "")
        + f"{clock}]"
        for slide, offset in slides
    ]
    return build(parse(STREAM + " UNION ALL ".join(inputs)).queries[0].body)


@dataclass
class Query:
    """Windows that keep their own ticks, as the operators do."""

    slides: list[TimeSlide]
    last: int

    @property
    def next_tick(self) -> int | None:
        return min(last_boundary_upto(self.last, slide) + slide.micros for slide in self.slides)


SLIDES = st.lists(
    st.tuples(st.integers(1, 50), st.integers(0, 49)).map(lambda s: (s[0], s[1] % s[0])), min_size=1, max_size=2
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), SLIDES),
        st.tuples(st.just("drop"), st.integers(0, 5)),
        st.tuples(st.just("move"), st.integers(-20, 200)),
        st.tuples(st.just("restore"), st.integers(0, 100)),
    ),
    max_size=30,
)


@given(STEPS)
@example([("add", [(1, 0)]), ("restore", 2), ("move", -1)])
def test_those_are_due_whose_next_tick_has_come(steps: list[tuple[str, object]]) -> None:
    """Queries come, go and are restored as they were a while ago, and the clock may be set back."""
    now = 1_000_000 * MICROS
    ticking = Ticking(now)
    queries: dict[str, Query] = {}
    for number, (what, value) in enumerate(steps):
        if what == "add":
            node = plan(value)  # type: ignore[arg-type]
            queries[f"q{number}"] = Query(list(wall_clock_slides(node)), now)
            ticking.add(f"q{number}", node, queries[f"q{number}"])
        elif what == "drop" and queries:
            name = list(queries)[int(str(value)) % len(queries)]
            del queries[name]
            ticking.drop(name)
        elif what == "restore":
            for query in queries.values():
                query.last -= int(str(value)) * MICROS
            ticking.restored()
        elif what == "move":
            now += int(str(value)) * MICROS
            expected = [name for name, query in queries.items() if query.next_tick <= now]  # type: ignore[operator]
            assert ticking.due(now) == expected
            for name in expected:
                queries[name].last = now
        coming = [query.next_tick for query in queries.values()]
        assert (ticking.next_tick is None) == (not queries)
        assert ticking.next_tick is None or ticking.next_tick <= min(coming)  # type: ignore[type-var]


@pytest.mark.parametrize("clock", ["", "ON WALL CLOCK"])
def test_only_windows_on_the_wall_clock_tick(clock: str) -> None:
    found = list(wall_clock_slides(plan([(7, 3), (5, 0)], clock)))
    assert found == ([TimeSlide(7000, 3000, True), TimeSlide(5000, 0, True)] if clock else [])
    ticking = Ticking(0)
    ticking.add("q", plan([(7, 3)], clock), Query([TimeSlide(7000, 3000)], 0))
    assert ticking.next_tick == (3000 if clock else None)
