"""An embedded app as the app view shows it."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator

from penstock.engine.app import App
from penstock.engine.live_view import Look, QueryLook
from penstock.lang.render import render_duration, render_window
from penstock.plan.nodes import AggregateNode, JoinNode, Node, PatternNode, RelationNode, children
from penstock.web.seen import MemorySeen, QuerySeen, Seen, StreamSeen, TableSeen

_LONGEST_REJECT = 400


def look_at(app: weakref.ref[App]) -> Callable[[], Seen | None]:
    """Looks at the app from any thread, without keeping it alive."""
    windows: dict[str, tuple[Node, tuple[str, ...]]] = {}

    def windows_of(query: QueryLook) -> tuple[str, ...]:
        known = windows.get(query.name)
        if known is None or known[0] is not query.node:
            known = windows[query.name] = (query.node, tuple(dict.fromkeys(written_windows(query.node))))
        return known[1]

    def look() -> Seen | None:
        there = app()
        return None if there is None else _seen(there.look(), windows_of)

    return look


def written_windows(node: Node) -> Iterator[str]:
    """The windows below a node, as a query writes them."""
    match node:
        case JoinNode():
            yield from (f"{side.alias} {render_window(side.window)}" for side in node.sides)
        case PatternNode():
            yield f"within {render_duration(node.within)}"
        case AggregateNode() | RelationNode():
            yield render_window(node.window)
    for child in children(node):
        yield from written_windows(child)


def _seen(look: Look, windows_of: Callable[[QueryLook], tuple[str, ...]]) -> Seen:
    metrics = look.metrics
    figures: dict[str, str] = {}
    if metrics.calls:
        figures["calls of rules"] = f"{metrics.calls:,}, {metrics.calls_waiting:,} waiting"
    if metrics.dispatch is not None:
        figures["dispatch"] = f"{metrics.dispatch.policy}, {sum(metrics.dispatch.held.values()):,} events waiting"
    return Seen(
        engine="embedded",
        state=look.state,
        program=look.program,
        events=metrics.events,
        results=metrics.results,
        late=metrics.late,
        rejected=metrics.rejected,
        watermark=metrics.watermark,
        streams=tuple(StreamSeen(s.name, s.events, s.late, s.held + s.waiting, s.watermark) for s in look.streams),
        queries=tuple(
            QuerySeen(q.name, q.text, windows, q.results, q.kept if windows else "–", q.sharers, q.into or "program")
            for q in look.queries
            for windows in (windows_of(q),)
        ),
        memory=MemorySeen(
            metrics.memory_bytes, metrics.pool_bytes, metrics.memory_peak, metrics.memory_budget, look.memory
        ),
        stores=tuple(use for use in look.stores if use.nbytes or use.metrics.blocks_written),
        rejects=tuple((str(r["reason"]), _shortened(r["row"])) for r in look.rejects),
        figures=figures,
        tables=tuple(
            TableSeen(name, table.rows, table.past, table.expired, table.retention)
            for name, table in metrics.tables.items()
        ),
    )


def _shortened(row: object) -> str:
    text = json.dumps(row, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST_REJECT else text[:_LONGEST_REJECT] + "…"
