"""What it is worth to tell a store how it will be used: Linear Road's traffic through a network of stores.

Three networks that differ in nothing but the properties of their stores. In the baseline every stream is in the most
general store, as in the paper: items may leave in any order, and are found by an id index with a cache of the last
block; unlike the paper's it collects lazily, as all our stores do. Then the stores are told their update pattern, and
then also the read pattern of each reader.

Response times are those of a queue in front of one server: reports come at random moments (a Poisson process) at 90 %
of the rate that the baseline just sustains, and each takes the processor time that it was measured to take. Much of the
gain in them is the queue's: a server that is less busy keeps a report waiting less. `service_us` is the gain without
the queue. The answers of all networks are compared.

Then the two finer experiments: one query over a window with the right read pattern and with wrong ones, and two queries
over one shared store against two stores, each with its own copy of the input. `engine_stores` asks the same of the
columnar stores that the engine itself has.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.instruments import Budget, ReadPattern, Sharing, StoreManager, UpdatePattern
from penstock_bench.benches import engine_stores
from penstock_bench.benches.linear_road_network import (
    BASELINE,
    REPORT,
    WITH_READ,
    WITH_UPDATE,
    InOrder,
    Knowledge,
    as_line,
    from_line,
    pass_through,
    positions,
)
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, cpu_rate, cpu_ratio, in_turns, timed
from penstock_bench.storage_manager.instance import StoreInstance
from penstock_bench.storage_manager.lifecycle import StorageManager
from penstock_bench.storage_manager.properties import Properties
from penstock_bench.workloads.linear_road.reports import SEGMENTS
from penstock_bench.workloads.linear_road.traffic import Traffic

_LOAD = 0.9
_BEGIN = 9900
"""The second from which on reports are taken."""

_BUDGET = 256_000_000
Times = NDArray[np.float64]


@dataclass(frozen=True)
class _Plan:
    """Minutes towards the end of the three hours, on a few segments in the middle of the road."""

    segments: int
    minutes: int
    rounds: int

    @property
    def traffic(self) -> Traffic:
        first = (SEGMENTS - self.segments) // 2
        stretch = first, first + self.segments - 1
        return Traffic(begin=_BEGIN, seconds=_BEGIN + self.minutes * 60, stretch=stretch)


_PLANS = {
    Size.TINY: _Plan(2, 2, 1),
    Size.QUICK: _Plan(6, 5, 4),
    Size.FULL: _Plan(12, 12, 7),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    reports = positions(plan.traffic)
    report.step(f"{len(reports):,} position reports from {plan.segments} segments through three networks, in turns")
    steps, answers_equal = _response_times(reports, plan.rounds)
    report.table(tuple(steps[0]), [tuple(step.values()) for step in steps])
    report.step("one query, with the right read pattern and with wrong ones")
    patterns = in_turns({p.value: partial(_speed_zero, reports, p) for p in ReadPattern}, plan.rounds)
    report.step("two queries, over one store and over two")
    lines = [as_line(item) for item in reports]
    peaks: dict[str, float] = {}
    ways = {"shared": partial(_shared, lines, peaks), "not shared": partial(_not_shared, lines, peaks)}
    sharing = in_turns(ways, plan.rounds)
    rates = [{"variant": name, "reports_per_second": cpu_rate(r)} for name, r in {**patterns, **sharing}.items()]
    report.table(("variant", "reports/s"), [tuple(row.values()) for row in rates])
    report.step("the stores of the engine itself, told the same")
    engine = engine_stores.measure(_columns(reports), plan.rounds)
    report.table(("stores", "ns for a report"), [tuple(step.values()) for step in engine["engine_steps"]])
    report.table(("two queries", "reports/s"), list(engine["engine_rates"].items()))
    sequential = patterns[ReadPattern.SEQUENTIAL.value]
    slower = {name: cpu_ratio(sequential, rounds) for name, rounds in patterns.items() if rounds is not sequential}
    return {
        "speedup": steps[0]["mean_ms"] / steps[-1]["mean_ms"],
        "wrong_pattern_slower": min(slower.values()),
        "clustered_slower": slower[ReadPattern.CLUSTERED.value],
        "random_slower": slower[ReadPattern.RANDOM.value],
        "shared_to_unshared": cpu_ratio(sharing["shared"], sharing["not shared"]),
        "each_step_faster": all(a["mean_ms"] > b["mean_ms"] for a, b in pairwise(steps)),
        "answers_equal": answers_equal,
        "load": _LOAD,
        "reports": len(reports),
        "rounds": plan.rounds,
        "steps": steps,
        "rates": rates,
        "memory_mb": peaks,
        **engine,
    }


def _columns(reports: Sequence[Any]) -> engine_stores.Reports:
    time, _, speed, _, _, direction, segment, _ = np.array(reports, np.int64).T
    return engine_stores.Reports(time, engine_stores.cell(direction, segment), np.ascontiguousarray(speed))


def _response_times(reports: Sequence[Any], rounds: int) -> tuple[list[dict[str, Any]], bool]:
    """For each network its mean and greatest response time to a toll alert, and whether all gave the same answers."""
    networks = (BASELINE, WITH_UPDATE, WITH_READ)
    taken: dict[Knowledge, list[list[float]]] = {knowledge: [] for knowledge in networks}
    balances, alerts = [], np.zeros(len(reports), np.bool_)
    gc.collect()
    gc.freeze()  # the input is not the stores' to look through
    for number in range(rounds):
        for knowledge in networks if number % 2 == 0 else reversed(networks):
            gc.collect()
            passage = pass_through(knowledge, reports)
            taken[knowledge].append(passage.service)
            balances.append(passage.balance)
            alerts = np.array(passage.alerts)
    gc.unfreeze()
    # Of what a report took in the rounds the least: what disturbs one round is not the store's.
    service = {knowledge: np.array(times).min(axis=0) for knowledge, times in taken.items()}
    rate = _LOAD / float(service[BASELINE].mean())
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / rate, len(reports)))
    steps = []
    for knowledge, times in service.items():
        responses = queue_response(arrivals, times)[alerts]
        steps.append(
            {
                "stores": knowledge.name,
                "mean_ms": float(responses.mean()) * 1e3,
                "max_ms": float(responses.max()) * 1e3,
                "service_us": float(times.mean()) * 1e6,
                "utilisation": rate * float(times.mean()),
            }
        )
    return steps, all(balance == balances[0] for balance in balances)


def queue_response(arrivals: Times, service: Times) -> Times:
    """From arrival to end of service, one after the other.

    >>> queue_response(np.array([0.0, 1.0, 9.0]), np.array([3.0, 3.0, 1.0]))
    array([3., 5., 1.])
    """
    ends = np.cumsum(service)
    waits_for = np.maximum.accumulate(arrivals - (ends - service))
    responses: Times = waits_for + ends - arrivals
    return responses


def _window(*reads: ReadPattern, budget: Budget | None = None) -> tuple[StorageManager, StoreInstance]:
    manager = StorageManager(StoreManager(budget or Budget(_BUDGET), None))
    sharing = Sharing.SHARED if len(reads) > 1 else Sharing.NOT_SHARED
    properties = Properties(schema=REPORT, update=UpdatePattern.FIFO, read=tuple(dict.fromkeys(reads)), sharing=sharing)
    return manager, manager.create_store(properties, "car positions")


class _SpeedZero:
    """How many cars stand, minute by minute: the items of a window of a minute, one after the other."""

    def __init__(self, store: StoreInstance, pattern: ReadPattern) -> None:
        self._items = InOrder(store, "speed zero", pattern)
        self.standing: list[int] = []

    def minute(self, count: int) -> None:
        following = self._items.next
        standing = 0
        for _ in range(count):
            if following()[2] == 0:
                standing += 1
        self._items.consume()
        self.standing.append(standing)


class _SegmentStatistics:
    """The mean speed of each segment, minute by minute."""

    def __init__(self, store: StoreInstance, pattern: ReadPattern) -> None:
        self._items = InOrder(store, "statistics", pattern)
        self.speeds: list[dict[Any, float]] = []

    def minute(self, count: int) -> None:
        following = self._items.next
        sums: dict[Any, list[Any]] = {}
        for _ in range(count):
            item: Any = following()
            group = sums.setdefault(item[6], [0, 0])
            group[0] += item[2]
            group[1] += 1
        self._items.consume()
        self.speeds.append({segment: total / cars for segment, (total, cars) in sums.items()})


def _parsed(lines: Sequence[bytes]) -> Iterator[Any]:
    """The reports, made of the lines in which they come from the road."""
    return map(from_line, lines)


def _feed(reports: Iterable[Any], store: StoreInstance, end_minute: Sequence[Callable[[int], None]]) -> None:
    """Takes reports into the store; the queries look at every minute."""
    minute, count = 0, 0
    for item in reports:
        if item[0] // 60 != minute:
            for query in end_minute:
                query(count)
            minute, count = item[0] // 60, 0
        store.buffer_item(item)
        count += 1


def _speed_zero(reports: Sequence[Any], pattern: ReadPattern) -> Timing:
    gc.collect()
    manager, store = _window(pattern)
    query = _SpeedZero(store, pattern)
    taken = timed(len(reports), lambda: _feed(reports, store, [query.minute]))
    manager.close()
    return taken


def _shared(lines: Sequence[bytes], peaks: dict[str, float]) -> Timing:
    """`peaks` gets the most memory that was held, in MB."""
    gc.collect()
    budget = Budget(_BUDGET)
    manager, store = _window(ReadPattern.SEQUENTIAL, ReadPattern.SEQUENTIAL, budget=budget)
    queries = (_SpeedZero(store, ReadPattern.SEQUENTIAL), _SegmentStatistics(store, ReadPattern.SEQUENTIAL))
    taken = timed(len(lines), lambda: _feed(_parsed(lines), store, [query.minute for query in queries]))
    peaks["shared"] = budget.peak / 1e6
    manager.close()
    return taken


def _not_shared(lines: Sequence[bytes], peaks: dict[str, float]) -> Timing:
    gc.collect()
    budgets = Budget(_BUDGET), Budget(_BUDGET)
    (manager, one), (other_manager, other) = (_window(ReadPattern.SEQUENTIAL, budget=budget) for budget in budgets)
    speed, statistics = _SpeedZero(one, ReadPattern.SEQUENTIAL), _SegmentStatistics(other, ReadPattern.SEQUENTIAL)

    def both() -> None:
        _feed(_parsed(lines), one, [speed.minute])
        _feed(_parsed(lines), other, [statistics.minute])

    taken = timed(len(lines), both)
    peaks["not shared"] = sum(budget.peak for budget in budgets) / 1e6
    manager.close()
    other_manager.close()
    return taken
