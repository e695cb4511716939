"""The process of a sink: `python -m penstock_bench.measure.running.sink RUN NAME K`.

It takes results, notes when each came and which event caused it, and keeps what the setup asks for: histograms of the
latency where events have the times they are due at, a row for each sampled result, the results themselves.

Which results are sampled is decided by their number, not by chance: of the first n results of a query that this copy
takes, floor(n * share) are, evenly spread, whatever batches they came in.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.errors import InputError
from penstock.instruments import Histogram
from penstock_bench.measure.adapters.adapter import Receiver, Results, adapter_class
from penstock_bench.measure.running.child import PROGRESS_EVERY, Child, run_child
from penstock_bench.measure.running.directory import RunDirectory
from penstock_bench.measure.running.logs import PART_SECONDS, RollingLog
from penstock_bench.measure.setup.model import Setup

TAKEN = pa.schema(
    [("query", pa.string()), ("cause_us", pa.int64()), ("received_ns", pa.int64()), ("emitted_ns", pa.int64())]
)

SETTLED_ROWS = 65_536


def cause_column(setup: Setup, query: str, names: list[str]) -> int:
    """The place of the column with the time of the event that caused a result."""
    declared = setup.queries[query].cause
    times = [stream.time for stream in setup.streams.values()]
    for wanted in [declared] if declared is not None else ["window_end", *times]:
        for place, name in enumerate(names):
            if name.lower() == wanted.lower():
                return place
    if declared is not None:
        raise InputError(f"queries.{query}.cause = '{declared}': its results have only {', '.join(names)}")
    raise InputError(
        f"queries.{query}: no column of its results ({', '.join(names)}) says which event caused one: select the"
        f" event's time and name that column, as in cause = '{times[0]}'"
    )


def microseconds(column: pa.Array) -> Int64s:
    """Timestamps of any unit, or integers that are microseconds already."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False).view(pa.int64())
    elif pa.types.is_integer(kind):
        column = column.cast(pa.int64())
    else:
        raise InputError(f"the time of the event that caused a result is of type {kind}, not TIMESTAMP or BIGINT")
    # A result without a cause (an outer join's) has no latency.
    values: Int64s = column.drop_null().to_numpy()
    return values


