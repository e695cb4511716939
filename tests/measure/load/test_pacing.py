"""The open loop, in the time of a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest

from penstock_bench.measure.load.arrivals import Times
from penstock_bench.measure.load.legs import Leg, Part, Stretch, made_legs
from penstock_bench.measure.load.pacing import BATCH_ROWS, Pacer, Sent
from penstock_bench.measure.load.share import Share
from penstock_bench.measure.setup.model import Driver, Stream

START = 1_000_000_000_000_000_000


class World:
    """A clock, a control and a system in one: `takes(world)` is how many nanoseconds a send takes, `asks` what is
    asked at which time since the start."""

    def __init__(self, takes: Callable[[World], int] | int = 0, asks: Sequence[tuple[float, str]] = ()) -> None:
        self.now = START - 50_000_000
        self.takes = takes
        self.asks = [(START + round(at * 1e9), what) for at, what in asks]
        self.paused = False
        self.stopped = False
        self.batches: list[tuple[str, pa.Array, Times]] = []
        self.logged: list[Sent] = []
        self.reports: list[dict[str, object]] = []
        self.notes: list[str] = []

    def ns(self) -> int:
        return self.now

    @property
    def seconds(self) -> float:
        return (self.now - START) / 1e9

    def wait(self, seconds: float) -> None:
        end = self.now + round(seconds * 1e9)
        if self.asks and self.asks[0][0] <= end:
            at, what = self.asks.pop(0)
            end = max(at, self.now)
            if what == "stop":
                self.stopped = True
            else:
                self.paused = what == "pause"
        self.now = end

    def send(self, stream: str, columns: Mapping[str, pa.Array], stamps: Times) -> None:
        assert all(len(column) == len(stamps) for column in columns.values())
        self.batches.append((stream, columns.get("n"), stamps - START // 1000))
        self.now += self.takes(self) if callable(self.takes) else self.takes

    def log(self, sent: Sent) -> None:
        self.logged.append(sent)

    def progress(self, report: dict[str, object]) -> None:
        self.reports.append(report)

    def note(self, text: str) -> None:
        self.notes.append(text)

    @property
    def stamps(self) -> Times:
        return np.concatenate([stamps for _, _, stamps in self.batches])

    @property
    def values(self) -> list[int]:
        return [value for _, column, _ in self.batches for value in column.to_pylist()]

    def run(self, legs: Sequence[Leg], share: Share | None = None, linger_us: int = 1000) -> Pacer:
        pacer = Pacer(legs, self, self, self.ns, share or Share(), linger_us)
        pacer.prepare()
        pacer.run(START)
        return pacer


def legs(*phases: dict[str, object], share: Share | None = None, streams: str = "s") -> list[Leg]:
    fields = {"n": {"generator": "sequential", "start": 0}}
    driver = Driver.model_validate({"name": "d", "phases": phases, "fields": dict.fromkeys(streams, fields)})
    stream = Stream.model_validate({"columns": {"ts": "TIMESTAMP", "n": "BIGINT"}})
    return made_legs(driver, dict.fromkeys(streams, stream), share or Share())


def test_events_go_out_when_they_are_due() -> None:
    world = World()
    pacer = world.run(legs({"rate": 100, "duration": 2}))
    assert pacer.sent == 200
    assert pacer.kept
    assert pacer.max_lag_us == 0
    assert world.values == list(range(200))
    assert world.stamps.tolist() == [i * 10_000 for i in range(200)]
    for one in world.logged:
        assert one.events == 1
        assert one.due_ns == one.sent_ns == one.first_us * 1000 == one.last_us * 1000
    # The phase lasts as long as it says, beyond its last event.
    assert world.seconds == 2.0


def test_sends_are_a_linger_apart() -> None:
    world = World()
    world.run(legs({"rate": 50_000, "duration": 1}), linger_us=2000)
    begun = np.array([one.sent_ns for one in world.logged])
    apart = np.diff(begun) / 1000
    # Where a made stretch ends the next one is looked at once.
    assert np.mean(apart >= 2000) > 0.95
    assert len(world.logged) < 520
    assert sum(one.events for one in world.logged) == 50_000
    lags = np.array([one.sent_ns / 1000 - one.first_us for one in world.logged])
    assert lags.max() <= 2000


def test_a_system_that_stalls_makes_no_event_disappear() -> None:
    """One send takes 3 s. Nothing is dropped, no stamp is moved, and the log shows how late the events were."""

    def takes(world: World) -> int:
        return 3_000_000_000 if len(world.batches) == 1000 else 10_000

    world = World(takes)
    pacer = world.run(legs({"rate": 100_000, "duration": 5, "name": "rush"}))
    assert pacer.sent == 500_000
    assert world.stamps.tolist() == [i * 10 for i in range(500_000)]
    assert pacer.max_lag_us == pytest.approx(3_000_000, rel=0.01)
    assert not pacer.kept
    assert len(world.notes) == 1
    assert "phase 'rush': the schedule cannot be kept, events are sent 3,00" in world.notes[0]
    assert max(one.events for one in world.logged) > 50_000
    assert all(one.events <= BATCH_ROWS for one in world.logged)
    # It has caught up: the last events are on time.
    last = world.logged[-1]
    assert last.sent_ns - last.due_ns < 2_000_000
    assert world.seconds == pytest.approx(5, abs=0.01)


def test_a_system_that_is_too_slow_is_seen_in_the_reports() -> None:
    """Every event costs 20 µs where one is due each 10 µs: after 2 s half of what is due has been sent."""
    world = World(lambda world: 20_000 * len(world.batches[-1][2]))
    pacer = world.run(legs({"rate": 100_000, "duration": 2}))
    assert pacer.sent == 200_000
    assert world.seconds == pytest.approx(4, rel=0.05)
    middle = min(world.reports, key=lambda report: abs(int(str(report["sent"])) - 100_000))
    assert int(str(middle["due"])) == pytest.approx(2 * int(str(middle["sent"])), rel=0.4)
    lags = [int(str(report["lag_us"])) for report in world.reports]
    assert lags[-2] > 1_500_000
    assert world.reports[-1]["finished"] is True
    assert world.reports[-1]["due"] == world.reports[-1]["sent"] == pacer.due == 200_000


def test_what_was_due_and_not_sent_when_it_was_stopped() -> None:
    world = World(lambda world: 20_000 * len(world.batches[-1][2]), asks=[(1.0, "stop")])
    pacer = world.run(legs({"rate": 100_000, "duration": 100}))
    assert pacer.due == pytest.approx(world.seconds * 100_000, rel=0.01)
    assert pacer.due > 1.5 * pacer.sent


def test_a_pause_moves_the_rest_of_the_schedule() -> None:
    world = World(asks=[(0.5, "pause"), (2.0, "resume")])
    share = Share(0, 1, 1, 4)
    pacer = world.run(legs({"rate": 100, "duration": 1}, share=share), share)
    assert pacer.sent == 100
    assert pacer.kept
    assert 1_500_000 <= pacer.pauses_us <= 1_500_004
    stamps = world.stamps
    assert np.all(stamps % 4 == 1)
    gaps = np.diff(stamps)
    assert sorted(gaps)[-1] == pytest.approx(1_510_000, abs=8)
    assert sorted(gaps)[-2] == 10_000
    assert world.seconds == pytest.approx(2.5, abs=0.001)


def test_stop_is_at_once_and_keeps_what_was_sent() -> None:
    world = World(asks=[(0.2504, "stop")])
    pacer = world.run(legs({"rate": 1000, "duration": 100}))
    assert pacer.sent == 251
    assert world.seconds == pytest.approx(0.2504, abs=1e-4)
    assert sum(one.events for one in world.logged) == 251
    assert world.reports[-1]["finished"] is True


def test_stop_while_paused_and_before_the_start() -> None:
    world = World(asks=[(0.1005, "pause"), (0.2, "stop")])
    assert world.run(legs({"rate": 1000, "duration": 100})).sent == 101
    before = World(asks=[(-0.01, "stop")])
    assert before.run(legs({"rate": 1000, "duration": 100})).sent == 0


def test_phases_begin_when_the_one_before_was_to_end() -> None:
    """The first phase ends late, since a send stalls; the second keeps its place in the schedule."""

    def takes(world: World) -> int:
        return 700_000_000 if len(world.batches) == 99 else 0

    world = World(takes)
    world.run(legs({"rate": 100, "duration": 1}, {"rate": 0, "duration": 1}, {"rate": 50, "duration": 1}))
    assert world.stamps.tolist() == [i * 10_000 for i in range(100)] + [2_000_000 + i * 20_000 for i in range(50)]
    assert [one.phase for one in world.logged if one.first_us >= START // 1000 + 2_000_000] == [2] * 50


def test_a_phase_of_a_number_of_events_has_its_length() -> None:
    world = World()
    world.run(legs({"rate": 100, "events": 3}, {"rate": 10, "events": 2}))
    assert world.stamps.tolist() == [0, 10_000, 20_000, 30_000, 130_000]


def test_a_closed_loop_sends_as_fast_as_the_system_takes() -> None:
    world = World(1_000_000)
    pacer = world.run(legs({"rate": "max", "event_rate": 1000, "events": 200_000}))
    assert pacer.sent == 200_000
    assert [one.events for one in world.logged] == [BATCH_ROWS] * 3 + [200_000 - 3 * BATCH_ROWS]
    assert world.seconds == pytest.approx(0.004, abs=0.001)
    assert world.stamps[-1] == 199_999_000
    assert all(one.due_ns == one.sent_ns for one in world.logged)
    assert pacer.kept


def test_a_closed_loop_ends_by_the_clock_and_times_go_on() -> None:
    """Its event times ran ahead of the clock; those of the next phase follow them."""
    closed = {"rate": "max", "event_rate": 100_000, "duration": 0.095}
    world = World(10_000_000)
    share = Share(0, 1, 2, 3)
    pacer = world.run(legs(closed, {"rate": 100, "duration": 1}, share=share), share)
    assert pacer.sent == 10 * BATCH_ROWS + 100
    stamps = world.stamps
    assert np.all(np.diff(stamps) >= 0)
    assert np.all((stamps + START // 1000) % 3 == 2)
    assert world.seconds == pytest.approx(1.1, abs=0.01)
    assert world.logged[-1].due_ns == pytest.approx(START + 1_090_000_000, abs=2_000_000)


@pytest.mark.parametrize(("duration", "sent"), [(0.025, 3 * BATCH_ROWS), (1, 200_000)])
def test_a_closed_loop_ends_by_events_or_by_the_clock(duration: float, sent: int) -> None:
    world = World(10_000_000)
    pacer = world.run(legs({"rate": "max", "event_rate": 1000, "events": 200_000, "duration": duration}))
    assert pacer.sent == sent
    told = ["phase 'load': ended by its duration, with 196,608 of 200,000 events"]
    assert world.notes == (told if sent < 200_000 else [])


def test_mixed_streams_keep_their_shares_and_order() -> None:
    world = World()
    mix = {"a": 3, "b": 1, "c": 0}
    world.run(legs({"rate": 20_000, "duration": 2, "mix": mix}, streams="abc"))
    sent = {name: [b for b in world.batches if b[0] == name] for name in "abc"}
    counts = {name: sum(len(stamps) for _, _, stamps in batches) for name, batches in sent.items()}
    assert counts["c"] == 0
    assert counts["a"] + counts["b"] == 40_000
    assert counts["a"] == pytest.approx(30_000, rel=0.01)
    for name in "ab":
        assert [v for _, column, _ in sent[name] for v in column.to_pylist()] == list(range(counts[name]))
        assert np.all(np.diff(np.concatenate([stamps for _, _, stamps in sent[name]])) > 0)
    every = np.sort(world.stamps)
    assert every.tolist() == [i * 50 for i in range(40_000)]


def test_what_is_sent_does_not_depend_on_the_system() -> None:
    def content(takes: int) -> list[tuple[int, str, int]]:
        world = World(takes)
        phases = {"rate": 5000, "end_rate": 20_000, "duration": 1, "arrivals": "poisson", "seed": 4}
        world.run(legs(phases, streams="ab"))
        rows = [(t, name, v) for name, col, ts in world.batches for t, v in zip(ts, col.to_pylist(), strict=True)]
        return sorted(rows)

    assert content(0) == content(40_000_000)


class Recorded:
    """A leg that keeps times of its own."""

    number, name, paced, length_us, events = 0, "replay", True, None, None

    def __init__(self) -> None:
        times = np.array([0, 10, 500_000])
        self._left: list[Stretch] = [Stretch(times, (Part("s", {}),), times + 77)]

    def take(self, rows: int) -> Stretch | None:
        return self._left.pop() if self._left else None

    def due(self, us: float) -> float:
        return 3.0


def test_stamps_of_a_leg_are_sent_as_they_are() -> None:
    world = World()
    pacer = Pacer([Recorded()], world, world, world.ns, Share(), 0)
    pacer.run(START)
    assert [one.first_us for one in world.logged] == [77, 87, 500_077]
    assert world.logged[-1].sent_ns == START + 500_000_000
