"""What a run shows: throughput and latency of every stream and query, in all and over time. `docs/measures.md` defines
every measure.

Only phases that are `measured` count in the totals: events by the phase that sent them, results by the phase of the
event that caused them. Series over time show the whole run, warm-up included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Floats, Int64s
from penstock.instruments import Histogram
from penstock_bench.measure.load.pacing import LATE_US
from penstock_bench.measure.results.causes import Causes
from penstock_bench.measure.results.happened import Happened
from penstock_bench.measure.results.latency import LatencyReader, Samples
from penstock_bench.measure.results.reading import RunLogs
from penstock_bench.measure.results.statistics import Statistics, percentiles
from penstock_bench.measure.setup.model import LatencyMode

MOST_POINTS = 600
_S = 1_000_000_000


@dataclass(frozen=True)
class PhaseTimes:
    """When the events of a phase were sent, in seconds since the run's first; copies and drivers that have a phase of
    the same name are taken together."""

    name: str
    begin_s: float
    end_s: float
    measured: bool


@dataclass(frozen=True)
class Flow:
    """Events of a stream, or results of a query: those that are measured, and how many a second over time."""

    count: int
    rate: float
    times_s: Floats
    rates: Floats


@dataclass(frozen=True)
class LatencySeries:
    """Nanoseconds, of the results that came in each interval; NaN where none did."""

    times_s: Floats
    mean: Floats
    p50: Floats
    p99: Floats
    max: Floats


@dataclass(frozen=True)
class Throughput:
    """`seconds` from the first measured event's begin to the end of its processing, pauses left out."""

    seconds: float
    streams: Mapping[str, Flow]
    queries: Mapping[str, Flow]

    @property
    def events_per_second(self) -> float:
        return sum(flow.rate for flow in self.streams.values())

    @property
    def results_per_second(self) -> float:
        return sum(flow.rate for flow in self.queries.values())


@dataclass(frozen=True)
class Schedule:
    """How well drivers kept their schedule in measured phases. `max_lag_us` is the longest that the oldest event of a
    batch had been due when it was sent. The schedule is `kept` where no event was so late that its driver would say
    it. `due` is more than `sent` in a run that was stopped while it lagged."""

    due: int
    sent: int
    max_lag_us: int
    kept: bool


