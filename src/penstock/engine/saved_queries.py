"""What a checkpoint has of queries, until those that are started take it up; and the names that are in use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.components import read_as
from penstock.engine.tables.tables import TableSet
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import Query
from penstock.operators.panes.family import is_family
from penstock.operators.shared_aggregation import SharedAggregation
from penstock.plan.identity import identity
from penstock.plan.nodes import Node
from penstock.plan.physical.circumstances import Existing


class SavedQueries:
    """Empty, unless a snapshot of a flow is expected to be restored."""

    def __init__(self, snapshot: dict[str, Any] | None = None) -> None:
        """The snapshot has the shape of today; of what it consists may be older."""
        found = snapshot or {}
        self.queries: dict[str, Any] = found.get("queries", {})
        self.aggregations: dict[str, Any] = found.get("aggregations", {})
        self.joins: dict[str, Any] = found.get("joins", {})
        self.windows: dict[str, Any] = found.get("windows", {})
        self.tables: dict[str, Any] = read_as(TableSet, found.get("tables", {}))

    def of(self, query: Query, node: Node) -> dict[str, Any] | None:
        """What the checkpoint has of the query, if that is still the same."""
        saved: dict[str, Any] | None = self.queries.get(query.name)
        return saved if saved is not None and _is_same(saved["identity"], node) else None

    def existing(self, queries: Iterable[tuple[Query, Node]]) -> Existing:
        """What those of the queries have that are still the same."""
        aggregations: dict[str, tuple[str, ...]] = {}
        joins: dict[str, tuple[str, ...]] = {}
        for query, node in queries:
            saved = self.of(query, node)
            if saved is not None:
                aggregations[query.name] = tuple(saved["aggregations"])
                if "joins" in saved:
                    joins[query.name] = tuple(saved["joins"])
        named = {name for own in aggregations.values() for name in own}
        stored = {name: self.aggregations[name] for name in named if not is_family(self.aggregations[name])}
        return Existing(
            aggregations, joins, {name: read_as(SharedAggregation, saved)["window"] for name, saved in stored.items()}
        )

    @property
    def names(self) -> set[str]:
        """Of pipelines, windows, aggregations and joins."""
        pipelines = {saved["pipeline"] for saved in self.queries.values()}
        return pipelines | set(self.windows) | set(self.aggregations) | set(self.joins)


def _is_same(saved: str, node: Node) -> bool:
    """Whether the plan is the one that was saved; checkpoints of format 7 have the fingerprint of the whole plan."""
    return saved in (identity(node), fingerprint(node))


class Names:
    """Names of state, unique among those at work and those of the last checkpoint."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def use_only(self, names: Iterable[str]) -> None:
        self._used = set(names)

    def free(self, base: str) -> str:
        """The name, with a number if it is taken; it stays free until it is used."""
        name, number = base, 1
        while name in self._used:
            number += 1
            name = f"{base}-{number}"
        return name

    def use(self, name: str) -> None:
        self._used.add(name)

    def take(self, base: str) -> str:
        name = self.free(base)
        self.use(name)
        return name
