"""Window to window: the thesis' tests J1-1 and J1-2, and many queries over the same join (thesis 4.5.3, 4.5.6).

    SELECT * FROM s1 [ROWS S] AS x, s2 [ROWS S] AS y WHERE x.id = y.id

    J1-1    S and the number of ids from 500 to 500,000: every event finds one match, however large the windows are
    J1-2    windows of 50,000 rows, ids from 5,000 to 5 million: 10 to 0.01 matches for each event
    many    1 to 64 queries at once: the same one, and with windows of different sizes; what they hold, too

`flat` is the rate with the largest windows to that with the smallest, each event finding one match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock import App
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, cpu_ratio, in_turns, rate, ratio, timed

_TIMESTAMP = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class _Plan:
    windows: tuple[int, ...]
    ids: tuple[int, ...]
    window: int
    counts: tuple[int, ...]
    batch_rows: int
    rounds: int
    round_batches: int


_PLANS = {
    Size.TINY: _Plan((50, 500), (50, 500, 5000), 500, (1, 2), 512, 2, 1),
    Size.QUICK: _Plan(
        (500, 50_000, 500_000), (5_000, 50_000, 500_000, 5_000_000), 50_000, (1, 4, 16, 64), 32768, 15, 2
    ),
    Size.FULL: _Plan(
        (500, 5_000, 50_000, 500_000), (5_000, 50_000, 500_000, 5_000_000), 50_000, (1, 4, 16, 64), 32768, 9, 8
    ),
}


class _Running(NamedTuple):
    """An app whose windows are full, and what pushes a round of batches to both its streams."""

    app: App
    push: Callable[[], Timing]


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    report.step("J1-1: windows grow, one match for each event")
    with ExitStack() as opened:
        sizes = in_turns({str(n): _run(opened, plan, [n], n, cycling=True).push for n in plan.windows}, plan.rounds)
    report.table(("rows in a window", "events/s"), [(n, rate(sizes[str(n)])) for n in plan.windows])
    report.step("J1-2: more ids, fewer matches")
    with ExitStack() as opened:
        matches = in_turns({str(n): _run(opened, plan, [plan.window], n).push for n in plan.ids}, plan.rounds)
    per_event = {n: plan.window / n for n in plan.ids}
    report.table(
        ("matches for an event", "events/s", "matches/s"),
        [(per_event[n], rate(matches[str(n)]), rate(matches[str(n)]) * per_event[n]) for n in plan.ids],
    )
    many: dict[str, dict[str, float]] = {"identical": {}, "similar": {}}
    memory: dict[str, dict[str, float]] = {"identical": {}, "similar": {}}
    for count in plan.counts:
        report.step(f"{count} queries")
        with ExitStack() as opened:
            variants = {
                "identical": _run(opened, plan, [plan.window] * count, plan.window, cycling=True),
                "similar": _run(
                    opened, plan, [plan.window * (i + 1) // count for i in range(count)], plan.window, cycling=True
                ),
            }
            taken = in_turns({name: running.push for name, running in variants.items()}, max(2, plan.rounds // 4))
            for name, running in variants.items():
                many[name][str(count)] = rate(taken[name])
                memory[name][str(count)] = running.app.metrics.memory_bytes / 1e6
    report.table(
        ("queries", *(f"{name}, {unit}" for unit in ("events/s", "MB") for name in many)),
        [(count, *(of[name][str(count)] for of in (many, memory) for name in many)) for count in plan.counts],
    )
    return {
        "flat": ratio(sizes[str(plan.windows[-1])], sizes[str(plan.windows[0])]),
        "flat_cpu": cpu_ratio(sizes[str(plan.windows[-1])], sizes[str(plan.windows[0])]),
        "matched_events_per_second": rate(sizes[str(plan.windows[-1])]),
        "events_per_second": {name: rate(taken) for name, taken in sizes.items()},
        "events_per_second_by_matches": {f"{per_event[n]:g}": rate(matches[str(n)]) for n in plan.ids},
        "queries": many,
        "queries_memory_mb": memory,
        "queries_window_rows": plan.window,
        "batch_rows": plan.batch_rows,
        "rounds": plan.rounds,
    }


def _application(windows: list[int]) -> str:
    streams = [
        f"CREATE STREAM {name} (t TIMESTAMP NOT NULL, id BIGINT NOT NULL, v DOUBLE NOT NULL, n INT NOT NULL, "
        "EVENT TIME t);"
        for name in ("s1", "s2")
    ]
    asked = [f"SELECT * FROM s1 [ROWS {n}] AS x, s2 [ROWS {n}] AS y WHERE x.id = y.id;" for n in windows]
    return "\n".join(streams + asked)


def _run(opened: ExitStack, plan: _Plan, windows: list[int], ids: int, *, cycling: bool = False) -> _Running:
    app = opened.enter_context(App(_application(windows), memory="2GB"))
    for query in app.queries:
        app.subscribe(query, lambda results: None)
    batches = _batches(plan.batch_rows, ids, cycling)
    for _ in range(2 * (-(-max(windows) // plan.batch_rows) + 2)):  # full, and all memory used once
        _push(app, next(batches))

    def push() -> Timing:
        made = [next(batches) for _ in range(plan.round_batches)]

        def push_all() -> None:
            for batch in made:
                _push(app, batch)

        return timed(2 * plan.batch_rows * plan.round_batches, push_all)

    return _Running(app, push)


def _push(app: App, batch: tuple[pa.RecordBatch, pa.RecordBatch]) -> None:
    app.push("s1", batch[0])
    app.push("s2", batch[1])


def _batches(rows: int, ids: int, cycling: bool) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Events of both streams in turns. `cycling`: every id once in so many rows, each time in the same random order;
    the streams in different ones."""
    random = np.random.default_rng(1)
    orders = [random.permutation(ids) for _ in range(2)] if cycling else []
    values, numbers = pa.array(random.random(rows)), pa.array(np.arange(rows, dtype=np.int32))
    first = 0
    while True:
        made = []
        for stream in range(2):
            at = np.arange(first, first + rows)
            own = orders[stream][at % ids] if cycling else random.integers(0, ids, rows)
            times = pa.array(2 * at + stream).view(_TIMESTAMP)
            made.append(
                pa.RecordBatch.from_arrays([times, pa.array(own), values, numbers], names=["t", "id", "v", "n"])
            )
        yield made[0], made[1]
        first += rows
