"""A run that was started here: looked at twice a second by a thread of its own, which also remembers what it saw.

Pages read what has been seen, so that the number of open tabs costs the run nothing. Looking at a run with very many
queries takes long; it is then done less often, so that it never takes more than a tenth of a core.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.web.kit import shown
from penstock_bench.measure.load.pacing import LATE_US
from penstock_bench.measure.running.controller import Controller
from penstock_bench.measure.running.live import LatencyView, Snapshot, State
from penstock_bench.measure.setup.model import Setup
from penstock_bench.web.run_view import Bars, Points, QueryRow, RunView, bars_of, thinned

_EVERY_SECONDS = 0.5
_MOMENTS = 7200
_MOST_QUERIES = 40
"""Series are kept of so many queries, histograms too."""


@dataclass(frozen=True)
class Moment:
    """What was seen at `at` seconds since the drivers began; latencies are p50, p99 and the largest of late."""

    at: float
    streams: Mapping[str, float]
    results: float
    latency: Mapping[str, tuple[float, float, float] | None]
    cores: Mapping[str, float]
    memory: Mapping[str, int]


@dataclass
class _Cores:
    """Processor time of each process, as cores in use."""

    last: dict[str, tuple[int, float]] = field(default_factory=dict)
    now: dict[str, float] = field(default_factory=dict)

    def note(self, snapshot: Snapshot) -> None:
        for name, usage in snapshot.resources.items():
            before = self.last.get(name)
            if before is None:
                self.last[name] = (snapshot.now_ns, usage.cpu_s)
            elif usage.cpu_s != before[1] or snapshot.now_ns - before[0] > 2_000_000_000:
                self.now[name] = max(0.0, (usage.cpu_s - before[1]) * 1e9 / (snapshot.now_ns - before[0]))
                self.last[name] = (snapshot.now_ns, usage.cpu_s)


class LiveRun:
    def __init__(self, name: str, controller: Controller) -> None:
        self.name = name
        self.controller = controller
        self._cores = _Cores()
        self._moments: deque[Moment] = deque(maxlen=_MOMENTS)
        self._snapshot = controller.snapshot()
        self._largest_lag_us = 0
        self._thread = threading.Thread(target=self._watch, name="penstock-run", daemon=True)

    def start(self) -> None:
        """Raises what can be known at once to be wrong with it."""
        self.controller.start()
        self._thread.start()

    @property
    def setup(self) -> Setup:
        return self.controller.setup

    @property
    def snapshot(self) -> Snapshot:
        """What was seen last."""
        return self._snapshot

    @property
    def cores(self) -> Mapping[str, float]:
        return dict(self._cores.now)

    @property
    def over(self) -> bool:
        return self._snapshot.state.over

    @property
    def elapsed(self) -> float:
        """Seconds since the drivers began."""
        seen = self._snapshot
        return max(0.0, (seen.now_ns - seen.began_ns) / 1e9) if seen.began_ns else 0.0

    def _watch(self) -> None:
        while not self._snapshot.state.over:
            begun = time.monotonic()
            self._look(self.controller.snapshot())
            self.controller.wait(max(_EVERY_SECONDS, 10 * (time.monotonic() - begun)))

    def _look(self, snapshot: Snapshot) -> None:
        self._cores.note(snapshot)
        self._largest_lag_us = max([self._largest_lag_us, *(driver.lag_us for driver in snapshot.drivers.values())])
        if snapshot.began_ns and not snapshot.state.over:
            some = list(snapshot.queries.items())[:_MOST_QUERIES]
            self._moments.append(
                Moment(
                    (snapshot.now_ns - snapshot.began_ns) / 1e9,
                    {name: stream.rate for name, stream in snapshot.streams.items()},
                    sum(query.rate for query in snapshot.queries.values()),
                    {name: _recent(query.recent) for name, query in some},
                    self.cores,
                    {name: usage.rss_bytes for name, usage in snapshot.resources.items()},
                )
            )
        self._snapshot = snapshot

    def view(self) -> RunView:
        seen, moments = self._snapshot, list(self._moments)
        streams = {name: thinned([(m.at, m.streams.get(name)) for m in moments]) for name in seen.streams}
        some = list(seen.queries.items())[:_MOST_QUERIES]
        return RunView(
            name=self.name,
            state=seen.state.value,
            adapter=self.setup.system.adapter,
            mode="from the scheduled time",
            figures=self._figures(seen),
            throughput={**streams, "results": thinned([(m.at, m.results) for m in moments])},
            latency={name: _latencies(moments, name) for name, _ in some},
            histograms={name: _bars(query.overall) for name, query in some},
            queries={name: _row(query.results, query.rate, query.overall) for name, query in seen.queries.items()},
            cores={name: thinned([(m.at, m.cores.get(name)) for m in moments]) for name in seen.resources},
            memory={name: thinned([(m.at, m.memory.get(name)) for m in moments]) for name in seen.resources},
            notes=seen.notes,
            error=seen.error,
        )

    def _figures(self, seen: Snapshot) -> dict[str, tuple[str, str]]:
        accepted = sum(stream.accepted for stream in seen.streams.values())
        lag = self._largest_lag_us
        due, sent = sum(d.due for d in seen.drivers.values()), sum(d.sent for d in seen.drivers.values())
        recent = max((q.recent for q in seen.queries.values()), key=lambda view: view.p99, default=None)
        system = seen.resources.get("system")
        running = seen.state is State.RUNNING
        return {
            "Throughput": (shown.rate(sum(s.rate for s in seen.streams.values())), "accepted by the system"),
            "Results": (
                shown.count(sum(q.results for q in seen.queries.values())),
                shown.rate(sum(q.rate for q in seen.queries.values())),
            ),
            "Events": (shown.count(accepted or sent), f"{shown.count(max(due - sent, 0))} behind" if running else ""),
            "Latency p50": (shown.nanoseconds(recent.p50) if recent and recent.count else "–", "of the last seconds"),
            "Latency p99": (shown.nanoseconds(recent.p99) if recent and recent.count else "–", "of the last seconds"),
            "Schedule": ("kept" if lag <= LATE_US else "not kept", f"at most {shown.nanoseconds(lag * 1000)} late"),
            "System": (
                f"{self._cores.now.get('system', 0.0):.2f} cores",
                "" if system is None else shown.size(system.rss_bytes),
            ),
        }


def _recent(view: LatencyView) -> tuple[float, float, float] | None:
    return (view.p50, view.p99, float(view.max)) if view.count else None


def _latencies(moments: list[Moment], query: str) -> dict[str, Points]:
    found: dict[str, Points] = {}
    for place, name in enumerate(("p50", "p99", "max")):
        values = [(m.at, m.latency.get(query)) for m in moments]
        found[name] = thinned([(at, None if value is None else max(value[place], 1.0)) for at, value in values])
    return found


def _bars(view: LatencyView) -> Bars:
    low, high, counts = zip(*view.bars, strict=True) if view.bars else ((), (), ())
    return bars_of(low, high, counts)


def _row(results: int, rate: float, of: LatencyView) -> QueryRow:
    return QueryRow(results, rate, of.min, of.mean, of.stdev, of.p50, of.p90, of.p99, of.p999, of.max)
