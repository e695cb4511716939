"""The joins that queries have in common, as the flow makes, saves and restores them.

Queries that are started together and whose joins can have one core have one (`plan.joins.sharing`); one that is started
later has its own, for its windows begin with the rows that come from then on. After a restart those that are as they
were go on together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import Query
from penstock.operators.joins.core import JoinCore
from penstock.operators.resources import Resources
from penstock.plan.joins.sharing import CoreKey, core_key, joins
from penstock.plan.nodes import JoinNode, Node


def make_cores(
    queries: Sequence[tuple[Query, Node, list[str] | None]],
    saved: dict[str, Any],
    resources: Callable[[], Resources],
    take_name: Callable[[str], str],
    made: list[JoinCore],
) -> dict[str, list[JoinCore]]:
    """The cores of each query's joins; with a query come the names of those that it had, if it goes on. Joins of
    subqueries are never the same rows for two queries, so they are alone."""
    groups: dict[tuple[str, CoreKey, str], list[JoinNode]] = {}
    asked: dict[str, list[tuple[str, CoreKey, str]]] = {}
    for query, node, names in queries:
        asked[query.name] = []
        for number, join in enumerate(joins(node)):
            known = names[number] if names is not None else ""
            group = (known, core_key(join), "" if join.joins_streams else f"{query.name}-{number}")
            groups.setdefault(group, []).append(join)
            asked[query.name].append(group)
    cores: dict[tuple[str, CoreKey, str], JoinCore] = {}
    for (known, key, alone), nodes in groups.items():
        name = known or take_name(f"join-{fingerprint(key)[:12]}")
        own = resources()
        try:
            core = JoinCore(name, nodes, own, saved.get(known))
        except BaseException:
            own.close()
            raise
        made.append(core)
        cores[known, key, alone] = core
    return {query: [cores[group] for group in own] for query, own in asked.items()}
