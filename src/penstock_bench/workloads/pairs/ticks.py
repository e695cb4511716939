"""Ticks as columns: what the generator makes, the files hold and the validator reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import InputError

CHUNK_TICKS: Final = 1 << 16

SCHEMA: Final = pa.schema(
    [
        pa.field("symbol", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("price", pa.int32(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("tickTS", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Ticks:
    """Columns of some ticks in a row: the numbers of their symbols, prices in cents, shares, milliseconds."""

    symbol: NDArray[np.int32]
    price: NDArray[np.int32]
    size: NDArray[np.int32]
    tick_ts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tick_ts)

    def __getitem__(self, rows: slice) -> Ticks:
        return Ticks(self.symbol[rows], self.price[rows], self.size[rows], self.tick_ts[rows])

    def batch(self, symbols: pa.Array) -> pa.RecordBatch:
        """As an Arrow batch; `symbols` has the names by their numbers."""
        symbol = pa.DictionaryArray.from_arrays(pa.array(self.symbol), symbols)
        return pa.record_batch(
            [symbol, pa.array(self.price), pa.array(self.size), pa.array(self.tick_ts)], schema=SCHEMA
        )


def empty(count: int) -> Ticks:
    return Ticks(
        np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int64)
    )


def interleaved(parts: Sequence[Ticks]) -> Ticks:
    """Puts together what was dealt out in turn: the rows of part f become every n-th row, from row f on."""
    whole = empty(sum(map(len, parts)))
    for turn, part in enumerate(parts):
        rows = slice(turn, None, len(parts))
        whole.symbol[rows], whole.price[rows] = part.symbol, part.price
        whole.size[rows], whole.tick_ts[rows] = part.size, part.tick_ts
    return whole


def rechunked(pieces: Iterable[Ticks], rows: int) -> Iterator[Ticks]:
    """The same ticks in pieces of `rows` rows; the last one may be shorter."""
    if rows < 1:
        raise InputError(f"chunks cannot have {rows} rows: write a number from 1 on")
    held: list[Ticks] = []
    have = 0
    for piece in pieces:
        held.append(piece)
        have += len(piece)
        if have < rows:
            continue
        whole = _joined(held)
        cut = have - have % rows
        for start in range(0, cut, rows):
            yield whole[start : start + rows]
        held = [whole[cut:]]
        have -= cut
    if have:
        yield _joined(held)


def _joined(pieces: list[Ticks]) -> Ticks:
    if len(pieces) == 1:
        return pieces[0]
    return Ticks(
        np.concatenate([piece.symbol for piece in pieces]),
        np.concatenate([piece.price for piece in pieces]),
        np.concatenate([piece.size for piece in pieces]),
        np.concatenate([piece.tick_ts for piece in pieces]),
    )
