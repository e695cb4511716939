"""The Linear Road application, on either runtime: the text of its program, an app of it, its answers as Arrow and as a
file.

The program is SQL alone (`input.sql`, `lav_*.sql`, `application.sql` and `travel_time.sql`). What a caller chooses is
which of two readings of the latest average velocity counts and where the ten weeks before are. A path or an address
goes into the text as a quoted literal.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from penstock import App
from penstock.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = "input"
LAVS = ("pooled", "spec")
"""The latest average velocity: over all speeds of five minutes together, or over minutes, and in these over cars."""

EMITTED = "emitted"
"""When an answer left the system, in the seconds of the input."""

LAYOUTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "toll_notifications": (0, ("vid", "time", EMITTED, "lav", "toll")),
    "accident_alerts": (1, ("time", EMITTED, "xway", "seg", "dir", "vid")),
    "balances": (2, ("time", EMITTED, "time", "qid", "balance")),
    "expenditures": (3, ("time", EMITTED, "qid", "toll")),
    "travel_times": (4, ("time", EMITTED, "qid", "seconds", "toll")),
}
"""The queries that answer: for each the type of its answers and the columns of a line of the file behind it."""


def program(tolls: str | Path, *, segments: str | Path | None = None, lav: str = "pooled") -> str:
    """The text of the application. `tolls` are the ten weeks before: a CSV file of vid, day, expressway and toll,
    without a header, or the address of a PostgreSQL or SQLite database with a table `tolls` of such columns. With
    `segments`, likewise of expressway, direction, segment, day of the week, hour, mean speed and mean toll, questions
    of the travel time are answered."""
    if lav not in LAVS:
        raise InputError(f"there is no average velocity '{lav}': use {' or '.join(LAVS)}")
    parts = ["input", f"lav_{lav}", "application", *(["travel_time"] if segments is not None else [])]
    text = "\n".join(files(__package__).joinpath(f"{part}.sql").read_text() for part in parts)
    return Template(text).substitute(tolls=_source(str(tolls), "tolls"), segments=_source(str(segments), "segments"))


def _source(place: str, table: str) -> str:
    """The source of a table, in SQL."""
    quoted = "'" + place.replace("'", "''") + "'"
    if place.startswith(("postgresql://", "postgres://", "sqlite:")):
        return f"{quoted} WITH ('table' = '{table}')"
    return f"{quoted} WITH ('format' = 'csv', 'header' = 'false')"


def embedded(
    tolls: str | Path,
    *,
    segments: str | Path | None = None,
    lav: str = "pooled",
    memory: str | int = "1GB",
    checkpoint: str | Path | None = None,
) -> App:
    """An app that takes tables of `reports.REPORT` as its stream `input`. After the last row of a second,
    `app.advance("input", ...)` to the next one brings the answers of that second."""
    return App(program(tolls, segments=segments, lav=lav), memory=memory, checkpoint=checkpoint)


def on_spark(
    spark: SparkSession,
    rows: DataFrame,
    tolls: str | Path,
    *,
    segments: str | Path | None = None,
    lav: str = "pooled",
    **options: Any,
) -> DataFrame:
    """The tagged DataFrame of all answers; `options` are those of `penstock.spark.query`."""
    from penstock.spark import query

    return query(spark, {STREAM: rows}, program(tolls, segments=segments, lav=lav), **options)


def answers(app: App) -> Iterator[tuple[str, pa.Table]]:
    """The answers that have come since the last call, by query."""
    for name in LAYOUTS:
        rows = app.results(name) if name in app.queries else None
        if rows is not None and rows.num_rows:
            yield name, rows


def lines(name: str, rows: pa.Table, emitted: int | None = None) -> pa.Table:
    """Answers of a query as the lines of an answer file, the type first. Without a time they are emitted at once."""
    number, layout = LAYOUTS[name]
    columns = [pa.array(np.full(rows.num_rows, number, np.int64))]
    for column in layout:
        if column != EMITTED:
            columns.append(rows.column(column))
        elif emitted is None:
            columns.append(rows.column("time"))
        else:
            columns.append(pa.array(np.full(rows.num_rows, emitted, np.int64)))
    return pa.table(columns, names=["type", *(f"{place}_{column}" for place, column in enumerate(layout))])


class AnswerFile:
    """A file of answers, CSV without a header, in the order in which they come."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        self.rows = dict.fromkeys(LAYOUTS, 0)

    def write(self, name: str, rows: pa.Table, emitted: int | None = None) -> None:
        csv.write_csv(lines(name, rows, emitted), self._file, csv.WriteOptions(include_header=False))
        self.rows[name] += rows.num_rows

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> AnswerFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
