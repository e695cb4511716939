"""What a query must answer, recomputed from the contract: every evaluation from scratch, nothing kept between them.

`expected(stream, query, events)` takes the events in the order they arrive. It imports nothing of penstock, uses no
numpy, and is as slow as the definition: evaluations × events. Where the contract leaves room, this is what holds:

Late. Before an event arrives the watermark is the largest time seen minus LATENESS. The event is late if its time is
   less than that, or if a SEQUENCE is declared and it precedes, in (time, sequence), an event with time ≤ watermark
   that was not late. Late events take no part in anything. The others count in (time, sequence, arrival) order.
Time slides. Boundaries b are the multiples of the slide plus OFFSET. The first evaluation is the least b after the
   first event, the last one the least b after the last event, WHERE or no WHERE; DRAIN goes on up to the first b whose
   RANGE window is empty. An evaluation without rows is still one: DSTREAM says what vanished.
Count slides and ROWS count the events that are not late, from the stream's first, before WHERE.
Window columns. RANGE with a time slide: b-r, b. Other RANGE: e.t-r, e.t. NOW: e.t, e.t. ROWS: time of the oldest event
   in the window (before WHERE), then e.t, or b for time slides. SINCE t: t, b. SESSION: its first event's time, its
   last event's time + gap.
PARTITION BY. Every partition is as if it had a stream and a query of its own; only its time slides go on to the last
   b of the whole stream, in the order (b, partition key).
WHEN FULL. RANGE: only where window start ≥ first event's time; ROWS: from the n-th event on; per partition. An
   evaluation that is not full is none, so ISTREAM says the first full one whole.
SESSION. A session ends where the next event is at or after the last one's time + gap. WHERE does not cut sessions.
   Evaluations are in the order (window_end, partition key); at the end of a bounded run every session closes.
Rows of one evaluation: by group key ascending (NULL first, NaN last, strings by UTF-8 bytes); events of a plain
   SELECT in their order; ORDER BY before that. LIMIT and DISTINCT are part of R(k).
ISTREAM and DSTREAM compare the select list, without the window columns, with the previous evaluation (of the same
   partition; a session with the one before of the same key, however long ago it closed). Their rows carry the window
   columns of evaluation k; those of equal rows that came first are the ones that stayed.
Per-event windows by default give the row of the event's group, if the event passes WHERE and the row passes HAVING.
   With RSTREAM, ISTREAM or DSTREAM every event is an evaluation, also one that fails WHERE.
OVER [RANGE r]. The aggregate sees those events of its group with times in [b-r, b); of none, COUNT is 0 and all else
   NULL. Which groups there are is a matter of the window in FROM.
An integer SUM that overflows rejects its result row.
Derived streams. The event time of a row is window_end - 1; its columns are window_start, window_end and the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.arithmetic import Overflow, aggregate, ascending, identity
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
    TimeSlide,
    Window,
)

Row = tuple[Any, ...]


@dataclass
class Outcome:
    """`rows` are (window_start, window_end, outputs...) in the order of emission."""

    rows: list[Row] = field(default_factory=list)
    late: list[Event] = field(default_factory=list)
    rejected: int = 0
    evaluations: int = 0


@dataclass(frozen=True)
class Evaluation:
    """One look at the window: `contents` before WHERE; `event` is the one that arrived, on per-event windows."""

    order: tuple[Any, ...]
    start: int
    end: int
    contents: tuple[Event, ...]
    partition: tuple[Any, ...] = ()
    event: Event | None = None


def expected(stream: Stream, query: Query, events: Sequence[Event]) -> Outcome:
    """Everything a bounded run must give for these arrivals."""
    accepted, late = arrivals(stream, events)
    return answer(query, accepted, stream.time, Outcome(late=late))


def answer(query: Query, accepted: Sequence[Event], time: str, outcome: Outcome | None = None) -> Outcome:
    """The rows of a query over events that are in order already (a union, a derived stream)."""
    outcome = outcome or Outcome()
    previous: dict[tuple[Any, ...], list[Row]] = {}
    per_event = query.window.slide is None and not isinstance(query.window.extent, Session)
    for evaluation in _evaluations(query, accepted, time):
        outcome.evaluations += 1
        if per_event and query.emit is None:
            emitted = _row_of_event(query, evaluation, time, outcome)
        else:
            now = _relation(query, evaluation, time, outcome)
            before = previous.get(evaluation.partition, [])
            previous[evaluation.partition] = now
            match query.emit:
                case "ISTREAM":
                    emitted = _minus(now, before)
                case "DSTREAM":
                    emitted = _minus(before, now)
                case _:
                    emitted = now
        outcome.rows += [(evaluation.start, evaluation.end, *row) for row in emitted]
    return outcome


def derived(query: Query, rows: Sequence[Row]) -> list[Event]:
    """The events of the stream that INSERT INTO makes of a windowed query's rows; their time is in `event_time`."""
    names = ("window_start", "window_end", *query.names)
    return [dict(zip(names, row, strict=True)) | {"event_time": row[1] - 1} for row in rows]


