"""Streams in arrival order: what is taken when, what it is worth in time, threads, full buffers, restarts."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.input_buffers import InputBuffers
from penstock.engine.policies import EarliestJob
from penstock.testing import TestClock

SECOND = 1_000_000
STREAMS = "".join(
    f"CREATE STREAM {name} (id INT, t TIMESTAMP, came TIMESTAMP, ARRIVAL ORDER t ARRIVED came);" for name in "dm"
)
BOTH = "CREATE QUERY both AS SELECT 'd' AS s, id FROM d UNION ALL SELECT 'm' AS s, id FROM m;"


def taken(app: ps.App, query: str = "both") -> list[tuple[str, int]]:
    return [(row["s"], row["id"]) for row in app.results(query).to_pylist()]


def by_hand(offers: list[tuple[str, list[tuple[int, int]]]], policy: str) -> list[tuple[str, int]]:
    """Event by event: the head with the smallest key."""
    buffers: dict[str, list[tuple[int, int, int]]] = {}
    for number, (stream, events) in enumerate(offers):
        buffers.setdefault(stream, []).extend((number, stamp, id_) for id_, stamp in events)
    order = []
    while any(buffers.values()):
        heads = [(s, b[0]) for s, b in buffers.items() if b]
        stream = min(heads, key=lambda h: (h[1][1], h[1][0]) if policy == "ejf" else (h[1][0],))[0]
        order.append((stream, buffers[stream].pop(0)[2]))
    return order


EVENTS = st.lists(st.tuples(st.integers(0, 99), st.integers(-20, 20)), max_size=5)
OFFERS = st.lists(st.tuples(st.sampled_from("dm"), EVENTS), max_size=12)


@settings(max_examples=60, deadline=None)
@given(OFFERS, st.sampled_from(["fcfs", "ejf"]), st.lists(st.integers(1, 4), max_size=6))
def test_events_are_taken_as_the_policy_says(
    offers: list[tuple[str, list[tuple[int, int]]]], policy: str, limits: list[int]
) -> None:
    with ps.App(STREAMS + BOTH, dispatch=policy, clock=TestClock(0)) as app:
        for stream, events in offers:
            app.offer(stream, [{"id": id_, "t": stamp} for id_, stamp in events])
        for limit in limits:
            assert app.work(limit) <= limit
        app.work()
        app.tick()
        assert taken(app) == by_hand(offers, policy)
        assert app.metrics.events == sum(len(events) for _, events in offers)


def test_times_grow_over_all_streams_whatever_the_clock_does() -> None:
    clock = TestClock(100)
    text = STREAMS + "SELECT id FROM d [NOW]; SELECT id FROM m [NOW];"
    with ps.App(text, clock=clock) as app:
        app.push("d", [{"id": 1, "t": 9}, {"id": 2, "t": 8}])
        app.push("m", {"id": 3, "t": 7})
        clock.set(50)
        app.push("d", {"id": 4, "t": 6})
        ends = [app.results(q).column("window_end").cast(pa.int64()).to_pylist() for q in ("q1", "q2")]
        assert ends == [[100, 101, 103], [102]]


def test_windows_over_arrival_streams_close_when_time_passes() -> None:
    clock = TestClock(0)
    with ps.App(STREAMS + "SELECT COUNT(*) AS n FROM m [RANGE 1 SECOND SLIDE 1 SECOND];", clock=clock) as app:
        app.push("m", [{"id": 1, "t": 0}, {"id": 2, "t": 0}])
        clock.advance(1)
        assert app.results("q1").num_rows == 0
        app.push("d", {"id": 1, "t": 0})
        assert app.results("q1").column("n").to_pylist() == [2]
        clock.advance(1)
        app.push("m", {"id": 3, "t": 0})
        clock.advance(1)
        app.tick()
        assert app.results("q1").column("n").to_pylist() == [1]


def test_a_head_that_many_have_passed_over_is_taken() -> None:
    with ps.App(STREAMS + BOTH, dispatch="ejf", clock=TestClock(0)) as app:
        assert app._inputs.dispatcher is not None
        app._inputs.dispatcher.buffers.policy = EarliestJob(patience=10)
        app.offer("d", {"id": -1, "t": 1})
        app.offer("m", [{"id": i, "t": 0} for i in range(40)])
        app.work()
        app.tick()
        place = taken(app).index(("d", -1))
        assert 10 <= place < 26


def test_service_times() -> None:
    clock = TestClock(0)
    text = STREAMS + "SELECT id, came FROM d; SELECT id FROM m;"
    with ps.App(text, clock=clock, dispatch="fcfs") as app:
        app.subscribe("q1", lambda _: clock.advance(0.5))
        app.offer("d", {"id": 1, "t": 0})
        app.offer("m", {"id": 2, "t": 0})
        clock.advance(2)
        found = app.metrics.dispatch
        assert found is not None
        assert found.held == {"d": 1, "m": 1}
        app.work()
        found = app.metrics.dispatch
        assert found is not None
        assert (found.held, found.policy) == ({"d": 0, "m": 0}, "fcfs")
        assert (found.waiting["d"].mean, found.service["d"].mean, found.matches["q1"].mean) == (2, 2.5, 2.5)
        assert (found.waiting["m"].mean, found.service["m"].longest) == (2.5, 2.5)


def test_slow_events_are_taken_one_by_one_and_fast_ones_together() -> None:
    clock = TestClock(0)
    sizes: dict[str, list[int]] = {"q1": [], "q2": []}

    def slow(rows: pa.RecordBatch) -> None:
        sizes["q1"].append(rows.num_rows)
        clock.advance(0.1 * rows.num_rows)

    with ps.App(STREAMS + "SELECT id FROM d; SELECT id FROM m;", clock=clock) as app:
        app.subscribe("q1", slow)
        app.subscribe("q2", lambda rows: sizes["q2"].append(rows.num_rows))
        app.push("d", [{"id": i, "t": 0} for i in range(5)])
        app.push("m", [{"id": i, "t": 0} for i in range(63)])
    assert sizes == {"q1": [1] * 5, "q2": [1, 2, 4, 8, 16, 32]}


def test_full_buffers_push_back() -> None:
    batch = pa.RecordBatch.from_pydict({"id": pa.array(range(20000), pa.int32()), "t": pa.array([0] * 20000)})
    with ps.App(STREAMS + BOTH, memory="1MB", dispatch="fcfs", clock=TestClock(0)) as app:
        with pytest.raises(ps.BudgetError, match=r"input buffers are full(.|\n)*of these 20,000 events are in"):
            app.offer("d", batch)
        waiting = app.metrics.dispatch.held["d"]  # type: ignore[union-attr]
        assert 1000 < waiting < 20000
        with pytest.raises(ps.BudgetError, match="input buffers are full"):
            app.offer("d", batch, timeout=0.01)
        assert app.work(10) == 10
        app.push("m", batch)  # makes room by itself
        app.tick()
        assert len(taken(app)) == 20000 + waiting
    with (
        ps.App(STREAMS + BOTH, memory=400_000, block_size=4096) as app,
        pytest.raises(ps.InputError, match="no input buffers"),
        ps.App("CREATE STREAM e (t TIMESTAMP, EVENT TIME t)") as plain,
    ):
        plain.offer("e", {"t": 1})
    with pytest.raises(ps.InputError, match="no dispatch 'lifo'"):
        ps.App(STREAMS, dispatch="lifo")


def test_a_thread_takes_what_others_offer() -> None:
    seen: list[tuple[str, int]] = []
    with ps.App(STREAMS + BOTH, memory="1MB", dispatch="ejf") as app:

        def note(rows: pa.RecordBatch) -> None:
            seen.extend(zip(rows.column("s").to_pylist(), rows.column("id").to_pylist(), strict=True))

        app.subscribe("both", note)

        def feed(stream: str) -> None:
            for start in range(0, 30_000, 1000):
                app.offer(stream, [{"id": i, "t": i} for i in range(start, start + 1000)])

        with app.dispatching() as dispatcher:
            feeders = [threading.Thread(target=feed, args=(stream,)) for stream in "dm"]
            for feeder in feeders:
                feeder.start()
            with pytest.raises(ps.PenstockError, match=r"offer events, or do this within its paused\(\)"):
                app.push("d", {"id": 1, "t": 1})
            with dispatcher.paused():
                before = len(seen)
                found = app.metrics
                assert found.dispatch is not None
                assert found.events == sum(spread.count for spread in found.dispatch.waiting.values())
                time.sleep(0.02)
                assert len(seen) == before
            for feeder in feeders:
                feeder.join()
        app.tick()
        for stream in "dm":
            assert [id_ for s, id_ in seen if s == stream] == list(range(30_000))


def test_a_failure_in_the_thread_comes_out() -> None:
    def fail(_: Any) -> None:
        raise ValueError("no")

    def offer_twice(app: ps.App) -> None:
        with app.dispatching():
            app.offer("d", {"id": 1, "t": 1})
            time.sleep(0.2)
            with pytest.raises(ps.PenstockError, match="the dispatcher stopped: no"):
                app.offer("d", {"id": 1, "t": 1})

    with ps.App(STREAMS + "SELECT id FROM d;") as app:
        app.subscribe("q1", fail)
        with pytest.raises(ValueError, match="no"):
            offer_twice(app)


@pytest.mark.parametrize("policy", ["fcfs", "ejf"])
def test_a_checkpoint_holds_what_waits(tmp_path: Path, policy: str) -> None:
    clock = TestClock(1000)
    offers = [("d", [(1, 7), (2, 3)]), ("m", [(3, 1), (4, 5)]), ("d", [(5, 0)]), ("m", [(6, 9)])]

    def events(rows: list[tuple[int, int]]) -> list[dict[str, int]]:
        return [{"id": id_, "t": stamp} for id_, stamp in rows]

    with ps.App(STREAMS + BOTH, dispatch=policy, clock=clock, checkpoint=tmp_path) as app:
        for stream, rows in offers[:3]:
            app.offer(stream, events(rows))
        app.work(2)
        before = taken(app)
        assert app.checkpoint().positions == {"d": 3, "m": 2}
    clock = TestClock(0)  # another machine, whose clock is behind
    clock.advance(5)
    with ps.App(STREAMS + BOTH, dispatch=policy, clock=clock, checkpoint=tmp_path) as app:
        app.offer(offers[3][0], events(offers[3][1]))
        app.work()
        app.tick()
        assert before + taken(app) == by_hand(offers, policy)
        assert app.metrics.dispatch.waiting["d"].count == 3 - sum(s == "d" for s, _ in before)  # type: ignore[union-attr]


def test_columns_stay_as_they_are_while_events_wait() -> None:
    with ps.App("CREATE STREAM d (id INT, v INT, t TIMESTAMP, ARRIVAL ORDER t); SELECT id FROM d;") as app:
        app.offer("d", {"id": 1, "v": 2, "t": 0})
        with pytest.raises(ps.InputError, match="wait to be taken do not have v"):
            app.add_query("SELECT v FROM d")
        app.work()
        app.add_query("CREATE QUERY late AS SELECT v FROM d")
        app.push("d", {"id": 1, "v": 3, "t": 0})
        assert app.results("late").column("v").to_pylist() == [3]


def test_rows_without_a_timestamp_are_rejected() -> None:
    with ps.App(STREAMS + BOTH, dispatch="ejf") as app:
        app.push("d", [{"id": 1, "t": 5}, {"id": 2, "t": None}])
        assert [reject["reason"] for reject in app.rejects] == ["stream d: t is NULL"]
        app.tick()
        assert taken(app) == [("d", 1)]


DURING = st.lists(
    st.tuples(st.sampled_from("ab"), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=6)), max_size=8
)


@settings(max_examples=40, deadline=None)
@given(DURING, st.sampled_from(["fcfs", "ejf"]), st.lists(st.integers(1, 3), max_size=4))
def test_with_event_time_dispatch_changes_no_answer(
    offers: list[tuple[str, list[tuple[int, int]]]], policy: str, limits: list[int]
) -> None:
    text = """
        CREATE STREAM a (t TIMESTAMP, v INT, EVENT TIME t LATENESS 3 MICROSECONDS) LATE INTO late_a;
        CREATE STREAM b (t TIMESTAMP, v INT, EVENT TIME t LATENESS 3 MICROSECONDS) LATE INTO late_b;
        SELECT v, SUM(v) AS n FROM a [RANGE 5 MICROSECONDS] GROUP BY v;
        CREATE QUERY both AS SELECT v FROM a UNION ALL SELECT v FROM b;
        SELECT SUM(v) AS n FROM both2 [ROWS 3];
    """.replace("CREATE QUERY both AS", "INSERT INTO both2")
    queries = ("q1", "both2", "q3")
    rows = [(s, [{"t": t, "v": v} for t, v in events]) for s, events in offers]
    with ps.App(text, clock=TestClock(0)) as pushed, ps.App(text, dispatch=policy, clock=TestClock(0)) as dispatched:
        for stream, events in rows:
            pushed.push(stream, events)
        for place, (stream, events) in enumerate(rows):
            dispatched.offer(stream, events)
            if place < len(limits):
                dispatched.work(limits[place])
        dispatched.push("a", [])
        pushed.finish()
        dispatched.finish()
        for query in queries:
            assert dispatched.results(query) == pushed.results(query)
        for stream in "ab":
            assert dispatched.late(stream) == pushed.late(stream)


def test_a_round_is_what_the_policy_picks_event_by_event() -> None:
    buffers = InputBuffers(EarliestJob(), 1 << 20)

    def put(stream: str, stamps: list[int]) -> None:
        rows = pa.RecordBatch.from_pydict({"t": pa.array(stamps)})
        buffers.put(stream, rows, np.array(stamps), 0, lambda: None)

    def take(cost: dict[str, float]) -> list[tuple[str, list[int], list[int]]]:
        taken = buffers.take(cost.__getitem__, 10)
        assert taken is not None
        return [(run.stream, run.rows.column("t").to_pylist(), run.places.tolist()) for run in taken.runs]

    put("a", [1, 2, 5, 3])
    put("b", [4, 6])
    put("a", [1])
    # Six events of b are not known to come before those of a beyond the second, which is all that a turn has room for.
    assert take({"a": 5, "b": 1}) == [("a", [1, 2], [0, 1])]
    assert take({"a": 1, "b": 1}) == [("a", [5, 3, 1], [1, 2, 3]), ("b", [4, 6], [0, 4])]
    assert buffers.take(lambda _: 1, 10) is None
    assert (buffers.held, buffers.is_empty) == (0, True)


def test_matches_of_a_join_are_measured_from_their_first_event() -> None:
    clock = TestClock(0)
    text = STREAMS + "SELECT d.came AS x, m.came AS y FROM d [ROWS 10], m [ROWS 10] WHERE d.id = m.id;"
    with ps.App(text, clock=clock, dispatch="ejf") as app:
        app.push("d", {"id": 1, "t": 0})
        clock.advance(2)
        app.offer("m", {"id": 1, "t": 0})
        clock.advance(1)
        assert app.waiting == {"d": 0, "m": 1}
        app.work()
        assert app.results("q1").num_rows == 1  # at once: streams in arrival order never wait for each other
        found = app.metrics.dispatch
        assert found is not None
        assert (found.matches["q1"].mean, found.service["m"].mean) == (3, 1)


def offer_in_turns(app: ps.App) -> None:
    for stream, rows in (("m", [(9, 1)]), ("d", [(1, 2), (2, 5)]), ("m", [(3, 4)]), ("m", [(4, 7)])):
        app.offer(stream, [{"id": id_, "t": stamp} for id_, stamp in rows])
    assert app.work() == 5


def test_patterns_go_by_the_order_of_taking() -> None:
    text = STREAMS + "SELECT a.id AS x, b.id AS y FROM PATTERN SEQ(d a, m b) WITHIN 1 MINUTE;"
    with ps.App(text, clock=TestClock(0), dispatch="ejf") as app:
        offer_in_turns(app)
        pairs = [(row["x"], row["y"]) for row in app.results("q1").to_pylist()]
        assert pairs == [(1, 3), (1, 4), (2, 4)]


def test_tables_are_read_as_of_the_taking() -> None:
    text = STREAMS + (
        "CREATE TABLE seen (k INT PRIMARY KEY, n INT); ON d UPSERT INTO seen (k, n) VALUES (1, d.id);"
        "SELECT m.id AS id, seen.n AS n FROM m, seen WHERE seen.k = 1;"
    )
    with ps.App(text, clock=TestClock(0), dispatch="ejf") as app:
        offer_in_turns(app)
        assert [(row["id"], row["n"]) for row in app.results("q1").to_pylist()] == [(3, 1), (4, 2)]
