"""Every kind of store against a plain Python model: a dict of items by id, and for each reader the set of what it has
consumed. Random operations, several readers with different patterns, tiny budgets, stores closed and opened again.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import BudgetError, StorageError
from penstock.store.databases.database import Row
from penstock.store.properties import ReadPattern, Sharing, UpdatePattern
from penstock_bench.storage_manager.instance import StoreInstance
from penstock_bench.storage_manager.lifecycle import StorageManager
from penstock_bench.storage_manager.properties import Embedded, Persistence, Postgres, Properties, Transient
from penstock_bench.storage_manager.readers import Reader, SequentialReader

from .kinds import ALL_READS, BY_DIRECTION_AND_SPEED, BY_SEGMENT, REPORTS, manager, report

PATTERNS = {"order": ReadPattern.SEQUENTIAL, "any": ReadPattern.RANDOM, "near": ReadPattern.CLUSTERED}

fraction = st.floats(0, 1, allow_nan=False)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("buffer"), st.integers(1, 300)),
        st.tuples(st.just("expire"), fraction),
        st.tuples(st.just("consume"), st.sampled_from(sorted(PATTERNS)), fraction, st.integers(1, 40)),
        st.tuples(st.just("update"), st.integers(0, 8), st.integers(0, 500)),
        st.tuples(st.just("read on"), st.integers(1, 200)),
        st.tuples(st.just("seek"), fraction),
        st.tuples(st.just("read"), st.lists(fraction, max_size=8)),
        st.tuples(st.just("find"), st.integers(0, 6), st.integers(0, 200)),
        st.tuples(st.just("leave"), st.sampled_from(sorted(PATTERNS))),
        st.tuples(st.just("reopen")),
    ),
    max_size=25,
)


class Model:
    """What should be there."""

    def __init__(self) -> None:
        self.items: dict[int, Row] = {}
        self.next_id = 0
        self.consumed: dict[str, set[int]] = {name: set() for name in PATTERNS}
        self.position = 0

    def drop_what_all_consumed(self) -> None:
        if self.consumed:
            for item_id in set.intersection(*self.consumed.values()):
                self.items.pop(item_id, None)

    def seen_by(self, reader: str) -> dict[int, Row]:
        return {item_id: row for item_id, row in self.items.items() if item_id not in self.consumed[reader]}


class Run:
    """A store and its model, taken through the same operations."""

    def __init__(self, storage: StorageManager, properties: Properties, *, indexed: bool) -> None:
        self._storage = storage
        self._properties = properties
        self._indexed = indexed
        self.model = Model()
        self.refused = 0
        self._open()

    def _open(self) -> None:
        self.store: StoreInstance = self._storage.create_store(self._properties, "reports")
        self.readers: dict[str, Reader] = {name: self.store.reader(name, p) for name, p in PATTERNS.items()}
        if self._indexed:
            for index in (BY_SEGMENT, BY_DIRECTION_AND_SPEED):
                self._storage.register_index(index, self.store)
        self.model.position = 0

    def do(self, operation: tuple[Any, ...]) -> None:
        name, *arguments = operation
        try:
            getattr(self, "_" + name.replace(" ", "_"))(*arguments)
        except BudgetError:
            self.refused += 1

    def _pick(self, at: float) -> int:
        return min(int(at * self.model.next_id), self.model.next_id - 1)

    def _buffer(self, count: int) -> None:
        for _ in range(count):
            row = report(self.model.next_id)
            assert self.store.buffer_item(row) == self.model.next_id
            self.model.items[self.model.next_id] = row
            self.model.next_id += 1

    def _expire(self, at: float) -> None:
        last = self._pick(at)
        if self._properties.update is UpdatePattern.FIFO and last >= 0:
            self.store.delete_up_to(last)
            gone = [item_id for item_id in self.model.items if item_id <= last]
        elif self._properties.update is UpdatePattern.RANDOM:
            gone = [item_id for item_id in self.model.items if item_id % 5 and item_id <= last]
            self.store.delete_items(gone)
        else:
            return
        for item_id in gone:
            del self.model.items[item_id]

    def _consume(self, reader: str, at: float, count: int) -> None:
        first = self._pick(at)
        if self._properties.update is UpdatePattern.FIFO and first >= 0:
            self.readers[reader].delete_up_to(first)
            self.model.consumed[reader].update(range(first + 1))
        elif self._properties.update is UpdatePattern.RANDOM:
            seen = [item_id for item_id in sorted(self.model.seen_by(reader)) if item_id >= first][:count]
            self.readers[reader].delete_items(seen)
            self.model.consumed[reader].update(seen)
        self.model.drop_what_all_consumed()

    def _update(self, segment: int, number: int) -> None:
        if self._properties.update is not UpdatePattern.IN_PLACE or not self._indexed:
            return
        row = report(number)
        found = [item_id for item_id, old in self.model.items.items() if old[1] == segment]
        assert self.store.update(BY_SEGMENT, row, [segment]) == len(found)
        for item_id in found:
            self.model.items[item_id] = row
        if not found:
            self.model.items[self.model.next_id] = row
            self.model.next_id += 1

    def _read_on(self, count: int) -> None:
        reader = self.readers["order"]
        assert isinstance(reader, SequentialReader)
        seen = [item for item in sorted(self.model.seen_by("order").items()) if item[0] >= self.model.position]
        for item_id, row in seen[:count]:
            assert reader.get_next_item() == row
            assert reader.last_id == item_id
            self.model.position = item_id + 1
        if len(seen) < count:
            assert reader.get_next_item() is None

    def _seek(self, at: float) -> None:
        reader = self.readers["order"]
        assert isinstance(reader, SequentialReader)
        self.model.position = max(0, self._pick(at))
        reader.seek(self.model.position)

    def _read(self, places: list[float]) -> None:
        for name in ("any", "near"):
            seen = self.model.seen_by(name)
            for at in places:
                item_id = self._pick(at)
                if item_id in seen:
                    assert self.readers[name].get_item(item_id) == seen[item_id]
                    assert self.readers[name].get_attribute(item_id, "direction") == seen[item_id][3]
                else:
                    with pytest.raises(StorageError, match="no item"):
                        self.readers[name].get_item(item_id)
                    with pytest.raises(StorageError, match="no item"):
                        self.readers[name].get_attribute(item_id, "speed")

    def _find(self, segment: int, speed: int) -> None:
        if not self._indexed:
            return
        for name, reader in self.readers.items():
            seen = sorted(self.model.seen_by(name).items())
            assert list(reader.retrieve(BY_SEGMENT, [segment])) == [i for i in seen if i[1][1] == segment]
            fast = [item for item in seen if item[1][3] == "west" and float(item[1][2] or 0) >= speed]
            assert list(reader.retrieve(BY_DIRECTION_AND_SPEED, ["west", float(speed)])) == fast

    def _leave(self, name: str) -> None:
        """A reader leaves, and a new one takes its place."""
        self.readers[name].close()
        del self.model.consumed[name]
        if self._properties.update in (UpdatePattern.FIFO, UpdatePattern.RANDOM):
            self.model.drop_what_all_consumed()
        self.model.consumed[name] = set()
        self.readers[name] = reader = self.store.reader(name, PATTERNS[name])
        if isinstance(reader, SequentialReader):
            self.model.position = 0

    def _reopen(self) -> None:
        if not isinstance(self._properties.persistence, Transient):
            self._storage.close_store(self.store)
            self._open()

    def check(self) -> None:
        """Everything that each reader should see, it sees, and nothing else."""
        self._seek(0)
        self._read_on(len(self.model.items) + 1)
        for name in ("any", "near"):
            seen = self.model.seen_by(name)
            for item_id in range(self.model.next_id):
                if item_id in seen:
                    assert self.readers[name].get_item(item_id) == seen[item_id]
        self._find(2, 10)


def go_through(
    steps: list[tuple[Any, ...]], update: UpdatePattern, where: Persistence, budget: int, *, indexed: bool
) -> Run:
    properties = Properties(schema=REPORTS, update=update, read=ALL_READS, sharing=Sharing.SHARED, persistence=where)
    with manager(budget) as storage:
        run = Run(storage, properties, indexed=indexed)
        for step in steps:
            run.do(step)
        run.check()
        storage.remove_store(run.store)
    return run


@pytest.mark.parametrize("update", list(UpdatePattern))
@given(steps=operations, indexed=st.booleans())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_in_memory(update: UpdatePattern, steps: list[tuple[Any, ...]], indexed: bool) -> None:
    assert go_through(steps, update, Transient(), 1 << 24, indexed=indexed).refused == 0


@pytest.mark.parametrize("update", list(UpdatePattern))
@given(steps=operations)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_in_a_tiny_budget(update: UpdatePattern, steps: list[tuple[Any, ...]]) -> None:
    """A refused operation has changed nothing."""
    go_through(steps, update, Transient(), 40_000, indexed=False)


@pytest.mark.parametrize("update", list(UpdatePattern))
@given(steps=operations, indexed=st.booleans())
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_in_the_embedded_database(update: UpdatePattern, steps: list[tuple[Any, ...]], indexed: bool) -> None:
    with TemporaryDirectory() as directory:
        go_through(steps, update, Embedded(Path(directory) / "store.db", "reports"), 1 << 24, indexed=indexed)


@pytest.mark.parametrize("update", list(UpdatePattern))
@given(steps=operations, indexed=st.booleans())
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_in_postgres(update: UpdatePattern, postgres: str, steps: list[tuple[Any, ...]], indexed: bool) -> None:
    go_through(steps, update, Postgres(postgres, "reports"), 1 << 24, indexed=indexed)
