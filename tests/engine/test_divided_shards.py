"""Shards whose rows have hashes that begin alike, or one key: they are divided as far as that is of use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.operators.paged import log as row_log
from penstock.operators.paged.hashing import key_hashes
from penstock.operators.paged.log import RowLog
from penstock.store.budget import Budget
from penstock.store.memory_device import MemoryDevice
from penstock.types import SqlType

STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, x DOUBLE NOT NULL, EVENT TIME t);"
MEMORY = 1_000_000
HOUR = 3_600_000_000


def hashes_of(keys: Any) -> Any:
    return key_hashes([pa.array(keys)], [SqlType.BIGINT], len(keys))


def neighbours(bits: int) -> tuple[int, int]:
    """Two keys whose hashes have so many upper bits in common, and no more."""
    keys = np.arange(1 << 16)
    upper = hashes_of(keys) >> np.uint64(63 - bits)
    order = np.argsort(upper)
    there = upper[order]
    found = np.flatnonzero((there[1:] == there[:-1] + np.uint64(1)) & (there[:-1] % np.uint64(2) == 0))[0]
    return int(keys[order[found]]), int(keys[order[found + 1]])


def log_of(keys: Any, memory: int = MEMORY) -> tuple[RowLog, Budget]:
    budget = Budget(memory)
    schema = pa.schema([pa.field("k", pa.int64())])
    log = RowLog(MemoryDevice(4096), budget.account("rows"), budget.account("staged"), schema, [SqlType.BIGINT], 2)
    log.add(np.arange(len(keys)), [pa.array(keys)])
    log.flush()
    return log, budget


def rows_of(log: RowLog, number: int) -> list[int]:
    return [k for rows in log.between(number, 0, 1 << 40) for k in rows.batch.column(1).to_pylist()]


def test_keys_whose_hashes_begin_alike_are_told_apart() -> None:
    one, other = neighbours(9)
    log, _ = log_of([one, other] * 5)
    [number] = [number for number in range(log.shards) if log.has_rows(number)]
    while row_log.are_divisible([log], number):
        new = log.divide(number)
        assert sorted(rows_of(log, number) + rows_of(log, new)) == sorted([one, other] * 5)
        number = new if log.has_rows(new) else number
    assert sorted(set(rows_of(log, part)) for part in range(log.shards) if log.has_rows(part)) == sorted(
        [{one}, {other}]
    )
    log.add(np.arange(20, 22), [pa.array([other, one])])
    log.flush()
    assert sorted(len(rows_of(log, part)) for part in range(log.shards) if log.has_rows(part)) == [6, 6]


def test_rows_of_one_key_are_not_divisible() -> None:
    log, _ = log_of([7] * 10)
    assert not any(row_log.are_divisible([log], number) for number in range(log.shards))


def test_what_says_where_shards_are_is_on_the_account_and_limited() -> None:
    one, other = neighbours(15)
    log, budget = log_of([one, other], memory=200_000)
    [number] = [number for number in range(log.shards) if log.has_rows(number)]
    assert not row_log.are_divisible([log], number), "there is no memory for so many bits"
    used = budget.used
    log.divide(number)
    assert budget.used - used >= 4 * 4


def test_texts_that_are_staged_fit_one_array() -> None:
    """Arrow's offsets reach 2^31 bytes; half of what is staged is for a copy."""
    log, _ = log_of([1], memory=1 << 40)
    assert log._most_staged // 2 < 1 << 31


def test_a_shard_of_one_large_group_is_not_divided_window_after_window(monkeypatch: pytest.MonkeyPatch) -> None:
    logs: list[RowLog] = []
    begin = RowLog.__init__

    def noted(self: RowLog, *rest: Any) -> None:
        logs.append(self)
        begin(self, *rest)

    monkeypatch.setattr(RowLog, "__init__", noted)
    query = "CREATE QUERY q AS SELECT k, MEDIAN(x) AS m FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k;"
    with ps.App(STREAM + query, memory=MEMORY, block_size="4KiB") as app:
        for window in range(10):
            keys = np.where(np.arange(9000) % 3 > 0, 7, np.arange(9000))
            app.push("s", pa.table({"t": window * HOUR + np.arange(9000), "k": keys, "x": np.arange(9000) / 2}))
        app.finish()
        app.results("q")
    [log] = logs
    assert 5 < log._bits <= 12


def test_a_shard_that_had_one_group_is_divided_when_others_come() -> None:
    """A group that is large at first, alone in its shard. Then there are many others, and it is gone."""
    hot, _ = neighbours(9)
    near = np.flatnonzero(hashes_of(np.arange(1 << 18)) >> np.uint64(58) == hashes_of([hot])[0] >> np.uint64(58))
    query = "CREATE QUERY q AS SELECT k, MEDIAN(x) AS m FROM s [RANGE 1 HOUR SLIDE 30 MINUTES] GROUP BY k;"
    found = []
    for memory in (MEMORY, 64 * MEMORY):
        with ps.App(STREAM + query, memory=memory, block_size="4KiB") as app:
            shown: list[pa.RecordBatch] = []
            app.subscribe("q", shown.append)
            for begin in range(0, 6_000, 1000):
                at = np.arange(begin, begin + 1000)
                app.push("s", pa.table({"t": at * HOUR // 6_000, "k": np.full(1000, hot), "x": at / 2}))
            for begin in range(0, 20_000, 1000):
                at = np.arange(begin, begin + 1000)
                times = 2 * HOUR + at * HOUR // 20_000
                app.push("s", pa.table({"t": times, "k": near[at % len(near)], "x": at / 2}))
            app.finish()
            found.append(pa.Table.from_batches(shown))
    assert found[0].equals(found[1])
