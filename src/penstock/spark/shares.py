"""Shares: queries that run together in the same buckets, over the same part of the streams they read.

    program ── plan.placement ──▶ by key k:    q1, q4      ──▶ buckets 3f2a.0, 3f2a.1, …
                                  partials:    q2, q3, q5  ──▶ buckets 91bc.0, 91bc.1, …
                                  one place:   q6          ──▶ bucket  07de.0

Every event goes to one bucket of each share that reads its stream, with the columns that this share reads.

Invariants:
1. The id of a share depends on its way of spreading and on the streams it reads, not on which queries are in it, nor on
   what other shares there are: queries come and go, and the state of the others is found again.
2. Of the shares that read a stream one *reports*: it counts its events, gives out the late ones and the rejects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import Query, StreamDef
from penstock.plan.columns import needed_columns
from penstock.plan.nodes import Node, streams
from penstock.plan.placement import Placement, order_matters
from penstock.types import Schema


@dataclass(frozen=True)
class StreamPart:
    """A stream with just the columns that a share reads; `order_matters` if equal times must be put in order."""

    stream: StreamDef
    reports: bool
    order_matters: bool


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
) -> list[Share]:
    """The shares of a program, in the order of their first queries."""
    together: dict[str, list[Query]] = {}
    for names in _components(queries, nodes):
        members = [query for query in queries if query.name in names]
        placement = placements[members[0].name]
        read = {s.name for s in declared} & set().union(*(streams(nodes[name]) for name in names))
        together.setdefault(_share_id(placement, read), []).extend(members)
    shares: list[Share] = []
    reported: set[str] = set()
    for share_id, unordered in together.items():
        members = [query for query in queries if query in unordered]
        own = tuple(nodes[query.name] for query in members)
        read = set().union(*map(streams, own))
        parts = tuple(_part(s, own, s.name not in reported) for s in declared if s.name in read)
        reported |= read
        shares.append(Share(share_id, placements[members[0].name], tuple(members), own, parts))
    return shares


def _share_id(placement: Placement, read: set[str]) -> str:
    return fingerprint((placement.spread, placement.keys, tuple(sorted(read))))[:8]


def _part(stream: StreamDef, nodes: tuple[Node, ...], reports: bool) -> StreamPart:
    kept = stream if reports else replace(stream, late_into=None)
    needed = needed_columns(kept, nodes)
    schema = Schema(tuple(field for field in stream.schema if field.name in needed))
    return StreamPart(replace(kept, schema=schema, uri=None, options=()), reports, any(map(order_matters, nodes)))


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
