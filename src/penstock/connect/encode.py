"""Results as text: CSV and JSON lines, column by column.

Times are ISO 8601 in UTC with microseconds (`expressions.time_texts`). NaN and infinities are written as Spark writes
them: `NaN`, `Infinity`; in JSON as strings, because JSON has no such numbers. Numbers read back to the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.time_texts import time_texts

_ROWS_AT_ONCE = 1 << 16
"""Keeps the text of one step far below the 2 GB that an Arrow string column holds."""


def json_lines(batch: pa.RecordBatch) -> bytes:
    """One object a line.

    >>> json_lines(pa.record_batch({"k": ["a", None], "x": [1.5, float("nan")]}))
    b'{"k":"a","x":1.5}\\n{"k":null,"x":"NaN"}\\n'
    """
    labels = [json.dumps(name, ensure_ascii=False) + ":" for name in batch.schema.names]
    starts = [("{" if i == 0 else ",") + label for i, label in enumerate(labels)]
    return _lines(batch, starts, "}\n", _json_column)


def csv_header(schema: pa.Schema, delimiter: str = ",") -> bytes:
    names = pa.array(schema.names, pa.string())
    return (delimiter.join(_csv_text(names, delimiter).to_pylist()) + "\n").encode()


def csv_lines(batch: pa.RecordBatch, delimiter: str = ",") -> bytes:
    """NULL is nothing between the delimiters; an empty text is a pair of quotes.

    >>> csv_lines(pa.record_batch({"k": ["a,b", None, ""], "n": [1, 2, 3]}))
    b'"a,b",1\\n,2\\n"",3\\n'
    """
    starts = ["" if i == 0 else delimiter for i in range(batch.num_columns)]
    return _lines(batch, starts, "\n", lambda column: _csv_column(column, delimiter))


def _lines(batch: pa.RecordBatch, starts: list[str], end: str, render: Callable[[pa.Array], pa.Array]) -> bytes:
    parts = []
    for low in range(0, batch.num_rows, _ROWS_AT_ONCE):
        piece = batch.slice(low, _ROWS_AT_ONCE)
        texts = [x for i, start in enumerate(starts) for x in (start, render(piece.column(i)))]
        joined = pc.binary_join_element_wise(*texts, end, "")
        offsets = np.frombuffer(joined.buffers()[1], np.int32)
        parts.append(joined.buffers()[2][int(offsets[0]) : int(offsets[len(joined)])].to_pybytes())
    return b"".join(parts)


def _plain_text(column: pa.Array, quote: str) -> pa.Array:
    """Anything but strings, as text; `quote` goes around what JSON has no literal for. NULL stays NULL."""
    if pa.types.is_temporal(column.type):
        return pc.binary_join_element_wise(quote, time_texts(column), quote, "")
    text = pc.cast(column, pa.string())
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        infinite = pc.if_else(pc.greater(column, 0), f"{quote}Infinity{quote}", f"{quote}-Infinity{quote}")
        strange = pc.if_else(pc.is_nan(column), f"{quote}NaN{quote}", infinite)
        return pc.if_else(pc.is_finite(column), text, strange)
    return text


def _json_column(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type):
        coded = column.dictionary_encode()
        known = [json.dumps(text, ensure_ascii=False) for text in coded.dictionary.to_pylist()]
        text = pa.array(known, pa.string()).take(coded.indices)
    else:
        text = _plain_text(column, '"')
    return pc.fill_null(text, "null")


def _csv_column(column: pa.Array, delimiter: str) -> pa.Array:
    text = _csv_text(column, delimiter) if pa.types.is_string(column.type) else _plain_text(column, "")
    return pc.fill_null(text, "")


def _csv_text(column: pa.Array, delimiter: str) -> pa.Array:
    special = "".join("\\" + c if c in "^]\\-" else c for c in '"\r\n' + delimiter)
    needs_quotes = pc.or_(pc.match_substring_regex(column, f"[{special}]"), pc.equal(column, ""))
    if not pc.any(needs_quotes).as_py():
        return column
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(column, '"', '""'), '"', "")
    return pc.if_else(needs_quotes, quoted, column)
