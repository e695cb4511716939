from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import BudgetError, StorageError
from penstock.store.budget import Budget
from penstock.store.device import BlockDevice
from penstock.store.file_device import FileDevice
from penstock.store.manager import StoreManager
from penstock.store.memory_device import MemoryDevice
from penstock.store.runs import RunStore, SpilledRun
from penstock.store.state import decode, encode


def run_of(times: list[int], mark: int = 0) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "time": pa.array(sorted(times), pa.timestamp("us", "UTC")),
            "name": pa.array([f"{mark}-{i}" if i % 3 else None for i in range(len(times))], pa.string()),
            "kind": pa.array(["a"] * len(times)).dictionary_encode(),
        }
    )


def listed(batches: list[pa.RecordBatch]) -> list[tuple[int, str | None, str]]:
    return [
        (time, name, kind)
        for batch in batches
        for time, name, kind in zip(
            batch.column("time").view(pa.int64()).to_pylist(),
            batch.column("name").to_pylist(),
            batch.column("kind").to_pylist(),
            strict=True,
        )
    ]


def by_time(rows: list[tuple[int, str | None, str]]) -> list[tuple[int, str | None, str]]:
    """Rows of one time in the order given."""
    return sorted(rows, key=lambda row: row[0])


def test_a_spilled_run_gives_up_its_rows_piece_by_piece(tmp_path: Path) -> None:
    device = FileDevice(tmp_path / "runs", 2048)
    batch = run_of(list(range(0, 3000, 3)))
    run = SpilledRun.write([batch], device, "time")
    assert (run.first_time, run.rows) == (0, 1000)
    assert (tmp_path / "runs").stat().st_size > 10 * 2048
    taken = []
    for watermark in (-1, 0, 100, 101, 102, 2000, 5000, 6000):
        taken += run.take_upto(watermark)
        assert run.rows == 1000 - min(1000, watermark // 3 + 1)
        assert not run.rows or run.first_time > watermark
    assert listed(taken) == listed([batch])
    reused = SpilledRun.write([batch], device, "time")
    assert reused.rows == 1000
    assert (tmp_path / "runs").stat().st_size < 100 * 2048


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.lists(st.integers(0, 300), max_size=80), st.integers(0, 350), st.sampled_from(["restore", "squeeze"])
        ),
        max_size=20,
    ),
    budget=st.sampled_from([0, 3000, 10**6]),
    on_disk=st.booleans(),
)
def test_runs_under_any_budget(steps: list[list[int] | int | str], budget: int, on_disk: bool, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    path.unlink(missing_ok=True)

    def new_device() -> BlockDevice:
        return FileDevice(path, 2048) if on_disk else MemoryDevice(2048)

    total = Budget(budget)
    store = RunStore(new_device(), total.account("reorder"), "time")
    held: list[list[tuple[int, str | None, str]]] = []
    for mark, step in enumerate(steps):
        if isinstance(step, list):
            batch = run_of(step, mark)
            store.add(batch)
            held.append(listed([batch]))
        elif isinstance(step, int):
            expected = [row for run in held for row in run if row[0] <= step]
            taken = [row for upto in store.cuts(step, 500) for row in by_time(listed(store.take_upto(upto)))]
            assert taken == by_time(expected)
            held = [[row for row in run if row[0] > step] for run in held]
        elif step == "restore":
            saved = decode(encode(store.snapshot()))
            store.close()
            store = RunStore(new_device(), total.account("reorder"), "time")
            store.restore(saved)
        else:
            total.total = max(total.used, total.total // 2)
        assert total.used <= total.total
        assert store.rows == sum(map(len, held))
        assert store.first_time == min((row[0] for run in held for row in run), default=None)


def test_runs_in_memory_go_to_the_device_as_one() -> None:
    """What has to be read from later is few runs, each in order."""
    budget = Budget(300_000)
    store = RunStore(MemoryDevice(65536), budget.account("reorder"), "time")
    for number in range(200):
        store.add(run_of([number % 7 + 10 * i for i in range(200)], number))
    assert budget.peak <= 300_000
    spilled = [run for run in store._runs if isinstance(run, SpilledRun)]
    assert 1 <= len(spilled) <= 12
    assert store._runs[: len(spilled)] == spilled
    assert store.rows == 40_000
    rows = by_time(listed(store.take_upto(10**6)))
    assert [mark for _, mark, _ in rows[:3]] == [None] * 3
    assert [time for time, _, _ in rows] == sorted(n % 7 + 10 * i for n in range(200) for i in range(200))


def test_a_part_of_a_batch_does_not_hold_on_to_all_of_it() -> None:
    batch = run_of(list(range(100_000)))
    store = RunStore(MemoryDevice(65536), Budget(10**9).account("reorder"), "time")
    store.add(batch.slice(70_000, 10))
    assert store._runs[0].nbytes < 4096
    assert listed(store.take_upto(10**6)) == listed([batch.slice(70_000, 10)])


def test_what_the_owner_holds_is_on_the_account() -> None:
    budget = Budget(100_000)
    store = RunStore(MemoryDevice(65536), budget.account("reorder"), "time")
    assert store.hold(60_000)
    assert not store.hold(100_001)
    assert budget.used == 60_000
    store.add(run_of(list(range(3000))))
    assert isinstance(store._runs[0], SpilledRun)
    assert budget.used == 60_000
    assert store.hold(0)
    assert budget.used == 0


def test_runs_give_way_to_others() -> None:
    """Whatever can be on the device goes there before anyone is refused."""
    budget = Budget(400_000)
    stores = StoreManager(budget, None)
    store = stores.create_runs("reorder", "time")
    rows = run_of(list(range(5000)))
    store.add(rows)
    assert budget.used > 100_000
    groups = budget.account("groups")
    groups.resize(399_000)
    assert isinstance(store._runs[0], SpilledRun)
    assert budget.used == 399_000
    with pytest.raises(BudgetError, match="at least 400,001 bytes"):
        groups.resize(400_001)
    assert listed([batch for upto in store.cuts(10**6, 1000) for batch in store.take_upto(upto)]) == listed([rows])
    stores.drop("reorder")
    assert budget.describe() == {"groups": 399_000}


def test_a_failed_spill_leaves_nothing_behind() -> None:
    class Full(MemoryDevice):
        room = 3

        def write(self, payload: bytes | memoryview) -> int:
            if self.room == 0:
                raise StorageError("the disk is full")
            self.room -= 1
            return super().write(payload)

    device = Full(2048)
    budget = Budget(10)
    store = RunStore(device, budget.account("reorder"), "time")
    with pytest.raises(StorageError, match="full"):
        store.add(run_of(list(range(1000))))
    assert (store.rows, budget.used) == (0, 0)
    device.room = 1000
    store.add(run_of(list(range(1000))))
    assert listed(store.take_upto(10**6)) == listed([run_of(list(range(1000)))])
    assert store.metrics.blocks_written == store.metrics.blocks_read > 10


def test_a_row_larger_than_a_block_takes_several() -> None:
    batch = pa.record_batch({"time": [1, 2, 3], "text": ["x" * 5000, "y", "z" * 9000]})
    device = MemoryDevice(2048)
    store = RunStore(device, Budget(10).account("reorder"), "time")
    store.add(batch)
    assert (store.rows, store.first_time) == (3, 1)
    saved = decode(encode(store.snapshot()))
    store = RunStore(device, Budget(10).account("reorder"), "time")
    store.restore(saved)
    assert store.cuts(3, 100) == [1, 2, 3]
    assert [batch.to_pydict()["text"][0][0] for upto in (1, 2, 3) for batch in store.take_upto(upto)] == ["x", "y", "z"]
    assert store.metrics.blocks_read > 6
    assert store.rows == 0
