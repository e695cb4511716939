"""The rows of a window whose groups are beyond memory: one log per shard, on a device.

    rows ─▶ staged, as they come ─ flush ─▶ pieces of shard 0   |-- left --|-- played --|-- not yet --|
                                            pieces of shard 1   |-- left --|-- played --|-- not yet --|
                                            ...

A piece is an Arrow batch with the columns of the log: the time, the keys and what the states read. A row is read twice:
when it enters the states of its shard, and when it leaves them.

Invariants:
1. The times of a shard's rows never fall. Row number n of a shard is the n-th that it got, also after rows before it
   are gone.
2. What is known of pieces is on the account. Rows that are staged are on an account of their own, together with what
   they take besides when they become pieces. That they do when memory is needed, or when they take a part of it. So
   while rows are staged, there is room for one more piece of each shard.
3. A piece is freed when all of its rows have left, or when they are in another piece.
4. A log that goes on from a checkpoint may have fewer columns than before, since queries have gone. Pieces keep the
   columns of the beginning, with NULLs where nothing is read any more.
5. A shard that is divided keeps the rows whose next bit of the hash is 0, and the other rows are another shard's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.arrays import Int32s, Int64s, UInt64s
from penstock.components import component
from penstock.jit import kernel
from penstock.operators.paged.hashing import key_hashes
from penstock.operators.paged.pieces import Piece, Pieces
from penstock.store.batches import decoded, kept_bytes
from penstock.store.blobs import write_blob
from penstock.store.budget import Account
from penstock.store.device import BlockDevice
from penstock.types import SqlType
from penstock.windows.steps import FOREVER

TIME = "time"
"""The first column of a log."""

_STAGED = 4
"""So large a part of the memory may rows take that are not on the device yet."""

_MOST_STAGED = 1 << 31
"""Half of it is for a copy. So the texts of a column fit one Arrow array, whatever memory there is."""

_ROW_BYTES = 12
"""What a row takes besides, while rows are put in the order of their shards."""

_JOINED = 64
"""Rows are staged and read together up to such a part of the memory."""

_MOST_BITS = 24

_DIRECTORY = 64
"""What says which shard a hash belongs to takes at most such a part of the memory, however rows are divided."""


@kernel
def _by_shard(hashes: UInt64s, shift: int, shard_of: Int32s, shards: int) -> tuple[Int32s, Int64s]:
    """The rows in the order of their shards, each shard's in their order; and where the rows of each shard end."""
    begins = np.zeros(shards + 1, np.int64)
    for row in range(len(hashes)):
        begins[shard_of[hashes[row] >> np.uint64(shift)] + 1] += 1
    for shard in range(shards):
        begins[shard + 1] += begins[shard]
    order = np.empty(len(hashes), np.int32)
    for row in range(len(hashes)):
        shard = shard_of[hashes[row] >> np.uint64(shift)]
        order[begins[shard]] = row
        begins[shard] += 1
    return order, begins[:shards]


class LoggedRows(NamedTuple):
    """Consecutive rows of a shard; `first` is the number of the first one."""

    first: int
    batch: pa.RecordBatch

    def part(self, begin: int, end: int) -> LoggedRows:
        return LoggedRows(self.first + begin, self.batch.slice(begin, end - begin))


def joined(rows: list[LoggedRows]) -> LoggedRows | None:
    """Rows that follow each other, together."""
    if len(rows) < 2:
        return rows[0] if rows else None
    return LoggedRows(rows[0].first, pa.concat_batches([part.batch for part in rows]))


def times_of(rows: pa.RecordBatch) -> Int64s:
    times: Int64s = rows.column(0).to_numpy()
    return times


class _Shard:
    """`prefix` are the upper bits of the hashes of its keys, and `bits` how many of them."""

    def __init__(self, prefix: int, bits: int, account: Account) -> None:
        self.prefix = prefix
        self.bits = bits
        self.pieces = Pieces(account)
        self.rows = 0
        """How many rows it has got so far."""
        self.oldest = FOREVER
        """A time that no row which has not left is older than."""
        self.next = -FOREVER, -FOREVER
        """A time up to which rows were read last, and that of the next row."""


def are_divisible(logs: Sequence[RowLog], number: int) -> bool:
    """Whether rows of a shard can go to two, now or after more divisions: their hashes differ, in a bit that there is
    memory for. Nothing is staged."""
    found = [hashes for log in logs if (hashes := log.hashes_between(number)) is not None]
    if not found:
        return False
    least, most = min(low for low, _ in found), max(high for _, high in found)
    return least >> 64 - logs[0].most_bits != most >> 64 - logs[0].most_bits


