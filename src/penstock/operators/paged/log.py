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
   they take besides when they become pieces. That they do when memory is needed, or when they take a part of it.
3. A piece is written once. It is freed when all of its rows have left.
4. A shard that is divided keeps the rows whose next bit of the hash is 0, and the other rows are another shard's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.arrays import Int32s, Int64s, UInt64s
from penstock.components import component
from penstock.jit import kernel
from penstock.operators.paged.hashing import key_hashes
from penstock.store.batches import decoded, kept_bytes
from penstock.store.blobs import Blob, free_blob, read_blob, write_blob
from penstock.store.budget import Account
from penstock.store.device import BlockDevice
from penstock.types import SqlType
from penstock.windows.steps import FOREVER

TIME = "time"
"""The first column of a log."""

_STAGED = 4
"""So large a part of the memory may rows take that are not on the device yet."""

_ROW_BYTES = 12
"""What a row takes besides, while rows are put in the order of their shards."""

_PIECE_BYTES = 320
"""What is known of a piece takes so much."""

_JOINED = 64
"""Rows are staged and read together up to such a part of the memory."""

_MOST_BITS = 24


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


class Piece(NamedTuple):
    """Rows of one shard that stand together on the device. `first` is the number of the first row in its shard."""

    blob: Blob
    rows: int
    first: int
    first_time: int
    last_time: int


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

    def __init__(self, prefix: int, bits: int) -> None:
        self.prefix = prefix
        self.bits = bits
        self.pieces: deque[Piece] = deque()
        self.rows = 0
        """How many rows it has got so far."""
        self.oldest = FOREVER
        """A time that no row which has not left is older than."""
        self.next = -FOREVER, -FOREVER
        """A time up to which rows were read last, and that of the next row."""


