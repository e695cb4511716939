"""The layout of a block: columns one after the other, then a bitmap of validity for each column that may be NULL.

    | column 0 | column 1 | ... | valid bits of the first nullable column | ... |

Where rows are read from anywhere (`by_row`), the values of a row are together instead, the widest first, so that few
cache lines are fetched for it. Columns are then views with gaps, of which only single rows should be read.

Each part starts at a multiple of 8 bytes. The number of rows that fit (the *block factor*) follows from the columns
and the size alone, so a block says where it lies in the stream by its number and needs no index of its own.
In memory, validity is unpacked to one bool per row, and is absent while a column of the block has no NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from penstock.arrays import Bools
from penstock.columns import Argument, Values
from penstock.errors import StorageError

_LINE = 64


@dataclass(frozen=True)
class ColumnSpec:
    """A column of a store: `dtype` has a fixed width."""

    name: str
    dtype: np.dtype[Any]
    nullable: bool


class Frame:
    """A block in memory. Rows `[0, count)` never change; rows behind them are not yet written. `offsets` says where the
    values of each column begin in the block. The arrays of the columns are made when they are first asked for: the lane
    needs addresses alone."""

    __slots__ = ("_address", "_values", "count", "layout", "nbytes", "offsets", "payload", "valid")

    def __init__(self, payload: Values, layout: BlockLayout) -> None:
        self.payload = payload
        self.valid: list[Bools | None] = [None] * len(layout.columns)
        self.nbytes = layout.frame_bytes
        self.offsets: Sequence[int] = layout.value_offsets
        self.count = 0
        self.layout = layout
        self._values: tuple[Values, ...] | None = None
        self._address = 0

    @property
    def values(self) -> tuple[Values, ...]:
        """A column each, with room for all rows of the block."""
        if self._values is None:
            self._values = self.layout.columns_in(self.payload)
        return self._values

    @property
    def is_unseen(self) -> bool:
        """Whether no array of it was ever made: no view shows its rows, so its memory can have others. In blocks that
        may hold NULLs it cannot."""
        return self._values is None and not self.layout.nullable

    @property
    def address(self) -> int:
        """Where the block is in memory."""
        if self._address == 0:
            self._address = self.payload.__array_interface__["data"][0]
        return self._address

    def slice(self, start: int, stop: int, wanted: Sequence[int] | None = None) -> tuple[Argument, ...]:
        """Some rows of the columns `wanted`, by their places; of all columns if none are named."""
        values, valid = self.values, self.valid
        return tuple(
            [
                Argument(values[i][start:stop], None if (known := valid[i]) is None else known[start:stop])
                for i in (range(len(values)) if wanted is None else wanted)
            ]
        )

    def write(self, columns: Sequence[Argument], start: int, stop: int) -> None:
        """Appends rows `[start, stop)` of the columns, which have the dtypes of the block's; there is room for them."""
        assert len(columns) == len(self.values)
        first = self.count
        last = first + stop - start
        for index, (values, valid) in enumerate(columns):
            column = self.values[index]
            assert values.dtype == column.dtype
            column[first:last] = values[start:stop]
            known = self.valid[index]
            if valid is not None:
                if known is None:
                    if valid[start:stop].all():
                        continue
                    known = self.valid[index] = np.ones(len(column), np.bool_)
                known[first:last] = valid[start:stop]
            elif known is not None:
                known[first:last] = True
        self.count = last


class BlockLayout:
    """Where the columns lie in a block of at most `size` bytes."""

    def __init__(self, columns: Sequence[ColumnSpec], size: int, *, by_row: bool = False) -> None:
        self.columns = tuple(columns)
        self.size = size
        self._by_row = by_row and len(columns) > 1
        nullable = sum(column.nullable for column in columns)
        widths = [column.dtype.itemsize for column in columns]
        row_bytes = sum(widths)
        if self._by_row:
            row_bytes = -(-row_bytes // max(widths)) * max(widths)
        self.steps = [row_bytes] * len(widths) if self._by_row else widths
        """How far the values of a column are from each other."""
        row_bits = 8 * row_bytes + nullable
        rows = size * 8 // row_bits
        while rows > 0 and self._place(rows)[2] > size:
            rows -= 1
        if rows == 0:
            raise StorageError(f"a row of {row_bits // 8} bytes does not fit a block of {size}; use larger blocks")
        self.rows = rows
        self.value_offsets, self.nullable, self.nbytes = self._place(rows)

    def _place(self, rows: int) -> tuple[list[int], list[tuple[int, int]], int]:
        """Offsets of the values of each column, columns that may be NULL with the offsets of their validity bits, and
        the end of the last."""
        end = 0
        value_offsets: list[int] = []
        nullable: list[tuple[int, int]] = []
        if self._by_row:
            value_offsets = self._in_row()
            end = (rows * self.steps[0] + 7) & ~7
        else:
            for column in self.columns:
                value_offsets.append(end)
                end += (rows * column.dtype.itemsize + 7) & ~7
        for place, column in enumerate(self.columns):
            if column.nullable:
                nullable.append((place, end))
                end += ((rows + 63) // 64) * 8
        return value_offsets, nullable, end

    def _in_row(self) -> list[int]:
        """Where the values of the columns are in a row."""
        widths = [column.dtype.itemsize for column in self.columns]
        offsets = [0] * len(widths)
        end = 0
        for place in sorted(range(len(widths)), key=lambda place: -widths[place]):
            offsets[place] = end
            end += widths[place]
        return offsets

    @cached_property
    def frame_bytes(self) -> int:
        """Memory that a frame takes at most: the block and its unpacked validity."""
        return self.nbytes + self.rows * sum(column.nullable for column in self.columns) + _LINE * self._by_row

    def new_frame(self) -> Frame:
        if not self._by_row:
            return Frame(np.empty(self.nbytes, np.uint8), self)
        room = np.empty(self.nbytes + _LINE, np.uint8)
        start = -room.__array_interface__["data"][0] % _LINE  # rows of half a line do not lie across two
        return Frame(room[start : start + self.nbytes], self)

    def seal(self, frame: Frame) -> memoryview:
        """The bytes of a full frame."""
        assert frame.count == self.rows
        for index, offset in self.nullable:
            valid, packed = frame.valid[index], (self.rows + 7) // 8
            bits = frame.payload[offset : offset + packed]
            bits[:] = 255 if valid is None else np.packbits(valid, bitorder="little")
        return frame.payload.data

    def open(self, payload: memoryview, room: Frame | None = None) -> Frame:
        """A full frame from its bytes, which may be in the frame that there is `room` in."""
        if len(payload) != self.nbytes:
            raise StorageError(f"a block of {len(payload):,} bytes is there where {self.nbytes:,} were expected")
        owner: object = payload.obj
        if room is not None and owner is room.payload:
            frame = room
        else:
            block = np.frombuffer(payload, np.uint8)
            frame = Frame(block.copy() if payload.readonly else block, self)  # kernels are compiled for writable arrays
        frame.count = self.rows
        for index, offset in self.nullable:
            bits = frame.payload[offset : offset + (self.rows + 7) // 8]
            valid = np.unpackbits(bits, count=self.rows, bitorder="little").view(np.bool_)
            frame.valid[index] = None if valid.all() else valid
        return frame

    def columns_in(self, payload: Values) -> tuple[Values, ...]:
        """The columns of a block with these bytes."""
        return tuple(
            [
                np.ndarray((self.rows,), column.dtype, payload, offset, (step,))
                for column, offset, step in zip(self.columns, self.value_offsets, self.steps, strict=True)
            ]
        )
