"""The rows of a window whose groups are beyond memory: one log per shard, on a device.

    rows ─▶ staged, as they come ─ flush ─▶ pieces of shard 0   |-- left --|-- played --|-- not yet --|
                                            pieces of shard 1   |-- left --|-- played --|-- not yet --|
                                            ...

A piece is an Arrow batch with the columns of the log: `at`, the position of the row in the stream, `time`, the keys and
what the states read. A row is read twice: when it enters the states of its shard, and when it leaves them.

Invariants:
1. The rows of a shard are in the order of their positions, and their times never fall. Row number n of a shard is the
   n-th that the shard got, also after rows before it are gone.
2. What is known of pieces is on the account. Rows that are staged are on an account of their own, twice, since they
   are copied when they become pieces; that they do when memory is needed, or when they take a part of it.
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

from penstock.arrays import Int64s, UInt64s
from penstock.components import component
from penstock.operators.paged.hashing import key_hashes
from penstock.store.batches import decoded, kept_bytes
from penstock.store.blobs import Blob, free_blob, read_blob, write_blob
from penstock.store.budget import Account
from penstock.store.device import BlockDevice
from penstock.types import SqlType
from penstock.windows.steps import FOREVER

AT, TIME = "at", "time"
"""The first two columns of a log."""

_STAGED = 8
"""So large a part of the memory may rows take that are not on the device yet."""

_PIECE_BYTES = 320
"""What is known of a piece takes so much."""

_MOST_BITS = 24


class Piece(NamedTuple):
    """Rows of one shard that stand together on the device. `first` is the number of the first row in its shard."""

    blob: Blob
    rows: int
    first: int
    least_at: int
    most_at: int
    first_time: int
    last_time: int


class LoggedRows(NamedTuple):
    """Consecutive rows of a shard; `first` is the number of the first one."""

    first: int
    batch: pa.RecordBatch


class _Shard:
    """`prefix` are the upper bits of the hashes of its keys, and `bits` how many of them."""

    def __init__(self, prefix: int, bits: int) -> None:
        self.prefix = prefix
        self.bits = bits
        self.pieces: deque[Piece] = deque()
        self.rows = 0
        """How many rows it has got so far."""
        self.oldest = FOREVER
        """The time of the oldest row that has not left."""


@component("RowLog")
class RowLog:
    """`schema` has the columns behind `at` and `time`; the first ones are the keys, of these `types`."""

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
        self._schema = pa.schema([pa.field(AT, pa.int64()), pa.field(TIME, pa.int64()), *schema])
        self._types = tuple(types)
        self._staged: list[pa.RecordBatch] = []
        self._most_staged = account.total // _STAGED
        self._shards = [_Shard(prefix, bits) for prefix in range(1 << bits)]
        self._bits = bits
        self._shard_of = np.arange(1 << bits, dtype=np.int32)
        """The shard of the upper `_bits` bits of a hash."""

    @property
    def shards(self) -> int:
        return len(self._shards)

    @property
    def oldest(self) -> int:
        """The time of the oldest row that has not left; `FOREVER` if there is none."""
        staged = int(self._staged[0].column(TIME)[0].as_py()) if self._staged else FOREVER
        return min(staged, min(shard.oldest for shard in self._shards))

    # Rows come

    def add(self, at: Int64s, times: Int64s, columns: Sequence[pa.Array]) -> None:
        """Rows behind all others."""
        if len(at) == 0:
            return
        batch = pa.RecordBatch.from_arrays([pa.array(at), pa.array(times), *columns], names=self._schema.names)
        batch = decoded(batch)
        self._staged_account.charge(2 * kept_bytes(batch))
        self._staged.append(batch)
        if self._staged_account.nbytes >= self._most_staged:
            self.flush()

    def flush(self) -> None:
        """Staged rows become pieces of their shards."""
        if not self._staged:
            return
        self._account.charge(_PIECE_BYTES * len(self._shards))  # for one piece of each
        staged, self._staged = self._staged, []
        pieces = self._write(pa.Table.from_batches(staged).combine_chunks().to_batches()[0])
        self._account.release(_PIECE_BYTES * (len(self._shards) - pieces))
        self._staged_account.resize(0)

    def _give_up(self) -> bool:
        """Memory is needed that staged rows have."""
        had_rows = bool(self._staged)
        self.flush()
        return had_rows

    def _write(self, rows: pa.RecordBatch) -> int:
        """Appends the rows to their shards, as one piece each; returns how many pieces."""
        upper = (self._hashes(rows) >> np.uint64(64 - _MOST_BITS)).astype(np.int32) >> (_MOST_BITS - self._bits)
        owners = self._shard_of[upper].astype(np.uint16 if len(self._shards) <= 1 << 16 else np.int32)
        order = np.argsort(owners, kind="stable")
        sorted_rows = rows.take(pa.array(order))
        ends = np.cumsum(np.bincount(owners, minlength=len(self._shards)))
        begin = pieces = 0
        for number, end in enumerate(ends.tolist()):
            if end > begin:
                self._append(self._shards[number], sorted_rows.slice(begin, end - begin))
                pieces += 1
            begin = end
        return pieces

    def _hashes(self, rows: pa.RecordBatch) -> UInt64s:
        keys = [rows.column(2 + i) for i in range(len(self._types))]
        return key_hashes(keys, self._types, rows.num_rows)

    def _append(self, shard: _Shard, rows: pa.RecordBatch) -> None:
        """One more piece, whose memory is on the account."""
        blob = write_blob(self._device, rows.serialize())
        at, times = _numbers(rows, AT), _numbers(rows, TIME)
        shard.pieces.append(
            Piece(blob, rows.num_rows, shard.rows, int(at[0]), int(at[-1]), int(times[0]), int(times[-1]))
        )
        shard.oldest = min(shard.oldest, int(times[0]))
        shard.rows += rows.num_rows

    # Rows are read

    def count(self, number: int, least_at: int, before_at: int, before_time: int) -> int:
        """About how many rows of a shard enter between two positions or are older than a time: not less than that."""
        total = 0
        for piece in self._shards[number].pieces:
            entering = piece.most_at >= least_at and piece.least_at < before_at
            total += piece.rows * (entering + (piece.first_time < before_time))
        return total

    def has_rows(self, number: int) -> bool:
        return bool(self._shards[number].pieces)

    def between(self, number: int, least_at: int, before_at: int, least_time: int = -FOREVER) -> Iterator[LoggedRows]:
        """The rows of a shard between two positions that are not older than a time."""
        for piece in tuple(self._shards[number].pieces):
            if piece.most_at < least_at or piece.last_time < least_time:
                continue
            if piece.least_at >= before_at:
                return
            batch = self._read(piece)
            begin, end = np.searchsorted(_numbers(batch, AT), (least_at, before_at)).tolist()
            begin = max(begin, int(np.searchsorted(_numbers(batch, TIME), least_time)))
            if end > begin:
                yield LoggedRows(piece.first + begin, batch.slice(begin, end - begin))

    def leaving(self, number: int, least_time: int, before_time: int) -> Iterator[LoggedRows]:
        """The rows of a shard from one time on and before another."""
        for piece in tuple(self._shards[number].pieces):
            if piece.last_time < least_time:
                continue
            if piece.first_time >= before_time:
                return
            batch = self._read(piece)
            begin, end = np.searchsorted(_numbers(batch, TIME), (least_time, before_time)).tolist()
            if end > begin:
                yield LoggedRows(piece.first + begin, batch.slice(begin, end - begin))

    def release(self, number: int, before_time: int) -> None:
        """Rows of a shard that are older have left."""
        shard = self._shards[number]
        while shard.pieces and shard.pieces[0].last_time < before_time:
            self._free(shard.pieces.popleft())
        shard.oldest = FOREVER
        if shard.pieces:
            first = shard.pieces[0]
            shard.oldest = first.first_time if first.first_time >= before_time else self._next_time(first, before_time)

    def _next_time(self, piece: Piece, before_time: int) -> int:
        times = _numbers(self._read(piece), TIME)
        return int(times[np.searchsorted(times, before_time)])

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
            is_other = (self._hashes(batch) >> np.uint64(64 - other.bits)).astype(np.int64) & 1 == 1
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
            "pieces": np.array(table, np.int64).reshape(len(table), 9),
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


def _numbers(rows: pa.RecordBatch, name: str) -> Int64s:
    numbers: Int64s = rows.column(name).to_numpy()
    return numbers
