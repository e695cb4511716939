"""Many queues of rows in one store: a row enters at the end of its queue and leaves when it is the queue's oldest.

New rows are in a *buffer*, linked queue by queue; a row that enters takes the place of one that has left. While all
rows fit the memory that the budget grants, that is all. When it is full, a *round* is spilled: the buffer's rows,
sorted by queue, go to the device in blocks that many queues share (`queue_rounds`). From then on a queue's oldest rows
are on the device; each queue has a *front*, a few rows of memory into which they come back, and a read block fills the
fronts of all queues that wait for it. So a row is written once; how often its block is read depends on how unevenly the
queues move, not on their lengths.

Invariants:
1. The rows of a queue on the device are older than those in the buffer, and lie in its blocks in the order they came.
2. Fronts and cached blocks are copies; they can be dropped at any time.
3. All memory is on the account, asked for before it is taken. A spilled round changes nothing until it is written.
4. A block is freed when the last of its rows has left.
5. An error from `enter` leaves the queues whole but the run half entered: restore or drop.

Called by the operators over partitions and sessions, through the stores that `manager` makes.

Why: docs/decisions/partitions-spill-together.md
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.arrays import Int64s
from penstock.columns import Argument
from penstock.components import component
from penstock.errors import BudgetError, CheckpointError, StorageError
from penstock.store import queue_kernels as kernels
from penstock.store.blocks import BlockLayout, ColumnSpec
from penstock.store.budget import Account
from penstock.store.charged import step_of
from penstock.store.device import BlockDevice
from penstock.store.fifo import StoreMetrics
from penstock.store.queue_kernels import Ids
from penstock.store.queue_rounds import Rounds, Written
from penstock.store.records import RecordLayout, Words

NO_LIMIT = 1 << 62

_FIRST_ROWS = 64
_SHARE = 4
"""The part of the free budget that a buffer may take: others, which cannot page, need room to grow."""
_FIRST_QUEUES = 16
_ROW_MASK = (1 << kernels.ORIGIN_BITS) - 1
_QUEUE = ColumnSpec("queue", np.dtype(np.int32), False)


class Moved(NamedTuple):
    """What a run of rows did: the rows that left, in order, how many had left after each row that entered, and the
    first column (the time) of the oldest row of its queue then."""

    left: tuple[Argument, ...]
    left_upto: Int64s
    oldest: Int64s


@component("RowQueues")
class RowQueues:
    """Queues are numbered from 0. The first column is an int64; by `enter` and `oldest` it is known of a queue's oldest
    row without a look at the row.

    >>> from penstock.store.budget import Budget
    >>> from penstock.store.memory_device import MemoryDevice
    >>> columns = [ColumnSpec("time", np.dtype(np.int64), False)]
    >>> queues = RowQueues(columns, MemoryDevice(), Budget(1 << 20).account("rows"))
    >>> moved = queues.enter(np.array([0, 1, 0, 0], np.int32), [Argument(np.array([3, 5, 7, 9]), None)], limits=2)
    >>> moved.left[0].values, moved.left_upto, moved.oldest
    (array([3]), array([0, 0, 0, 1]), array([3, 5, 3, 7]))
    """

    def __init__(self, columns: Sequence[ColumnSpec], device: BlockDevice, account: Account) -> None:
        self.columns = tuple(columns)
        self.device = device
        self.metrics = StoreMetrics()
        self._account = account
        self._records = RecordLayout(self.columns)
        self._layouts: dict[int, BlockLayout] = {}
        self._block = self._layout(device.capacity)
        self._reset()

    def _reset(self) -> None:
        self._table: Int64s = np.zeros((0, kernels.TABLE_WORDS), np.int64)
        self._buffer = self._records.empty(0)
        self._nexts: Int64s = np.empty(0, np.int64)
        self._control = np.zeros(kernels.CONTROL_WORDS, np.int64)
        self._control[kernels.FREE] = -1
        self._rounds = Rounds()
        self._pages = False
        self._fronts = self._records.empty(0)
        self._origins: Int64s = np.empty(0, np.int64)
        self._share = 0
        self._cache: OrderedDict[int, tuple[Ids, Words]] = OrderedDict()
        self._cache_blocks = 0

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def lengths(self) -> Int64s:
        """The rows of each queue."""
        return self._table[:, kernels.LENGTH]

    def lengths_upto(self, queues: int) -> Int64s:
        """The rows of each of the first so many queues, also of those that never had one."""
        lengths = np.zeros(queues, np.int64)
        known = self.lengths[:queues]
        lengths[: len(known)] = known
        return lengths

    @property
    def oldest(self) -> Int64s:
        """The first column of each queue's oldest row; means nothing for an empty queue."""
        return self._table[:, kernels.OLDEST]

    @property
    def nbytes(self) -> int:
        """Memory held, as counted against the budget."""
        return self._nbytes(len(self._table), len(self._buffer), self._rounds.nbytes)

    @property
    def queue_bytes(self) -> int:
        """How much of it is for the queues themselves, however many rows they have."""
        return 8 * kernels.TABLE_WORDS * len(self._table) + len(self._fronts) * self._front_bytes

    @property
    def nbytes_total(self) -> int:
        """Bytes in memory and on the device."""
        return self.nbytes + self._rounds.live_blocks * self._block.nbytes

    def _nbytes(self, queues: int, buffered: int, rounds: int) -> int:
        paging = len(self._fronts) * self._front_bytes + self._cache_blocks * self._cached_bytes
        return 8 * kernels.TABLE_WORDS * queues + buffered * self._row_bytes + rounds + paging

    @property
    def _row_bytes(self) -> int:
        return 8 * self._records.words + 8  # link

    @property
    def _front_bytes(self) -> int:
        return 8 * self._records.words + 8  # origin

    @property
    def _cached_bytes(self) -> int:
        return self._block.rows * (8 * self._records.words + 4)

    # --- rows enter and leave ----------------------------------------------------------------------------------------

    def ensure(self, queues: int) -> None:
        """Makes room for queues 0..queues-1."""
        held = len(self._table)
        if queues <= held:
            return
        count = max(_FIRST_QUEUES, queues, 2 * held)
        if 8 * kernels.TABLE_WORDS * (count - held) > self._account.free // _SHARE:
            count = max(_FIRST_QUEUES, queues, held + step_of(held))
        table = np.zeros((count, kernels.TABLE_WORDS), np.int64)
        if self._pages:
            self._lay_out_fronts(count, len(self._fronts))
        self._account.resize(self._nbytes(count, len(self._buffer), self._rounds.nbytes))
        table[:held] = self._table
        self._table = table

    def enter(self, ids: Ids, columns: Sequence[Argument], limits: int | Int64s = NO_LIMIT) -> Moved:
        """Each row enters its queue, in turn; from a queue that then has more rows than its limit (one for all, or one
        for each row, at least 1) the oldest leaves."""
        self.ensure(int(ids.max(initial=-1)) + 1)
        return self._enter(ids, self._records.pack(columns), np.broadcast_to(limits, len(ids)).astype(np.int64))

    def _enter(self, ids: Ids, rows: Words, limits: Int64s) -> Moved:
        count = len(ids)
        gone = self._records.empty(count)
        upto, oldest = np.empty(count, np.int64), np.empty(count, np.int64)
        died = np.empty(count, np.int64)
        self._control[: kernels.FREE] = 0
        done = 0
        while done < count:
            done = kernels.enter(
                ids,
                rows,
                done,
                limits,
                self._table,
                self._buffer,
                self._nexts,
                self._fronts,
                self._origins,
                self._share,
                self._rounds.blocks,
                gone,
                upto,
                oldest,
                died,
                self._control,
            )
            self._bury(died)
            if done < count:
                if self._control[kernels.PHASE] == kernels.ENTERS:
                    self._make_room(count - done)
                else:
                    self._fill(int(ids[done]))
        return Moved(self._records.unpack(gone[: self._control[kernels.LEFT]]), upto, oldest)

    def _bury(self, died: Int64s) -> None:
        """Frees the blocks whose last row has left."""
        for block in died[: self._control[kernels.DEATHS]].tolist():
            address = self._rounds.died(block)
            self._cache.pop(address, None)
            self.device.free(address)
        if self._control[kernels.DEATHS]:
            self._control[kernels.DEATHS] = 0
            moved = self._rounds.renumber()
            if moved is not None:
                self._table[:, kernels.BLOCK] = moved[self._table[:, kernels.BLOCK]]
                blocks, rows = self._origins >> kernels.ORIGIN_BITS, self._origins & _ROW_MASK
                self._origins = moved[blocks] << kernels.ORIGIN_BITS | rows

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, queues: Ids) -> tuple[tuple[Argument, ...], Int64s]:
        """All rows of queues, one queue after the other, oldest first, and how many rows there are up to each."""
        ends = np.cumsum(self.lengths[queues])
        rows = self._records.empty(int(ends[-1]) if len(ends) else 0)
        kernels.gather(queues, ends, self._table, self._nexts, self._buffer, rows)
        for i in np.flatnonzero(self._table[queues, kernels.DEVICE]).tolist():
            at = int(ends[i - 1]) if i else 0
            for _, row, count, words in self._pieces(int(queues[i])):
                rows[at : at + count] = words[row : row + count]
                at += count
        return self._records.unpack(rows), ends

    def all(self) -> Iterator[tuple[Ids, tuple[Argument, ...]]]:
        """The rows of all queues, some at a time, and the queue of each: those of a queue come in their order. Each
        block is read once."""
        blocks = self._rounds.blocks
        for block in range(self._rounds.count):
            if blocks[block, kernels.LIVE]:
                ids, words = self._read(block)
                lines = self._rewound(ids.astype(np.int64))
                first, row = lines[:, kernels.BLOCK], lines[:, kernels.ROW]
                there = (first < block) | ((first == block) & (row <= np.arange(len(ids))))
                there &= lines[:, kernels.DEVICE] > 0
                yield ids[there], self._records.unpack(words[there])
        ids, places = self._chains()
        for start in range(0, len(ids), self._block.rows):
            part = slice(start, start + self._block.rows)
            yield ids[part], self._records.unpack(self._buffer[places[part]])

    def take(self, queue: int) -> tuple[Argument, ...]:
        """All rows of a queue, oldest first, which leave it."""
        parts = []
        died = []
        for block, row, count, words in self._pieces(queue):
            parts.append(words[row : row + count])
            self._rounds.blocks[block, kernels.LIVE] -= count
            if self._rounds.blocks[block, kernels.LIVE] == 0:
                died.append(block)
        places = self._buffered(queue)
        rows = self._records.unpack(np.concatenate([*parts, self._buffer[places]]))
        if len(places):
            self._nexts[places[-1]] = self._control[kernels.FREE]
            self._control[kernels.FREE] = places[0]
        self._table[queue] = 0
        self._control[kernels.DEATHS] = len(died)
        self._bury(np.array(died, np.int64))
        return rows

    def _pieces(self, queue: int) -> Iterator[tuple[int, int, int, Words]]:
        """Where the rows of a queue are on the device: block, first row, number of rows, and the block's records."""
        line = self._rewound(np.array([queue]))[0]
        left, block, row = line[[kernels.DEVICE, kernels.BLOCK, kernels.ROW]].tolist()
        while left:
            found = self._rounds.locate(queue, block)
            if found != block:
                block, row = found, 0
            ids, words = self._read(block)
            start, stop = np.searchsorted(ids, [queue, queue + 1]).tolist()
            row = max(row, start)
            yield block, row, stop - row, words
            left -= stop - row
            block, row = block + 1, 0

    def _rewound(self, queues: Int64s) -> Int64s:
        """The lines of queues as they are once their fronts are dropped: what was copied is to be copied again."""
        lines = self._table[queues]
        filled = np.flatnonzero(lines[:, kernels.AT] < lines[:, kernels.END])
        origins = self._origins[queues[filled] * self._share + lines[filled, kernels.AT]]
        lines[filled, kernels.BLOCK], lines[filled, kernels.ROW] = origins >> kernels.ORIGIN_BITS, origins & _ROW_MASK
        lines[:, kernels.AT] = lines[:, kernels.END] = 0
        return lines

    def _buffered(self, queue: int) -> Int64s:
        """The places of a queue's rows in the buffer."""
        line = self._table[queue]
        places = np.empty(int(line[kernels.LENGTH] - line[kernels.DEVICE]), np.int64)
        kernels.chain(int(line[kernels.HEAD]), self._nexts, places)
        return places

    def _fill(self, queue: int) -> None:
        """Fills the front of a queue, and of others that continue in the same block."""
        rounds = self._rounds
        block = rounds.locate(queue, int(self._table[queue, kernels.BLOCK]))
        ids, words = self._read(block)
        kernels.fill(
            ids,
            words,
            block,
            self._table,
            self._fronts,
            self._origins,
            self._share,
            rounds.count,
            rounds.blocks,
            rounds.ends,
            rounds.bits,
        )

    def _read(self, block: int) -> tuple[Ids, Words]:
        """The queues and the records of a block."""
        address, capacity = self._rounds.blocks[block, [kernels.ADDRESS, kernels.CAPACITY]].tolist()
        held = self._cache.get(address)
        if held is not None:
            self._cache.move_to_end(address)
            self.metrics.pool_hits += 1
            return held
        layout = self._layout(capacity)
        frame = layout.open(self.device.read(address))
        self.metrics.pool_misses += 1
        self.metrics.blocks_read += 1
        self.metrics.bytes_read += layout.nbytes
        ids, *columns = frame.slice(0, frame.count)
        held = (ids.values, self._records.pack(columns))
        while len(self._cache) >= self._cache_blocks:
            self._cache.popitem(last=False)
        self._cache[address] = held
        return held

    def _layout(self, capacity: int) -> BlockLayout:
        if capacity not in self._layouts:
            self._layouts[capacity] = BlockLayout([_QUEUE, *self.columns], capacity)
        return self._layouts[capacity]

    # --- the buffer --------------------------------------------------------------------------------------------------

    def _make_room(self, rows: int) -> None:
        """Room in the buffer, which is full, for some of so many rows."""
        if not self._grow(rows):
            self._spill()

    def _grow(self, rows: int) -> bool:
        """A larger buffer, which is at most a quarter of what others leave, or the least that can spill."""
        held = len(self._buffer)
        if self._pages:
            return False
        allowed = (held * self._row_bytes + self._account.free) // _SHARE // self._row_bytes
        size = min(max(_FIRST_ROWS, held + max(rows, held // 2)), max(allowed, 2 * self._block.rows))
        if size <= held + held // 8:
            return False
        self._resize_buffer(size)
        return True

    def _resize_buffer(self, rows: int) -> None:
        self._account.resize(self._nbytes(len(self._table), rows, self._rounds.nbytes))
        buffer, nexts = self._records.empty(rows), np.empty(rows, np.int64)
        used = self._control[kernels.USED]
        buffer[:used], nexts[:used] = self._buffer[:used], self._nexts[:used]
        self._buffer, self._nexts = buffer, nexts

    def _chains(self) -> tuple[Ids, Int64s]:
        """The rows of the buffer queue by queue, oldest first: whose each is and its place."""
        count = int((self._table[:, kernels.LENGTH] - self._table[:, kernels.DEVICE]).sum())
        ids, places = np.empty(count, np.int32), np.empty(count, np.int64)
        kernels.chains(self._table, self._nexts, ids, places)
        return ids, places

    # --- paging ------------------------------------------------------------------------------------------------------

    def _spill(self) -> None:
        """Writes a round: as many blocks as the buffer's rows fill."""
        ids, places = self._chains()
        size = self._block.rows
        count = len(places) // size
        spilled, stay = slice(count * size), slice(count * size, None)
        queues = len(self._table)
        self._account.resize(self._nbytes(queues, len(self._buffer), self._rounds.nbytes_with(count, queues)))
        self._rounds.make_room(count, queues)
        written: list[Written] = []
        try:
            for start in range(0, count * size, size):
                written.append(self._write(ids[start : start + size], places[start : start + size]))
        except StorageError:
            for block in written:
                self.device.free(block.address)
            raise
        gone = ids[spilled]
        first = self._rounds.add(written, self.device.capacity, gone)
        table = self._table
        fresh = gone[table[gone, kernels.DEVICE] == 0]
        table[fresh, kernels.BLOCK] = first
        for word in (kernels.ROW, kernels.AT, kernels.END):
            table[fresh, word] = 0
        table[:, kernels.DEVICE] += np.bincount(gone, minlength=queues)
        self._keep(ids[stay], places[stay])
        if not self._pages:
            self._begin_paging()

    def _keep(self, ids: Ids, places: Int64s) -> None:
        """Only the rows at these places, which are of these queues, stay in the buffer: at its begin."""
        self._buffer[: len(ids)] = self._buffer[places]
        self._control[kernels.FREE], self._control[kernels.USED] = -1, len(ids)
        kernels.link(ids, self._table, self._nexts)

    def _write(self, ids: Ids, places: Int64s) -> Written:
        frame = self._block.new_frame()
        frame.write([Argument(ids, None), *self._records.unpack(self._buffer[places])], 0, len(places))
        payload = self._block.seal(frame)
        self.metrics.blocks_written += 1
        self.metrics.bytes_written += len(payload)
        return Written(self.device.write(payload), len(places), int(ids[0]), int(ids[-1]))

    def _begin_paging(self) -> None:
        """Half of the buffer's memory, as far as it can do without, goes to fronts and cached blocks."""
        rows = len(self._buffer)
        kept = max(2 * self._block.rows, rows // 2)
        if kept < rows:
            self._resize_buffer(kept)
        self._share_out(max(0, rows - kept) * self._row_bytes)

    def _share_out(self, nbytes: int) -> None:
        """Fronts and cached blocks in so many bytes, or the least there can be."""
        self._pages = True
        self._cache_blocks = max(1, nbytes // 4 // self._cached_bytes)
        self._lay_out_fronts(len(self._table), nbytes * 3 // 4 // self._front_bytes)

    def _lay_out_fronts(self, queues: int, rows: int) -> None:
        """The same number of front rows for each queue, in `rows` in all, at least one; all of them empty."""
        share = max(1, rows // max(1, queues))
        more = share * queues - len(self._fronts)
        try:
            self._account.resize(self.nbytes + more * self._front_bytes)
        except BudgetError as refusal:
            raise BudgetError(f"there are too many partitions for the budget: {refusal}") from refusal
        self._table[:] = self._rewound(np.arange(len(self._table)))
        self._fronts, self._origins = self._records.empty(share * queues), np.zeros(share * queues, np.int64)
        self._share = share

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """All but the blocks on the device: those by their addresses, the buffer's rows in full."""
        ids, places = self._chains()
        return {
            "columns": [[column.name, column.dtype.str, column.nullable] for column in self.columns],
            "table": self._rewound(np.arange(len(self._table))),
            "owners": ids,
            "rows": self._buffer[places],
            "rounds": self._rounds.snapshot(),
            "device": self.device.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continues from a snapshot of queues with the same columns, whatever the block size and the budget."""
        if snapshot["columns"] != [[column.name, column.dtype.str, column.nullable] for column in self.columns]:
            raise CheckpointError("the saved rows of partitions have other columns: they belong to another query")
        self.device.restore(snapshot["device"])
        self._reset()
        self._rounds.restore(snapshot["rounds"])
        table = snapshot["table"]
        self._account.resize(table.nbytes + self._rounds.nbytes)
        self._table = table
        table[:, kernels.LENGTH] = table[:, kernels.DEVICE]
        if self._rounds.count:
            spare = self._account.free // 8
            self._resize_buffer(max(2 * self._block.rows, spare // self._row_bytes))
            self._share_out(spare)
        self._enter(snapshot["owners"], snapshot["rows"], np.full(len(snapshot["owners"]), NO_LIMIT))

    def discard(self) -> None:
        """As `close`, and nothing stays on the device."""
        blocks = self._rounds.blocks[: self._rounds.count]
        for address in blocks[blocks[:, kernels.LIVE] > 0, kernels.ADDRESS].tolist():
            self.device.free(address)
        self.close()

    def close(self) -> None:
        """Gives the memory back; what is on the device stays there."""
        self._reset()
        self._account.close()
