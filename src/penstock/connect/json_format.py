"""JSON lines as an input: Arrow's parser with the declared types; one object a line, unknown keys ignored.

A key that is missing is NULL. Keys match whatever their case, in each row; where a row has several that do, the one as
declared (or as in the first row, if that has it in another case) counts, else the first.
NaN and infinities may be written bare or, as valid JSON has it, as the strings "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from penstock.connect.lines import LineFormat, Parsed, Unparsable
from penstock.connect.source import Reading
from penstock.errors import InputError
from penstock.types import SqlType

_QUOTED_FLOAT = re.compile(rb':\s*"(NaN|-?Infinity)"')
_SPACE = b" \t\r\n"


class JsonFormat(LineFormat):
    def __init__(self, reading: Reading, where: str) -> None:
        self._reading = reading
        self._where = where
        self._keys = {f.name: f.name for f in reading.fields}
        self._odd_cases: dict[tuple[str, ...], re.Pattern[bytes]] = {}
        self._has_floats = any(f.type.is_floating for f in reading.fields)

    def begin(self, first: bytes) -> bool:
        if first.removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE).startswith(b"["):
            raise InputError(f"{self._where}: begins with '['; write one JSON object a line, without an array around")
        try:
            found = json.loads(first.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            return False
        if isinstance(found, dict):
            by_case = {key.lower(): key for key in reversed(list(found))}
            self._keys = {n: n if n in found else by_case.get(n.lower(), n) for n in self._reading.fields.names}
        return False

    def parse(self, data: bytes, records: int) -> Parsed:
        if records > 1 and (odd := _first_odd_line(data)) is not None:
            raise Unparsable("not a JSON object", odd)
        try:
            table = self._read(data)
        except Unparsable:
            if not (records == 1 and self._has_floats and _QUOTED_FLOAT.search(data)):
                raise
            data = _QUOTED_FLOAT.sub(rb": \1", data)
            table = self._read(data)
        odd_case = self._odd_case(table)
        if odd_case is not None and odd_case.search(data):
            lines = (self._usual_case(line) if odd_case.search(line) else line for line in data.split(b"\n"))
            table = self._read(b"\n".join(lines))
        if table.num_rows != records:
            raise Unparsable("not exactly one JSON object on the line")
        return Parsed(table, np.arange(records), [])

    def _odd_case(self, table: pa.Table) -> re.Pattern[bytes] | None:
        """Keys of columns that have NULLs here, written in another case than usual: they may be in some rows."""
        names = tuple(name for name in table.schema.names if table.column(name).null_count)
        if names and names not in self._odd_cases:
            keys = [re.escape(json.dumps(self._keys[name], ensure_ascii=False).encode()) for name in names]
            usual, any_case = b"|".join(keys), b"|".join(b"(?i:%s)" % key for key in keys)
            self._odd_cases[names] = re.compile(rb"(?<!\\)(?!%s)(%s)(?=\s*:)" % (usual, any_case))
        return self._odd_cases.get(names)

    def _usual_case(self, line: bytes) -> bytes:
        """The object of a line with its values under the usual keys as well, where it does not have these."""
        try:
            found = json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            return line
        if not isinstance(found, dict):
            return line
        by_case = {key.lower(): key for key in reversed(found)}
        for usual in self._keys.values():
            written = by_case.get(usual.lower())
            if usual not in found and written is not None:
                found[usual] = found[written]
        return json.dumps(found).encode()

    def _read(self, data: bytes) -> pa.Table:
        # A null before any object crashes Arrow's parser, and it does not check UTF-8.
        if not data.removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE).startswith(b"{"):
            raise Unparsable("not a JSON object")
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Unparsable(f"not UTF-8: {error.reason}") from None
        fields = [
            pa.field(self._keys[f.name], pa.string() if f.type is SqlType.DATE else f.type.arrow)
            for f in self._reading.fields
        ]
        try:
            table = arrow_json.read_json(
                pa.BufferReader(data),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"
                ),
            )
            columns = [
                pc.cast(table.column(self._keys[f.name]), f.type.arrow)
                if f.type is SqlType.DATE
                else table.column(self._keys[f.name])
                for f in self._reading.fields
            ]
        except pa.ArrowInvalid as error:
            message = str(error)
            raise Unparsable(message.removesuffix(" in row 0"), _guilty_row(message)) from None
        return pa.table(columns, names=list(self._reading.fields.names))


def _first_odd_line(data: bytes) -> int | None:
    """The first line that does not begin with { and end with }. Without any, no object can run over a line end: a
    brace that closes is never followed by one that opens within an object. So counting the objects is proof.
    """
    raw = np.frombuffer(data if data.endswith(b"\n") else data + b"\n", np.uint8)
    newlines = np.flatnonzero(raw == ord("\n"))
    starts = np.concatenate(([0], newlines[:-1] + 1))
    last = raw[newlines - 1]
    last = np.where(last == ord("\r"), raw[np.maximum(newlines - 2, 0)], last)
    odd = np.flatnonzero((raw[starts] != ord("{")) | (last != ord("}")))
    return int(odd[0]) if len(odd) else None


def _guilty_row(message: str) -> int | None:
    """
    >>> _guilty_row("JSON parse error: Invalid value. in row 17"), _guilty_row("Failed to convert JSON to int32")
    (17, None)
    """
    found = re.search(r" in row (\d+)$", message)
    return int(found[1]) if found else None
