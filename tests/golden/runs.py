"""Drives the programs of `programs`: up to where their checkpoint is taken, and from there to the end."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.lang import parse
from penstock.store.differences import joined
from penstock.store.state import decode

from .programs import AGGREGATES, SECOND, START, Program, events, pushes

Results = dict[str, list[dict[str, Any]]]
CLOCKED = "wall_clock"


@dataclass
class Embedded:
    """A program in an app. `calls` are those that its rules have made; they wait until `gate` is set."""

    program: Program
    checkpoint: Path | None = None
    at: int = 0
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        passed = self.at if self.program.name == CLOCKED else 0
        self.clock = ps.testing.TestClock(START + passed * SECOND)
        self.app = ps.App(
            self.program.text,
            memory=self.program.memory,
            checkpoint=self.checkpoint,
            block_size=1024,
            aggregates=AGGREGATES,
            clock=self.clock,
            strategy=self.program.strategy,
            dispatch=self.program.dispatch,
            functions={"note": self._note},
        )

    def _note(self, *arguments: Any, idempotency_key: str) -> None:
        self.gate.wait(60)
        self.calls.append((idempotency_key, *arguments))

    def drive(self, start: int, stop: int) -> None:
        """Where events wait to be taken, a few are left when it ends."""
        for stream, some in pushes(start, stop):
            if self.program.dispatch is None:
                self.app.push(stream, some)
            else:
                self.app.offer(stream, some)
                self.app.work(40)
            if self.program.name == CLOCKED:
                self.clock.advance(seconds=len(some) / 2)
                self.app.tick()

    def read(self, every: int = 1) -> Results:
        return {name: self.app.results(name).to_pylist() for name in sorted(self.app.queries)[::every]}

    def to_the_checkpoint(self) -> None:
        self.drive(0, self.program.before)
        self.read(every=2)

    def to_the_end(self) -> Results:
        """What comes from the checkpoint on, and what waited in it."""
        self.gate.set()
        self.drive(self.program.before, self.program.before + self.program.after)
        if self.program.dispatch is not None:
            self.app.work()
        self.app.finish()
        figures = self.app.metrics
        found = self.read()
        found["late_a"] = self.app.late("a").to_pylist() if self.program.dispatch is None else []
        found["figures"] = [{"events": figures.events, "late": figures.late, "results": figures.results}]
        found["calls"] = [{"call": call} for call in self.calls]
        self.app.close()
        return found


def written(program: Program, directory: Path) -> None:
    run = Embedded(program, directory)
    run.to_the_checkpoint()
    run.app.checkpoint({"read": "every second query"})
    run.gate.set()
    run.app.close()


def resumed(program: Program, directory: Path) -> Results:
    return Embedded(program, directory, at=program.before).to_the_end()


def uninterrupted(program: Program) -> Results:
    run = Embedded(program)
    run.to_the_checkpoint()
    return run.to_the_end()


@dataclass
class InBuckets:
    """A program as on Spark, without Spark: a bucket's committed values are files, beside those of its state."""

    program: Program
    directory: Path

    def __post_init__(self) -> None:
        from spark.by_hand import Run

        self.run = Run(self.program.text, random.Random(1), self.directory / "segments", 16_000_000)

    def drive(self, start: int, stop: int) -> None:
        for number, at in enumerate(range(start, stop, 300), start):
            tasks = [{stream: events(stream, at, min(at + 300, stop))} for stream in ("a", "b")]
            self.run.settle(self.run.attempt(number, tasks), commit=True)

    def read(self) -> Results:
        names = [query.name for query in parse(self.program.text).queries]
        return {name: _in_order(self.run.table(name)) for name in names}

    def write(self) -> None:
        for bucket in self.run.buckets:
            (directory,) = bucket.states["directory"].committed
            (self.directory / f"{bucket.label}.directory").write_bytes(directory)

    def take_up(self) -> None:
        """Earlier versions have committed the state itself."""
        from spark.by_hand import Map, Value

        for bucket in self.run.buckets:
            names = ("directory", "state", "tag")
            directory, state, tag = (self.directory / f"{bucket.label}.{name}" for name in names)
            if directory.exists():
                bucket.states["directory"] = Value((directory.read_bytes(),))
            if state.exists():
                bucket.states["state"] = Value((state.read_bytes(),))
                bucket.states["tag"] = Value(tuple(tag.read_text().split("\n")))
                files = self.directory.glob(f"{bucket.label}.changes-*")
                bucket.states["changes"] = Map({(int(f.name.rpartition("-")[2]),): (f.read_bytes(),) for f in files})

    def saved(self) -> Iterator[dict[str, Any]]:
        """The states of the buckets, and the directories that say where they are."""
        from penstock.spark.bucket_state import parts_of
        from penstock.spark.directory import Directory
        from penstock.spark.state_files import StateFiles

        for file in self.directory.glob("*.directory"):
            yield decode(file.read_bytes())
            place = StateFiles(str(self.directory / "segments" / "query" / file.stem), retain=2)
            yield joined(parts_of(Directory.decoded(file.read_bytes()), place))


def _in_order(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


def written_in_buckets(program: Program, directory: Path) -> None:
    directory.mkdir(parents=True)
    run = InBuckets(program, directory)
    run.drive(0, program.before)
    run.write()


def resumed_in_buckets(program: Program, directory: Path) -> Results:
    run = InBuckets(program, directory)
    run.take_up()
    return _further(run)


def uninterrupted_in_buckets(program: Program, directory: Path) -> Results:
    directory.mkdir(parents=True)
    run = InBuckets(program, directory)
    run.drive(0, program.before)
    run.run.forget()
    return _further(run)


def _further(run: InBuckets) -> Results:
    run.drive(run.program.before, run.program.before + run.program.after)
    run.run.settle(run.run.attempt(10**6, None), commit=True)
    return run.read()


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """The names of what differs, with the first place."""
    told = [f"{name}: there or not" for name in found.keys() ^ expected.keys()]
    for name in found.keys() & expected.keys():
        if repr(found[name]) != repr(expected[name]):
            pairs = enumerate(zip(found[name], expected[name], strict=False))
            first = next((f"row {i}: {a} and {b}" for i, (a, b) in pairs if repr(a) != repr(b)), "their number")
            told.append(f"{name}: {first} ({len(found[name])} and {len(expected[name])})")
    return sorted(told)
