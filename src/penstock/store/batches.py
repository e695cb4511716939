"""Arrow batches that are kept: with plain strings, holding on to no more memory than their rows need, and counted with
all of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.store.decoding import plain_strings

_SMALL_BYTES = 4096

_BATCH_BYTES, _COLUMN_BYTES = 512, 256
"""What a batch takes about besides its rows, and each of its columns."""


def decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with plain strings: a part of it does not carry the texts of all."""
    columns = [plain_strings(c) if isinstance(c, pa.DictionaryArray) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, or a copy of it where it is a small part of the memory that it holds on to.

    >>> whole = pa.record_batch({"x": range(100_000)})
    >>> compact(whole) is whole, compact(whole.slice(10, 2)).get_total_buffer_size()
    (True, 16)
    """
    if batch.get_total_buffer_size() <= 2 * batch.nbytes + _SMALL_BYTES:
        return batch
    return copied(batch)


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in memory of their own.

    >>> part = pa.record_batch({"x": range(100), "y": [None, "b"] * 50}).slice(10, 4)
    >>> copied(part).equals(part), copied(part).get_total_buffer_size() < 100
    (True, True)
    """
    every = None
    columns = []
    for column in batch.columns:
        if pa.types.is_primitive(column.type) and column.type.bit_width % 8 == 0 and not column.null_count:
            width = column.type.bit_width // 8
            held = column.buffers()[1]
            values = held.slice(column.offset * width, len(column) * width).to_pybytes() if held is not None else b""
            columns.append(pa.Array.from_buffers(column.type, len(column), [None, pa.py_buffer(values)], 0))
        else:
            every = pa.array(np.arange(batch.num_rows)) if every is None else every
            columns.append(column.take(every))
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def held_bytes(batch: pa.RecordBatch) -> int:
    """What a batch takes: its buffers as wholes, each as large as the allocator makes it. Allocators have four sizes
    from one power of two to the next, and Arrow asks for 64 bytes more than a buffer has.

    >>> held_bytes(pa.record_batch({"x": range(8192)})), held_bytes(pa.record_batch({"x": range(8184)}))
    (81920, 65536)
    """
    sizes = (buffer.size for column in batch.columns for buffer in column.buffers() if buffer is not None)
    return sum(allocated_bytes(size) for size in sizes)


def allocated_bytes(size: int) -> int:
    """What the allocator takes for a buffer of Arrow."""
    step = max(16, 1 << max(0, (size + 63).bit_length() - 3))
    return -(-(size + 64) // step) * step


def kept_bytes(batch: pa.RecordBatch) -> int:
    """What a batch of any size takes about: its rows, and the objects that they are in. It is cheaper to tell than
    `held_bytes`, and is less for parts of larger batches.

    >>> kept_bytes(pa.record_batch({"x": [1, 2]}))
    784
    """
    return int(batch.nbytes) + _BATCH_BYTES + _COLUMN_BYTES * int(batch.num_columns)
