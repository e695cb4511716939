"""What a run looks like at a moment: made from the messages of its processes, read by the command and the pages.

Latencies are those from the scheduled time; a run with a closed loop has none. `recent` looks back over the last
seconds, and is what a chart over time shows; `overall` is since the beginning, warm-up included (a summary leaves it
out).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from penstock.instruments import Histogram
from penstock_bench.measure.results.resources import Usage
from penstock_bench.measure.setup.model import Driver, Setup

RECENT_NS = 5_000_000_000
RATE_NS = 2_000_000_000
NOTES_KEPT = 100


class State(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    """The drivers have ended, or shall; the system works off what it has."""
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def over(self) -> bool:
        return self in (State.DONE, State.STOPPED, State.FAILED)


@dataclass(frozen=True)
class DriverView:
    phase: int = 0
    phase_name: str = ""
    sent: int = 0
    due: int = 0
    lag_us: int = 0
    """The largest since the last message."""
    finished: bool = False


def fraction_done(driver: Driver, view: DriverView, seconds: float) -> float:
    """How far a driver has come in so many seconds: by the clock or by its events where all phases have a length or a
    number of them, else by the phases that are behind it."""
    if view.finished:
        return 1.0
    counts = [phase.events for phase in driver.phases if phase.events is not None]
    if driver.length_us is not None:
        done, of = seconds * 1e6, driver.length_us
    elif driver.phases and len(counts) == len(driver.phases):
        done, of = float(view.sent * driver.copies), sum(counts)
    else:
        done, of = float(view.phase), len(driver.phases)
    return min(max(done / of, 0.0), 1.0) if of else 0.0


@dataclass(frozen=True)
class StreamView:
    accepted: int = 0
    rate: float = 0.0


@dataclass(frozen=True)
class LatencyView:
    """Nanoseconds. `bars` are the histogram's buckets that hold samples: (from, to, count)."""

    count: int
    min: int
    mean: float
    stdev: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: int
    bars: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, histogram: Histogram) -> LatencyView:
        low, high, counts = histogram.bars()
        return cls(
            histogram.count,
            histogram.min,
            histogram.mean,
            histogram.stdev,
            histogram.percentile(50),
            histogram.percentile(90),
            histogram.percentile(99),
            histogram.percentile(99.9),
            histogram.max,
            tuple(zip(low.tolist(), high.tolist(), counts.tolist(), strict=True)),
        )


@dataclass(frozen=True)
class QueryView:
    results: int
    rate: float
    recent: LatencyView
    overall: LatencyView


@dataclass(frozen=True)
class Snapshot:
    state: State
    now_ns: int
    began_ns: int
    """When the drivers began; 0 before that."""
    drivers: Mapping[str, DriverView]
    """By name and copy: `load-0`."""
    streams: Mapping[str, StreamView]
    queries: Mapping[str, QueryView]
    resources: Mapping[str, Usage]
    status: Mapping[str, Any]
    """What the system says of itself."""
    notes: tuple[str, ...]
    error: str | None

    def to_json(self) -> dict[str, Any]:
        made = asdict(self)
        made["resources"] = {name: usage._asdict() for name, usage in self.resources.items()}
        return made


class _Rate:
    """Of a count that grows: how much a second of late."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()

    def note(self, now_ns: int, count: int) -> None:
        self._seen.append((now_ns, count))
        while len(self._seen) > 2 and now_ns - self._seen[1][0] >= RATE_NS:
            self._seen.popleft()

    def at(self, now_ns: int) -> float:
        if len(self._seen) < 2 or now_ns - self._seen[-1][0] > RATE_NS:
            return 0.0
        (then, before), (last, count) = self._seen[0], self._seen[-1]
        return (count - before) * 1e9 / (last - then) if last > then else 0.0


@dataclass
class _Query:
    results: dict[str, int] = field(default_factory=dict)
    overall: Histogram = field(default_factory=Histogram)
    recent: deque[tuple[int, Mapping[str, Any]]] = field(default_factory=deque)
    rate: _Rate = field(default_factory=_Rate)

    def note(self, now_ns: int, sink: str, news: Mapping[str, Any]) -> None:
        self.results[sink] = news["results"]
        self.rate.note(now_ns, sum(self.results.values()))
        if news["latency"]["counts"]:
            self.overall.merge(Histogram.from_json(news["latency"]))
            # As it came, which takes little: a histogram with all its buckets is only made for a view.
            self.recent.append((now_ns, news["latency"]))
        self.forget(now_ns)

    def forget(self, now_ns: int) -> None:
        while self.recent and now_ns - self.recent[0][0] > RECENT_NS:
            self.recent.popleft()

    def view(self, now_ns: int) -> QueryView:
        self.forget(now_ns)
        recent = Histogram()
        for _, news in self.recent:
            recent.merge(Histogram.from_json(news))
        results = sum(self.results.values())
        return QueryView(results, self.rate.at(now_ns), LatencyView.of(recent), LatencyView.of(self.overall))


class Live:
    """Gathers messages. The caller holds the controller's lock."""

    def __init__(self, setup: Setup) -> None:
        self.state = State.STARTING
        self.began_ns = 0
        self.error: str | None = None
        self.notes: deque[str] = deque(maxlen=NOTES_KEPT)
        self._drivers = {f"{one.name}-{copy}": DriverView() for one in setup.drivers for copy in range(one.copies)}
        self._accepted: dict[str, int] = dict.fromkeys(setup.streams, 0)
        self._rates = {name: _Rate() for name in setup.streams}
        self._queries = {name: _Query() for name in setup.queries}
        self._status: dict[str, Any] = {}

    @property
    def results(self) -> int:
        """How many have come in all."""
        return sum(sum(query.results.values()) for query in self._queries.values())

    def driver(self, name: str, message: Mapping[str, Any]) -> None:
        self._drivers[name] = DriverView(
            message["phase"],
            message["name"],
            message["sent"],
            message["due"],
            message["lag_us"],
            message["finished"],
        )

    def host(self, now_ns: int, message: Mapping[str, Any]) -> None:
        for stream, count in message.get("accepted", {}).items():
            self._accepted[stream] = count
            self._rates[stream].note(now_ns, count)
        self._status = message.get("status", {})

    def sink(self, now_ns: int, name: str, message: Mapping[str, Any]) -> None:
        for query, news in message["queries"].items():
            self._queries[query].note(now_ns, name, news)

    def snapshot(self, now_ns: int, resources: Mapping[str, Usage]) -> Snapshot:
        return Snapshot(
            self.state,
            now_ns,
            self.began_ns,
            dict(self._drivers),
            {name: StreamView(count, self._rates[name].at(now_ns)) for name, count in self._accepted.items()},
            {name: query.view(now_ns) for name, query in self._queries.items()},
            resources,
            self._status,
            tuple(self.notes),
            self.error,
        )
