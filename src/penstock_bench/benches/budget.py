"""Whether the memory budget is kept: cases whose state grows, in 64 MB, and what the process takes for them.

Each case runs in a process of its own: `python -m penstock_bench.benches.budget CASE SIZE`. There

1. the same query takes a few thousand events in an app of its own, twice: once with the budget and once with a small
   one, so that it pages. Then imports are done and kernels are loaded;
2. what the allocators hold of that is given back to the system, the system's mark of the highest resident memory is
   put back, and the resident memory is noted;
3. the case's events are pushed and the run is finished, or ends in a BudgetError. Results go to a subscriber that drops
   them, late events stay where the app keeps them;
4. the highest resident memory since then, less what was noted, divided by the budget, is the case's overshoot.

Nothing of the process is left out: events that are on their way, results, and what allocators keep are in it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from typing import Any

import pyarrow as pa

from penstock import App
from penstock.errors import BudgetError, InputError
from penstock_bench.benches.budget_cases import CASES, Case, Push
from penstock_bench.benches.memory import PeakMemory
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size

BUDGET = 64_000_000
_SMALL = 2_000_000
_TINY = {"keys": 2000, "joins": 2000}
"""What the tiny run has of them."""


def measure(size: Size, report: Report) -> dict[str, Any]:
    names = list(_TINY if size is Size.TINY else CASES)
    with ThreadPoolExecutor(2) as two:
        rows = []
        for done in as_completed([two.submit(_in_a_process, name, size) for name in names]):
            row = done.result()
            report.step(f"{row['case']}: {row['overshoot']:.2f} of the budget, {row['ended']}")
            rows.append(row)
    rows.sort(key=lambda row: -row["overshoot"])
    report.table(tuple(rows[0]), [tuple(row.values()) for row in rows])
    return {
        "worst_overshoot": rows[0]["overshoot"],
        "budget_errors": [row["case"] for row in rows if row["ended"] != "finished"],
        "worst_case": rows[0]["case"],
        "cases": [row["case"] for row in rows],
        "overshoots": [row["overshoot"] for row in rows],
        "accounted": [row["accounted"] for row in rows],
        "budget_bytes": BUDGET,
    }


def _in_a_process(name: str, size: Size) -> dict[str, Any]:
    command = [sys.executable, "-m", "penstock_bench.benches.budget", name, size.value]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"the case '{name}' of the bench failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_case(name: str, size: Size) -> dict[str, Any]:
    """One case, in this process."""
    case = CASES[name]
    events = {Size.TINY: _TINY.get(name, 0), Size.QUICK: case.quick, Size.FULL: case.full}[size]
    for memory in (BUDGET, _SMALL):
        _run(case, _pushes(case, min(events, case.warm_up)), memory)
    pushes: Iterable[Push] = _pushes(case, events)
    if case.in_one_push:
        pushes = list(pushes)
    _give_back()
    began, peak = time.perf_counter(), PeakMemory()
    ended, accounted = _run(case, pushes, BUDGET)
    return {
        "case": name,
        "overshoot": peak.added / BUDGET,
        "accounted": accounted / BUDGET,
        "ended": ended,
        "events": events,
        "seconds": time.perf_counter() - began,
    }


def _run(case: Case, pushes: Iterable[Push], memory: int) -> tuple[str, int]:
    """How it ended, and the most that was on the account."""
    with App(case.program, memory=memory) as app:
        for query in app.queries:
            app.subscribe(query, lambda results: None)
        ended = "finished"
        try:
            for stream, batch in pushes:
                app.push(stream, batch)
            app.finish()
        except BudgetError:
            ended = "BudgetError"
        return ended, app.metrics.memory_peak


def _pushes(case: Case, events: int) -> Iterator[Push]:
    if not case.in_one_push:
        yield from case.pushes(events)
        return
    pieces: dict[str, list[pa.RecordBatch]] = {}
    for stream, piece in case.pushes(events):
        pieces.setdefault(stream, []).append(piece)
    for stream, of_stream in pieces.items():
        yield stream, pa.concat_batches(of_stream)


def _give_back() -> None:
    """Has the allocators give to the system what they hold for later."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    print(json.dumps(run_case(sys.argv[1], Size(sys.argv[2]))), flush=True)
