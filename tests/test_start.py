"""What a program loads until its first result: nothing that it does not use. `bench start` says how long it takes."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
import penstock as ps

app = ps.App('''
    CREATE STREAM trades (at BIGINT, symbol STRING, price DOUBLE, volume BIGINT, EVENT TIME at UNIT SECONDS);
    SELECT symbol, SUM(price * volume) / SUM(volume) AS vwap FROM trades [RANGE 1 HOUR] GROUP BY symbol;
''')
app.push("trades", {"at": 0, "symbol": "ABC", "price": 10.0, "volume": 100})
assert app.results("q1").column("vwap").to_pylist() == [10.0]
print(*sorted(sys.modules))
"""


def _modules() -> set[str]:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def modules() -> set[str]:
    _modules()  # compiles the kernels
    return _modules()


def test_a_program_whose_kernels_are_compiled_does_without_numba(modules: set[str]) -> None:
    assert not {name for name in modules if name.startswith("numba")} - {"numba.core.runtime._nrt_python"}
    assert "penstock.machine_code" in modules


@pytest.mark.parametrize(
    "unused",
    [
        "pandas",
        "psutil",
        "pyarrow.compute",
        "pyarrow.parquet",
        "pyspark",
        "rich",
        "typer",
        "penstock.cli",
        "penstock.compiling",
        "penstock.connect",
        "penstock.operators.partitioned",
        "penstock.operators.patterns",
        "penstock.operators.relation",
        "penstock.operators.tables.lookup",
        "penstock.operators.union",
        "penstock.spark",
        "penstock.web",
    ],
)
def test_what_the_program_does_not_use_is_not_loaded(modules: set[str], unused: str) -> None:
    assert not {name for name in modules if name == unused or name.startswith(f"{unused}.")}


_COLUMNS = """
import sys
import numpy as np
import penstock as ps
import pyarrow as pa

app = ps.App('''
    CREATE STREAM calls (at BIGINT, agent INT, ms INT, EVENT TIME at UNIT SECONDS);
    SELECT ISTREAM agent, SUM(ms) AS total FROM calls [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY agent;
''')
at, agent, ms = np.arange(100), np.zeros(100, np.int32), np.ones(100, np.int32)
kinds = (pa.int64(), pa.int32(), pa.int32())
columns = [pa.Array.from_buffers(kind, 100, [None, pa.py_buffer(c)]) for kind, c in zip(kinds, (at, agent, ms))]
app.push("calls", pa.RecordBatch.from_arrays(columns, names=["at", "agent", "ms"]))
assert app.results("q1").num_rows == 9
print("pandas" in sys.modules)
"""


def test_columns_of_numbers_go_in_and_out_without_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", _COLUMNS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
