"""How long until the first result: the processor time of a process that imports Penstock, makes an app and pushes three
events, as the README begins. Once without any compiled kernel on disk, and then with those that the first one left.
Python keeps the bytecode of modules as it does for users, also where the environment tells it not to."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from statistics import median
from typing import Any

from penstock.errors import PenstockError
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size

_SCRIPT = """
import penstock as ps

app = ps.App('''
    CREATE STREAM trades (at BIGINT, symbol STRING, price DOUBLE, volume BIGINT, EVENT TIME at UNIT SECONDS);
    SELECT symbol, SUM(price * volume) / SUM(volume) AS vwap FROM trades [RANGE 1 HOUR] GROUP BY symbol;
''')
app.push("trades", {"at": 0, "symbol": "ABC", "price": 10.0, "volume": 100})
app.push("trades", {"at": 1800, "symbol": "ABC", "price": 11.0, "volume": 300})
app.push("trades", {"at": 3600, "symbol": "ABC", "price": 12.0, "volume": 100})
print(app.results("q1").column("vwap").to_pylist())
"""
_ANSWER = "[10.0, 10.75, 11.25]"
_RUNS = {Size.TINY: (1, 1), Size.QUICK: (2, 7), Size.FULL: (7, 21)}
"""How many processes start cold, and how many warm."""


def measure(size: Size, report: Report) -> dict[str, Any]:
    cold_runs, warm_runs = _RUNS[size]
    cold, warm = [], []
    report.step("without compiled kernels")
    for _ in range(cold_runs):
        with tempfile.TemporaryDirectory(prefix="penstock-start-") as kernels:
            os.chmod(kernels, 0o700)
            cold.append(_started(kernels))
            if len(cold) == cold_runs:
                report.step("with compiled kernels")
                warm = [_started(kernels) for _ in range(warm_runs)]
    figures = {"warm_seconds": median(warm), "cold_seconds": median(cold)}
    report.table(("start", "CPU seconds"), list(figures.items()))
    return {**figures, "warm_runs": warm_runs, "cold_runs": cold_runs}


def _started(kernels: str) -> float:
    """The processor time of one process, compiling included."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": kernels}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = _spent()
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.stdout.strip() != _ANSWER:
        raise PenstockError(f"the README's lines gave {done.stdout.strip()!r}:\n{done.stderr}")
    return _spent() - before


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
