"""Results of single events as parts of one Arrow batch: its rows are filled one after the other, and go out once.

An Arrow batch is made of several objects per column. A slice of a batch that is there is one call. The cells of a
`ResultSheet` are those that the lane writes its results into.

Invariant: a row that has gone out never changes. Rows behind it have not gone out: they may be filled again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s

TEXT_BYTES = 16
"""A sheet has room for texts of so many bytes per row."""


class ResultSheet:
    """`registers` says for each column in which register its values are; None is for texts, of which there is room for
    at least `least_room` bytes. All columns of texts have the same ones. `cells` are those of all registers, in the
    order in which columns name them first.

    >>> sheet = ResultSheet(pa.schema([("k", pa.string()), ("n", pa.int64())]), [None, 5], 8)
    >>> sheet.cells[0] = 7
    >>> sheet.put_text(0, b"abc")
    >>> sheet.rows(0, 1).to_pylist()
    [{'k': 'abc', 'n': 7}]
    """

    def __init__(self, schema: pa.Schema, registers: Sequence[int | None], rows: int, least_room: int = 0) -> None:
        size, self.end, self.most = 8 * rows, 0, max(TEXT_BYTES * rows, least_room)
        """Of `most` bytes of texts, those before `end` are taken."""
        texts, ends = np.empty(self.most, np.uint8), np.zeros(rows + 1, np.int32)
        self._texts, self._ends = texts.data, ends.data
        places = list(dict.fromkeys(register for register in registers if register is not None))
        self.cells: Int64s = np.empty(rows * len(places), np.int64)
        whole, text = pa.py_buffer(self.cells), [None, pa.py_buffer(ends), pa.py_buffer(texts)]
        columns = [
            pa.Array.from_buffers(
                kind, rows, text if register is None else [None, whole.slice(size * places.index(register), size)], 0
            )
            for kind, register in zip(schema.types, registers, strict=True)
        ]
        self.rows: Callable[[int, int], pa.RecordBatch] = pa.RecordBatch.from_arrays(columns, schema=schema).slice
        """So many rows, from one on."""

    def put_text(self, row: int, text: bytes) -> None:
        """The text of a row; the rows before it have theirs."""
        begin = self.end
        self.end = self._ends[row + 1] = begin + len(text)
        self._texts[begin : self.end] = text

    def put_texts(self, row: int, texts: Sequence[str]) -> None:
        """The texts of some rows from one on."""
        begin, encoded = self.end, "".join(texts).encode()
        self.end = end = begin + len(encoded)
        self._texts[begin:end] = encoded
        ends = list(accumulate(map(len, texts), initial=begin))
        if ends[-1] != end:  # some characters take several bytes
            ends = list(accumulate([len(text.encode()) for text in texts], initial=begin))
        struct.pack_into(f"{len(ends)}i", self._ends, 4 * row, *ends)
