"""Figure 10 of the RS-Algo paper: how soon is a match recognised under load, by either policy of dispatch.

    D  1 event/s                        -- Q1: D join R, windows of 10 events -> CALL a function of 100 ms
    R  1 event/s, delayed by 2 s        -'
    M  at random, 8.6 events/s          -- Q2: select -> CALL a function of 100 ms

D and its R have the same timestamp. The paper does not give M's rate. With 8.6 events/s (Poisson) both functions keep
the quoblet busy 96 % of the time, so that queues form, and first come first served takes the paper's 3.13 s.

The figures are taken on a virtual clock that moves only while a function runs or nothing waits; events arrive at
their instants even in the middle of a function. That is exact, and repeats to the microsecond. The engine's own work,
some tenths of a millisecond, is not in it; a run in real time, five times as fast, with a thread that feeds and the
dispatcher's own, stands beside it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock import App
from penstock.testing import TestClock
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size

SECOND = 1_000_000
PAPER = {"fcfs": 3.13, "ejf": 2.31}
_FUNCTION = SECOND // 10
_DELAY = 2 * SECOND
_MINUTE = range(60 * SECOND, 120 * SECOND)
"""What is kept in detail: the paper draws a minute of its five."""

PROGRAM = "".join(
    f"CREATE STREAM {name} (id INT NOT NULL, t TIMESTAMP NOT NULL, came TIMESTAMP, ARRIVAL ORDER t ARRIVED came);"
    for name in "drm"
) + (
    "CREATE QUERY q1 AS SELECT d.id AS id, d.came AS d_came, r.came AS r_came"
    " FROM d [ROWS 10] AS d, r [ROWS 10] AS r WHERE d.id = r.id;"
    "WHEN SELECT d.id AS id FROM d [ROWS 10] AS d, r [ROWS 10] AS r WHERE d.id = r.id EVERY THEN CALL work(id);"
    "WHEN SELECT id FROM m EVERY THEN CALL work(id);"
)


@dataclass(frozen=True)
class _Plan:
    seconds: int
    seeds: int
    m_rates: tuple[float, ...]
    real_seconds: int
    compression: int


_M_RATE = 8.6
_PLANS = {
    Size.TINY: _Plan(20, 1, (_M_RATE,), 4, 20),
    Size.QUICK: _Plan(300, 6, (_M_RATE,), 25, 5),
    Size.FULL: _Plan(300, 12, (5.0, 7.0, 8.0, _M_RATE, 8.8), 300, 5),
}


class Arrival(NamedTuple):
    at: int
    stream: str
    event: dict[str, int]


class Outcome(NamedTuple):
    """Means: seconds until a match is recognised, and how many events of each stream wait."""

    service: float
    waiting: dict[str, float]
    matches: int
    minute: dict[str, list[list[float]]]
    """Of the second minute: when a match was recognised and the seconds it took (`service`), and by stream how many
    events waited from then on."""


def arrivals(seconds: int, m_rate: float, seed: int) -> list[Arrival]:
    """All events by the instant at which they arrive."""
    random = np.random.default_rng(seed)
    found = [Arrival(second * SECOND, "d", {"id": second, "t": second * SECOND}) for second in range(seconds)]
    found += [Arrival(a.at + _DELAY, "r", a.event) for a in found]
    gaps = random.exponential(SECOND / m_rate, int(seconds * m_rate))
    found += [Arrival(int(at), "m", {"id": i, "t": int(at)}) for i, at in enumerate(np.cumsum(gaps))]
    return sorted(found, key=lambda arrival: arrival.at)


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    rows, savings = [], {}
    for m_rate in plan.m_rates:
        report.step(f"M at {m_rate:g} events/s, {plan.seeds} runs of {plan.seconds} s on a virtual clock")
        found = {policy: _average([on_virtual_clock(policy, plan.seconds, m_rate, s) for s in range(plan.seeds)])
                 for policy in PAPER}  # fmt: skip
        savings[m_rate] = 1 - found["ejf"].service / found["fcfs"].service
        rows += [(f"M {m_rate:g}/s, {p}", o.service, *(o.waiting[s] for s in "drm")) for p, o in found.items()]
        if m_rate == _M_RATE:
            chosen = found
    report.step(f"in real time, {plan.compression} times as fast")
    real = {policy: in_real_time(policy, plan.real_seconds, plan.compression) for policy in PAPER}
    rows += [(f"real, {policy}", seconds, "", "", "") for policy, seconds in real.items()]
    rows += [(f"the paper, {policy}", seconds, "", "", "") for policy, seconds in PAPER.items()]
    report.table(("", "service, s", "D waiting", "R waiting", "M waiting"), rows)
    return {
        "ejf_saving": savings[_M_RATE],
        "fcfs_seconds": chosen["fcfs"].service,
        "ejf_seconds": chosen["ejf"].service,
        "real_ejf_saving": 1 - real["ejf"] / real["fcfs"],
        "paper_ejf_saving": 1 - PAPER["ejf"] / PAPER["fcfs"],
        "saving_by_m_rate": {str(m_rate): saving for m_rate, saving in savings.items()},
        "m_rate": _M_RATE,
        "load": (1 + _M_RATE) * _FUNCTION / SECOND,
        "matches": chosen["ejf"].matches,
        "waiting": {policy: outcome.waiting for policy, outcome in chosen.items()},
        "series": {policy: outcome.minute for policy, outcome in chosen.items()},
        "seconds": plan.seconds,
        "runs": plan.seeds,
        "compression": plan.compression,
    }


def _average(outcomes: list[Outcome]) -> Outcome:
    waiting = {stream: float(np.mean([o.waiting[stream] for o in outcomes])) for stream in "drm"}
    return Outcome(
        float(np.mean([o.service for o in outcomes])), waiting, sum(o.matches for o in outcomes), outcomes[0].minute
    )


def on_virtual_clock(policy: str, seconds: int, m_rate: float, seed: int) -> Outcome:
    """Functions take their time by moving the clock, and whatever arrives meanwhile arrives."""
    clock, coming = TestClock(0), arrivals(seconds, m_rate, seed)
    coming.reverse()
    held = np.zeros(3)
    minute: dict[str, list[list[float]]] = {"service": [], **{stream: [] for stream in "drm"}}

    def recognised(matches: pa.RecordBatch) -> None:
        if _MINUTE.start <= clock.now() < _MINUTE.stop:
            for came in matches.column("d_came").cast(pa.int64()).to_pylist():
                minute["service"].append([clock.now() / SECOND, (clock.now() - came) / SECOND])

    def work(id: int, idempotency_key: str) -> None:
        pass_until(clock.now() + _FUNCTION)

    with App(PROGRAM, dispatch=policy, clock=clock, functions={"work": work}, synchronous_calls=True) as app:
        app.subscribe("q1", recognised)

        def advance_to(at: int) -> None:
            nonlocal held
            waiting = app.waiting
            if _MINUTE.start <= clock.now() < _MINUTE.stop:
                for stream in "drm":
                    if not minute[stream] or minute[stream][-1][1] != waiting.get(stream, 0):
                        minute[stream].append([clock.now() / SECOND, waiting.get(stream, 0)])
            held += [(at - clock.now()) * waiting.get(stream, 0) for stream in "drm"]
            clock.advance(micros=at - clock.now())

        def pass_until(end: int) -> None:
            while coming and coming[-1].at <= end:
                arrival = coming.pop()
                advance_to(arrival.at)
                app.offer(arrival.stream, arrival.event)
            advance_to(end)

        while coming or app.work(1):
            if coming and not app.work(1):
                pass_until(coming[-1].at)
        found = app.metrics.dispatch
        assert found is not None
        matches = found.matches["q1"]
        assert not app.rejects, "calls that failed"
    means = (held / clock.now()).tolist()
    return Outcome(matches.mean, dict(zip("drm", means, strict=True)), matches.count, minute)


def in_real_time(policy: str, seconds: int, compression: int) -> float:
    """The same with threads that sleep; returns the mean service time of a match in the paper's seconds."""
    coming = arrivals(seconds, _M_RATE, seed=0)

    def work(id: int, idempotency_key: str) -> None:
        time.sleep(_FUNCTION / SECOND / compression)

    with App(PROGRAM, dispatch=policy, functions={"work": work}, synchronous_calls=True) as app:
        feeder = threading.Thread(target=_feed, args=(app, coming, compression))
        with app.dispatching():
            feeder.start()
            feeder.join()
        found = app.metrics.dispatch
        assert found is not None
        return found.matches["q1"].mean * compression


def _feed(app: App, coming: list[Arrival], compression: int) -> None:
    began = time.perf_counter()
    for arrival in coming:
        due = began + arrival.at / SECOND / compression
        while (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        app.offer(arrival.stream, arrival.event)
