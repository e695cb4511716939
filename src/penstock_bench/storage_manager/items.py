"""Items and how they lie in columns. An item of a store with a schema is a tuple of values in the schema's order;
without one it is a dict of its own attributes, kept as one text.

Values are what Python has for the SQL types: bool, int, float, str and None; a TIMESTAMP is int microseconds and a DATE
int days since 1970. What does not fit its type is refused before it enters.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from penstock.errors import StorageError
from penstock.instruments import Account, Argument, ColumnSpec, Frame, Row, Value
from penstock.types import Field, Schema, SqlType
from penstock_bench.storage_manager.properties import place_of
from penstock_bench.storage_manager.texts import Texts

Item = Row | Mapping[str, Value]

_ANY_ITEM = Schema((Field("item", SqlType.STRING, nullable=False),))

_FORMATS: dict[SqlType, tuple[str, type]] = {
    SqlType.BOOLEAN: ("?", bool),
    SqlType.TINYINT: ("b", int),
    SqlType.SMALLINT: ("h", int),
    SqlType.INT: ("i", int),
    SqlType.BIGINT: ("q", int),
    SqlType.FLOAT: ("f", float),
    SqlType.DOUBLE: ("d", float),
    SqlType.DATE: ("i", int),
    SqlType.TIMESTAMP: ("q", int),
    SqlType.INTERVAL: ("q", int),
    SqlType.STRING: ("x", str),
}
"""How `struct` writes a value, which checks its range, and the type it must have."""


class ItemCodec:
    """Admits items, puts rows into columns and takes them out again. `texts` is the account for strings."""

    def __init__(self, schema: Schema | None, texts: Account) -> None:
        self.schema = schema
        self.layout = schema or _ANY_ITEM
        """The columns there are in blocks."""
        self.columns = [
            ColumnSpec(f.name, np.dtype(np.bool_) if f.type is SqlType.BOOLEAN else f.type.storage, f.nullable)
            for f in self.layout
        ]
        self.row_bytes = 64 + 48 * len(self.layout)
        """About what a row takes as a tuple of Python values."""
        self.width = sum(column.dtype.itemsize + 1 for column in self.columns)
        """Bytes of a row in a block, with its validity."""
        self._places = {name: place for place, name in enumerate(self.layout.names)}
        self._types = tuple(_FORMATS[field.type][1] for field in self.layout)
        self._formats = [_FORMATS[field.type][0] for field in self.layout]
        self._text_places = [place for place, field in enumerate(self.layout) if field.type is SqlType.STRING]
        self._texts = Texts(texts)
        self._may_differ = bool(self._text_places) or any(field.nullable for field in self.layout)
        """Whether a value can be another than the one in its column: a code for a string, or a NULL."""
        # `struct` does not check text, and a FLOAT must be rounded before it is read.
        direct = not self._text_places and all(field.type is not SqlType.FLOAT for field in self.layout)
        self._check = struct.Struct("<" + "".join(self._formats)).pack if direct else None

    # --- between users and rows ---------------------------------------------------------------------------------------

    def admit(self, item: Item) -> Row:
        """The item as a row of exactly the schema's types, or a refusal."""
        if self.schema is None:
            return (_as_text(item),)
        row = item if isinstance(item, tuple) else self._in_order(item)
        check = self._check
        if check is not None and tuple(map(type, row)) == self._types:
            try:
                check(*row)
            except struct.error:
                return self._admit_each(row)
            return row
        return self._admit_each(row)

    def show(self, row: Row) -> Item:
        """The item that a row is."""
        if self.schema is not None:
            return row
        item: dict[str, Value] = json.loads(str(row[0]))
        return item

    def lookup(self, place: int, value: Value) -> Value:
        """A value to compare an attribute with, as the attribute's type has it."""
        if value is None:
            return None
        return self._admit_value(self.layout.fields[place], value, self._types[place], self._formats[place])

    def place(self, name: str) -> int:
        """Where an attribute stands in an item, by its name in any case."""
        place = self._places.get(name)
        return place_of(self.layout, name) if place is None else place

    def attribute(self, row: Row, name: str) -> Value:
        if self.schema is not None:
            return row[self.place(name)]
        item = self.show(row)
        assert isinstance(item, dict)
        if name not in item:
            raise StorageError(f"the item has no attribute {name!r}; it has {', '.join(item) or 'none'}")
        value: Value = item[name]
        return value

    def _in_order(self, item: Mapping[str, Value]) -> Row:
        assert self.schema is not None
        lowered = {name.lower(): value for name, value in item.items()}
        unknown = lowered.keys() - {name.lower() for name in self.schema.names}
        if unknown or len(lowered) < len(item):
            raise StorageError(
                f"the item has the attributes {', '.join(item)}; the schema has {', '.join(self.schema.names)}"
            )
        return tuple(lowered.get(name.lower()) for name in self.schema.names)

    def _admit_each(self, row: Row) -> Row:
        if len(row) != len(self.layout):
            raise StorageError(
                f"the item has {len(row)} values; the schema has {len(self.layout)}: {', '.join(self.layout.names)}"
            )
        return tuple(
            self._admit_value(field, value, kind, form)
            for field, value, kind, form in zip(self.layout, row, self._types, self._formats, strict=True)
        )

    def _admit_value(self, field: Field, value: Value, kind: type, form: str) -> Value:
        if value is None:
            if not field.nullable:
                raise StorageError(f"{field.name} is NULL, and the schema does not allow it")
            return None
        if kind is float and type(value) is int:
            value = float(value) if abs(value) <= 1 << 53 else value
        if type(value) is kind:
            try:
                if kind is not str:
                    (value,) = struct.unpack("<" + form, struct.pack("<" + form, value))
                return value
            except (struct.error, OverflowError):
                pass
        raise StorageError(f"{field.name} is {field.type}, and {value!r} does not fit it")

    # --- between rows and columns -------------------------------------------------------------------------------------

    def to_columns(self, rows: Sequence[Row]) -> list[Argument]:
        """Columns for blocks. From now on the strings of the rows are in use, until `forget`."""
        columns: list[Argument] = []
        cells = list(zip(*rows, strict=True))
        texts = [[str(value) for value in cells[place] if value is not None] for place in self._text_places]
        codes = iter(self._texts.encode([text for column in texts for text in column]) if texts else ())
        for place, (spec, values) in enumerate(zip(self.columns, cells, strict=True)):
            valid = None
            if spec.nullable and None in values:
                valid = np.array([value is not None for value in values], np.bool_)
            if place in self._text_places:
                values = tuple(0 if value is None else next(codes) for value in values)
            elif valid is not None:
                values = tuple(0 if value is None else value for value in values)
            columns.append(Argument(np.array(values, spec.dtype), valid))
        return columns

    def row(self, frame: Frame, index: int) -> Row:
        """One row of a block."""
        row = [column.item(index) for column in frame.values]
        return self._completed(row, frame, index) if self._may_differ else tuple(row)

    def cell(self, frame: Frame, index: int, place: int) -> Value:
        """One value of a block; no other column is touched."""
        valid = frame.valid[place]
        if valid is not None and not valid[index]:
            return None
        value: Value = frame.values[place].item(index)
        return self._texts.decode(int(value or 0)) if place in self._text_places else value

    def rows(self, frame: Frame, start: int, stop: int) -> list[Row]:
        """Some rows of a block at once, for much less than one by one."""
        columns = [column[start:stop].tolist() for column in frame.values]
        for place, valid in enumerate(frame.valid):
            if place in self._text_places:
                decode = self._texts.decode
                known = [True] * (stop - start) if valid is None else valid[start:stop].tolist()
                columns[place] = [decode(c) if ok else None for c, ok in zip(columns[place], known, strict=True)]
            elif valid is not None:
                known = valid[start:stop].tolist()
                columns[place] = [v if ok else None for v, ok in zip(columns[place], known, strict=True)]
        return list(zip(*columns, strict=True))

    def write(self, frame: Frame, index: int, row: Row) -> None:
        """Puts a row in the place of another."""
        new = self.to_columns([row])
        self.forget(frame.slice(index, index + 1))
        for place, (values, valid) in enumerate(new):
            frame.values[place][index] = values[0]
            known = frame.valid[place]
            if known is None and valid is not None:
                known = frame.valid[place] = np.ones(len(frame.values[place]), np.bool_)
            if known is not None:
                known[index] = valid is None

    def forget(self, columns: Sequence[Argument]) -> None:
        """Rows are gone: their strings are no longer in use."""
        for place in self._text_places:
            values, valid = columns[place]
            self._texts.forget((values if valid is None else values[valid]).tolist())

    @property
    def has_texts(self) -> bool:
        return bool(self._text_places)

    def _completed(self, row: list[Value], frame: Frame, index: int) -> Row:
        for place in self._text_places:
            row[place] = self.cell(frame, index, place)
        return tuple(
            None if valid is not None and not valid[index] else value
            for value, valid in zip(row, frame.valid, strict=True)
        )


def _as_text(item: Item) -> str:
    if not isinstance(item, Mapping) or not all(isinstance(name, str) for name in item):
        raise StorageError(
            "an item of a store without a schema is a mapping of names to values; give the store a schema"
        )
    for name, value in item.items():
        if value is not None and type(value) not in (bool, int, float, str):
            raise StorageError(f"{name} is {value!r}; values are numbers, strings, True, False and None")
    return json.dumps(dict(item))
