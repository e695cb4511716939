"""Answers of Linear Road: read from and written to files, and two sets of them compared.

A file is CSV without a header; the first column is the type, and each type has columns of its own. Answers are compared
as multisets, type by type: their order says nothing, and neither do the columns that depend on the run (`emit`, the
second of the answer, and the time of the result). Rows of type 5, which the public validator adds, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
from numpy.typing import NDArray

from penstock.errors import InputError
from penstock.instruments import kernel

NOTICE, WARNING, BALANCE, EXPENDITURE, TRAVEL_TIME = range(5)
FILE_COLUMNS: dict[int, tuple[str, ...]] = {
    NOTICE: ("vid", "time", "emit", "lav", "toll"),
    WARNING: ("time", "emit", "xway", "seg", "dir", "vid"),
    BALANCE: ("time", "emit", "result_time", "qid", "balance"),
    EXPENDITURE: ("time", "emit", "qid", "expenditure"),
    TRAVEL_TIME: ("time", "emit", "qid", "travel_time", "toll"),
}
"""After the type."""

NAMES = {
    NOTICE: "toll notices",
    WARNING: "accident warnings",
    BALANCE: "balances",
    EXPENDITURE: "daily expenditures",
    TRAVEL_TIME: "travel times",
}
COLUMNS = {
    kind: tuple(name for name in columns if name not in ("emit", "result_time"))
    for kind, columns in FILE_COLUMNS.items()
}
"""Those that are compared."""

DUE = 5
"""Seconds within which an answer must come."""

_OTHER_BALANCE = 5
_MOST_COLUMNS = 7
Rows = NDArray[np.int64]
"""One row to an answer, with the columns of its type in `COLUMNS`."""


@dataclass(frozen=True)
class Answers:
    """Of each type its rows; `waited` has the seconds from question to answer, where the file has them."""

    rows: Mapping[int, Rows]
    waited: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)

    def of(self, kind: int) -> Rows:
        return self.rows.get(kind, np.empty((0, len(COLUMNS[kind])), np.int64))

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    @property
    def late(self) -> int:
        """Answers that came after more than five seconds."""
        return sum(int((waited > DUE).sum()) for waited in self.waited.values())

    @property
    def longest_wait(self) -> float:
        return max((float(waited.max()) for waited in self.waited.values() if len(waited)), default=0.0)


@dataclass(frozen=True)
class Difference:
    """How the answers of one type differ from those expected; the examples are the first few of each."""

    kind: int
    expected: int
    given: int
    missing: int
    extra: int
    missing_examples: tuple[dict[str, int], ...]
    extra_examples: tuple[dict[str, int], ...]

    @property
    def correct(self) -> int:
        return self.expected - self.missing

    @property
    def wrong(self) -> int:
        return self.missing + self.extra


def compare(expected: Answers, given: Answers, kinds: Sequence[int] = tuple(COLUMNS)) -> list[Difference]:
    return [_difference(kind, expected.of(kind), given.of(kind)) for kind in kinds]


def read_answers(path: Path) -> Answers:
    """The answers of a file; `emit` may have a fraction. A name that ends in .gz is unpacked."""
    try:
        with pa.input_stream(path) as file:
            data = np.frombuffer(file.read(), np.uint8)
    except OSError as error:
        raise InputError(f"{path}: the answers cannot be read: {error}") from error
    lines = int((data == ord("\n")).sum()) + 1
    values = np.full((lines, _MOST_COLUMNS), np.nan)
    count = int(_numbers(data, values))
    if count < 0:
        raise InputError(f"{path}, line {-count}: an answer is up to {_MOST_COLUMNS} numbers, separated by commas.")
    return _answers(values[:count], path)


def write_answers(path: Path, answers: Answers) -> None:
    """Writes a file of answers, each given at the second of its question."""
    with path.open("wb") as file:
        for kind, rows in sorted(answers.rows.items()):
            columns = dict(zip(COLUMNS[kind], rows.T, strict=True))
            columns["emit"] = columns["result_time"] = columns["time"]
            arrays = [np.full(len(rows), kind), *(columns[name] for name in FILE_COLUMNS[kind])]
            table = pa.table(arrays, names=["type", *FILE_COLUMNS[kind]])
            csv.write_csv(table, file, csv.WriteOptions(include_header=False))


def _answers(values: NDArray[np.float64], path: Path) -> Answers:
    rows, waited = {}, {}
    kinds = values[:, 0]
    unknown = np.flatnonzero(~np.isin(kinds, [*COLUMNS, _OTHER_BALANCE]))
    if len(unknown):
        raise InputError(f"{path}: the {unknown[0] + 1}. answer has the type {kinds[unknown[0]]:g}; types are 0 to 5.")
    for kind, names in FILE_COLUMNS.items():
        part = values[kinds == kind, 1 : 1 + len(names)]
        if not len(part):
            continue
        if np.isnan(part).any():
            short = f"an answer of type {kind} has less than {1 + len(names)} columns"
            raise InputError(f"{path}: {short}. They are {', '.join(('type', *names))}.")
        rows[kind] = part[:, [names.index(name) for name in COLUMNS[kind]]].astype(np.int64)
        waited[kind] = part[:, names.index("emit")] - part[:, names.index("time")]
    return Answers(rows, waited)


@kernel
def _numbers(data: NDArray[np.uint8], values: NDArray[np.float64]) -> int:
    """Fills the values line by line and returns how many lines there are, or minus the number of an unreadable one."""
    row, column, line = 0, 0, 1
    whole, scale, negative, digits = 0, 0.0, False, 0
    for at in range(len(data) + 1):
        byte = int(data[at]) if at < len(data) else 10
        if 48 <= byte <= 57:
            whole = whole * 10 + (byte - 48)
            scale *= 10.0
            digits += 1
        elif byte == 45 and digits == 0 and not negative:
            negative = True
        elif byte == 46 and scale == 0.0 and digits:
            scale = 1.0
        elif byte == 44 or byte == 10:
            if digits:
                if column >= values.shape[1]:
                    return -line
                value = whole / scale if scale else float(whole)
                values[row, column] = -value if negative else value
                column += 1
            elif byte == 44 or column or negative:
                return -line
            whole, scale, negative, digits = 0, 0.0, False, 0
            if byte == 10:
                row += 1 if column else 0
                column = 0
                line += 1
        elif byte != 13 and byte != 32:
            return -line
    return row


_EXAMPLES = 3


def _difference(kind: int, expected: Rows, given: Rows) -> Difference:
    both = np.concatenate([expected, given])
    order = _together(both)
    ordered = both[order]
    begins = np.ones(len(both), np.bool_)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    starts = np.flatnonzero(begins)
    surplus = np.add.reduceat(np.where(order < len(expected), 1, -1), starts) if len(starts) else np.zeros(0, np.int64)
    first = order[starts]
    return Difference(
        kind,
        len(expected),
        len(given),
        int(surplus[surplus > 0].sum()),
        int(-surplus[surplus < 0].sum()),
        _examples(kind, both, first[surplus > 0]),
        _examples(kind, both, first[surplus < 0]),
    )


def _examples(kind: int, rows: Rows, places: NDArray[Any]) -> tuple[dict[str, int], ...]:
    time = rows[places, COLUMNS[kind].index("time")]
    chosen = places[np.argsort(time, kind="stable")[:_EXAMPLES]]
    return tuple(dict(zip(COLUMNS[kind], rows[place].tolist(), strict=True)) for place in chosen)


def _together(rows: Rows) -> NDArray[np.int64]:
    """An order in which equal rows are neighbours: by a hash, and if two rows have the same one by the columns."""
    hashes = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        hashes = (hashes ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    order = np.argsort(hashes, kind="stable")
    same = hashes[order[1:]] == hashes[order[:-1]]
    if (rows[order[1:]][same] == rows[order[:-1]][same]).all():
        return order
    return np.lexsort(rows.T)