def _with_all_columns(saved: dict[str, Any]) -> dict[str, Any]:
    """Version 1: the columns of pieces are those of the queries that there are."""
    return saved | {"columns": None}


@component("RowLog", 2, _with_all_columns)
class RowLog:
    """`schema` has the columns behind the time; the first ones are the keys, of these `types`. It begins with a shard
    for each value of so many `bits` of the hash, at least one."""

    def __init__(
        self,
        device: BlockDevice,
        account: Account,
        staged: Account,
        schema: pa.Schema,
        types: Sequence[SqlType],
        bits: int,
    ) -> None:
        self._device = device
        self._account = account
        self._staged_account = staged
        staged.on_need(self._give_up)
        self._schema = self._stored = pa.schema([pa.field(TIME, pa.int64()), *schema])
        self._types = tuple(types)
        self._staged: list[pa.RecordBatch] = []
        self._most_staged = min(account.total // _STAGED, _MOST_STAGED)
        self._most_joined = account.total // _JOINED
        self.bytes_added = 0
        """Of all rows that have come."""
        self._small = device.capacity // 2
        """Pieces of up to so many bytes are put together."""
        self._shards = [_Shard(prefix, bits, account) for prefix in range(1 << bits)]
        self._bits = bits
        self.most_bits = min(_MOST_BITS, max(bits, (account.total // _DIRECTORY // 4).bit_length() - 1))
        """Shards differ in so many upper bits of the hash at most."""
        account.charge(4 << bits)
        self._shard_of = np.arange(1 << bits, dtype=np.int32)
        """The shard of the upper `_bits` bits of a hash. On the account, like what is known of the pieces."""

    @property
    def shards(self) -> int:
        return len(self._shards)

    @property
    def nbytes(self) -> int:
        """What the rows take on the device."""
        return sum(shard.pieces.nbytes for shard in self._shards)

    @property
    def oldest(self) -> int:
        """A time that no row which has not left is older than; `FOREVER` if there is none."""
        staged = int(self._staged[0].column(TIME)[0].as_py()) if self._staged else FOREVER
        return min(staged, min(shard.oldest for shard in self._shards))

    # Rows come

    def add(self, times: Int64s, columns: Sequence[pa.Array]) -> None:
        """Rows behind all others."""
        if len(times) == 0:
            return
        rows = decoded(pa.RecordBatch.from_arrays([pa.array(times), *columns], names=self._schema.names))
        step = max(1, len(times) * self._most_joined // rows.nbytes)
        for start in range(0, len(times), step):
            self._stage(rows.slice(start, step))

    def _stage(self, batch: pa.RecordBatch) -> None:
        needed = 2 * kept_bytes(batch) + _ROW_BYTES * batch.num_rows  # for a copy as well
        if needed > self._staged_account.free:
            self.flush()
        if not self._staged:
            for shard in self._shards:
                shard.pieces.make_room()
        self._staged_account.charge(needed)
        self._staged.append(batch)
        self.bytes_added += batch.nbytes
        if self._staged_account.nbytes >= self._most_staged:
            self.flush()

    def put(self, number: int, times: Int64s, columns: Sequence[pa.Array]) -> None:
        """Rows that belong to a shard, behind all others of it. Nothing is staged. If there is no room for all of them,
        none is added."""
        rows = pa.RecordBatch.from_arrays([pa.array(times), *columns], schema=self._schema)
        step = max(1, len(times) * self._most_joined // rows.nbytes)
        parts = [rows.slice(start, step) for start in range(0, len(times), step)]
        shard = self._shards[number]
        shard.pieces.make_room(len(parts))
        with self._account.borrowed(max(map(kept_bytes, parts))):
            for part in parts:
                self._append(shard, part)

    def flush(self) -> None:
        """Staged rows become pieces of their shards."""
        if not self._staged:
            return
        self._write()
        self._staged_account.resize(0)

    def _give_up(self) -> bool:
        """Memory is needed that staged rows have."""
        had_rows = bool(self._staged)
        self.flush()
        return had_rows

    def _write(self) -> None:
        """Appends the staged rows to their shards, as one piece each. The rows go column by column into the order of
        the shards."""
        columns = [[batch.column(i) for batch in self._staged] for i in range(len(self._schema))]
        self._staged = []
        keys: list[pa.Array] = []
        for parts in columns[1 : 1 + len(self._types)]:
            keys.append(pa.concat_arrays(parts))
            parts[:] = keys[-1:]
        order, ends = self._by_shard(key_hashes(keys, self._types, len(keys[0])))
        del keys
        for parts in columns:
            parts[:] = [pa.concat_arrays(parts).take(order)]
        rows = pa.RecordBatch.from_arrays([column for [column] in columns], schema=self._schema)
        begin = 0
        for number, end in enumerate(ends.tolist()):
            if end > begin:
                self._append(self._shards[number], rows.slice(begin, end - begin))
            begin = end

    def _by_shard(self, hashes: UInt64s) -> tuple[pa.Array, Int64s]:
        order, ends = _by_shard(hashes, 64 - self._bits, self._shard_of, len(self._shards))
        return pa.array(order), ends

    def _append(self, shard: _Shard, rows: pa.RecordBatch) -> None:
        """One more piece, for which there is room. It takes in those before it that are no larger, as far as it stays
        small: few pieces are known however little memory there is, and a row is written again a few times at most."""
        first, before = shard.rows, shard.pieces.last
        shard.rows += rows.num_rows
        while before is not None and before.rows <= rows.num_rows and before.blob.nbytes + rows.nbytes <= self._small:
            rows, first = pa.concat_batches([self._read(before), rows]), before.first
            shard.pieces.pop()
            before.blob.free(self._device)
            before = shard.pieces.last
        times = times_of(rows)
        blob = write_blob(self._device, self._as_stored(rows).serialize())
        shard.pieces.append(Piece(blob, rows.num_rows, first, int(times[0]), int(times[-1])))
        shard.oldest = min(shard.oldest, int(times[0]))

    def replace(self, number: int, parts: Iterable[pa.RecordBatch]) -> None:
        """Other rows take the place of those of a shard, of which they may be made. If that fails, the rows are what
        they were. Nothing is staged."""
        before = self._shards[number]
        shard = _Shard(before.prefix, before.bits, self._account)
        try:
            for batch in parts:
                if batch.num_rows:
                    shard.pieces.make_room()
                    self._append(shard, batch)
        except BaseException:
            self._drop(shard)
            raise
        self._drop(before)
        self._shards[number] = shard

    def without_times(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Rows of a log in which times mean nothing."""
        times = pa.array(np.zeros(len(columns[0]), np.int64))
        return pa.RecordBatch.from_arrays([times, *columns], schema=self._schema)

    # Rows are read

    def count(self, number: int, least_time: int, before_time: int) -> int:
        """About how many rows of a shard are from one time on and before another: not less than that."""
        return sum(piece.rows for piece in self._pieces(number, least_time, before_time))

    def nbytes_of(self, number: int) -> int:
        """What the rows of a shard take on the device."""
        return self._shards[number].pieces.nbytes

    def prefix(self, number: int) -> tuple[int, int]:
        """The upper bits that the hashes of a shard's keys have in common, and how many they are."""
        return self._shards[number].prefix, self._shards[number].bits

    def has_rows(self, number: int) -> bool:
        return len(self._shards[number].pieces) > 0

    def between(self, number: int, least_time: int, before_time: int) -> Iterator[LoggedRows]:
        """The rows of a shard from one time on and before another, some at a time."""
        parts: list[pa.RecordBatch] = []
        first = nbytes = 0
        for piece in self._pieces(number, least_time, before_time):
            batch, begin = self._read(piece), 0
            if piece.first_time < least_time or piece.last_time >= before_time:
                times = times_of(batch)
                begin, end = np.searchsorted(times, (least_time, before_time)).tolist()
                if end < len(times):
                    self._shards[number].next = before_time, int(times[end])
                batch = batch.slice(begin, end - begin)
            if batch.num_rows:
                first = first if parts else piece.first + begin
                parts.append(batch)
                nbytes += piece.blob.nbytes
            if nbytes >= self._most_joined:
                yield self._joined(first, parts)
                parts, nbytes = [], 0
        if parts:
            yield self._joined(first, parts)

    def all(self, number: int) -> Iterator[pa.RecordBatch]:
        """All rows of a shard, some at a time."""
        for rows in self.between(number, -FOREVER, FOREVER):
            yield rows.batch

    def _pieces(self, number: int, least_time: int, before_time: int) -> Iterator[Piece]:
        """Those that may have rows from one time on and before another."""
        if least_time >= before_time:
            return
        yield from self._shards[number].pieces.between(least_time, before_time)

    @staticmethod
    def _joined(first: int, parts: list[pa.RecordBatch]) -> LoggedRows:
        return LoggedRows(first, parts[0] if len(parts) == 1 else pa.concat_batches(parts))

    def release(self, number: int, before_time: int) -> None:
        """Rows of a shard that are older have left."""
        shard = self._shards[number]
        for piece in shard.pieces.pop_before(before_time):
            piece.blob.free(self._device)
        first_time = shard.pieces.first_time
        shard.oldest = FOREVER if first_time is None else max(first_time, before_time)
        if shard.oldest == before_time == shard.next[0]:
            shard.oldest = shard.next[1]

    def _read(self, piece: Piece) -> pa.RecordBatch:
        rows = pa.ipc.read_record_batch(pa.py_buffer(piece.blob.read(self._device)), self._stored)
        return rows if self._stored is self._schema else rows.select(self._schema.names)

    def _as_stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self._stored is self._schema:
            return rows
        own = set(self._schema.names)
        columns = [rows.column(f.name) if f.name in own else pa.nulls(rows.num_rows, f.type) for f in self._stored]
        return pa.RecordBatch.from_arrays(columns, schema=self._stored)

    # Shards are divided

    def hashes_between(self, number: int) -> tuple[int, int] | None:
        """The least and the greatest hash of a shard's rows; None if there is no row."""
        least, most = 1 << 64, -1
        for piece in self._shards[number].pieces.all():
            hashes = self._hashes(self._read(piece))
            least, most = min(least, int(hashes.min())), max(most, int(hashes.max()))
        return None if most < 0 else (least, most)

    def divide(self, number: int) -> int:
        """Gives a shard's rows with a 1 as the next bit of the hash to a new shard, and returns its number. Nothing is
        staged."""
        shard = self._shards[number]
        if shard.bits == self._bits:
            self._account.charge(self._shard_of.nbytes)
            self._shard_of = np.repeat(self._shard_of, 2)
            self._bits += 1
        parts = [_Shard(2 * shard.prefix + bit, shard.bits + 1, self._account) for bit in (0, 1)]
        try:
            self._distribute(shard, parts)
        except BaseException:
            for part in parts:
                self._drop(part)
            raise
        self._drop(shard)
        self._shards[number] = parts[0]
        self._shards.append(parts[1])
        width = 1 << (self._bits - parts[1].bits)
        self._shard_of[parts[1].prefix * width : (parts[1].prefix + 1) * width] = len(self._shards) - 1
        return len(self._shards) - 1

    def _hashes(self, rows: pa.RecordBatch) -> UInt64s:
        return key_hashes(rows.columns[1 : 1 + len(self._types)], self._types, rows.num_rows)

    def _distribute(self, shard: _Shard, parts: list[_Shard]) -> None:
        """Appends the rows of a shard to two others, by the next bit of the hash."""
        for piece in shard.pieces.all():
            batch = self._read(piece)
            hashes = self._hashes(batch)
            bits = (hashes >> np.uint64(63 - shard.bits)).astype(np.int64) & 1
            for bit, part in enumerate(parts):
                chosen = bits == bit
                if chosen.any():
                    part.pieces.make_room()
                    self._append(part, batch.filter(pa.array(chosen)))

    def _drop(self, shard: _Shard) -> None:
        """A shard is gone, with all of its pieces."""
        for piece in shard.pieces.all():
            piece.blob.free(self._device)
        shard.pieces.close()

    # Durability

    def snapshot(self) -> dict[str, Any]:
        """What is known of the shards, and their pieces, those of one shard after those of the other."""
        self.flush()
        known = [(s.prefix, s.bits, s.rows, s.oldest, len(s.pieces)) for s in self._shards]
        pieces = np.concatenate([shard.pieces.table for shard in self._shards])
        columns = self._stored.serialize().to_pybytes()
        return {"shards": np.array(known, np.int64), "pieces": pieces, "columns": columns}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The device has been restored before."""
        if snapshot["columns"] is not None:
            stored = pa.ipc.read_schema(pa.py_buffer(snapshot["columns"]))
            self._stored = self._schema if stored.equals(self._schema) else stored
        self._shards = []
        self._bits = int(snapshot["shards"][:, 1].max())
        self._account.release(self._shard_of.nbytes)
        self._account.charge(4 << self._bits)
        self._shard_of = np.zeros(1 << self._bits, np.int32)
        end = 0
        for number, (prefix, bits, rows, oldest, pieces) in enumerate(snapshot["shards"].tolist()):
            shard = _Shard(prefix, bits, self._account)
            shard.rows, shard.oldest = rows, oldest
            shard.pieces.set(snapshot["pieces"][end : end + pieces])
            end += pieces
            width = 1 << (self._bits - bits)
            self._shard_of[prefix * width : (prefix + 1) * width] = number
            self._shards.append(shard)
