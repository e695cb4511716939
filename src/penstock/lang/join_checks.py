"""What sides of a join may not be, and what a SELECT over a join may not do: refusals with their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.lang.dialect import span_of
from penstock.lang.places import QueryText, Span
from penstock.lang.query import JoinKind, JoinSide, TableRef
from penstock.lang.syntax import FromItem, JoinItem, SelectSyntax
from penstock.windows.spec import WindowSpec


def check_order(source: QueryText, joins: Sequence[JoinItem]) -> None:
    """In SQL a comma binds weaker than JOIN, so what RIGHT and FULL keep after one is not what it seems."""
    comma: JoinItem | None = None
    for join in joins:
        if source.text[join.span[0]] == ",":
            comma = join
        elif comma is not None and join.kind.keeps_right:
            raise source.refusal(
                f"{join.kind.value} JOIN cannot follow a comma", join.span, "write CROSS JOIN instead of the comma"
            )


def check_sides(source: QueryText, sides: Sequence[JoinSide], items: Sequence[FromItem]) -> None:
    """The windows of one join belong together: all per event, or all with one slide of time."""
    streams = [(side, item) for side, item in zip(sides, items, strict=True) if not isinstance(side.source, TableRef)]
    if not streams:
        raise source.refusal(
            "a query needs a stream in FROM", items[0].span, "join tables with one: FROM s, t WHERE s.id = t.id"
        )
    for side, item in streams:
        if side.window is None and len(streams) > 1:
            raise source.refusal(
                f"'{side.alias}' needs a window to be joined with another stream",
                item.span,
                "write [RANGE 2 MINUTES], [ROWS 1000] or [NOW] after it",
            )
        if side.window is not None:
            _check_window(source, side.window, item)
    first = streams[0][0].window
    for side, item in streams[1:]:
        assert first is not None
        assert side.window is not None
        if side.window.slide != first.slide:
            raise source.refusal(
                "the windows of one join slide together",
                _window_span(item),
                "write the same SLIDE in all of them, or none: then there is a result at every event",
            )


def _check_window(source: QueryText, window: WindowSpec, item: FromItem) -> None:
    span = _window_span(item)
    if not window.extent.can_be_joined:
        raise source.refusal(
            "a window of a join is RANGE, ROWS or RATE SIZED", span, "write [RANGE 10 MINUTES] or [ROWS 1000]"
        )
    if window.partition_by:
        raise source.refusal(
            "PARTITION BY is not available in a join",
            span,
            "write the key into the condition: ON x.id = y.id",
        )
    if window.when_full:
        raise source.refusal("WHEN FULL is not available in a join", span, "leave it out")
    if window.wall_clock_slide is not None:
        raise source.refusal(
            "ON WALL CLOCK is not available in a join", span, "leave it out: joins slide by event time"
        )
    if window.time_slide is None and not window.is_per_event:
        raise source.refusal(
            "a window of a join slides by time or at every event",
            span,
            "write SLIDE 10 SECONDS in every window, or no SLIDE",
        )


def _window_span(item: FromItem) -> Span:
    return item.span if item.window is None else item.window.span


def check_join_aggregates(
    source: QueryText, syntax: SelectSyntax, window: WindowSpec | None, over: Mapping[int, Span | None]
) -> None:
    for span in over.values():
        raise source.refusal(
            "OVER is not available over a join",
            span,
            "put the join into a subquery: FROM (SELECT ... FROM a [window], b [window]) [RANGE 1 DAY SLIDE 1 HOUR]",
        )
    if window is not None and window.is_per_event:
        raise source.refusal(
            "aggregates over a join need windows with a SLIDE",
            span_of(syntax.group_by[0]) if syntax.group_by else syntax.items[0].span,
            "write the same SLIDE in every window; or, for a row per event, aggregate what the join gives: "
            "FROM (SELECT ... FROM a [window], b [window]) [RANGE 1 HOUR]",
        )


def padded(sides: Sequence[JoinSide]) -> list[bool]:
    """Which sides may be all NULL in a row: those before one that keeps its own rows, and those that LEFT joins."""
    found = [False] * len(sides)
    for number, side in enumerate(sides):
        if side.kind.keeps_right:
            found[:number] = [True] * number
        found[number] = side.kind in (JoinKind.LEFT, JoinKind.FULL)
    return found
