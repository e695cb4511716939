"""Conformance cases as plain text, and the loader that makes objects of them for any runtime.

A file under `cases/` holds a handful of cases about one subject:

    What the file is about, in prose.

    --- stream                          what stands before the first case is shared by all cases of the file
    CREATE STREAM s (t TIMESTAMP, k STRING, v BIGINT, EVENT TIME t)

    --- events s                        in the order they arrive; TIMESTAMPs are seconds since the epoch
    t | k | v
    1 | a | 10

    === The title of a case
    embedded only: a reason             why it has another answer on Spark, if it has; else both must pass it
    by arrival: a reason                on Spark it is read from files: why it needs an order of arrival that is known
    Prose, and a drawing of the windows.

    --- query                           `;` between several; a query without a name is q1, q2, ...
    SELECT SUM(v) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]

    --- expect                          every row of q1, in order; `--- expect NAME` for another query
    window_start | window_end | total
    0            | 10         | 10

Other sections: `--- late s` (the late events of a stream), `--- rejects` (how many rows were rejected) and
`--- refused` (words of the error that App raises, a line each).

In tables of expected rows `window_start` and `window_end` are seconds; elsewhere `@5` is the TIMESTAMP five seconds
after the epoch, `2024-02-29` a DATE, `5` an integer, `5.0` a DOUBLE, `'5'` a string and `NULL` is NULL. A line that
starts with `#` is a remark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from conformance.description import Event

DIRECTORY = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Moment:
    """A TIMESTAMP, so that it is not taken for a number."""

    micros: int

    def __repr__(self) -> str:
        return f"@{self.micros / 1e6:g}"


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def __str__(self) -> str:
        cells = [self.columns, *(tuple(map(show, row)) for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        return "\n".join(
            " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        )


@dataclass(frozen=True)
class Case:
    title: str
    file: str
    embedded_only: str = ""
    by_arrival: str = ""
    texts: tuple[str, ...] = ()
    """CREATE STREAM, for each stream."""
    query: str = ""
    arrivals: tuple[tuple[str, Event], ...] = ()
    """(stream, event), in the order of arrival."""
    expect: dict[str, Table] = field(default_factory=dict)
    late: dict[str, Table] = field(default_factory=dict)
    rejects: int | None = None
    refused: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        return ";\n".join([*self.texts, self.query])

    def __str__(self) -> str:
        return f"{self.file}: {self.title}"


def show(value: Any) -> str:
    """A value as a cell of a table."""
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else str(value)


def load() -> list[Case]:
    """All cases of all files, in the order of file names and lines."""
    return [case for path in sorted(DIRECTORY.glob("*.txt")) for case in parse(path.read_text(), path.stem)]


def parse(text: str, file: str) -> Iterator[Case]:
    shared, *rest = re.split(r"^=== *", text, flags=re.MULTILINE)
    _, common = _sections(shared)
    for part in rest:
        title, _, body = part.partition("\n")
        head, own = _sections(body)
        # A case that brings a stream or events of its own takes none of the file's.
        kinds = {name.split()[0] for name, _ in own}
        sections = [(name, content) for name, content in common if name.split()[0] not in kinds] + own
        yield _case(title.strip(), file, head, sections)


def _sections(text: str) -> tuple[str, list[tuple[str, str]]]:
    head, *parts = re.split(r"^--- *", text, flags=re.MULTILINE)
    named = (part.partition("\n") for part in parts)
    return head, [(name.strip(), content.strip("\n")) for name, _, content in named]


def _case(title: str, file: str, head: str, sections: list[tuple[str, str]]) -> Case:
    where = f"{file}: {title}"
    embedded_only = re.search(r"^embedded only: *(.+)$", head, re.MULTILINE)
    by_arrival = re.search(r"^by arrival: *(.+)$", head, re.MULTILINE)
    texts = tuple(content.strip().rstrip(";") for name, content in sections if name == "stream")
    types = _declared(";\n".join(texts))
    query, rejects, refused = "", None, ()
    arrivals: list[tuple[str, Event]] = []
    expect: dict[str, Table] = {}
    late: dict[str, Table] = {}
    for name, content in sections:
        kind, _, subject = name.partition(" ")
        match kind:
            case "stream":
                pass
            case "events":
                arrivals += [(subject, event) for event in _events(content, types[subject])]
            case "query":
                query = content.strip()
            case "expect":
                expect[subject or "q1"] = _expected(content)
            case "late":
                events = _events(content, types[subject])
                names = _cells(content.splitlines()[0])
                moments = {n for n in names if types[subject][n] == "TIMESTAMP"}
                rows = [tuple(Moment(v) if n in moments else v for n, v in event.items()) for event in events]
                late[subject] = Table(tuple(names), rows)
            case "rejects":
                rejects = int(content)
            case "refused":
                refused = tuple(line.strip() for line in content.splitlines())
            case _:
                raise ValueError(f"{where}: there is no section '{kind}'")
    if not query or not (expect or refused):
        raise ValueError(f"{where}: a case needs a query and what to expect of it")
    return Case(
        title,
        file,
        embedded_only[1].strip() if embedded_only else "",
        by_arrival[1].strip() if by_arrival else "",
        texts,
        query,
        tuple(arrivals),
        expect,
        late,
        rejects,
        refused,
    )


def _declared(streams: str) -> dict[str, dict[str, str]]:
    """Stream to column to SQL type, read off the CREATE STREAM texts."""
    found = {}
    for name, body in re.findall(r"CREATE STREAM (\w+) \((.*?)\)(?=\s*(?:;|$|LATE|IDLE|FROM))", streams, re.DOTALL):
        columns = [part.split()[:2] for part in body.split(",") if not part.strip().startswith("EVENT TIME")]
        found[name] = {column: kind.upper() for column, kind in columns}
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _lines(content: str) -> list[list[str]]:
    return [_cells(line) for line in content.splitlines() if line.strip() and not line.startswith("#")]


def _seconds(cell: str) -> int:
    micros = Decimal(cell) * 1_000_000
    assert micros == int(micros), f"{cell} s is no whole number of microseconds"
    return int(micros)


def _unquoted(cell: str) -> str:
    return cell[1:-1] if len(cell) > 1 and cell[0] == cell[-1] == "'" else cell


def _events(content: str, types: dict[str, str]) -> list[Event]:
    (names, *rows) = _lines(content)
    return [{n: _typed(cell, types[n]) for n, cell in zip(names, row, strict=True)} for row in rows]


def _typed(cell: str, kind: str) -> Any:
    if cell == "NULL":
        return None
    match kind:
        case "TIMESTAMP":
            return _seconds(cell)
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return int(cell)
        case "FLOAT" | "DOUBLE":
            return float(cell)
        case "BOOLEAN":
            return {"true": True, "false": False}[cell]
        case "DATE":
            return date.fromisoformat(cell)
        case "STRING":
            return _unquoted(cell)
    raise ValueError(f"no such type: {kind}")


def _expected(content: str) -> Table:
    (names, *rows) = _lines(content)
    parsed = [
        tuple(
            Moment(_seconds(cell)) if n in ("window_start", "window_end") else _literal(cell)
            for n, cell in zip(names, row, strict=True)
        )
        for row in rows
    ]
    return Table(tuple(names), parsed)


def _literal(cell: str) -> Any:
    if cell in ("NULL", "true", "false"):
        return {"NULL": None, "true": True, "false": False}[cell]
    if re.fullmatch(r"[+-]?\d+", cell):
        return int(cell)
    if re.fullmatch(r"[+-]?(\d+\.\d*(e[+-]?\d+)?|\d+e[+-]?\d+|inf)|NaN", cell):
        return float(cell)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", cell):
        return date.fromisoformat(cell)
    return Moment(_seconds(cell[1:])) if re.fullmatch(r"@-?[\d.]+", cell) else _unquoted(cell)
