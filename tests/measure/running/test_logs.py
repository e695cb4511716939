"""Logs in parts: everything in its order, whole parts only, none lost by a kill but the last."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock_bench.measure.running.logs import RollingLog, RowLog, read_log

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = list(range(first, first + count))
    return pa.record_batch([pa.array(numbers), pa.array([str(n) for n in numbers])], schema=SCHEMA)


def test_parts_by_rows_hold_all_in_order(tmp_path: Path) -> None:
    with RollingLog(tmp_path / "log", SCHEMA, rows=10, seconds=1000) as log:
        for first in range(0, 35, 5):
            log.append(rows(first, 5))
    names = sorted(part.name for part in (tmp_path / "log").iterdir())
    assert names == [f"part-{number:05}.parquet" for number in (1, 2, 3, 4)]
    logged = read_log(tmp_path / "log")
    assert logged is not None
    assert logged["n"].to_pylist() == list(range(35))


def test_parts_by_time_are_there_before_the_end(tmp_path: Path) -> None:
    log = RollingLog(tmp_path, SCHEMA, rows=1_000_000, seconds=0)
    log.append(rows(0, 3))
    log.append(rows(3, 3))
    log.append(rows(6, 3))
    assert (tmp_path / "part-00001.parquet").exists()
    log.close()
    assert read_log(tmp_path).num_rows == 9  # type: ignore[union-attr]


def test_rows_one_by_one(tmp_path: Path) -> None:
    log = RowLog(tmp_path, SCHEMA)
    for number in range(5000):
        log.append(number, str(number))
    log.close()
    logged = read_log(tmp_path)
    assert logged is not None
    assert logged.schema == SCHEMA
    assert logged["n"].to_pylist() == list(range(5000))
    assert read_log(tmp_path / "nothing") is None
