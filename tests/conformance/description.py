"""A query as the oracle reads it: plain dataclasses that know their SQL text and nothing of penstock.

Times and durations are integer microseconds. A `Term` is an expression twice over: its SQL, and the same as a
Python function of the event, so that the oracle never parses anything.

    >>> window = Window(Range(10_000_000), TimeSlide(5_000_000))
    >>> query = Query("s", window, keys=(column("k"),), aggregates=(Aggregate("SUM", (column("v"),), "total"),))
    >>> print(query.sql())
    SELECT k, SUM(v) AS total FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

Event = dict[str, Any]
"""Column name to value; NULL is None."""


def duration(micros: int) -> str:
    """The shortest way to write a duration.

    >>> duration(90_000_000), duration(1_500), duration(1)
    ('90 SECONDS', '1500 MICROSECONDS', '1 MICROSECOND')
    """
    for size, unit in ((1_000_000, "SECOND"), (1_000, "MILLISECOND")):
        if micros % size == 0:
            return f"{micros // size} {unit}{'' if micros == size else 'S'}"
    return f"{micros} MICROSECOND{'' if micros == 1 else 'S'}"


@dataclass(frozen=True)
class Term:
    sql: str
    value: Callable[[Event], Any]

    def __repr__(self) -> str:
        return f"Term({self.sql!r})"


def column(name: str) -> Term:
    return Term(name, lambda event: event[name])


@dataclass(frozen=True)
class Stream:
    name: str
    columns: tuple[tuple[str, str], ...]
    """Name and SQL type."""
    time: str = "t"
    lateness: int = 0
    sequence: str | None = None

    def sql(self) -> str:
        declared = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        late = f" LATENESS {duration(self.lateness)}" if self.lateness else ""
        ties = f" SEQUENCE {self.sequence}" if self.sequence else ""
        return f"CREATE STREAM {self.name} ({declared}, EVENT TIME {self.time}{late}{ties}) LATE INTO late_{self.name}"


@dataclass(frozen=True)
class Range:
    micros: int


@dataclass(frozen=True)
class Rows:
    count: int


@dataclass(frozen=True)
class Now:
    pass


@dataclass(frozen=True)
class Since:
    time: int


@dataclass(frozen=True)
class Session:
    gap: int


@dataclass(frozen=True)
class TimeSlide:
    micros: int
    offset: int = 0


@dataclass(frozen=True)
class CountSlide:
    count: int


@dataclass(frozen=True)
class Window:
    """`slide` None: an evaluation at every event (at the close of every session)."""

    extent: Range | Rows | Now | Since | Session
    slide: TimeSlide | CountSlide | None = None
    partition_by: tuple[str, ...] = ()
    when_full: bool = False

    def sql(self) -> str:
        words = [f"PARTITION BY {', '.join(self.partition_by)}"] if self.partition_by else []
        match self.extent:
            case Range(micros):
                words.append(f"RANGE {duration(micros)}")
            case Rows(count):
                words.append(f"ROWS {count}")
            case Now():
                words.append("NOW")
            case Since(time):
                moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)
                words.append(f"SINCE TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S.%f}'")
            case Session(gap):
                words.append(f"SESSION {duration(gap)}")
        match self.slide:
            case TimeSlide(micros, offset):
                words.append(f"SLIDE {duration(micros)}")
                if offset:
                    words.append(f"OFFSET {duration(offset)}")
            case CountSlide(count):
                words.append(f"SLIDE {count} ROWS" if isinstance(self.extent, Range) else f"SLIDE {count}")
        if self.when_full:
            words.append("WHEN FULL")
        return f"[{' '.join(words)}]"


@dataclass(frozen=True)
class Aggregate:
    """COUNT without arguments is COUNT(*); `parameter` is the fraction of a percentile; `over` the length of the window
    behind OVER, if it is not the one in FROM."""

    function: str
    args: tuple[Term, ...]
    name: str
    filter: Term | None = None
    parameter: float | None = None
    over: int | None = None

    def sql(self) -> str:
        inner = ", ".join(arg.sql for arg in self.args)
        if self.function.startswith("PERCENTILE"):
            call = f"{self.function}({self.parameter!r}) WITHIN GROUP (ORDER BY {inner})"
        elif self.function == "COUNT_DISTINCT":
            call = f"COUNT(DISTINCT {inner})"
        else:
            call = f"{self.function}({inner or '*'})"
        only = f" FILTER (WHERE {self.filter.sql})" if self.filter else ""
        over = f" OVER [RANGE {duration(self.over)}]" if self.over is not None else ""
        return f"{call}{only}{over} AS {self.name}"


@dataclass(frozen=True)
class Query:
    """With `aggregates` (or `keys`) one row per group; otherwise `columns` of each event in the window.

    `having` is a Term over the row that comes out (names of keys and aggregates). `order_by` names outputs.
    `emit` None is the default of the window.
    """

    stream: str
    window: Window
    keys: tuple[Term, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    columns: tuple[Term, ...] = ()
    where: Term | None = None
    having: Term | None = None
    distinct: bool = False
    order_by: tuple[tuple[str, bool], ...] = ()
    """Output name and whether it descends."""
    limit: int | None = None
    emit: str | None = None
    drain: bool = False

    @property
    def aggregating(self) -> bool:
        return bool(self.keys or self.aggregates)

    @property
    def names(self) -> tuple[str, ...]:
        return (*(term.sql for term in (*self.keys, *self.columns)), *(call.name for call in self.aggregates))

    def sql(self) -> str:
        outputs = ", ".join(
            (*(term.sql for term in (*self.keys, *self.columns)), *(call.sql() for call in self.aggregates))
        )
        words = ["SELECT", self.emit, "DISTINCT" if self.distinct else None, outputs]
        words += [f"FROM {self.stream} {self.window.sql()}"]
        words += [f"WHERE {self.where.sql}" if self.where else None]
        words += [f"GROUP BY {', '.join(key.sql for key in self.keys)}" if self.keys else None]
        words += [f"HAVING {self.having.sql}" if self.having else None]
        if self.order_by:
            words.append("ORDER BY " + ", ".join(name + (" DESC" if down else "") for name, down in self.order_by))
        words += [f"LIMIT {self.limit}" if self.limit is not None else None, "DRAIN" if self.drain else None]
        return " ".join(word for word in words if word)
