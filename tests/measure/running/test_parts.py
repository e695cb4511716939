"""What host and sinks are made of: the intake, samples, causes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InputError
from penstock_bench.measure.running.intake import TAKEN_ROWS, WAITING_BATCHES, WAITING_ROWS, Intake
from penstock_bench.measure.running.sink import Sampling, cause_column, microseconds
from penstock_bench.measure.setup.read import parse_setup

from .conftest import setup_of


def batch(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(np.arange(first, first + count))})


def test_what_waits_is_taken_together_by_stream_and_in_order() -> None:
    intake = Intake()
    for stream, first in (("a", 0), ("a", 10), ("b", 20), ("a", 30)):
        intake.put(stream, batch(first, 10))
    intake.end()
    intake.put("a", batch(99, 1))
    taken = []
    while not intake.over:
        stream, batches = intake.take(1.0)  # type: ignore[misc]
        taken.append((stream, pa.Table.from_batches(batches)["n"].to_pylist()))
    assert taken == [("a", list(range(20))), ("b", list(range(20, 30))), ("a", list(range(30, 40)))]
    assert intake.take(0.0) is None


@pytest.mark.parametrize(("rows", "room"), [(WAITING_ROWS // 2, 2), (10, WAITING_BATCHES)])
def test_who_puts_waits_while_too_much_waits(rows: int, room: int) -> None:
    intake = Intake()
    put = []

    def fill() -> None:
        for number in range(10):
            intake.put("a", batch(number, rows))
            put.append(number)

    filling = threading.Thread(target=fill, daemon=True)
    filling.start()
    time.sleep(0.1)
    assert len(put) <= room
    taken_rows: list[int] = []
    while sum(taken_rows) < 10 * rows:
        taken = intake.take(10.0)
        assert taken is not None
        taken_rows.append(sum(one.num_rows for one in taken[1]))
    assert max(taken_rows) <= TAKEN_ROWS
    filling.join(10)
    assert len(put) == 10


@pytest.mark.parametrize("share", [0.0, 0.1, 1 / 3, 0.999, 1.0])
def test_samples_do_not_depend_on_batches(share: float) -> None:
    column = pa.array(np.arange(10_000))
    whole = Sampling(share).of(column)
    assert len(whole) == int(10_000 * share)
    cut = Sampling(share)
    parts = [cut.of(column.slice(first, 7)) for first in range(0, 10_000, 7)]
    assert pa.concat_arrays(parts).equals(whole)


def test_causes_are_microseconds_of_whatever_kind() -> None:
    wanted = [1_000_000, 2_000_000]
    for kind in ("s", "ms", "us", "ns"):
        assert (
            microseconds(pa.array([1, 2], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(kind))).tolist()
            == wanted
        )
    assert microseconds(pa.array([1_000_000, None, 2_000_000], pa.timestamp("us", "UTC"))).tolist() == wanted
    assert microseconds(pa.array(wanted, pa.int32())).tolist() == wanted
    with pytest.raises(InputError, match="of type string"):
        microseconds(pa.array(["x"]))


def test_the_column_of_the_cause() -> None:
    setup = parse_setup(setup_of(system={}))
    assert cause_column(setup, "q", ["ts", "window_end"]) == 1
    assert cause_column(setup, "q", ["v", "TS"]) == 1
    named = parse_setup(setup_of(system={}, queries={"q": {"text": {"penstock": "SELECT 1"}, "cause": "came"}}))
    assert cause_column(named, "q", ["ts", "came"]) == 1
    with pytest.raises(InputError, match="cause = 'came': its results have only ts"):
        cause_column(named, "q", ["ts"])


def test_drivers_and_sinks_do_without_the_engine() -> None:
    """They start several times as fast so."""
    code = """if True:
        import sys
        import penstock_bench.measure.load.driver, penstock_bench.measure.running.sink
        import penstock_bench.measure.adapters.embedded
        assert "numba" not in sys.modules, "numba"
    """
    subprocess.run([sys.executable, "-c", code], check=True)
