"""Sorted runs for the reorder buffer: batches ordered by time, in memory while there is room and else on a device.

A run gives up its rows from the front, as the watermark passes them. A spilled run is cut into pieces of about a
block, each an Arrow IPC stream, so that only the piece at its front is ever read.

Invariants:
1. Within a run, times never fall. Runs are taken in the order they were added, so a stable merge of what `take_upto`
   returns keeps the order of arrival among equal times.
2. The account holds the bytes of all runs and pieces in memory, and what the owner holds back (`hold`), before they
   are kept. When the budget is full, pieces that were read are given up first. Then all runs in memory become one on
   the device: they are merged a part at a time, so that there are few runs to read from later.
3. A run holds on to no more memory than its rows need: rows of a much larger batch are copied.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.components import component
from penstock.errors import BudgetError, StorageError
from penstock.store.batches import compact, decoded, held_bytes
from penstock.store.budget import Account
from penstock.store.device import BlockDevice
from penstock.store.fifo import StoreMetrics

_MARK_ROWS = 256
_MERGED_BYTES = 1 << 20
"""Runs in memory are merged in parts of about this size."""


class Piece(NamedTuple):
    """A part of a spilled run. A single row that is larger than a block is a piece with the row and, for each further
    block, one without rows."""

    address: int
    first_time: int
    rows: int
    nbytes: int


def times_of(batch: pa.RecordBatch, time_column: str) -> NDArray[np.int64]:
    """The event times of a batch; a TIMESTAMP is int64 microseconds underneath."""
    times: NDArray[np.int64] = batch.column(time_column).view(pa.int64()).to_numpy()
    return times


class MemoryRun:
    """A run in memory."""

    def __init__(self, batch: pa.RecordBatch, time_column: str) -> None:
        self.batch = batch
        self.nbytes = held_bytes(batch)  # rows that were taken still share the run's buffers
        self._times = times_of(batch, time_column)
        self.first_time = int(self._times[0])

    @property
    def rows(self) -> int:
        return int(self.batch.num_rows)

    @property
    def last_time(self) -> int:
        return int(self._times[-1])

    def is_marked(self, time: int) -> bool:
        """Whether `marks` has more than the first row up to a time."""
        return len(self._times) > _MARK_ROWS and bool(self._times[_MARK_ROWS] <= time)

    def marks(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Times in the run, and the bytes that lie from each to the next."""
        times = self._times[::_MARK_ROWS]
        rows = np.diff(np.append(np.arange(0, self.rows, _MARK_ROWS), self.rows))
        return times, rows * (int(self.batch.nbytes) // max(1, self.rows) + 1)

    def take_upto(self, time: int) -> list[pa.RecordBatch]:
        """The rows with times up to `time`, which leave the run."""
        count = int(np.searchsorted(self._times, time, side="right"))
        if count == 0:
            return []
        taken = self.batch.slice(0, count)
        self.batch, self._times = self.batch.slice(count), self._times[count:]
        if len(self._times):
            self.first_time = int(self._times[0])
        return [taken]


class SpilledRun:
    """A run on a device. `skip` rows of its first piece are gone already; if they are, the piece stays in memory."""

    def __init__(self, pieces: deque[Piece], skip: int, first_time: int, device: BlockDevice, time_column: str) -> None:
        self._pieces = pieces
        self._skip = skip
        self._device = device
        self._time_column = time_column
        self._front: pa.RecordBatch | None = None
        self.first_time = first_time
        self.metrics = StoreMetrics()

    @classmethod
    def write(cls, batches: Iterable[pa.RecordBatch], device: BlockDevice, time_column: str) -> SpilledRun:
        """Puts sorted batches, of which none precedes the one before, on the device as one run; if that fails, nothing
        of it stays there."""
        pieces: deque[Piece] = deque()
        try:
            for batch in batches:
                for part, payload in _cut(batch, device.capacity):
                    first_time, rows = int(times_of(part, time_column)[0]), part.num_rows
                    for start in range(0, len(payload), device.capacity):
                        block = payload[start : start + device.capacity]
                        pieces.append(Piece(device.write(block), first_time, rows, len(block)))
                        rows = 0
        except StorageError:
            for piece in pieces:
                device.free(piece.address)
            raise
        run = cls(pieces, 0, pieces[0].first_time, device, time_column)
        run.metrics.blocks_written += len(pieces)
        run.metrics.bytes_written += run.nbytes
        return run

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self._pieces) - self._skip

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self._pieces)

    @property
    def front_bytes(self) -> int:
        """Memory that the first piece takes, if it is there."""
        return sum(piece.nbytes for piece in self._first(self._pieces)) if self._front is not None else 0

    @staticmethod
    def _first(pieces: deque[Piece]) -> list[Piece]:
        """The first piece, with those that go on with its row."""
        further = itertools.takewhile(lambda piece: piece.rows == 0, itertools.islice(pieces, 1, None))
        return [pieces[0], *further]

    def _read(self, pieces: list[Piece]) -> pa.RecordBatch:
        self.metrics.blocks_read += len(pieces)
        self.metrics.bytes_read += sum(piece.nbytes for piece in pieces)
        payloads = [self._device.read(piece.address) for piece in pieces]
        return _deserialize(payloads[0] if len(payloads) == 1 else b"".join(payloads))

    @property
    def last_time(self) -> int:
        at = max(number for number, piece in enumerate(self._pieces) if piece.rows)
        last = self._read([self._pieces[number] for number in range(at, len(self._pieces))])
        return int(times_of(last, self._time_column)[-1])

    def is_marked(self, time: int) -> bool:
        """Whether `marks` has more than the first row up to a time."""
        return len(self._pieces) > 1 and self._pieces[1].first_time <= time

    def marks(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Times in the run, and the bytes that lie from each to the next."""
        pieces = np.array(self._pieces, np.int64).reshape(-1, len(Piece._fields))
        times = pieces[:, 1].copy()
        times[:1] = self.first_time
        return times, pieces[:, 3]

    def drop_front(self) -> None:
        """Frees that memory; the piece is read again when it is needed."""
        self._front = None

    def take_upto(self, time: int) -> list[pa.RecordBatch]:
        """The rows with times up to `time`, which leave the run."""
        taken: list[pa.RecordBatch] = []
        freed: list[int] = []
        pieces, skip, first_time = self._pieces.copy(), self._skip, self.first_time
        batch = self._front
        while pieces and first_time <= time:
            if batch is None:
                batch = self._read(self._first(pieces))
            times = times_of(batch, self._time_column)
            upto = int(np.searchsorted(times, time, side="right"))
            if upto > skip:
                taken.append(batch.slice(skip, upto - skip))
            if upto < len(times):
                skip, first_time = upto, int(times[upto])
                break
            freed += [pieces.popleft().address for _ in self._first(pieces)]
            skip, batch = 0, None
            if pieces:
                first_time = pieces[0].first_time
        self._pieces, self._skip, self.first_time, self._front = pieces, skip, first_time, batch
        for address in freed:
            self._device.free(address)
        return taken

    def snapshot(self) -> dict[str, Any]:
        pieces = np.array(self._pieces, np.int64).reshape(-1, len(Piece._fields))
        return {"pieces": pieces, "skip": self._skip, "first_time": self.first_time}

    @classmethod
    def restore(cls, snapshot: dict[str, Any], device: BlockDevice, time_column: str) -> SpilledRun:
        pieces = deque(Piece(*piece) for piece in snapshot["pieces"].tolist())
        return cls(pieces, snapshot["skip"], snapshot["first_time"], device, time_column)


@component("RunStore")
class RunStore:
    """All runs of a reorder buffer. One thread at a time uses it."""

    def __init__(self, device: BlockDevice, account: Account, time_column: str) -> None:
        self.device = device
        self._account = account
        self._time_column = time_column
        self._past = StoreMetrics()
        self._held = 0
        self._fitting = False
        self.take_held: Callable[[], None] = lambda: None
        """Called when others need memory: the owner adds what it holds back."""
        self._runs: list[MemoryRun | SpilledRun] = []

    @property
    def metrics(self) -> StoreMetrics:
        """Transfers of all spilled runs, those that are used up included."""
        total = StoreMetrics()
        total.add(self._past)
        for run in self._runs:
            if isinstance(run, SpilledRun):
                total.add(run.metrics)
        return total

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self._runs)

    @property
    def nbytes_total(self) -> int:
        return sum(run.nbytes for run in self._runs)

    @property
    def first_time(self) -> int | None:
        """The least time of all rows held."""
        return min((run.first_time for run in self._runs), default=None)

    def last_time(self, default: int) -> int:
        """The greatest time of all rows held; the last piece of a spilled run is read for it."""
        return max((run.last_time for run in self._runs), default=default)

    def add(self, batch: pa.RecordBatch) -> None:
        """Keeps a batch that is sorted by time. Where the budget has no room for it, it goes to the device at once."""
        if batch.num_rows == 0:
            return
        run = MemoryRun(compact(batch), self._time_column)
        self._runs.append(run)
        try:
            self._fit()
        except StorageError:
            self._runs.remove(run)
            self._account.resize(self._in_memory())
            raise

    def hold(self, nbytes: int) -> bool:
        """The owner is about to keep so many bytes besides the runs; answers whether there is room for them."""
        more = nbytes - self._held
        if more > self._account.free:
            return False
        self._fitting = True
        try:
            self._account.resize(self._account.nbytes + more)
        finally:
            self._fitting = False
        self._held = nbytes
        return True

    def cuts(self, time: int, nbytes: int) -> list[int]:
        """Rising times of which the last is `time`: between one and the next are about so many bytes of rows, as far as
        rows have different times."""
        return _cuts([run for run in self._runs if run.first_time <= time], time, nbytes)

    def take_upto(self, time: int) -> list[pa.RecordBatch]:
        """All rows with times up to `time`: sorted batches, in the order in which their runs were added. There may be
        more of them than there is room for: `cuts` says up to where to take them."""
        taken = [batch for run in self._runs if run.first_time <= time for batch in run.take_upto(time)]
        for run in self._runs:
            if not run.rows and isinstance(run, SpilledRun):
                self._past.add(run.metrics)
        self._runs = [run for run in self._runs if run.rows]
        self._fit()
        return taken

    def snapshot(self) -> dict[str, Any]:
        """Runs in memory travel inside the snapshot, unlike the spilled ones."""
        runs = [
            {"spilled": run.snapshot()} if isinstance(run, SpilledRun) else {"batch": _serialize(run.batch)}
            for run in self._runs
        ]
        return {"runs": runs, "device": self.device.snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.device.restore(snapshot["device"])
        self._runs = []
        self._account.resize(0)
        for run in snapshot["runs"]:
            if "spilled" in run:
                self._runs.append(SpilledRun.restore(run["spilled"], self.device, self._time_column))
            else:
                self.add(_deserialize(run["batch"]))

    def close(self) -> None:
        self._runs.clear()
        self._account.close()

    def _in_memory(self) -> int:
        return self._held + sum(run.nbytes if isinstance(run, MemoryRun) else run.front_bytes for run in self._runs)

    def _fit(self) -> None:
        """Gives up what can be read again, then spills the runs in memory, until the budget is kept."""
        self._fitting = True
        try:
            while True:
                try:
                    return self._account.resize(self._in_memory())
                except BudgetError:
                    if not self._drop_fronts() and not self._spill():
                        raise
        finally:
            self._fitting = False

    def page_out(self) -> bool:
        """Others need the memory: brings what is in memory to the device, and answers whether that was anything. What
        the owner holds back is worth a run where it is more than a block."""
        if self._fitting:
            return False
        before = self._account.nbytes
        if self._held > self.device.capacity:
            self.take_held()
        if self._drop_fronts() or self._spill():
            self._account.resize(self._in_memory())
        return self._account.nbytes < before

    def _drop_fronts(self) -> bool:
        fronts = [run for run in self._runs if isinstance(run, SpilledRun) and run.front_bytes]
        for spilled in fronts:
            spilled.drop_front()
        return bool(fronts)

    def _spill(self) -> bool:
        """The runs in memory become one on the device, or one for each set of columns; answers whether there were any.
        They come after those that are there already, as before."""
        runs = [run for run in self._runs if isinstance(run, MemoryRun)]
        if not runs:
            return False
        names = runs[0].batch.schema.names
        own = [run for run in runs if run.batch.schema.names == names]
        spilled = SpilledRun.write(self._merged(own), self.device, self._time_column)
        self._runs = [run for run in self._runs if run not in own]
        at = sum(isinstance(run, SpilledRun) for run in self._runs)
        self._runs.insert(at, spilled)
        del runs, own
        pa.default_memory_pool().release_unused()
        return True

    def _merged(self, runs: list[MemoryRun]) -> Iterator[pa.RecordBatch]:
        """The rows of some runs in the order of their times, a part at a time. The runs keep their rows."""
        readers = [MemoryRun(run.batch, self._time_column) for run in runs]
        last = max(run.last_time for run in readers)
        for upto in _cuts(readers, last, _MERGED_BYTES):
            parts = [decoded(part) for run in readers for part in run.take_upto(upto)]
            if len(parts) == 1:
                yield parts[0]
            elif parts:
                rows = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
                yield rows.take(pa.array(np.argsort(times_of(rows, self._time_column), kind="stable")))


def _cuts(due: Sequence[MemoryRun | SpilledRun], time: int, nbytes: int) -> list[int]:
    """Rising times up to `time`, by the bytes that the runs have between them."""
    if not any(run.is_marked(time) for run in due):
        return [time]
    times, weights = (np.concatenate(part) for part in zip(*(run.marks() for run in due), strict=True))
    weights = weights[times <= time]
    times = times[times <= time]
    order = np.argsort(times, kind="stable")
    passed = np.cumsum(weights[order])
    at = np.searchsorted(passed, np.arange(nbytes, int(passed[-1]), nbytes))
    cuts = np.unique(times[order][at])
    return [*cuts[cuts < time].tolist(), time]


def _serialize(batch: pa.RecordBatch) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue())


def _deserialize(payload: bytes | memoryview) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
        return reader.read_next_batch()


def _cut(batch: pa.RecordBatch, capacity: int) -> Iterator[tuple[pa.RecordBatch, memoryview]]:
    """Parts of the batch that fit a block once serialised, in order; single rows that are larger than a block."""
    rest = [batch]
    while rest:
        part = rest.pop()
        if part.nbytes <= 2 * capacity or part.num_rows == 1:
            payload = _serialize(part)
            if len(payload) <= capacity or part.num_rows == 1:
                yield part, payload
                continue
        half = part.num_rows // 2
        rest += [part.slice(half), part.slice(0, half)]
