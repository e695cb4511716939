"""Directories of runs that nobody ran: their logs are written down by a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock_bench.measure.load.driver import SENT
from penstock_bench.measure.results.resources import USED
from penstock_bench.measure.running.directory import RunDirectory
from penstock_bench.measure.running.serving import PUSHED
from penstock_bench.measure.running.sink import TAKEN
from penstock_bench.measure.setup.model import Setup

MS = 1_000_000
"""Nanoseconds."""

T0_US = 1_698_000_000_000_000
"""Where the schedules begin: a multiple of 2, 3 and 4."""

T0 = T0_US * 1000


def setup(
    phases: list[dict[str, Any]] | None = None,
    *,
    copies: int = 1,
    queries: tuple[str, ...] = ("q",),
    streams: tuple[str, ...] = ("s",),
    replay: dict[str, Any] | None = None,
    name: str = "made",
    **measuring: Any,
) -> Setup:
    driver: dict[str, Any] = {"name": "d", "copies": copies}
    if replay is not None:
        driver["replay"] = replay
    else:
        driver["phases"] = phases or [{"duration": "10 s", "rate": 1000}]
        driver["fields"] = {stream: {"n": {"generator": "sequential"}} for stream in streams}
    return Setup.model_validate(
        {
            "name": name,
            "streams": {stream: {"columns": {"ts": "TIMESTAMP", "n": "BIGINT"}} for stream in streams},
            "drivers": [driver],
            "queries": {query: {"text": {"penstock": "SELECT ts FROM s"}} for query in queries},
            "measuring": measuring,
        }
    )


class Handmade:
    """A run's directory; times are given relative to T0, in µs for events and ms for the clock."""

    def __init__(self, path: Path, made: Setup) -> None:
        self.run = RunDirectory.create(path, made, "name = 'made'\n")
        self.run.write_facts({"clock_offset_ns": 0, "place": {}, "began_ns": T0, "machine": {"cpu": "abacus"}})
        self._parts = 0

    @property
    def path(self) -> Path:
        return self.run.path

    def sent(self, rows: list[tuple[Any, ...]], copy: int = 0) -> Handmade:
        """(stream, phase, first_us, last_us, events, due_ms, sent_ms, done_ms)"""
        moved = [(s, p, f + T0_US, z + T0_US, n, *map(_ns, times)) for s, p, f, z, n, *times in rows]
        return self._write(self.run.driver("d", copy), SENT, moved)

    def pushed(self, rows: list[tuple[Any, ...]]) -> Handmade:
        """(stream, first_us, last_us, events, begun_ms, done_ms)"""
        moved = [(s, f + T0_US, z + T0_US, n, *map(_ns, times)) for s, f, z, n, *times in rows]
        return self._write(self.run.host, PUSHED, moved)

    def taken(self, rows: list[tuple[Any, ...]], copy: int = 0) -> Handmade:
        """(query, cause_us, received_ms, emitted_ms)"""
        moved = [(q, c + T0_US, *map(_ns, times)) for q, c, *times in rows]
        return self._write(self.run.sink("sink", copy), TAKEN, moved)

    def used(self, rows: list[tuple[Any, ...]]) -> Handmade:
        """(time_ms, process, cpu_s, rss, read, written)"""
        return self._write(self.run.resources, USED, [(_ns(t), *rest) for t, *rest in rows])

    def happened(self, *happenings: dict[str, Any] | str) -> Handmade:
        with self.run.happenings.open("a") as file:
            for one in happenings:
                file.write((one if isinstance(one, str) else json.dumps(one)) + "\n")
        return self

    def _write(self, directory: Path, schema: pa.Schema, rows: list[tuple[Any, ...]]) -> Handmade:
        self._parts += 1
        directory.mkdir(parents=True, exist_ok=True)
        columns = [pa.array(values, kind.type) for values, kind in zip(zip(*rows, strict=True), schema, strict=True)]
        table = pa.Table.from_arrays(columns, schema=schema)
        pq.write_table(table, directory / f"part-{self._parts:05}.parquet")
        return self


def _ns(ms: float) -> int:
    return T0 + round(ms * MS)
