"""Attempts that fail at any point, race, lose their worker or are rolled back, by hand: nothing of it shows.

What Spark's checkpoint would hold is kept per micro-batch, for as many as Spark retains, so that a run may go back. Of
two attempts of a micro-batch either state may be the one that is loaded next, whichever gave the results.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark import bucket_state, processor
from penstock.spark.directory import Directory
from penstock.spark.live import LiveObjects
from penstock.spark.packing import decode
from penstock.spark.publications import InStateStore
from penstock.spark.segment_device import SegmentDevice
from penstock.spark.state_files import StateFiles
from penstock.store.differences import Differences

from .application import made_up_events
from .by_hand import Events, Run
from .runs import embedded, in_order

PROGRAM = """
    CREATE STREAM s (t TIMESTAMP, k STRING, v DOUBLE, n BIGINT, EVENT TIME t LATENESS 2 SECONDS);
    SELECT k, COUNT(*) AS events, SUM(v) AS total, MAX(n) AS most, LAST(v) AS latest
    FROM s [RANGE 80 SECONDS SLIDE 10 SECONDS] GROUP BY k"""
MEMORY = 2_000_000
RETAINED = 2
POINTS: list[tuple[Any, str]] = [
    (SegmentDevice, "begin"),
    (SegmentDevice, "write"),
    (SegmentDevice, "read"),
    (SegmentDevice, "sync"),
    (SegmentDevice, "snapshot"),
    (LiveObjects, "take"),
    (LiveObjects, "put"),
    (Differences, "part"),
    (Differences, "keep"),
    (StateFiles, "begin"),
    (StateFiles, "write_file"),
    (StateFiles, "read_file"),
    (InStateStore, "committed"),
    (InStateStore, "publish"),
]

State = dict[str, dict[str, Any]]
"""By bucket and name."""


class Failure(Exception):
    pass


def failing(original: Callable[..., Any], calls: int) -> Callable[..., Any]:
    """The function, until it has been called so many times."""
    left = [calls]

    def call(*arguments: Any, **named: Any) -> Any:
        if not left[0]:
            raise Failure
        left[0] -= 1
        return original(*arguments, **named)

    return call


class Troubled:
    """A run of the program that goes through troubles drawn from `chance`."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self._chance = chance
        self.run = Run(PROGRAM, chance, directory)
        self.run.recipe = replace(self.run.recipe, memory=MEMORY, retain=RETAINED)
        self._workers: list[LiveObjects[Any]] = [LiveObjects(), LiveObjects()]
        self.states: dict[int, State] = {-1: {}}
        self.results: dict[int, list[Any]] = {}
        self.troubles: dict[str, int] = dict.fromkeys(("failed", "raced", "moved", "back"), 0)

    def attempt(self, batch: int, events: Events | None) -> tuple[State, list[Any]]:
        """An attempt in some worker, from the state before the micro-batch: the state it writes, and its results."""
        processor._live = self._chance.choice(self._workers)
        before = self.states[batch - 1]
        for bucket in self.run.buckets:
            for name, value in bucket.states.items():
                value.written = before.get(bucket.label, {}).get(name, value.nothing)
        tasks = None if events is None else [{"s": events[::2]}, {"s": events[1::2]}]
        results = self.run.attempt(batch, tasks)
        written = {b.label: {name: value.written for name, value in b.states.items()} for b in self.run.buckets}
        return written, results

    def fail(self, batch: int, events: Events | None) -> None:
        """An attempt that fails at some point, or gets through and is not committed."""
        owner, name = self._chance.choice(POINTS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, failing(getattr(owner, name), self._chance.randrange(12)))
            try:
                self.attempt(batch, events)
            except Failure:
                self.troubles["failed"] += 1

    def batch(self, batch: int, events: Events | None) -> None:
        while self._chance.random() < 0.4:
            self.fail(batch, events)
        if self._chance.random() < 0.2:
            self._workers[self._chance.randrange(2)] = LiveObjects()
            self.troubles["moved"] += 1
        written, self.results[batch] = self.attempt(batch, events)
        if self._chance.random() < 0.3:
            # The attempt that lost has written the state that counts, bucket by bucket.
            other, _ = self.attempt(batch, events)
            written = {label: self._chance.choice([written[label], other[label]]) for label in written}
            self.troubles["raced"] += 1
        self.states[batch] = written

    def next_after(self, batch: int) -> int:
        """Mostly the next micro-batch; or one that Spark can still go back to from the last that there ever was."""
        if batch > RETAINED and self._chance.random() < 0.25:
            self.troubles["back"] += 1
            return max(batch - self._chance.randrange(RETAINED), max(self.states) - RETAINED + 1)
        return batch + 1

    @property
    def rows(self) -> list[Any]:
        (name,) = (name for name in self.run.spreads)
        for rows in self.results.values():
            self.run._batches[name] += [decode(row["packed"], self.run._schemas[name]) for row in rows]
        return in_order(self.run.table(name))


def test_a_worker_does_not_go_on_with_the_queries_of_an_earlier_start(tmp_path: Path) -> None:
    """The application is started again with one more query, in a session whose workers still know the first."""
    stream, select = PROGRAM.split(";")
    first = f"{stream}; CREATE QUERY a AS {select};"
    both = f"{first} CREATE QUERY b AS SELECT k, MIN(n) AS least FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k;"
    before, after = (Run(program, random.Random(1), tmp_path) for program in (first, both))
    processor._live = LiveObjects()
    events = made_up_events(1, 12_000)
    before.settle(before.attempt(0, [{"s": events[:6_000]}]), commit=True)
    for old, new in zip(before.buckets, after.buckets, strict=True):
        new.states = old.states
    after.settle(after.attempt(1, [{"s": events[6_000:]}]), commit=True)
    after.settle(after.attempt(2, None), commit=True)
    rows = in_order(pa.concat_tables([before.table("a"), after.table("a")]))
    assert rows == embedded(PROGRAM, events)
    assert after.table("b").num_rows


@pytest.mark.parametrize("seed", [0, 1])
def test_troubles_leave_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(bucket_state, "INSIDE", 4096 * seed)
    check(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_more_troubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(bucket_state, "INSIDE", 4096 * (seed % 3))
    check(tmp_path, seed)


def check(directory: Path, seed: int) -> None:
    events = made_up_events(seed, 40_000)
    pieces: list[Events | None] = [events[i : i + 2_000] for i in range(0, len(events), 2_000)]
    pieces.append(None)
    troubled = Troubled(directory, random.Random(seed))
    batch = last = 0
    while batch < len(pieces):
        troubled.batch(batch, pieces[batch])
        last = max(last, batch)
        batch = troubled.next_after(batch)
    print(troubled.troubles)
    assert sum(troubled.troubles.values()) >= 10
    assert troubled.rows == embedded(PROGRAM, events)
    check_files(directory, troubled.states[last], last)


def check_files(directory: Path, state: State, last: int) -> None:
    """Blocks and state went to files, and only files are left that some state which Spark may load can name."""
    named: set[str] = set()
    for bucket in state.values():
        published = Directory.decoded(bucket["directory"][0])
        own = [next(directory.rglob(file.name)) for file in published.files]
        named |= {file.name for file in own}
        # What the state names is in its last part.
        part = published.inside[-1] if published.inside else own[-1].read_bytes()
        named |= {name.decode() for name in re.findall(rb"\d+-[0-9a-f]{32}\.segment", part)}
    for suffix in (".segment", ".state"):
        files = {file.name for file in directory.rglob(f"*{suffix}")}
        assert files & named
        assert all(int(name.split("-")[0]) >= last - 2 * RETAINED - 2 for name in files - named)
