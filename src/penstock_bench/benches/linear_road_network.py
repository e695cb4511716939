"""A network of queries over Linear Road's traffic, connected by stores of the storage manager.

    input ─▶ car positions ─┬─ crossing ─▶ to respond ─▶ toll notification ◀─ segment tolls
                            ├─ accidents ──────────────▶ accidents ─────────▲
                            └─ statistics of a minute ─▶ segment tolls

Each report goes through the whole network before the next one; the first report of a minute also pays for the
statistics of the one before. Between two queries there is a store, and nothing else: what the queries know of the road,
and the accounts of the drivers, are plain dictionaries, the same however the stores are made.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.instruments import Budget, ReadPattern, Sharing, StoreManager, UpdatePattern
from penstock.types import Field, Schema, SqlType
from penstock_bench.storage_manager.instance import StoreInstance
from penstock_bench.storage_manager.lifecycle import StorageManager
from penstock_bench.storage_manager.properties import IndexSchema, Properties, Synchronization
from penstock_bench.storage_manager.readers import Reader, SequentialReader
from penstock_bench.workloads.linear_road.reports import POSITION
from penstock_bench.workloads.linear_road.traffic import Traffic

FIFO, RANDOM = UpdatePattern.FIFO, UpdatePattern.RANDOM
REPORT = Schema(
    tuple(
        Field(name, SqlType.INT, nullable=False)
        for name in ("time", "car", "speed", "expressway", "lane", "direction", "segment", "position")
    )
)
"""What the network keeps of a position report."""

Report = tuple[int, int, int, int, int, int, int, int]
TOLL = Schema(
    tuple(Field(name, SqlType.INT, nullable=False) for name in ("minute", "direction", "segment", "speed", "toll"))
)
ACCIDENT = Schema(tuple(Field(name, SqlType.INT, nullable=False) for name in ("direction", "segment", "car")))
BY_MINUTE_AND_PLACE = IndexSchema.equal("minute", "direction", "segment")
BY_PLACE = IndexSchema.equal("direction", "segment")
_BUDGET = 256_000_000
_TOLLS_KEPT = 5
"""Minutes."""


def positions(traffic: Traffic) -> list[Report]:
    """The position reports of a traffic, as the network keeps them, with times from 0 on."""
    table = pa.concat_tables(traffic.tables())
    time, *others = table.filter(pc.equal(table["type"], POSITION)).select(range(1, 1 + len(REPORT))).columns
    columns = (pc.subtract(time, traffic.begin), *others)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def as_line(report: Report) -> bytes:
    """A report as the benchmark's input has it: 15 numbers, the kind of message first; the last six are for questions.

    >>> as_line((30, 7, 55, 0, 2, 1, 3, 15900))
    b'0,30,7,55,0,2,1,3,15900,-1,-1,-1,-1,-1,-1'
    """
    return b",".join(b"%d" % value for value in (POSITION, *report, *(-1,) * 6))


def from_line(line: bytes) -> tuple[int, ...]:
    """The report of such a line.

    >>> from_line(b"0,30,7,55,0,2,1,3,15900,-1,-1,-1,-1,-1,-1")
    (30, 7, 55, 0, 2, 1, 3, 15900)
    """
    return tuple(map(int, line.split(b",")))[1 : 1 + len(REPORT)]


@dataclass(frozen=True)
class Knowledge:
    """What the stores are told. The baseline knows nothing: items may leave in any order, and are read in any order, by
    an id index and a cache of the last block."""

    name: str
    update: bool
    read: bool

    def updates(self, pattern: UpdatePattern) -> UpdatePattern:
        return pattern if self.update else UpdatePattern.RANDOM

    def reads(self, pattern: ReadPattern) -> ReadPattern:
        return pattern if self.read else ReadPattern.CLUSTERED


BASELINE = Knowledge("baseline", update=False, read=False)
WITH_UPDATE = Knowledge("+ update pattern", update=True, read=False)
WITH_READ = Knowledge("+ read pattern", update=True, read=True)


class InOrder:
    """A consumer that looks at every item once, in order, through a reader of any pattern."""

    def __init__(self, store: StoreInstance, name: str, pattern: ReadPattern) -> None:
        self._reader = store.reader(name, pattern)
        self._in_order = isinstance(self._reader, SequentialReader)
        self._ordered = store.properties.update is FIFO
        self._next = self._consumed = 0

    def next(self) -> Any:
        """The next report, which has come."""
        item = self._reader.get_next_item() if self._in_order else self._reader.get_item(self._next)
        self._next += 1
        return item

    def consume(self) -> None:
        """Everything that was read."""
        consume(self._reader, self._ordered, self._consumed, self._next)
        self._consumed = self._next


def consume(reader: Reader, ordered: bool, first: int, stop: int) -> None:
    if ordered:
        reader.delete_up_to(stop - 1)
    else:
        reader.delete_items(range(first, stop))


class Network:
    """Made for a kind of knowledge; `push` takes one report through."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._manager = StorageManager(StoreManager(Budget(_BUDGET), None))
        self._fifo = knowledge.update
        reads = {pattern: knowledge.reads(pattern) for pattern in ReadPattern}
        sequential, random = reads[ReadPattern.SEQUENTIAL], reads[ReadPattern.RANDOM]
        clustered = reads[ReadPattern.CLUSTERED]
        fifo = knowledge.updates(FIFO)
        self.input = self._store("input", REPORT, fifo, sequential)
        self.positions = self._store("car positions", REPORT, fifo, random, sequential, clustered)
        self.to_respond = self._store("to respond", REPORT, fifo, sequential)
        self.accidents = self._store("accidents", ACCIDENT, RANDOM, random)
        self.tolls = self._store("segment tolls", TOLL, fifo, random, waits_for="minute")
        self._manager.register_index(BY_MINUTE_AND_PLACE, self.tolls)
        self._manager.register_index(BY_PLACE, self.accidents)
        self._arrivals = InOrder(self.input, "car positions", sequential)
        self._crossing = InOrder(self.positions, "crossing", sequential)
        self._answering = InOrder(self.to_respond, "toll notification", sequential)
        self._statistics = self.positions.reader("statistics", random)
        self._standing = self.positions.reader("accidents", clustered)
        self._toll_of = self.tolls.reader("toll notification", random)
        self._accident_at = self.accidents.reader("toll notification", random)
        self._minute = 0
        self._minute_began = 0
        self._groups: dict[tuple[int, int], list[int]] = {}
        self._segment_of: dict[int, int] = {}
        self._accident_of: dict[int, int] = {}
        self._toll_starts: list[int] = []
        self.balance: dict[int, int] = {}
        self.alerts = 0

    def _store(
        self, name: str, schema: Schema, update: UpdatePattern, *reads: ReadPattern, waits_for: str | None = None
    ) -> StoreInstance:
        properties = Properties(
            schema=schema,
            update=update,
            read=tuple(dict.fromkeys(reads)),
            sharing=Sharing.SHARED if len(reads) > 1 else Sharing.NOT_SHARED,
            synchronization=None if waits_for is None else Synchronization(waits_for),
        )
        return self._manager.create_store(properties, name)

    def push(self, report: Report) -> bool:
        """Whether the driver was told a toll."""
        self.input.buffer_item(report)
        item = self._arrivals.next()
        self._arrivals.consume()
        minute = item[0] // 60
        if minute != self._minute:
            self._end_minute(minute)
        item_id = self.positions.buffer_item(item)
        self._groups.setdefault((item[5], item[6]), []).append(item_id)
        self._look_for_accident(item_id)
        return self._cross(minute)

    def close(self) -> None:
        self._manager.close()

    def _cross(self, minute: int) -> bool:
        """A car that comes into another segment is told the toll there."""
        item = self._crossing.next()
        car, segment = item[1], item[6]
        if self._segment_of.get(car) == segment:
            return False
        self._segment_of[car] = segment
        self.to_respond.buffer_item(item)
        crossing = self._answering.next()
        self._answering.consume()
        return minute > 0 and self._notify(crossing, minute - 1)

    def _notify(self, crossing: Report, minute: int) -> bool:
        _, car, _, _, _, direction, segment, _ = crossing
        toll = 0
        found: Any
        for _, found in self._toll_of.retrieve(BY_MINUTE_AND_PLACE, (minute, direction, segment), when=minute):
            toll = found[4]
        for _ in self._accident_at.retrieve(BY_PLACE, (direction, segment)):
            toll = 0
        self.balance[car] = self.balance.get(car, 0) + toll
        self.alerts += 1
        return True

    def _look_for_accident(self, item_id: int) -> None:
        """Two reports in a row from cars that stand at one place are an accident; it ends when one of them moves."""
        speed: Any = self._standing.get_attribute(item_id, "speed")
        if item_id == self._minute_began:
            return
        before = self._standing.get_attribute(item_id - 1, "speed")
        if self._accident_of:
            car: Any = self._standing.get_attribute(item_id, "car")
            if speed and car in self._accident_of:
                self.accidents.delete_items([self._accident_of.pop(car)])
        if speed == before == 0:
            one: Any = self._standing.get_item(item_id)
            other: Any = self._standing.get_item(item_id - 1)
            if one[7] == other[7] and one[1] not in self._accident_of:
                self._accident_of[one[1]] = self.accidents.buffer_item((one[5], one[6], one[1]))

    def _end_minute(self, minute: int) -> None:
        """The statistics of the minute, segment by segment, and the tolls that follow from them."""
        self._toll_starts.append(self.tolls.storage.next_id)
        for (direction, segment), ids in self._groups.items():
            cars, speeds = set(), 0
            for item_id in ids:
                item: Any = self._statistics.get_item(item_id)
                cars.add(item[1])
                speeds += item[2]
            mean = speeds // len(ids)
            toll = 2 * (len(cars) - 50) ** 2 if mean < 40 and len(cars) > 50 else len(cars)
            self.tolls.buffer_item((self._minute, direction, segment, mean, toll))
        self._groups.clear()
        stop = self.positions.storage.next_id
        self._crossing.consume()
        for reader in (self._statistics, self._standing):
            consume(reader, self._fifo, self._minute_began, stop)
        if len(self._toll_starts) > _TOLLS_KEPT:
            first, until = self._toll_starts.pop(0), self._toll_starts[0]
            if self._fifo:
                self.tolls.delete_up_to(until - 1)
            else:
                self.tolls.delete_items(range(first, until))
        self._minute, self._minute_began = minute, stop


@dataclass(frozen=True)
class Passage:
    """What every report cost in processor time, in seconds, and which of them ended in a toll alert."""

    service: list[float]
    alerts: list[bool]
    balance: dict[int, int]


def pass_through(knowledge: Knowledge, reports: Sequence[Report]) -> Passage:
    network = Network(knowledge)
    service, alerts = [], []
    now = time.thread_time
    began = now()
    for report in reports:
        alerts.append(network.push(report))
        ended = now()
        service.append(ended - began)
        began = ended
    network.close()
    return Passage(service, alerts, network.balance)
