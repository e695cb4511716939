"""The reorder buffer against sorting by hand: random arrivals, lateness, sequences, small budgets, any cut."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.reorder import Reorder
from penstock.operators.resources import Resources
from penstock.store import state as state_format
from penstock.store.budget import Budget
from penstock.store.manager import StoreManager


class Event(NamedTuple):
    time: int
    sequence: int
    number: int


def by_hand(steps: list[Event | int], lateness: int, ordered: bool) -> tuple[list[Event], list[Event]]:
    """Released in order, and late: what precedes the watermark, or what was released at the watermark. A step that is a
    number advances the watermark."""
    late, kept = [], []
    watermark: int | None = None
    for step in steps:
        if isinstance(step, Event):
            if watermark is not None and step.time < watermark:
                late.append(step)
                continue
            # Everything kept with the watermark's time was released; one with a greater sequence makes this one late.
            tie = ordered and step.time == watermark
            if tie and any(k.time == step.time and k.sequence > step.sequence for k in kept):
                late.append(step)
                continue
            kept.append(step)
        reached = step.time - lateness if isinstance(step, Event) else step
        watermark = reached if watermark is None else max(watermark, reached)
    key = (lambda e: (e.time, e.sequence)) if ordered else (lambda e: e.time)
    return sorted(kept, key=key), late


class Driven:
    """A reorder buffer of its own, driven with events."""

    def __init__(self, lateness: int, ordered: bool, memory: int) -> None:
        self.options = (lateness, ordered, memory)
        self.schema = pa.schema([("q", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
        self.stores = StoreManager(Budget(memory), None, 2048)
        resources = Resources(self.stores, lambda reason, row: None)
        self.reorder = Reorder("s", self.schema, lateness, "q" if ordered else None, resources)
        self.released: list[int] = []
        self.late: list[int] = []

    def push(self, events: list[Event]) -> None:
        times = np.array([e.time for e in events], np.int64)
        columns = [[e.sequence for e in events], [e.number for e in events], [f"row {e.number}" for e in events]]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, self.schema, strict=True)], schema=self.schema
        )
        done = self.reorder.process(times, batch)
        assert done.watermark == self.reorder.watermark
        for chunk, _ in done.parts():
            self._take(chunk)
        if done.late is not None:
            self.late += done.late.column("n").to_pylist()

    def advance(self, watermark: int) -> None:
        for chunk, _ in self.reorder.advance(watermark).parts():
            self._take(chunk)
        assert self.reorder.watermark >= watermark

    def _take(self, chunk: Any) -> None:
        if chunk.rows:
            assert chunk.times[-1] <= self.reorder.watermark
            assert [f"row {n}" for n in chunk.arrow.column("n").to_pylist()] == chunk.arrow.column("text").to_pylist()
            self.released += chunk.arrow.column("n").to_pylist()

    def restarted(self) -> Driven:
        saved = {"reorder": self.reorder.snapshot(), "stores": self.stores.snapshot()}
        fresh = Driven(*self.options)
        saved = state_format.decode(state_format.encode(saved))
        fresh.stores.restore(saved["stores"])
        fresh.reorder.restore(saved["reorder"])
        fresh.released, fresh.late = self.released, self.late
        return fresh

    def finish(self) -> None:
        for chunk, _ in self.reorder.finish().parts():
            self._take(chunk)
        assert self.reorder.rows_held == 0


arrivals = st.one_of(
    *(st.lists(st.tuples(st.integers(0, latest), st.integers(0, 2)), max_size=120) for latest in (4, 60))
)


@settings(max_examples=400, deadline=None)
@given(arrivals, st.integers(0, 3) | st.just(30), st.booleans(), st.sampled_from([1 << 14, 1 << 26]), st.randoms())
def test_released_in_order_and_late_as_by_hand(
    drawn: list[tuple[int, int]], lateness: int, ordered: bool, memory: int, chance: Any
) -> None:
    events = [Event(time, sequence, i) for i, (time, sequence) in enumerate(drawn)]
    often = chance.choice([0, 0.3])
    steps: list[Event | int] = []
    driven = Driven(lateness, ordered, memory)
    at = 0
    while at < len(events):
        step = chance.choice([0, 1, 2, 7, 50])
        driven.push(events[at : at + step])
        steps += events[at : at + step]
        at += step
        if chance.random() < often:
            steps.append(chance.randint(0, 60))
            driven.advance(steps[-1])
        if chance.random() < 0.1:
            driven = driven.restarted()
    released, late = by_hand(steps, lateness, ordered)
    driven.finish()
    assert driven.released == [e.number for e in released]
    assert driven.late == [e.number for e in late]


def test_a_tie_is_forgotten_when_the_watermark_moves_on() -> None:
    """
    arrivals     (0, q 1)   (2)   (3)   (1, q 0)         LATENESS 2
    watermark      -2        0     1                      0 is released with q 1, nothing is at 1: the last is in time
    """
    events = [Event(0, 1, 0), Event(2, 0, 1), Event(3, 0, 2), Event(1, 0, 3)]
    for size in (1, 4):
        driven = Driven(2, True, 1 << 20)
        for start in range(0, 4, size):
            driven.push(events[start : start + size])
        driven.finish()
        assert (driven.released, driven.late) == ([0, 3, 1, 2], [])


def test_runs_spill_when_the_budget_is_small() -> None:
    """60,000 rows wait, of which the budget holds a small part; everything comes out in order."""
    chance = np.random.default_rng(1)
    times = np.arange(60_000) + chance.integers(0, 40_000, 60_000)
    events = [Event(int(t), 0, i) for i, t in enumerate(times)]
    driven = Driven(45_000, False, 400_000)
    for start in range(0, len(events), 1_000):
        driven.push(events[start : start + 1_000])
        if start == 30_000:
            driven = driven.restarted()
    assert driven.stores.metrics.blocks_written > 100
    assert driven.stores.budget.peak <= 400_000
    driven.finish()
    assert driven.released == [e.number for e in sorted(events, key=lambda e: e.time)]
    assert driven.late == []


def test_single_events_do_not_gather_small_runs() -> None:
    """A buffer of 10,000 single pushes is a few runs, and each push looks at few of them."""
    driven = Driven(10_000, False, 1 << 26)
    for i in range(15_000):
        driven.push([Event(i, 0, i)])
        assert len(driven.reorder._runs._runs) <= 5
    assert driven.released == list(range(5_000))


def test_a_stream_is_advanced_without_an_event() -> None:
    driven = Driven(5, False, 1 << 20)
    driven.push([Event(10, 0, 0), Event(12, 0, 1)])
    driven.advance(11)
    assert driven.released == [0]
    driven.advance(3)  # it does not go back
    driven.push([Event(9, 0, 2), Event(13, 0, 3)])
    assert driven.late == [2]
    driven.finish()
    assert driven.released == [0, 1, 3]
    assert driven.reorder.watermark == 13, "a bounded run ends with its last event"


def test_fresh_rows_are_on_the_account() -> None:
    """Also those that came one by one: an Arrow batch of one row takes much more than the row."""
    driven = Driven(1_000_000, False, 1 << 26)
    for i in range(1000):
        driven.push([Event(i, 0, i)])
    assert driven.reorder._runs.rows == 0
    assert driven.stores.budget.used >= sum(batch.nbytes for batch in driven.reorder._fresh) + 200 * 1024
    driven.push([Event(3_000_000, 0, 1000)])
    driven.finish()
    assert driven.released == list(range(1001))
    assert driven.stores.budget.used == 0


def test_fresh_rows_without_room_become_a_run() -> None:
    driven = Driven(1_000_000, False, 30_000)
    for i in range(300):
        driven.push([Event(999 - i, 0, i)])
        assert driven.stores.budget.used <= 30_000
    assert driven.reorder._runs.rows > 100
    driven.finish()
    assert driven.released == list(reversed(range(300)))


def test_rows_are_released_in_parts() -> None:
    """200,000 rows wait and are due at once: they leave the store a part at a time, as they are taken."""
    stores = StoreManager(Budget(1 << 26), None, 65536)
    schema = pa.schema([("n", pa.int64()), ("m", pa.int64())])
    reorder = Reorder("s", schema, 10**9, None, Resources(stores, lambda reason, row: None))
    times = np.random.default_rng(1).permutation(200_000)
    for start in range(0, 200_000, 8192):
        part = times[start : start + 8192]
        assert reorder.process(part, pa.record_batch({"n": part, "m": part})).chunk.rows == 0
    released, held, before = reorder.finish(), reorder.rows_held, -1
    assert released.watermark == 199_999
    for chunk, watermark in released.parts():
        assert chunk.rows <= 100_000
        last = int(chunk.times[-1])
        assert watermark == min(last + 1, 199_999), "the time of the next row"
        assert chunk.times.tolist() == chunk.arrow.column("n").to_pylist() == list(range(before + 1, last + 1))
        before = last
    assert held > 100_000
    assert (before, reorder.rows_held) == (199_999, 0)


def test_an_advance_forgets_the_tie_of_the_time_before() -> None:
    driven = Driven(0, True, 1 << 20)
    driven.push([Event(5, 7, 0)])
    driven.advance(9)
    driven.push([Event(9, 1, 1)])
    assert (driven.released, driven.late) == ([0, 1], [])
