"""Strategies: streams that misbehave, and queries of every shape over them.

Most is drawn small, so that a failure shrinks to something a person can follow: a few dozen events, times that are
small multiples of a unit, and few keys or as many as events. Some streams are crowds or wide (`crowds`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from conformance.description import (
    Aggregate,
    CountSlide,
    Event,
    Now,
    Query,
    Range,
    Rows,
    Session,
    Since,
    Stream,
    Term,
    TimeSlide,
    Window,
    column,
)
from properties.crowds import EXTREMES, WIDE, crowds, widened

COLUMNS = (
    ("t", "TIMESTAMP"),
    ("q", "BIGINT"),
    ("k", "STRING"),
    ("g", "INT"),
    ("n", "BIGINT"),
    ("w", "BIGINT"),
    ("x", "DOUBLE"),
    ("y", "DOUBLE"),
)
"""`x` holds every double there is, `y` tame ones; `w` holds integers whose sum may overflow and which a double does not
tell from their neighbours, `n` tame ones."""

UNITS = (1, 1_000, 1_000_000)

WILD = (math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 5e-324, -5e-324, 1e16, -1e16, 1.0, -1.0, 1e-16, 0.1, 0.0)


def _no_negative_zero(value: float) -> float:
    """-0.0 equals 0.0, so which of the two MIN or MODE answers is not said."""
    return value + 0.0


_seldom = st.sampled_from((False, False, False, True))
_numbers = st.integers(-6, 6)
_wild = st.one_of(st.sampled_from(WILD), st.floats(-1e6, 1e6), st.floats()).map(_no_negative_zero)
_tame = st.one_of(st.integers(-40, 40).map(lambda v: v / 4), st.floats(-1e3, 1e3)).map(_no_negative_zero)


@dataclass(frozen=True)
class Scenario:
    """A stream, its events as they arrive, and a query."""

    stream: Stream
    query: Query
    events: list[Event]

    def __repr__(self) -> str:
        lines = [self.stream.sql() + ";", self.query.sql(), *map(repr, self.events)]
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What hypothesis shows of a failure: the text of the query, not the tree of dataclasses."""
        printer.text(repr(self))


