"""What a SELECT may not combine: refusals that need the clauses and the window, not the types of expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.expressions.tree import Column, Expression
from penstock.lang.dialect import span_of
from penstock.lang.durations import SECOND
from penstock.lang.places import QueryText, Span
from penstock.lang.render import render_duration, render_name, render_window
from penstock.lang.scope import WINDOW_COLUMNS
from penstock.lang.syntax import Name, SelectSyntax
from penstock.types import SqlType
from penstock.windows.spec import Range, RateSized, TimeSlide, WindowSpec


def check_clauses(source: QueryText, syntax: SelectSyntax, window: WindowSpec | None) -> None:
    if window is not None and isinstance(window.extent, RateSized) and not syntax.joins:
        assert syntax.source.window is not None
        raise source.refusal(
            "RATE SIZED windows are for joins: a single stream has no other to keep rows for",
            syntax.source.window.span,
            f"write [RANGE {render_duration(window.extent.micros)}]",
        )
    if window is None:
        if syntax.distinct:
            raise source.refusal(
                "DISTINCT needs a window", syntax.distinct, "without one every event ever seen would be remembered"
            )
        if syntax.emit:
            raise source.refusal(
                f"{syntax.emit[0].value} needs a window", syntax.emit[1], "without a window each event gives one row"
            )
    if syntax.order_by and (window is None or window.is_per_event):
        raise source.refusal(
            "ORDER BY needs a window with a SLIDE",
            span_of(syntax.order_by[0].expression),
            "it orders the rows of one evaluation: FROM s [RANGE 1 HOUR SLIDE 1 MINUTE] ... ORDER BY ...",
        )
    if syntax.limit and not syntax.order_by:
        raise source.refusal(
            "LIMIT needs ORDER BY", syntax.limit[1], "without an order the rows that remain would be arbitrary"
        )
    if syntax.drain and (window is None or not window.can_drain):
        raise source.refusal(
            "DRAIN is for windows that empty as time goes on",
            syntax.drain,
            "write it after a RANGE window with a SLIDE of time, or leave it out",
        )


def check_partitions(
    source: QueryText,
    syntax: SelectSyntax,
    window: WindowSpec | None,
    group_by: tuple[Expression, ...],
    outputs: Sequence[Expression],
    *,
    aggregating: bool,
) -> None:
    """A window per partition answers for each partition by itself, so a row says which: an aggregate groups by it,
    and DISTINCT and LIMIT show it."""
    if window is None or syntax.source.window is None or not (aggregating or syntax.distinct or syntax.limit):
        return
    named = {e.name for e in (group_by if aggregating else outputs) if isinstance(e, Column)}
    left_out = [name for name in window.partition_by if name not in named]
    if left_out:
        keys = ", ".join(map(render_name, left_out))
        if aggregating:
            message = f"the window is per {keys}, and GROUP BY does not name it"
            grouped = f"{keys}, ..." if group_by else keys
            per_key = f"for a row per {keys} write SELECT {keys}, ... GROUP BY {grouped}"
        else:
            message = f"the window is per {keys}, and the select list does not show it"
            per_key = f"for rows per {keys} write SELECT {keys}, ..."
        raise source.refusal(message, syntax.source.window.span, f"{per_key}; {_together(syntax, window)}")


def _together(syntax: SelectSyntax, window: WindowSpec) -> str:
    """How a query over the union of all partitions is written."""
    if window.extent.closes:
        return f"for sessions of all events together write {render_window(replace(window, partition_by=()))}"
    slide = replace(window.time_slide or TimeSlide(SECOND), wall_clock=False)
    inner = render_window(replace(window, slide=slide))
    outer = render_window(WindowSpec(Range(slide.micros), slide))
    shown = syntax.source.source.text if isinstance(syntax.source.source, Name) else "(SELECT ...)"
    return f"for one answer over all partitions write FROM (SELECT * FROM {shown} {inner}) {outer}"


def check_over(source: QueryText, window: WindowSpec | None, places: Mapping[int, Span | None]) -> None:
    """What stands behind OVER is a shorter view of the window in FROM."""
    length = None if window is None else window.extent.length
    slide = None if window is None else window.time_slide
    for micros, span in places.items():
        if length is None or slide is None or slide.wall_clock:
            raise source.refusal(
                "OVER needs a RANGE window with a SLIDE of event time in FROM",
                span,
                "write FROM s [RANGE 24 HOURS SLIDE 10 SECONDS] with the longest window, and OVER [RANGE 1 HOUR]",
            )
        if micros > length:
            raise source.refusal(
                "the window behind OVER is longer than the one in FROM",
                span,
                "write the longest window in FROM: it says which groups have a row",
            )
        if micros < slide.micros:
            raise source.refusal(
                "the window behind OVER is shorter than the SLIDE: events between two windows would be in none",
                span,
                "make it at least as long as the SLIDE in FROM",
            )


def check_outputs(
    source: QueryText,
    syntax: SelectSyntax,
    names: list[Name],
    outputs: list[Expression],
    order: list[Expression],
    *,
    windowed: bool,
) -> None:
    seen: set[str] = set()
    for name, expression in zip(names, outputs, strict=True):
        lowered = name.text.lower()
        if lowered in seen:
            raise source.refusal(f"two outputs are named '{name.text}'", name.span, "rename one with AS")
        seen.add(lowered)
        if windowed and lowered in WINDOW_COLUMNS:
            raise source.refusal(f"every row already carries {lowered}", name.span, "choose another name")
        if name.text[:1] in ("$", "#") or not name.text:
            raise source.refusal("a name cannot begin with '$' or '#', or be empty", name.span)
        if expression.type in (SqlType.NULL, SqlType.INTERVAL):
            raise source.refusal(
                f"a value of type {expression.type} cannot be an output",
                name.span,
                "CAST it, such as CAST(NULL AS DOUBLE)",
            )
    for item, expression in zip(syntax.order_by, order, strict=True):
        if expression.type in (SqlType.NULL, SqlType.INTERVAL):
            raise source.refusal(f"a value of type {expression.type} has no order", span_of(item.expression))
        if syntax.distinct and expression not in outputs:
            raise source.refusal(
                "with DISTINCT, ORDER BY can name only outputs",
                span_of(item.expression),
                "add the expression to the select list",
            )