class Sampling:
    """Says which results are sampled."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._seen = 0

    def of(self, column: pa.Array) -> pa.Array:
        """The sampled ones of the next results."""
        first, self._seen = self._seen, self._seen + len(column)
        if self._share >= 1:
            return column
        numbers = np.floor(np.arange(first, self._seen + 1, dtype=np.float64) * self._share)
        return column.take(pa.array(np.flatnonzero(np.diff(numbers))))


class Taking:
    """One query's results in this sink.

    What has come is noted as it comes and worked off together, in `settle`: with results that come one by one, that
    is many times cheaper, and a sink shall take little from the machine that it measures.
    """

    def __init__(self, setup: Setup, query: str, run: RunDirectory, name: str, log: RollingLog | None) -> None:
        self._setup = setup
        self._query = query
        self._log = log
        self._answers: RollingLog | None = None
        self._answers_of = (run.answers(query), name)
        self._sampling = Sampling(setup.measuring.sample)
        self._cause: tuple[pa.Schema, int] | None = None
        self._coarse = setup.measuring.resolution == "ms"
        self._timed = setup.times_are_due
        self._causes: list[Int64s] = []
        self._moments: list[tuple[int, int, int]] = []
        """Of each batch how many samples it gave, when it was received and when emitted."""
        self._waiting = 0
        self.results = 0
        self.fresh = Histogram()
        """What was recorded since the last progress message; what was before that is in `before`."""
        self.before = Histogram()

    def take(self, results: Results, received_ns: int) -> None:
        rows = results.rows
        self.results += rows.num_rows
        if self._cause is None or self._cause[0] is not rows.schema:
            self._cause = rows.schema, cause_column(self._setup, self._query, rows.schema.names)
        causes = microseconds(self._sampling.of(rows.column(self._cause[1])))
        self._causes.append(causes)
        self._moments.append((len(causes), received_ns, results.emitted_ns))
        self._waiting += len(causes)
        if self._waiting >= SETTLED_ROWS:
            self.settle()
        if self._setup.measuring.answers:
            self._keep(rows)

    def settle(self) -> None:
        """Works off what has come."""
        if not self._moments:
            return
        causes = np.concatenate(self._causes)
        moments = np.array(self._moments, np.int64)
        self._causes, self._moments, self._waiting = [], [], 0
        received = np.repeat(moments[:, 1], moments[:, 0])
        if self._timed:
            latencies = received - causes * 1_000
            self.fresh.record((latencies + 500_000) // 1_000_000 * 1_000_000 if self._coarse else latencies)
        if self._log is not None and len(causes):
            emitted = np.repeat(moments[:, 2], moments[:, 0])
            columns = [pa.repeat(self._query, len(causes)), pa.array(causes), pa.array(received), pa.array(emitted)]
            self._log.append(pa.RecordBatch.from_arrays(columns, schema=TAKEN))

    def _keep(self, rows: pa.RecordBatch) -> None:
        if self._answers is None:
            directory, name = self._answers_of
            self._answers = RollingLog(directory, rows.schema.remove_metadata(), name=name)
        self._answers.append(rows.replace_schema_metadata(None))

    def news(self) -> dict[str, Any]:
        """How many results there were in all, and the latencies since the last time."""
        self.settle()
        told = {"results": self.results, "latency": self.fresh.to_json()}
        self.before.merge(self.fresh)
        self.fresh = Histogram()
        if self._answers is not None:
            self._answers.roll()
        return told

    def total(self) -> dict[str, Any]:
        """All results and all latencies."""
        self.settle()
        whole = self.before.copy()
        whole.merge(self.fresh)
        return {"results": self.results, "latency": whole.to_json()}

    def close(self) -> None:
        self.settle()
        if self._answers is not None:
            self._answers.close()


def sink(child: Child, run: RunDirectory, arguments: list[str]) -> dict[str, Any]:
    name = "-".join(arguments)
    setup = run.setup()
    adapter = adapter_class(setup.system.adapter)(setup)
    receiver = adapter.receiver(run.facts()["place"], name)
    own = run.sink(arguments[0], int(arguments[1]))
    own.mkdir(parents=True)
    log = RollingLog(own, TAKEN) if setup.measuring.log else None
    wanted = next(one.queries for one in setup.sinks if one.name == arguments[0]) or tuple(setup.queries)
    taking = {query: Taking(setup, query, run, name, log) for query in wanted}
    try:
        child.say("ready")
        _take_all(child, run, receiver, taking, log, own)
        child.say("progress", queries={query: one.news() for query, one in taking.items()})
    finally:
        receiver.close()
        for one in taking.values():
            one.close()
        if log is not None:
            log.close()
        _keep_totals(own, taking)
    return {"results": {query: one.results for query, one in taking.items()}}


def _take_all(
    child: Child, run: RunDirectory, receiver: Receiver, taking: dict[str, Taking], log: RollingLog | None, own: Path
) -> None:
    clock = run.clock()
    told = kept = time.monotonic()
    ending = False
    for results in receiver:
        if results is not None:
            taking[results.query].take(results, clock.ns())
        elif ending:
            return
        now = time.monotonic()
        if now - told >= PROGRESS_EVERY:
            told = now
            child.say("progress", queries={query: one.news() for query, one in taking.items()})
            if log is not None:
                log.roll()
            elif now - kept >= PART_SECONDS:
                kept = now
                _keep_totals(own, taking)
            command = child.command(0)
            ending = ending or (command is not None and command["do"] == "stop")


def _keep_totals(own: Path, taking: dict[str, Taking]) -> None:
    """Without a log these are all that a summary has; with one they say how many results were not sampled."""
    unfinished = own / "totals.json.new"
    unfinished.write_text(json.dumps({query: one.total() for query, one in taking.items()}), encoding="utf-8")
    os.replace(unfinished, own / "totals.json")


if __name__ == "__main__":
    run_child(sink)