@st.composite
def event_lists(draw: st.DrawFn, unit: int, lateness: int, most: int = 60) -> list[Event]:
    """Times walk forward by steps that are often 0, and fall back within the lateness or, rarely, beyond it."""
    keys = draw(st.sampled_from((("a",), ("a", "b", "c"), ("", "a", "B", "é", None), None)))
    wild = draw(st.booleans())
    row = st.tuples(
        st.sampled_from((0, 0, 1, 1, 2, 3, 17)),
        st.integers(0, lateness + draw(st.sampled_from((0, 0, 3)))),
        st.integers(0, 3),
        st.sampled_from(keys) if keys else st.uuids().map(lambda name: str(name)[:4]),
        st.one_of(st.none(), st.integers(0, 2)),
        st.one_of(st.none(), _numbers),
        st.one_of(_numbers, st.sampled_from(EXTREMES)),
        st.one_of(st.none(), _wild if wild else _tame),
        st.one_of(st.none(), _tame),
    )
    now = draw(st.sampled_from((0, -7, 1_000)))
    events: list[Event] = []
    least = draw(st.sampled_from((0, 5, most // 4, most // 2)))
    for step, back, *values in draw(st.lists(row, min_size=least, max_size=most)):
        now += step
        events.append(dict(zip((name for name, _ in COLUMNS), ((now - back) * unit, *values), strict=True)))
    return events


def _null_aware(test: Any, *names: str) -> Any:
    return lambda event: None if any(event[name] is None for name in names) else test(event)


CONDITIONS = (
    Term("n > 0", _null_aware(lambda event: event["n"] > 0, "n")),
    Term("k = 'a'", _null_aware(lambda event: event["k"] == "a", "k")),
    Term("k <> 'b'", _null_aware(lambda event: event["k"] != "b", "k")),
    Term("x IS NOT NULL", lambda event: event["x"] is not None),
    Term("g IS NULL OR g < 2", lambda event: event["g"] is None or event["g"] < 2),
    Term("n > 100", _null_aware(lambda event: event["n"] > 100, "n")),
)

ONE = ("SUM", "AVG", "VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP", "MEDIAN", "PERCENTILE_CONT")
ANY = ("COUNT", "MIN", "MAX", "FIRST", "LAST", "COUNT_DISTINCT", "MODE", "PERCENTILE_DISC")
FRACTIONS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@st.composite
def aggregates(draw: st.DrawFn, number: int) -> Aggregate:
    kind = draw(st.integers(0, 9))
    parameter = None
    if kind == 0:
        function, names = "COUNT", ()
    elif kind <= 4:
        function = draw(st.sampled_from(ONE))
        percentile = function in ("MEDIAN", "PERCENTILE_CONT")
        names = (draw(st.sampled_from(("n", "x", "y", "g", "n" if percentile else "w"))),)
    elif kind <= 7:
        function = draw(st.sampled_from(ANY))
        names = (draw(st.sampled_from(("n", "x", "g") if function.startswith("PERC") else ("n", "x", "k", "w", "y"))),)
    elif kind == 8:
        function = draw(st.sampled_from(("ARG_MIN", "ARG_MAX")))
        names = (draw(st.sampled_from(("n", "k", "x"))), draw(st.sampled_from(("n", "x", "k", "y"))))
    else:
        function = draw(st.sampled_from(("COVAR_POP", "COVAR_SAMP", "CORR")))
        first, second = draw(st.sampled_from(("n", "w", "g", "y"))), draw(st.sampled_from(("y", "w")))
        names = (first, second) if function == "CORR" else (draw(st.sampled_from((first, "x"))), second)
    if function.startswith("PERCENTILE"):
        parameter = draw(st.sampled_from(FRACTIONS))
    only = draw(st.one_of(st.none(), st.none(), st.sampled_from(CONDITIONS)))
    return Aggregate(function, tuple(map(column, names)), f"a{number}", only, parameter)


@st.composite
def sliding(draw: st.DrawFn, unit: int) -> Window:
    """RANGE with a time slide."""
    extent = draw(st.integers(1, 25))
    slide = draw(st.integers(1, extent))
    offset = draw(st.sampled_from((0, 0, 1, 2))) % slide
    return Window(Range(extent * unit), TimeSlide(slide * unit, offset * unit), when_full=draw(_seldom))


@st.composite
def per_event(draw: st.DrawFn, unit: int) -> Window:
    """RANGE and NOW at every event."""
    if draw(st.integers(0, 3)) == 0:
        return Window(Now())
    return Window(Range(draw(st.integers(2, 25)) * unit), when_full=draw(_seldom))


@st.composite
def range_by_count(draw: st.DrawFn, unit: int) -> Window:
    return Window(Range(draw(st.integers(2, 25)) * unit), CountSlide(draw(st.integers(1, 6))), when_full=draw(_seldom))


@st.composite
def last_rows(draw: st.DrawFn, unit: int) -> Window:
    """ROWS with any slide, partitioned or not."""
    count = draw(st.integers(1, 12))
    slide = draw(
        st.one_of(
            st.none(),
            st.integers(1, count).map(CountSlide),
            st.integers(1, 12).map(lambda length: TimeSlide(length * unit)),
        )
    )
    by = draw(st.sampled_from(((), (), ("k",), ("k", "g"))))
    return Window(Rows(count), slide, by, draw(_seldom))


@st.composite
def sessions(draw: st.DrawFn, unit: int) -> Window:
    by = draw(st.sampled_from(((), ("k",), ("k",), ("k", "g"))))
    return Window(Session(draw(st.integers(1, 6)) * unit), partition_by=by)


@st.composite
def landmarks(draw: st.DrawFn, unit: int) -> Window:
    return Window(Since(draw(st.sampled_from((0, 5, 1_010))) * unit), TimeSlide(draw(st.integers(1, 12)) * unit))


WINDOWS = {
    "range by time": sliding,
    "range at every event": per_event,
    "range by count": range_by_count,
    "rows": last_rows,
    "session": sessions,
    "since": landmarks,
}

COUNTED = Aggregate("COUNT", (), "events")
HAVING = Term("COUNT(*) > 1", lambda row: row["events"] > 1)
PLAIN = tuple(map(column, ("k", "n", "x")))


@st.composite
def queries(draw: st.DrawFn, window: Window, wide: bool = False) -> Query:
    """A query over a window; what has no meaning with it, or no fixed order, is not drawn. `wide` is over a stream with
    the columns `WIDE`: groups have dozens of keys, and plain rows all columns."""
    keys = draw(wide_keys()) if wide else draw(st.sampled_from(((), ("k",), ("k", "g"))))
    if window.partition_by:
        keys = window.partition_by if draw(st.booleans()) else tuple(dict.fromkeys((*keys, *window.partition_by)))
    query = Query("s", window, tuple(map(column, keys)), where=draw(st.one_of(st.none(), st.sampled_from(CONDITIONS))))
    per_event = window.slide is None and not isinstance(window.extent, Session)
    query = replace(query, emit=draw(st.sampled_from((None, None, "RSTREAM", "ISTREAM", "DSTREAM"))))
    is_plain = not keys and not window.partition_by and not isinstance(window.extent, Session)
    if is_plain and (wide or draw(st.integers(0, 9)) == 0):
        distinct = not (per_event and query.emit is None) and draw(st.booleans())
        return replace(query, columns=tuple(column(n) for n, _ in WIDE) if wide else PLAIN, distinct=distinct)
    calls = [draw(aggregates(i)) for i in range(draw(st.integers(1, 4)))]
    if draw(st.integers(0, 4)) == 0:
        query, calls = replace(query, having=HAVING), [*calls, COUNTED]
    query = replace(query, aggregates=tuple(calls))
    if isinstance(window.extent, Range) and isinstance(window.slide, TimeSlide):
        query = replace(query, drain=draw(st.booleans()))
        if draw(st.integers(0, 2)) == 0:
            # Lengths from the slide to the whole window, in steps of a fifth.
            span = window.extent.micros - window.slide.micros
            lengths = st.sampled_from((None, *(window.slide.micros + span * i // 5 for i in range(6))))
            calls = [replace(call, over=draw(lengths)) if call is not COUNTED else call for call in calls]
            query = replace(query, aggregates=tuple(calls))
    if not per_event and not window.partition_by and draw(st.integers(0, 4)) == 0:
        order = ((draw(st.sampled_from(query.names)), draw(st.booleans())),)
        query = replace(query, order_by=order, limit=draw(st.one_of(st.none(), st.integers(1, 3))))
    return query


@st.composite
def wide_keys(draw: st.DrawFn) -> tuple[str, ...]:
    """None, or dozens, of which the last are often beyond the 64th."""
    count = draw(st.sampled_from((0, 40, 64, 65, 70, 72)))
    first = draw(st.integers(0, len(WIDE) - count))
    return tuple(name for name, _ in WIDE[first : first + count])


@st.composite
def scenarios(
    draw: st.DrawFn, kind: str | None = None, most: int = 60, shapes: tuple[str, ...] = ("few", "few", "crowd", "wide")
) -> Scenario:
    """A whole scenario with a window of one kind (a key of WINDOWS), or of any."""
    unit = draw(st.sampled_from(UNITS))
    lateness = draw(st.sampled_from((0, 2, 5)))
    shape = draw(st.sampled_from(shapes))
    is_wide = shape == "wide"
    columns = (*COLUMNS, *WIDE) if is_wide else COLUMNS
    stream = Stream("s", columns, lateness=lateness * unit, sequence=draw(st.sampled_from((None, None, "q"))))
    window = draw(WINDOWS[kind or draw(st.sampled_from(sorted(WINDOWS)))](unit))
    if is_wide and window.partition_by:
        window = replace(window, partition_by=draw(wide_keys()) or window.partition_by)
    query = draw(queries(window, is_wide))
    events = draw(crowds(unit, lateness) if shape == "crowd" else event_lists(unit, lateness, most))
    return Scenario(stream, query, draw(widened(events)) if is_wide else events)
