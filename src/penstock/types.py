"""The types of the language and what they are in Arrow and in numpy.

Semantics are Spark SQL's in ANSI mode. A number with a point is a DOUBLE (Spark would say DECIMAL; there is no
DECIMAL here). TIMESTAMP is int64 microseconds UTC. INTERVAL exists only as a literal: int64 microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa

FIRST_TIME, LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond of the years 1 to 9999: the times that events may have."""

FIRST_DAY, LAST_DAY = FIRST_TIME // 86_400_000_000, LAST_TIME // 86_400_000_000


class SqlType(Enum):
    NULL = "NULL"
    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    INTERVAL = "INTERVAL"

    def __str__(self) -> str:
        return self.value

    __hash__ = object.__hash__
    """There is one object per type. The hash of an Enum is a function in Python, and tables of types call it often."""

    @property
    def is_integer(self) -> bool:
        return self in _INTEGERS

    @property
    def is_floating(self) -> bool:
        return self in (SqlType.FLOAT, SqlType.DOUBLE)

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_floating

    @property
    def arrow(self) -> pa.DataType:
        return _ARROW[self]

    @property
    def storage(self) -> np.dtype[np.generic]:
        """The fixed-width numpy type a value takes in a block; a STRING is stored as an interned code."""
        return _STORAGE[self]


_INTEGERS = (SqlType.TINYINT, SqlType.SMALLINT, SqlType.INT, SqlType.BIGINT)

_ARROW: dict[SqlType, pa.DataType] = {
    SqlType.NULL: pa.null(),
    SqlType.BOOLEAN: pa.bool_(),
    SqlType.TINYINT: pa.int8(),
    SqlType.SMALLINT: pa.int16(),
    SqlType.INT: pa.int32(),
    SqlType.BIGINT: pa.int64(),
    SqlType.FLOAT: pa.float32(),
    SqlType.DOUBLE: pa.float64(),
    SqlType.STRING: pa.string(),
    SqlType.DATE: pa.date32(),
    SqlType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    SqlType.INTERVAL: pa.int64(),
}

_STORAGE: dict[SqlType, np.dtype[np.generic]] = {
    SqlType.NULL: np.dtype(np.int8),
    SqlType.BOOLEAN: np.dtype(np.int8),
    SqlType.TINYINT: np.dtype(np.int8),
    SqlType.SMALLINT: np.dtype(np.int16),
    SqlType.INT: np.dtype(np.int32),
    SqlType.BIGINT: np.dtype(np.int64),
    SqlType.FLOAT: np.dtype(np.float32),
    SqlType.DOUBLE: np.dtype(np.float64),
    SqlType.STRING: np.dtype(np.int32),
    SqlType.DATE: np.dtype(np.int32),
    SqlType.TIMESTAMP: np.dtype(np.int64),
    SqlType.INTERVAL: np.dtype(np.int64),
}


@dataclass(frozen=True)
class Field:
    """A column of a stream: a NULL in a field that is not nullable sends the row to the rejects."""

    name: str
    type: SqlType
    nullable: bool = True


@dataclass(frozen=True)
class Schema:
    """The ordered columns of a stream. Names are case-insensitive and kept as written."""

    fields: tuple[Field, ...]

    def find(self, name: str) -> Field | None:
        lowered = name.lower()
        return next((f for f in self.fields if f.name.lower() == lowered), None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(f.name, f.type.arrow, f.nullable) for f in self.fields])

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)
