"""Record batches of one row, from a message that is prepared once.

An Arrow batch of one row is made of several objects per column. Reading it from a message in Arrow's IPC format is one
call. `OneRow` keeps the message of a row; for each row it copies it, writes the values at their places and reads it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

LONGEST = 56
"""Texts of up to so many bytes have room in the message."""


class OneRow:
    """`schema` has columns of 8 bytes, and strings.

    >>> one = OneRow(pa.schema([("k", pa.string()), ("n", pa.int64())]))
    >>> one.read([3, b"abc", 7], one.schema).to_pylist()
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
        self._first = at = -1
        layout = "<"
        for column in read.columns:
            for buffer in column.buffers()[1:]:
                place = int(buffer.address) - int(message.address)
                if at < 0:
                    self._first = at = place
                is_text = pa.types.is_string(column.type)
                if is_text and buffer.size < LONGEST:  # where the text begins, which is always 0, and where it ends
                    layout, at = f"{layout}{place + 4 - at}xi", place + 8
                else:
                    layout, at = f"{layout}{place - at}x{f'{LONGEST}s' if is_text else 'q'}", place + buffer.size
        self._row = struct.Struct(layout)

    @staticmethod
    def fits(schema: pa.Schema) -> bool:
        """Whether rows with such columns can be made."""
        return all(pa.types.is_string(kind) or _is_word(kind) for kind in schema.types)

    def read(self, values: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
        """The row with these values, in the order of the columns: of a column of 8 bytes the integer with these bytes,
        of a string its length in bytes and its bytes. The schema may have other metadata."""
        message = bytearray(self._message)
        self._row.pack_into(message, self._first, *values)
        return pa.ipc.read_record_batch(pa.py_buffer(message), schema)


def _is_word(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind)) and kind.bit_width == 64
