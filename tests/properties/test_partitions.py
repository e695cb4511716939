"""Windows per partition, and sessions of plain rows, that do not fit their memory: still the oracle's answer.

A few dozen events would fit any budget, so streams are longer here, drawn as a whole from a seed; what is searched is
the query, the slide, how unevenly the partitions grow, the cuts and the restart.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from conformance.compare import assert_same
from conformance.description import CountSlide, Event, Query, Rows, Session, Stream, TimeSlide, Window
from conformance.oracle import answer
from conformance.runtimes import Drive
from properties.counter import COUNTER
from properties.generate import COLUMNS, PLAIN, Scenario, queries
from properties.test_windows import HOLISTIC, as_tables, run

STREAM = Stream("s", COLUMNS)
KEYS = ("a", "b", "c", None, "", "é")


def long_stream(seed: int, count: int, lean: float) -> list[Event]:
    """Events one after the other; the greater `lean`, the more of them are the first partition's."""
    chance = random.Random(seed)
    events = []
    time = 0
    for number in range(count):
        time += chance.choice((0, 1, 1, 2))
        key = KEYS[min(int(chance.random() ** lean * len(KEYS)), len(KEYS) - 1)]
        x = chance.choice((None, 1e16, -1e16, 0.1, chance.uniform(-9, 9)))
        values = (number % 3, key, chance.choice((None, 0, 1)), chance.randrange(-6, 7), number, x, number / 4)
        events.append(dict(zip((name for name, _ in COLUMNS), (time, *values), strict=True)))
    return events


@st.composite
def windows(draw: st.DrawFn) -> Window:
    if draw(st.integers(0, 5)) == 0:
        return Window(Session(draw(st.sampled_from((40, 4000)))), partition_by=("k",))
    count = draw(st.integers(150, 400))
    slide = draw(
        st.one_of(
            st.none(),
            st.integers(40, count).map(CountSlide),
            st.integers(200, 600).map(TimeSlide),
        )
    )
    return Window(Rows(count), slide, draw(st.sampled_from((("k",), ("k", "g")))), draw(st.booleans()))


@st.composite
def paged_queries(draw: st.DrawFn) -> Query:
    window = draw(windows())
    if isinstance(window.extent, Session) or draw(st.integers(0, 3)) == 0:
        query = Query("s", window, columns=PLAIN, where=draw(queries(window)).where)
        emits = [None, "RSTREAM", "ISTREAM", "DSTREAM"]
        if window.slide is None:
            emits.remove("RSTREAM")  # the whole window with every event
        return replace(query, emit=draw(st.sampled_from(emits)))
    return draw(queries(window).filter(lambda query: not HOLISTIC & {call.function for call in query.aggregates}))


drives = st.builds(
    Drive,
    memory=st.just("120KB"),
    block_size=st.sampled_from((700, 1024)),
    batches=st.sampled_from(((), (1,) * 40, (100,) * 20, (0, 1257, 3, 90))),
    restart_at=st.one_of(st.none(), st.integers(0, 2_000)),
    lost=st.sampled_from((0, 50)),
)


@pytest.mark.slow
def test_partitions_that_page_give_the_answer_of_the_contract() -> None:
    paged = []

    @settings(max_examples=12, deadline=None, phases=[Phase.generate])
    @given(paged_queries(), st.integers(0, 999), st.integers(1_500, 2_500), st.sampled_from((1.0, 3.0)), drives)
    def holds(query: Query, seed: int, count: int, lean: float, drive: Drive) -> None:
        scenario = Scenario(STREAM, query, long_stream(seed, count, lean))
        outcome = answer(query, scenario.events, STREAM.time)
        rows, _ = as_tables(scenario, outcome)
        came = run(scenario, drive)
        assert_same(came.table("q1"), rows, "results")
        assert came.rejects == outcome.rejected
        COUNTER.add(outcome)
        paged.append(came.blocks_read > 0)

    holds()
    assert sum(paged) > len(paged) / 4, "many of these windows were meant not to fit"