@component("RowLog")
class RowLog:
    """`schema` has the columns behind the time; the first ones are the keys, of these `types`."""

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
        staged.give_up = self._give_up
        self._schema = pa.schema([pa.field(TIME, pa.int64()), *schema])
        self._types = tuple(types)
        self._staged: list[pa.RecordBatch] = []
        self._most_staged = account.total // _STAGED
        self._most_joined = account.total // _JOINED
        self.bytes_added = 0
        """Of all rows that have come."""
        self._shards = [_Shard(prefix, bits) for prefix in range(1 << bits)]
        self._bits = bits
        self._shard_of = np.arange(1 << bits, dtype=np.int32)
        """The shard of the upper `_bits` bits of a hash."""

    @property
    def shards(self) -> int:
        return len(self._shards)

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
        pieces = 0 if self._staged else _PIECE_BYTES * len(self._shards)  # for one piece of each
        self._staged_account.charge(needed + pieces)
        self._staged.append(batch)
        self.bytes_added += batch.nbytes
        if self._staged_account.nbytes >= self._most_staged:
            self.flush()

    def flush(self) -> None:
        """Staged rows become pieces of their shards."""
        if not self._staged:
            return
        self._staged_account.release(_PIECE_BYTES * len(self._shards))
        self._account.charge(_PIECE_BYTES * len(self._shards))
        pieces = self._write()
        self._account.release(_PIECE_BYTES * (len(self._shards) - pieces))
        self._staged_account.resize(0)

    def _give_up(self) -> bool:
        """Memory is needed that staged rows have."""
        had_rows = bool(self._staged)
        self.flush()
        return had_rows

    def _write(self) -> int:
        """Appends the staged rows to their shards, as one piece each; returns how many pieces. The rows go column by
        column into the order of the shards."""
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
        begin = pieces = 0
        for number, end in enumerate(ends.tolist()):
            if end > begin:
                self._append(self._shards[number], rows.slice(begin, end - begin))
                pieces += 1
            begin = end
        return pieces

    def _by_shard(self, hashes: UInt64s) -> tuple[pa.Array, Int64s]:
        order, ends = _by_shard(hashes, 64 - self._bits, self._shard_of, len(self._shards))
        return pa.array(order), ends

    def _append(self, shard: _Shard, rows: pa.RecordBatch) -> None:
        """One more piece, whose memory is on the account."""
        blob = write_blob(self._device, rows.serialize())
        times = times_of(rows)
        shard.pieces.append(Piece(blob, rows.num_rows, shard.rows, int(times[0]), int(times[-1])))
        shard.oldest = min(shard.oldest, int(times[0]))
        shard.rows += rows.num_rows

    # Rows are read

    def count(self, number: int, least_time: int, before_time: int) -> int:
        """About how many rows of a shard are from one time on and before another: not less than that."""
        return sum(piece.rows for piece in self._pieces(number, least_time, before_time))

    def has_rows(self, number: int) -> bool:
        return bool(self._shards[number].pieces)

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

    def _pieces(self, number: int, least_time: int, before_time: int) -> Iterator[Piece]:
        """Those that may have rows from one time on and before another."""
        if least_time >= before_time:
            return
        for piece in tuple(self._shards[number].pieces):
            if piece.first_time >= before_time:
                return
            if piece.last_time >= least_time:
                yield piece

    @staticmethod
    def _joined(first: int, parts: list[pa.RecordBatch]) -> LoggedRows:
        return LoggedRows(first, parts[0] if len(parts) == 1 else pa.concat_batches(parts))

    def release(self, number: int, before_time: int) -> None:
        """Rows of a shard that are older have left."""
        shard = self._shards[number]
        while shard.pieces and shard.pieces[0].last_time < before_time:
            self._free(shard.pieces.popleft())
        shard.oldest = max(shard.pieces[0].first_time, before_time) if shard.pieces else FOREVER
        if shard.oldest == before_time == shard.next[0]:
            shard.oldest = shard.next[1]

    def _read(self, piece: Piece) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(pa.py_buffer(read_blob(self._device, piece.blob)), self._schema)

    def _free(self, piece: Piece) -> None:
        free_blob(self._device, piece.blob.addresses.tolist())
        self._account.release(_PIECE_BYTES)

    # Shards are divided

    def divide(self, number: int) -> int | None:
        """Gives a shard's rows with a 1 as the next bit of the hash to a new shard, and returns its number. None if
        there are as many shards as there can be. Nothing is staged."""
        shard = self._shards[number]
        if shard.bits == _MOST_BITS:
            return None
        if shard.bits == self._bits:
            self._shard_of = np.repeat(self._shard_of, 2)
            self._bits += 1
        other = _Shard(2 * shard.prefix + 1, shard.bits + 1)
        shard.prefix, shard.bits = 2 * shard.prefix, shard.bits + 1
        pieces, shard.pieces, shard.rows, shard.oldest = shard.pieces, deque(), 0, FOREVER
        self._shards.append(other)
        width = 1 << (self._bits - other.bits)
        self._shard_of[other.prefix * width : (other.prefix + 1) * width] = len(self._shards) - 1
        while pieces:
            batch = self._read(pieces[0])
            hashes = key_hashes(batch.columns[1 : 1 + len(self._types)], self._types, batch.num_rows)
            is_other = (hashes >> np.uint64(64 - other.bits)).astype(np.int64) & 1 == 1
            for owner, chosen in ((shard, ~is_other), (other, is_other)):
                if chosen.any():
                    self._account.charge(_PIECE_BYTES)
                    self._append(owner, batch.filter(pa.array(chosen)))
            self._free(pieces.popleft())
        return len(self._shards) - 1

    # Durability

    def snapshot(self) -> dict[str, Any]:
        """The pieces of all shards, one row each, and the addresses of their blocks one after the other."""
        self.flush()
        pieces = [(number, piece) for number, shard in enumerate(self._shards) for piece in shard.pieces]
        table = [(n, len(p.blob.addresses), p.blob.nbytes, *p[1:]) for n, p in pieces]
        return {
            "shards": np.array([(s.prefix, s.bits, s.rows, s.oldest) for s in self._shards], np.int64),
            "pieces": np.array(table, np.int64).reshape(len(table), 7),
            "addresses": np.concatenate([np.empty(0, np.int64), *(p.blob.addresses for _, p in pieces)]),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The device has been restored before."""
        self._shards = []
        self._bits = int(snapshot["shards"][:, 1].max())
        self._shard_of = np.zeros(1 << self._bits, np.int32)
        for number, (prefix, bits, rows, oldest) in enumerate(snapshot["shards"].tolist()):
            shard = _Shard(prefix, bits)
            shard.rows, shard.oldest = rows, oldest
            width = 1 << (self._bits - bits)
            self._shard_of[prefix * width : (prefix + 1) * width] = number
            self._shards.append(shard)
        self._account.charge(_PIECE_BYTES * len(snapshot["pieces"]))
        end = 0
        for number, blocks, nbytes, *rest in snapshot["pieces"].tolist():
            blob = Blob(snapshot["addresses"][end : end + blocks].copy(), nbytes)
            end += blocks
            self._shards[number].pieces.append(Piece(blob, *rest))

    @property
    def nbytes(self) -> int:
        """Bytes of all pieces on the device."""
        return sum(piece.blob.nbytes for piece in chain.from_iterable(shard.pieces for shard in self._shards))
