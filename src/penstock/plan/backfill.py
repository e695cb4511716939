"""Which queries can begin with rows of the past: those whose windows may share stored rows, and hold a stretch of time.

    SELECT k, SUM(v) FROM s [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY k     can, where rows of an hour are stored
    SELECT AVG(v) FROM s [RANGE 1 HOUR]                                  can
    SELECT SUM(v) FROM s [ROWS 1000]                                     cannot: it counts rows from its own beginning
    SELECT k, SUM(v) FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k       cannot: tumbling windows store no rows

Whether the rows are there, only the running app can say. Where an app begins, there are none, and BACKFILL changes
nothing.

Why: docs/decisions/backfill-from-rows.md
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from penstock.errors import QueryError
from penstock.lang.query import Query
from penstock.plan.nodes import AggregateNode, Node
from penstock.plan.sharing import may_share, stream_of

_HINT = "add it without backfill, and it begins from now on; or run it over the history in an app of its own"


def backfilled_stream(query: Query, node: Node, streams: Container[str]) -> str:
    """The stream whose stored rows the query takes over; refuses a query that cannot."""
    if not isinstance(node, AggregateNode) or not may_share(node) or stream_of(node) not in streams:
        raise QueryError(
            f"query {query.name} cannot begin with rows of the past: only aggregates over a sliding window of a "
            "declared stream can",
            hint=_HINT,
        )
    if node.window.extent.length is None or node.window.counts_events:
        raise QueryError(
            f"query {query.name} cannot begin with rows of the past: its window counts rows from its own beginning",
            hint=_HINT,
        )
    return stream_of(node)


def all_backfilled(queries: Sequence[Query], asked: bool) -> bool:
    """Whether queries that are added together begin with rows of the past: those that say so, or all if it is asked.
    Queries that begin together may be one aggregation, so they begin alike."""
    wanting = [query.name for query in queries if query.backfill]
    if asked or len(wanting) == len(queries):
        return True
    if wanting:
        raise QueryError(
            f"of the queries that are added together {', '.join(wanting)} would begin with rows of the past and others "
            "would not",
            hint="add them one after the other, or write BACKFILL for all",
        )
    return False


def refuse_after_restart(query: Query) -> None:
    """A query that comes with a restart begins before the stored rows are there."""
    if query.backfill:
        raise QueryError(
            f"query {query.name} is new and cannot begin with rows of the past at a restart",
            hint="start without it, and add it to the running app with add_query",
        )


def not_stored(query: Query) -> QueryError:
    """What is said where the rows are not there."""
    return QueryError(
        f"query {query.name} cannot begin with rows of the past: no query at work stores all of them, with the same "
        "WHERE and GROUP BY, the columns that it reads, and a time slide over at least its RANGE",
        hint=_HINT,
    )