def arrivals(stream: Stream, events: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """The events in their order, and the late ones as they came."""

    def order(event: Event) -> tuple[Any, ...]:
        return (event[stream.time], event[stream.sequence]) if stream.sequence else (event[stream.time],)

    accepted: list[Event] = []
    late: list[Event] = []
    for i, event in enumerate(events):
        watermark = max((seen[stream.time] for seen in events[:i]), default=event[stream.time]) - stream.lateness
        released = [order(seen) for seen in accepted if seen[stream.time] <= watermark]
        is_late = event[stream.time] < watermark or (released and order(event) < max(released))
        (late if is_late else accepted).append(event)
    return sorted(accepted, key=order), late


def _evaluations(query: Query, events: Sequence[Event], time: str) -> list[Evaluation]:
    window = query.window
    if not events:
        return []
    last = events[-1][time]
    partitions: dict[tuple[Any, ...], list[tuple[int, Event]]] = {}
    for position, event in enumerate(events):
        key = tuple(identity(event[name]) for name in window.partition_by)
        partitions.setdefault(key, []).append((position, event))
    found: list[Evaluation] = []
    for mine in partitions.values():
        key = tuple(ascending(mine[0][1][name]) for name in window.partition_by)
        if isinstance(window.extent, Session):
            found += _sessions(window.extent.gap, mine, time, key)
        elif isinstance(window.slide, TimeSlide):
            found += _at_boundaries(window, window.slide, mine, time, key, last, query.drain)
        else:
            found += _at_events(window, mine, time, key)
    return sorted(found, key=lambda evaluation: evaluation.order)


def _at_boundaries(
    window: Window,
    slide: TimeSlide,
    mine: Sequence[tuple[int, Event]],
    time: str,
    key: tuple[Any, ...],
    last: int,
    drain: bool,
) -> Iterator[Evaluation]:
    events = [event for _, event in mine]
    first = events[0][time]
    boundary = (first - slide.offset) // slide.micros * slide.micros + slide.offset
    while True:
        before, boundary = boundary, boundary + slide.micros
        drained = not drain or not isinstance(window.extent, Range) or before - window.extent.micros > last
        if before > last and drained:
            return
        seen = [event for event in events if event[time] < boundary]
        match window.extent:
            case Range(micros):
                start, full = boundary - micros, boundary - micros >= first
                contents = [event for event in seen if event[time] >= start]
            case Rows(count):
                contents, full = seen[-count:], len(seen) >= count
                start = contents[0][time]
            case Since(since):
                start, full = since, True
                contents = [event for event in seen if event[time] >= since]
            case _:
                raise ValueError(f"{window.extent} cannot slide by time")
        if full or not window.when_full:
            yield Evaluation((boundary, key), start, boundary, tuple(contents), key)


def _at_events(
    window: Window, mine: Sequence[tuple[int, Event]], time: str, key: tuple[Any, ...]
) -> Iterator[Evaluation]:
    events = [event for _, event in mine]
    every = window.slide.count if isinstance(window.slide, CountSlide) else 1
    for number, (position, event) in enumerate(mine, 1):
        if number % every:
            continue
        now, seen = event[time], events[:number]
        match window.extent:
            case Range(micros):
                start, full = now - micros, now - micros >= events[0][time]
                contents = [other for other in seen if other[time] > now - micros]
            case Rows(count):
                contents, full = seen[-count:], number >= count
                start = contents[0][time]
            case Now():
                start, full = now, True
                contents = [other for other in seen if other[time] == now]
            case _:
                raise ValueError(f"{window.extent} cannot be evaluated at events")
        if full or not window.when_full:
            yield Evaluation((position,), start, now, tuple(contents), key, event)


def _sessions(gap: int, mine: Sequence[tuple[int, Event]], time: str, key: tuple[Any, ...]) -> Iterator[Evaluation]:
    sessions: list[list[Event]] = []
    for _, event in mine:
        if not sessions or event[time] >= sessions[-1][-1][time] + gap:
            sessions.append([])
        sessions[-1].append(event)
    for session in sessions:
        end = session[-1][time] + gap
        yield Evaluation((end, key), session[0][time], end, tuple(session), key)


def _passes(query: Query, event: Event) -> bool:
    return query.where is None or query.where.value(event) is True


def _group(query: Query, event: Event) -> tuple[Any, ...]:
    return tuple(identity(key.value(event)) for key in query.keys)


def _row_of_group(query: Query, events: Sequence[Event], end: int, time: str, outcome: Outcome) -> list[Row]:
    """The row of a group: none if HAVING drops it or a sum overflows, which is said once for each length of window."""
    values: dict[Aggregate, Any] = {}
    overflows = False
    for over in {call.over or _length(query.window) for call in query.aggregates}:
        calls = [call for call in query.aggregates if (call.over or _length(query.window)) == over]
        inside = events if over is None else [event for event in events if event[time] >= end - over]
        try:
            values |= {call: aggregate(call, inside) if inside else _of_nothing(call) for call in calls}
        except Overflow:
            outcome.rejected += 1
            overflows = True
    if overflows:
        return []
    row = (*(key.value(events[0]) for key in query.keys), *(values[call] for call in query.aggregates))
    if query.having is not None and query.having.value(dict(zip(query.names, row, strict=True))) is not True:
        return []
    return [row]


def _length(window: Window) -> int | None:
    """Of RANGE windows with a time slide, of which OVER may show a part."""
    return window.extent.micros if isinstance(window.extent, Range) and isinstance(window.slide, TimeSlide) else None


def _of_nothing(call: Aggregate) -> int | None:
    return 0 if call.function.startswith("COUNT") else None


def _row_of_event(query: Query, evaluation: Evaluation, time: str, outcome: Outcome) -> list[Row]:
    event = evaluation.event
    assert event is not None
    if not _passes(query, event):
        return []
    if not query.aggregating:
        return [tuple(term.value(event) for term in query.columns)]
    mine = [
        other for other in evaluation.contents if _passes(query, other) and _group(query, other) == _group(query, event)
    ]
    return _row_of_group(query, mine, evaluation.end, time, outcome)


def _relation(query: Query, evaluation: Evaluation, time: str, outcome: Outcome) -> list[Row]:
    """R(k): WHERE, GROUP BY, HAVING, DISTINCT, ORDER BY, LIMIT."""
    kept = [event for event in evaluation.contents if _passes(query, event)]
    if query.aggregating:
        groups: dict[tuple[Any, ...], list[Event]] = {}
        for event in kept:
            groups.setdefault(_group(query, event), []).append(event)
        in_order = sorted(groups.values(), key=lambda group: [ascending(key.value(group[0])) for key in query.keys])
        rows = [row for group in in_order for row in _row_of_group(query, group, evaluation.end, time, outcome)]
    else:
        rows = [tuple(term.value(event) for term in query.columns) for event in kept]
    if query.distinct:
        rows = list({tuple(map(identity, row)): row for row in rows}.values())
    for name, descending in reversed(query.order_by):
        place = query.names.index(name)
        rows.sort(key=lambda row, place=place: ascending(row[place]), reverse=descending)
    return rows if query.limit is None else rows[: query.limit]


def _minus(left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    """The multiset difference, in the order of `left`."""
    away = [tuple(map(identity, row)) for row in right]
    rest = []
    for row in left:
        same = tuple(map(identity, row))
        if same in away:
            away.remove(same)
        else:
            rest.append(row)
    return rest
