"""Times as results are written: ISO 8601 in UTC with microseconds, whole columns at a time.

Years outside of 1 to 9999 come from windows that reach beyond the events and from expressions. They are written as ISO
8601 has them, with a sign and at least four digits, as CAST to STRING does.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock import compute as pc
from penstock.expressions.text_forms import write_date
from penstock.types import FIRST_DAY, FIRST_TIME, LAST_DAY, LAST_TIME

_DAY = 86_400_000_000


def time_texts(column: pa.Array) -> pa.Array:
    """The texts of a column of TIMESTAMP or DATE; NULL stays NULL.

    >>> time_texts(pa.array([0, 1 << 60, None], pa.timestamp("us", "UTC"))).to_pylist()
    ['1970-01-01T00:00:00.000000Z', '+38504-08-17T21:30:06.846976Z', None]
    >>> time_texts(pa.array([0, -800000], pa.date32())).to_pylist()
    ['1970-01-01', '-0221-09-04']
    """
    is_date = pa.types.is_date(column.type)
    whole = column.view(pa.int32() if is_date else pa.int64())
    extent: dict[str, Any] = pc.min_max(whole).as_py()
    first, last = (FIRST_DAY, LAST_DAY) if is_date else (FIRST_TIME, LAST_TIME)
    if extent["min"] is None or (extent["min"] >= first and extent["max"] <= last):
        texts = pc.cast(column, pa.string())
        return texts if is_date else pc.replace_substring(texts, " ", "T", max_replacements=1)
    write = write_date if is_date else write_iso
    return pa.array([None if value is None else write(value) for value in whole.to_pylist()], pa.string())


def write_iso(micros: int) -> str:
    """
    >>> write_iso(1_500_000), write_iso(-62_135_596_800_000_001)
    ('1970-01-01T00:00:01.500000Z', '0000-12-31T23:59:59.999999Z')
    """
    days, rest = divmod(micros, _DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    return f"{write_date(days)}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}Z"
