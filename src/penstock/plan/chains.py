"""How many queries may stand one behind the other, each reading the stream that the one before derives.

Rows are handed on through the whole chain before the next ones come, so its length is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import QueryError
from penstock.lang.query import Query
from penstock.plan.nodes import Node, streams

LONGEST_CHAIN = 100


def check_chains(queries: Iterable[tuple[Query, Node]]) -> None:
    """Refuses a chain that is too long; the queries come in the order in which they were declared."""
    depths: dict[str, int] = {}
    for query, node in queries:
        depth = 1 + max((depths.get(stream, 0) for stream in streams(node)), default=0)
        if depth > LONGEST_CHAIN:
            raise QueryError(
                f"{query.name} is the last of {depth} queries that read each other's rows",
                hint=f"at most {LONGEST_CHAIN} may stand one behind the other; put some of them into one",
            )
        if query.into is not None:
            depths[query.into] = depth
