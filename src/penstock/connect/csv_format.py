"""CSV as an input: Arrow's parser with the declared types, and what it needs to know of the file.

A field that equals the option `null` (by default: nothing between the delimiters) is NULL; in quotes it is text.
Times with and without a zone are both read; without one they are UTC.

Where Arrow refuses a run of rows for its values, the run is read as text and its columns are converted one by one,
with the same conversions, to find the values that are to blame.
"""

from __future__ import annotations

import csv

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from penstock.connect.conform import match_names
from penstock.connect.lines import LineFormat, Parsed, Unparsable
from penstock.connect.source import Reading
from penstock.errors import InputError
from penstock.types import Field, SqlType

_CARRIAGE_RETURN = "lines end with a carriage return alone, and LF or CR LF is expected"

_ZONED, _PLAIN = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


class CsvFormat(LineFormat):
    """Options: `delimiter` (,), `header` (true), `null` (empty), `multiline` (false: a row is a line)."""

    def __init__(self, reading: Reading, where: str) -> None:
        self._reading = reading
        self._where = where
        self._delimiter = check_delimiter(reading.options.get("delimiter", ","), f"stream {reading.stream.name}")
        self._header = flag(reading, "header", True)
        self._null = reading.options.get("null", "")
        self.multiline = flag(reading, "multiline", False)
        self._width = len(reading.stream.schema)
        self._places: dict[str, int] = {name: i for i, name in enumerate(reading.stream.schema.names)}
        self._types: dict[str, pa.DataType] = {f.name: f.type.arrow for f in reading.fields}
        self._schema = pa.schema(list(self._types.items()))
        self._times = [f.name for f in reading.fields if f.type is SqlType.TIMESTAMP]

    def begin(self, first: bytes) -> bool:
        if not self._header:
            return False
        text = first.decode("utf-8-sig", "replace").rstrip("\r\n")
        if "\r" in text:
            raise InputError(f"{self._where}: {_CARRIAGE_RETURN}; write them anew, for example with tr '\\r' '\\n'")
        try:
            names = next(csv.reader([text], delimiter=self._delimiter), [])
        except csv.Error as error:
            raise InputError(f"{self._where}: the header cannot be read: {error}") from None
        self._places = match_names(self._reading.stream.schema, [name.strip() for name in names], self._where)
        self._width = len(names)
        return True

    def parse(self, data: bytes, records: int) -> Parsed:
        try:
            parsed = self._read(data, records, self._types)
            return Parsed(parsed.table.cast(self._schema), parsed.kept, parsed.refused)
        except Unparsable:
            text = self._read(data, records, dict.fromkeys(self._types, pa.string()))
        reasons: dict[int, str] = {}
        columns = []
        for field in self._reading.fields:
            column = text.table.column(field.name).combine_chunks()
            converted = _Conversion(field)
            columns.append(converted.all_of(column))
            for row in converted.misfits:
                reasons.setdefault(row, f"column '{field.name}': '{column[row]}' is no {field.type}")
            if field.name in self._times:
                self._types[field.name] = converted.kind
        table = pa.table(columns, schema=self._schema)
        good = np.ones(table.num_rows, bool)
        good[list(reasons)] = False
        refused = text.refused + [(int(text.kept[row]), reason) for row, reason in reasons.items()]
        return Parsed(table.filter(pa.array(good)), text.kept[good], refused)

    def _read(self, data: bytes, records: int, types: dict[str, pa.DataType]) -> Parsed:
        refused: list[tuple[int, str]] = []

        def refuse(row: arrow_csv.InvalidRow) -> str:
            refused.append((row.number - 1, f"{row.actual_columns} fields where {row.expected_columns} are expected"))
            return "skip"

        places = {name: str(self._places[name]) for name in types}
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(data),
                read_options=arrow_csv.ReadOptions(
                    column_names=[str(i) for i in range(self._width)], use_threads=False, block_size=len(data) + 1
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._delimiter,
                    newlines_in_values=self.multiline,
                    ignore_empty_lines=False,
                    # Arrow hands over the row as text, which it must be; else the run is cut up to the row.
                    invalid_row_handler=refuse if data.isascii() or _is_text(data) else None,
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types={places[name]: kind for name, kind in types.items()},
                    include_columns=list(places.values()),
                    null_values=[self._null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            raise Unparsable(_reason(str(error), self._places)) from None
        if table.num_rows + len(refused) > records:
            raise Unparsable(_CARRIAGE_RETURN)
        if table.num_rows + len(refused) < records:
            raise Unparsable("a quoted field does not end on its line; the option multiline 'true' allows that")
        kept = np.delete(np.arange(records), [i for i, _ in refused])
        return Parsed(table.rename_columns(list(types)), kept, refused)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Conversion:
    """Text to a declared type. `misfits` are the rows that did not convert, `kind` is what the last ones were."""

    def __init__(self, field: Field) -> None:
        self._field = field
        self._kinds = [_ZONED, _PLAIN] if field.type is SqlType.TIMESTAMP else [field.type.arrow]
        self.kind = self._kinds[0]
        self.misfits: list[int] = []

    def all_of(self, column: pa.Array) -> pa.Array:
        if self._field.type is SqlType.STRING:
            return column
        column = pc.ascii_trim_whitespace(column)
        pieces = []
        runs = [(0, len(column))]
        while runs:
            low, high = runs.pop()
            piece = self._convert(column.slice(low, high - low))
            if piece is not None:
                pieces.append(piece)
            elif high - low == 1:
                self.misfits.append(low)
                pieces.append(pa.nulls(1, self._field.type.arrow))
            else:
                middle = (low + high) // 2
                runs += [(middle, high), (low, middle)]
        return pa.concat_arrays(pieces)

    def _convert(self, column: pa.Array) -> pa.Array | None:
        for kind in self._kinds:
            try:
                converted = pc.cast(column, kind)
            except pa.ArrowInvalid:
                continue
            self.kind = kind
            return pc.cast(converted, self._field.type.arrow)
        return None


def _reason(message: str, places: dict[str, int]) -> str:
    """Arrow's message with the column's name for its number.

    >>> _reason("In CSV column #1: Row #7: CSV conversion error to int32: invalid value 'x'", {"t": 0, "n": 1})
    "column 'n': CSV conversion error to int32: invalid value 'x'"
    """
    head, _, rest = message.partition(": ")
    number = head.removeprefix("In CSV column #")
    if not number.isdecimal():
        return message
    name = next((name for name, place in places.items() if place == int(number)), number)
    row, _, reason = rest.partition(": ")
    return f"column '{name}': {reason if row.startswith('Row #') else rest}"


def check_delimiter(text: str, owner: str) -> str:
    """The delimiter as one character; a tab may be written as backslash and t. `owner` is the stream or sink, for the
    error message."""
    delimiter = text.replace("\\t", "\t")
    if len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii():
        raise InputError(f"{owner}: delimiter '{delimiter}' must be one ASCII character")
    return delimiter


def flag(reading: Reading, name: str, default: bool) -> bool:
    """An option that is true or false."""
    value = reading.options.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise InputError(f"stream {reading.stream.name}: option {name} is '{value}'; write 'true' or 'false'")
    return value == "true"
