"""The log of rows by shard, against plain lists: any rows, any bounds, shards that are divided, restarts in between."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.operators.paged.hashing import key_hashes
from penstock.operators.paged.log import RowLog
from penstock.store.budget import Budget
from penstock.store.memory_device import MemoryDevice
from penstock.store.state import decode, encode
from penstock.types import SqlType

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.float64())])
TYPES = (SqlType.BIGINT, SqlType.STRING)
Row = tuple[int, int | None, str | None, float]

_KEYS = st.one_of(st.none(), st.integers(-3, 60))
_TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "a longer text than eight bytes", "ü"]))


class LogAndLists(RuleBasedStateMachine):
    """Rows of each shard are compared as they come out: the prefix of the hash says whose they are."""

    @initialize(memory=st.sampled_from([40_000, 1_000_000]), block=st.sampled_from([512, 4096]))
    def begin(self, memory: int, block: int) -> None:
        self.budget = Budget(memory)
        self.device = MemoryDevice(block)
        self.log = self.make()
        self.rows: list[Row] = []
        self.gone = -(1 << 60)
        self.time = 0

    def make(self) -> RowLog:
        account, staged = self.budget.account("rows"), self.budget.account("on their way", is_spare=True)
        return RowLog(self.device, account, staged, SCHEMA, TYPES, 1)

    @rule(steps=st.lists(st.integers(0, 3), max_size=40), data=st.data())
    def add(self, steps: list[int], data: st.DataObject) -> None:
        times = [self.time + after for after in accumulate(steps)]
        self.time = times[-1] if times else self.time
        columns = [data.draw(st.lists(kind, min_size=len(times), max_size=len(times))) for kind in (_KEYS, _TEXTS)]
        rows = [(t, k, s, float(t)) for t, k, s in zip(times, *columns, strict=True)]
        self.rows += rows
        arrays = [pa.array([row[i + 1] for row in rows], field.type) for i, field in enumerate(SCHEMA)]
        self.log.add(np.array(times, np.int64), arrays)

    @rule(before=st.integers(-5, 30))
    def release(self, before: int) -> None:
        """Rows may be staged: they are not older than those that are released."""
        self.log.flush()
        self.gone = max(self.gone, self.time - before)
        for number in range(self.log.shards):
            self.log.release(number, self.gone)

    @rule(which=st.integers(0, 20))
    def divide(self, which: int) -> None:
        self.log.flush()
        if self.log.shards < 12:
            assert self.log.divide(which % self.log.shards) == self.log.shards - 1

    @rule()
    def memory_is_needed(self) -> None:
        other = self.budget.account("another")
        other.resize(self.budget.total - self.budget.used + 1 if self.log._staged else 0)
        other.resize(0)

    @rule()
    def restart(self) -> None:
        saved = decode(encode({"log": self.log.snapshot(), "device": self.device.snapshot()}))
        self.budget = Budget(self.budget.total)
        self.device = MemoryDevice(self.device.capacity)
        self.device.restore(saved["device"])
        self.log = self.make()
        self.log.restore(saved["log"])

    @rule(least=st.integers(-3, 30), length=st.integers(0, 30))
    def read(self, least: int, length: int) -> None:
        self.log.flush()
        bounds = max(self.time - least, self.gone), self.time - least + length
        found = []
        for number in range(self.log.shards):
            rows = [tuple(row.values()) for part in self.log.between(number, *bounds) for row in part.batch.to_pylist()]
            assert [row[0] for row in rows] == sorted(row[0] for row in rows)
            assert self.log.count(number, *bounds) >= len(rows)
            found += [(*row, number) for row in rows]
        wanted = [row for row in self.rows if bounds[0] <= row[0] < bounds[1]]
        assert sorted(map(repr, (row[:4] for row in found))) == sorted(map(repr, wanted))
        shard_of = {row[1:3]: row[4] for row in found}
        assert all(shard_of[row[1:3]] == row[4] for row in found)

    @invariant()
    def oldest_is_not_behind_a_row(self) -> None:
        if hasattr(self, "log"):
            assert all(row[0] >= self.log.oldest for row in self.rows if row[0] >= self.gone)
            assert self.budget.used <= self.budget.total


TestLogAndLists = LogAndLists.TestCase
TestLogAndLists.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("kind", [SqlType.DOUBLE])
def test_keys_that_are_equal_have_equal_hashes(kind: SqlType) -> None:
    nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    hashes = key_hashes([pa.array([0.0, -0.0, float("nan"), nan, -float("nan")])], (kind,), 5)
    assert len(set(hashes[:2].tolist())) == len(set(hashes[2:].tolist())) == 1


@pytest.mark.parametrize("cut", [lambda array: array, lambda array: pa.concat_arrays([array[:1], array])[1:]])
def test_hashes_do_not_depend_on_where_values_stand(cut: Callable[[pa.Array], pa.Array]) -> None:
    for values, kind in (([1, None, 3], SqlType.BIGINT), (["a", None, "bcdefghijk"], SqlType.STRING)):
        array = pa.array(values)
        assert key_hashes([cut(array)], (kind,), 3).tolist() == key_hashes([array], (kind,), 3).tolist()


def test_small_pieces_are_put_together() -> None:
    budget, device = Budget(4_000_000), MemoryDevice(65536)
    log = RowLog(device, budget.account("rows"), budget.account("staged", is_spare=True), SCHEMA, TYPES, 1)
    for i in range(1000):
        log.add(np.array([i]), [pa.array([7]), pa.array(["x"]), pa.array([1.0])])
        log.flush()
    assert sum(len(shard.pieces) for shard in log._shards) <= 12
    assert device.written < 1000 * 1000 * 2
    parts = [part for number in (0, 1) for part in log.between(number, 0, 1000)]
    assert [t for part in parts for t in part.batch.column(0).to_pylist()] == list(range(1000))
