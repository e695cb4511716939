"""Shares: queries that run together in the same buckets, over the same part of the streams they read.

    program ── plan.placement ──▶ by key k:    q1, q4      ──▶ buckets 3f2a.0, 3f2a.1, …
                                  partials:    q2, q3, q5  ──▶ buckets 91bc.0, 91bc.1, …
                                  one place:   q6          ──▶ bucket  07de.0

Every event goes to one bucket of each share that reads its stream, with the columns that this share reads.

Invariants:
1. The id of a share depends on its way of spreading and on the streams it reads, not on which queries are in it, nor on
   what other shares there are: queries come and go, and the state of the others is found again.
   A query that comes later and reads columns which the share's state does not have gets a share of its own.
2. Of the shares that read a stream one *reports*: it counts its events, gives out the late ones and the rejects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import Query, StreamDef
from penstock.plan.columns import needed_columns
from penstock.plan.nodes import Node, streams
from penstock.plan.placement import Placement, order_matters
from penstock.types import Schema

Columns = Mapping[str, Sequence[str]]
"""Names of columns, by their streams."""


@dataclass(frozen=True)
class StreamPart:
    """A stream with just the columns that a share reads; `ties_by_value` if equal times must be put in an order that
    does not depend on how they come."""

    stream: StreamDef
    reports: bool
    ties_by_value: bool


@dataclass(frozen=True)
class Share:
    """`nodes[i]` is the plan of `queries[i]`; `labels` are the names of its buckets. State that belongs to something
    other than `belongs_to` does not fit, where the set of queries must not change."""

    id: str
    placement: Placement
    queries: tuple[Query, ...]
    nodes: tuple[Node, ...]
    parts: tuple[StreamPart, ...]
    labels: tuple[str, ...] = ()
    belongs_to: str = ""

    @property
    def fingerprint(self) -> str:
        """State with another fingerprint does not fit: streams are declared otherwise, or there are more buckets."""
        streams = (part.stream for part in self.parts)
        declared = tuple((s.name, s.event_time, s.time_unit, s.lateness, s.sequence) for s in streams)
        return fingerprint((self.id, len(self.labels), declared, self.belongs_to))

    def part(self, stream: str) -> StreamPart | None:
        return next((part for part in self.parts if part.stream.name == stream), None)


def share_out(
    declared: Sequence[StreamDef],
    queries: Sequence[Query],
    nodes: Mapping[str, Node],
    placements: Mapping[str, Placement],
    kept: Mapping[str, str] | None = None,
    held: Mapping[str, Columns] | None = None,
    *,
    in_order: Collection[str] = (),
) -> list[Share]:
    """The shares of a program, in the order of their first queries. `kept` says in which shares queries are that have
    state, and `held` which columns the shares take in that have some. `in_order` are the streams whose order of arrival
    is known."""
    together: dict[str, list[Query]] = {}
    for names in _components(queries, nodes):
        members = [query for query in queries if query.name in names]
        homes = {(kept or {}).get(name) for name in names}
        needs = _needs(declared, [nodes[name] for name in names])
        home = homes.pop() if len(homes) == 1 else None
        share_id = home or _free_share(placements[members[0].name], needs, held or {})
        together.setdefault(share_id, []).extend(members)
    read = {share_id: set().union(*(streams(nodes[q.name]) for q in members)) for share_id, members in together.items()}
    reporters = {s.name: _reporter(s, [i for i in together if s.name in read[i]], held or {}) for s in declared}
    shares: list[Share] = []
    for share_id, unordered in together.items():
        members = [query for query in queries if query in unordered]
        own = tuple(nodes[query.name] for query in members)
        parts = tuple(
            _part(s, own, reporters[s.name] == share_id, s.name in in_order)
            for s in declared
            if s.name in read[share_id]
        )
        shares.append(Share(share_id, placements[members[0].name], tuple(members), own, parts))
    return shares


def shown(queries: Sequence[Query], nodes: Sequence[Node], sinks: Collection[str]) -> list[str]:
    """The queries whose rows come out under their names: all but those whose rows only go on to other queries. Of a
    rule that calls functions its calls come out."""
    read = set().union(*map(streams, nodes))
    return [
        query.name
        for query in queries
        if query.into is None
        or query.into in sinks
        or (query.into not in read and not (query.rule is not None and query.rule.calls))
    ]


def _reporter(stream: StreamDef, readers: Sequence[str], held: Mapping[str, Columns]) -> str | None:
    """The share that reports on a stream: the first. Late events have all columns, so then it must not be one whose
    state has only some of them, if there is another."""
    able = (i for i in readers if i not in held or not set(stream.schema.names) - set(held[i].get(stream.name, ())))
    first = next(iter(readers), None)
    return first if stream.late_into is None else next(able, first)


def _needs(declared: Sequence[StreamDef], nodes: Sequence[Node]) -> Columns:
    """The columns that some plans read, by their streams; not those that late events have."""
    read = set().union(*map(streams, nodes))
    return {s.name: needed_columns(replace(s, late_into=None), nodes) for s in declared if s.name in read}


def _free_share(placement: Placement, needs: Columns, held: Mapping[str, Columns]) -> str:
    """The share of a query without state: the one that all such queries have, or another if that has state without some
    of its columns."""
    what = (placement.spread, placement.keys, tuple(sorted(needs)))
    share_id = fingerprint(what)[:8]
    while share_id in held and any(set(needs[name]) - set(held[share_id].get(name, ())) for name in needs):
        share_id = fingerprint((share_id, tuple(sorted((name, tuple(sorted(c))) for name, c in needs.items()))))[:8]
    return share_id


def _part(stream: StreamDef, nodes: tuple[Node, ...], reports: bool, in_order: bool) -> StreamPart:
    kept = stream if reports else replace(stream, late_into=None)
    needed = needed_columns(kept, nodes)
    schema = Schema(tuple(field for field in stream.schema if field.name in needed))
    by_value = not in_order and any(map(order_matters, nodes))
    return StreamPart(replace(kept, schema=schema, uri=None, options=()), reports, by_value)


def _components(queries: Sequence[Query], nodes: Mapping[str, Node]) -> list[set[str]]:
    """Queries that are linked by derived streams; every other query is alone."""
    components: list[set[str]] = []
    for query in queries:
        own = {query.name} | {
            other.name for other in queries if other.into in streams(nodes[query.name]) and other.into is not None
        }
        joined = [component for component in components if component & own]
        components = [component for component in components if component not in joined]
        components.append(own.union(*joined))
    return components
