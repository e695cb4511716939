"""What is left of a run's logs, as arrays: also of a run that was stopped, has failed or was killed.

A part that cannot be read (torn by a crash, of a disk that was full) is left out, and a note says so. Lines of
`happenings.jsonl` that are no JSON, such as a last one that was cut, are left out as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from penstock.arrays import Int64s
from penstock.errors import InputError
from penstock.instruments import Histogram
from penstock_bench.measure.running.directory import RunDirectory
from penstock_bench.measure.setup.model import Setup


@dataclass(frozen=True)
class Batches:
    """Batches that a driver sent, in its order."""

    stream: NDArray[np.object_]
    phase: Int64s
    first_us: Int64s
    last_us: Int64s
    events: Int64s
    due_ns: Int64s
    sent_ns: Int64s
    done_ns: Int64s


@dataclass(frozen=True)
class Pushed:
    """Batches that the host pushed into the system, in order."""

    stream: NDArray[np.object_]
    first_us: Int64s
    last_us: Int64s
    events: Int64s
    begun_ns: Int64s
    done_ns: Int64s


@dataclass(frozen=True)
class Taken:
    """Results that a sink took, of one query, in order."""

    query: str
    cause_us: Int64s
    received_ns: Int64s
    emitted_ns: Int64s


@dataclass(frozen=True)
class Used:
    """What processes used, one row for each look at each."""

    time_ns: Int64s
    process: NDArray[np.object_]
    cpu_s: NDArray[np.float64]
    rss_bytes: Int64s
    read_bytes: Int64s
    written_bytes: Int64s


@dataclass
class Totals:
    """All results of a query and the latencies of the sampled ones, as a sink has them without a log."""

    results: int = 0
    latency: Histogram = field(default_factory=Histogram)


class RunLogs:
    """Reads on demand; `notes` grows as parts turn out to be unreadable."""

    def __init__(self, path: Path) -> None:
        self.run = RunDirectory(path)
        self.notes: list[str] = []
        try:
            self.setup: Setup = self.run.setup()
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: is no directory of a run: setup.json cannot be read ({error})") from None

    @cached_property
    def facts(self) -> dict[str, Any]:
        try:
            return self.run.facts()
        except (OSError, ValueError):
            return {}

    @cached_property
    def happenings(self) -> list[dict[str, Any]]:
        found = []
        try:
            text = self.run.happenings.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        for line in text.splitlines():
            try:
                happened = json.loads(line)
            except ValueError:
                continue
            if isinstance(happened, dict):
                found.append(happened)
        return found

    @cached_property
    def drivers(self) -> list[Batches]:
        """Those of all copies, in the order of the setup: copy k has the times that are k modulo their number."""
        return [
            Batches(**self._columns(self.run.driver(driver.name, copy), Batches))
            for driver in self.setup.drivers
            for copy in range(driver.copies)
        ]

    @cached_property
    def host(self) -> Pushed:
        """Empty for a system that is reached without a host."""
        return Pushed(**self._columns(self.run.host, Pushed))

    @cached_property
    def resources(self) -> Used:
        return Used(**self._columns(self.run.resources, Used))

    def results(self) -> Iterator[Taken]:
        """A part at a time, for there may be very many; each part by query."""
        for sink in self.setup.sinks:
            for copy in range(sink.copies):
                for part in self._parts(self.run.sink(sink.name, copy), [f.name for f in fields(Taken)]):
                    yield from _by_query(part)

    @cached_property
    def totals(self) -> dict[str, Totals]:
        """What sinks took in all, by query: the results that were not sampled as well. A sink that was killed has not
        told."""
        found: dict[str, Totals] = {}
        for sink in self.setup.sinks:
            for copy in range(sink.copies):
                for query, told in self._told(self.run.sink(sink.name, copy) / "totals.json").items():
                    total = found.setdefault(query, Totals())
                    total.results += told.results
                    total.latency.merge(told.latency)
        return found

    def _told(self, path: Path) -> dict[str, Totals]:
        try:
            data = json.loads(path.read_bytes())
            return {q: Totals(int(d["results"]), Histogram.from_json(d["latency"])) for q, d in data.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self.notes.append(f"{path.relative_to(self.run.path)} cannot be read and is left out: {error}")
            return {}

    def answers(self, query: str) -> pa.Table | None:
        """The results of a query that sinks kept, for validation; None if it has none."""
        parts = list(self._parts(self.run.answers(query), None))
        return pa.concat_tables(parts, promote_options="permissive") if parts else None

    def _columns(self, directory: Path, kind: type[Batches] | type[Pushed] | type[Used]) -> dict[str, Any]:
        names = [one.name for one in fields(kind)]
        parts = list(self._parts(directory, names))
        if not parts:
            return {name: np.empty(0, _type(name)) for name in names}
        table = pa.concat_tables(parts, promote_options="permissive")
        return {name: table.column(name).to_numpy().astype(_type(name), copy=False) for name in names}

    def _parts(self, directory: Path, columns: list[str] | None) -> Iterator[pa.Table]:
        for part in sorted(directory.glob("part-*.parquet")):
            try:
                yield pq.read_table(part, columns=columns, partitioning=None).combine_chunks()
            except (pa.ArrowException, OSError) as error:
                told = str(error).splitlines()[0]
                note = f"{part.relative_to(self.run.path)} cannot be read and is left out: {told}"
                if note not in self.notes:
                    self.notes.append(note)


def _type(name: str) -> type[np.generic]:
    if name in ("stream", "process"):
        return np.object_
    return np.float64 if name == "cpu_s" else np.int64


def _by_query(part: pa.Table) -> Iterator[Taken]:
    if not part.num_rows:
        return
    encoded = part.column("query").combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    cause, received, emitted = (part.column(f.name).to_numpy() for f in fields(Taken)[1:])
    for code, query in enumerate(encoded.dictionary.to_pylist()):
        if len(encoded.dictionary) == 1:
            yield Taken(query, cause, received, emitted)
            continue
        rows = np.flatnonzero(codes == code)
        yield Taken(query, cause[rows], received[rows], emitted[rows])
