"""Record batches of one row, from a message that is prepared once.

An Arrow batch of one row is made of several objects per column. Reading it from a message in Arrow's IPC format is one
call. `OneRow` keeps the message of a row; for each row it copies it, writes the values at their places and reads it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

LONGEST = 56
"""Texts of up to so many bytes have room in the message."""


class OneRow:
    """`schema` has columns of 8 bytes, and strings.

    >>> one = OneRow(pa.schema([("k", pa.string()), ("n", pa.int64())]))
    >>> one.read([7], [b"abc"], one.schema).to_pylist()
    [{'k': 'abc', 'n': 7}]
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        columns = [
            pa.array(["x" * LONGEST])
            if pa.types.is_string(kind)
            else pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(np.zeros(1, np.int64))])
            for kind in schema.types
        ]
        message = pa.RecordBatch.from_arrays(columns, schema=schema).serialize()
        self._message = message.to_pybytes()
        read = pa.ipc.read_record_batch(message, schema)
        numbers = "<"
        self._texts: list[tuple[struct.Struct, int]] = []
        self._first = at = -1
        for column in read.columns:
            places = [int(buffer.address) - int(message.address) for buffer in column.buffers()[1:]]
            if len(places) > 1:
                self._texts.append((struct.Struct(f"<ii{places[1] - places[0] - 8}x{LONGEST}s"), places[0]))
                continue
            if at < 0:
                self._first = at = places[0]
            numbers += f"{places[0] - at}xq"
            at = places[0] + 8
        self._numbers = struct.Struct(numbers)

    @staticmethod
    def fits(schema: pa.Schema) -> bool:
        """Whether rows with such columns can be made."""
        return all(pa.types.is_string(kind) or _is_word(kind) for kind in schema.types)

    def read(self, numbers: Sequence[int], texts: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
        """The row with these 8-byte values, given as integers, and these texts, each in the order of the columns. The
        schema may have other metadata."""
        message = bytearray(self._message)
        self._numbers.pack_into(message, self._first, *numbers)
        for (text, place), value in zip(self._texts, texts, strict=True):
            text.pack_into(message, place, 0, len(value), value)
        return pa.ipc.read_record_batch(pa.py_buffer(message), schema)


def _is_word(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind)) and kind.bit_width == 64