@dataclass
class Measures:
    """Of a run, from its logs; the parts are worked out when they are first asked for.

    `mode` None is the one of the setup.
    """

    path: Path
    mode: LatencyMode | None = None
    logs: RunLogs = field(init=False)

    def __post_init__(self) -> None:
        self.logs = RunLogs(self.path)
        self.setup = self.logs.setup
        self.mode = self.mode or self.setup.measuring.latency
        self.happened = Happened(self.logs.happenings)

    @cached_property
    def causes(self) -> Causes:
        return Causes(self.setup, self.logs.drivers)

    @cached_property
    def latency_mode(self) -> LatencyMode:
        """What is shown: a closed loop has no scheduled times, and histograms of sinks have no others."""
        assert self.mode is not None
        if self._from_histograms:
            return LatencyMode.SCHEDULED
        measured = [part.closed for part in self.causes.parts if part.measured]
        if self.mode is LatencyMode.SCHEDULED and measured and all(measured):
            return LatencyMode.END_TO_END
        return self.mode

    @property
    def _from_histograms(self) -> bool:
        """Without a log there are only the sinks' histograms, from the times in the events."""
        return not self.setup.measuring.log and self.setup.times_are_due

    @cached_property
    def samples(self) -> dict[str, Samples]:
        """Of each query, of all phases; none where the setup keeps no log."""
        return LatencyReader(self.logs, self.causes, self.latency_mode).samples()

    @cached_property
    def began_ns(self) -> int:
        """The first event's send: where the series begin."""
        for moments in (self.causes.sent_ns, self.logs.host.begun_ns):
            if len(moments):
                return int(moments.min())
        return int(self.logs.facts.get("began_ns", 0))

    @cached_property
    def phases(self) -> list[PhaseTimes]:
        found: dict[str, PhaseTimes] = {}
        for number, part in enumerate(self.causes.parts):
            rows = self.causes.part == number
            if not rows.any():
                continue
            begin = (int(self.causes.sent_ns[rows].min()) - self.began_ns) / _S
            end = (int(self.causes.done_ns[rows].max()) - self.began_ns) / _S
            known = found.get(part.name)
            if known is not None:
                begin, end = min(begin, known.begin_s), max(end, known.end_s)
            found[part.name] = PhaseTimes(part.name, begin, end, part.measured or bool(known and known.measured))
        return sorted(found.values(), key=lambda phase: phase.begin_s)

    @cached_property
    def latency(self) -> dict[str, Statistics]:
        """Per query, of measured phases; from histograms where there are no samples."""
        found = {}
        for query, samples in self.samples.items():
            if self._from_histograms and query in self.logs.totals:
                found[query] = Statistics.near(self.logs.totals[query].latency)
            else:
                all_measured = samples.measured.all()
                found[query] = Statistics.exact(
                    samples.latency_ns if all_measured else samples.latency_ns[samples.measured]
                )
        return found

    @cached_property
    def latency_overall(self) -> Statistics:
        """Of the results of all queries."""
        if len(self.latency) == 1:
            return next(iter(self.latency.values()))
        if not self._from_histograms:
            return Statistics.exact(np.concatenate([s.latency_ns[s.measured] for s in self.samples.values()]))
        return Statistics.near(self.histogram(None))

    @cached_property
    def latency_by_phase(self) -> dict[str, dict[str, Statistics]]:
        """By the phase of the cause, also of phases that are not measured."""
        if len(self.phases) == 1 and self.phases[0].measured:
            return {self.phases[0].name: dict(self.latency)}
        found: dict[str, dict[str, Statistics]] = {}
        for phase in self.phases:
            numbers = [n for n, part in enumerate(self.causes.parts) if part.name == phase.name]
            found[phase.name] = {
                query: Statistics.exact(samples.latency_ns[np.isin(samples.part, numbers)])
                for query, samples in self.samples.items()
            }
        return found

    def histogram(self, query: str | None) -> Histogram:
        """Of a query's measured results; None of all queries'."""
        made = Histogram()
        for name, samples in self.samples.items():
            if query not in (None, name):
                continue
            if not self._from_histograms:
                made.record(samples.latency_ns[samples.measured])
            elif name in self.logs.totals:
                made.merge(self.logs.totals[name].latency)
        return made

    @cached_property
    def interval_ns(self) -> tuple[int, int]:
        """From the first measured event's begin to the end of processing. In an open loop that is when it was due, so
        that a system that catches up is not shown faster than the load. In a closed loop it is when the system takes
        it, since events queued in an earlier phase are not part of it. The system may have taken more than it has
        processed: the end is that of the last result, or of the system's finish."""
        begun, done, _, measured, closed = self._accepted
        if not measured.any():
            return self.began_ns, self.began_ns
        begin, end = int(begun[measured].min()), int(done[measured].max())
        if closed[measured].any():
            last = [int(s.received_ns[s.measured].max()) for s in self.samples.values() if s.measured.any()]
            # What is not measured and comes later is no part of it, and the finish is after that.
            finished = 0 if (done[~measured] > end).any() else self.happened.finished_ns
            end = max([end, finished, *last])
        return begin, end

    @cached_property
    def _accepted(self) -> tuple[Int64s, Int64s, Int64s, NDArray[np.bool_], NDArray[np.bool_]]:
        """Batches as the system took them, by the host's log, or else by the drivers': begin, end, events, whether
        measured, whether of a closed loop."""
        causes, host = self.causes, self.logs.host
        began = np.where(causes.closed, causes.sent_ns, np.minimum(causes.sent_ns, causes.due_first_ns))
        if not len(host.begun_ns):
            return began, causes.done_ns, causes.events, causes.measured, causes.closed
        if not len(causes.sent_ns):
            every = np.ones(len(host.begun_ns), bool)
            return host.begun_ns, host.done_ns, host.events, every, ~every
        batch = causes.finder.find(host.last_us)
        known = batch >= 0
        # What is in no driver's log comes from one that was killed: nothing says that it was a warm-up.
        measured = ~known | causes.measured[batch]
        closed = known & causes.closed[batch]
        begun = np.where(known & ~closed, np.minimum(began[batch], host.begun_ns), host.begun_ns)
        return begun, host.done_ns, host.events, measured, closed

    @cached_property
    def throughput(self) -> Throughput:
        begin, end = self.interval_ns
        seconds = max(0.0, (end - begin - self.happened.paused_ns(begin, end)) / _S)
        _, done, events, measured, _ = self._accepted
        names = self.logs.host.stream if len(self.logs.host.stream) else self.causes.stream
        streams = {}
        for stream in self.setup.streams:
            rows = names == stream
            count = int(events[rows & measured].sum())
            streams[stream] = self._flow(count, seconds, done[rows], events[rows].astype(float))
        return Throughput(seconds, streams, self._results(seconds))

    def _results(self, seconds: float) -> dict[str, Flow]:
        share = self.setup.measuring.sample
        queries = {}
        for query, samples in self.samples.items():
            # A sample of all results stands for all of them; without samples there is only what sinks have told.
            if len(samples) and share > 0:
                count = round(int(samples.measured.sum()) / share)
                weights = np.full(len(samples), 1 / share)
                queries[query] = self._flow(count, seconds, samples.received_ns, weights)
            else:
                told = self.logs.totals[query].results if query in self.logs.totals else 0
                queries[query] = self._flow(told, seconds, np.empty(0, np.int64), np.empty(0))
        return queries

    @cached_property
    def step_s(self) -> int:
        """The width of an interval of series: a second, or more in a long run."""
        ends = [self.began_ns, *(int(a.max()) for a in (self.causes.done_ns, self.logs.host.done_ns) if len(a))]
        ends += [int(s.received_ns.max()) for s in self.samples.values() if len(s)]
        return max(1, -(-(max(ends) - self.began_ns) // (_S * MOST_POINTS)))

    def _flow(self, count: int, seconds: float, moments: Int64s, weights: Floats) -> Flow:
        places = np.maximum(moments - self.began_ns, 0) // (self.step_s * _S)
        rates = np.bincount(places, weights) / self.step_s if len(places) else np.empty(0)
        times = np.arange(len(rates), dtype=float) * self.step_s
        return Flow(count, count / seconds if seconds else 0.0, times, rates)

    def latency_series(self, query: str) -> LatencySeries:
        """Over the time at which results came."""
        samples = self.samples[query]
        places = np.maximum(samples.received_ns - self.began_ns, 0) // (self.step_s * _S)
        order = np.argsort(places, kind="stable")
        latencies = samples.latency_ns[order]
        count = int(places.max()) + 1 if len(places) else 0
        bounds = np.searchsorted(places[order], np.arange(count + 1))
        figures = np.full((4, count), np.nan)
        for place in range(count):
            own = latencies[bounds[place] : bounds[place + 1]]
            if len(own):
                figures[:, place] = (own.mean(), *percentiles(own, [50.0, 99.0]), own.max())
        return LatencySeries(np.arange(count, dtype=float) * self.step_s, *figures)

    @cached_property
    def schedule(self) -> Schedule:
        causes = self.causes
        paced = causes.measured & ~causes.closed
        lag_us = (causes.sent_ns - causes.due_first_ns) // 1000
        most = int(lag_us[paced].max()) if paced.any() else 0
        sent = int(causes.events[causes.measured].sum())
        return Schedule(sent + self.happened.unsent, sent, max(0, most), most <= LATE_US + self.setup.measuring.linger)

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures should know; whole once they have been worked out."""
        told = list(self.logs.notes)
        closed = {part.name for part in self.causes.parts if part.measured and part.closed}
        if closed and self.mode is LatencyMode.SCHEDULED:
            named = ", ".join(f"'{name}'" for name in sorted(closed))
            told.append(f"phase {named}: a closed loop has no schedule; its latencies count from the send")
        if self._from_histograms:
            told.append("no samples were logged: latencies are from histograms of the scheduled latency, with warm-up")
        elif not self.setup.measuring.log:
            told.append(
                "no samples were logged, and not all events were due at the times they have: no latency is known"
            )
        return told
