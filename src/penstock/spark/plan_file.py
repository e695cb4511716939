"""What a checkpoint's state belongs to: a small file beside it that says how each query was placed.

    <checkpoint>/penstock/plan.json   {"version": 3, "streams": {...}, "shares": {...}, "queries": {...}, ...}

When an application starts again with other queries, unchanged queries stay where their state is, whatever is placed
beside them. New and changed queries begin afresh, and a warning says so. An application for which this is impossible is
refused: otherwise a query whose state is looked for in the wrong place would begin afresh without notice.

A share that was gone for a while and comes back has missed events. Its generation counts up, so that its buckets are
new ones and the old state is not used.

Spark numbers the sources of a query and does not use their names. So the streams must stay the same; otherwise the
position of one stream would be used for another.
"""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from penstock.errors import CheckpointError, InputError
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import Query, StreamDef
from penstock.plan.columns import needed_columns
from penstock.plan.identity import identity
from penstock.plan.nodes import Node
from penstock.plan.placement import Spread
from penstock.spark.checkpoint_files import last_begun
from penstock.spark.file_system import file_system, make_own_directory
from penstock.spark.shares import Columns, Share

VERSION = 3
"""In version 1 the fingerprint of a query was that of its whole plan, with all columns of its streams. Up to version 2
all of a bucket's state was in Spark's state store; a Penstock that looks for it there refuses version 3."""


@dataclass(frozen=True)
class Plan:
    """`queries` has text, fingerprint, spread and share of each query of the last start; `shares` has the number of
    buckets, the generation and the columns of all shares that there ever were. `streams` has the declarations of the
    streams, with the types of the columns that were read; `bounded` is whether there is an end mark among the sources.
    `gone` says since which micro-batch shares are gone whose segments are still there, see `left_behind`."""

    streams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    bounded: bool = False
    shares: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    queries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    gone: Mapping[str, int] = field(default_factory=dict)

    def spreads(self, nodes: Mapping[str, Node]) -> dict[str, Spread]:
        """How the queries were placed that are as they were."""
        return {name: Spread(before["spread"]) for name, before in self._unchanged(nodes).items()}

    def kept(self, nodes: Mapping[str, Node]) -> dict[str, str]:
        """The shares of the queries that are as they were."""
        return {name: before["share"] for name, before in self._unchanged(nodes).items()}

    def held(self) -> dict[str, Columns]:
        """The columns that the shares of the last start take in."""
        return {share_id: saved["columns"] for share_id, saved in self.shares.items() if self._is_current(share_id)}

    def _unchanged(self, nodes: Mapping[str, Node]) -> dict[str, Mapping[str, str]]:
        return {
            name: before for name, before in self.queries.items() if name in nodes and _is_same(before, nodes[name])
        }

    def buckets(self, share: Share, asked: int | None, default: int) -> int:
        """The number of buckets that a share has; it belongs to the checkpoint."""
        if not self._is_current(share.id):
            return asked or default
        before: int = self.shares[share.id]["buckets"]
        if asked is not None and asked != before:
            raise InputError(
                f"the checkpoint was made with {before} buckets and cannot go on with {asked}; "
                "leave buckets out, or use a new checkpoint directory"
            )
        return before

    def generation(self, share: Share) -> int:
        if share.id not in self.shares:
            return 0
        return int(self.shares[share.id]["generation"]) + (not self._is_current(share.id))

    def _is_current(self, share_id: str) -> bool:
        return any(query["share"] == share_id for query in self.queries.values())

    def current_shares(self) -> set[str]:
        """Ids of the shares of the last start, with their generations, as the labels of their buckets begin."""
        return {f"{i}-{self.shares[i]['generation']}" for i in {query["share"] for query in self.queries.values()}}

    def check_streams(self, streams: Sequence[StreamDef], nodes: Mapping[str, Node], bounded: bool) -> None:
        """Refuses other streams than there were, and other declarations of them."""
        if not self.streams:
            return
        now = {stream.name: _declared(stream, nodes) for stream in streams}
        if not now.keys() & self.streams.keys():
            raise CheckpointError(
                f"the checkpoint belongs to another application, which reads {', '.join(self.streams)} and not "
                f"{', '.join(now)}; use a checkpoint directory of its own"
            )
        if now.keys() != self.streams.keys():
            raise CheckpointError(
                f"the checkpoint is of queries that read {', '.join(self.streams)}, and now they read "
                f"{', '.join(now)}; Spark cannot add or drop streams in a checkpoint: use a new checkpoint directory"
            )
        if bounded != self.bounded:
            raise CheckpointError(
                f"the checkpoint was made with bounded={self.bounded} and cannot go on with bounded={bounded}; "
                "keep to one, or use a new checkpoint directory"
            )
        for name, declared in now.items():
            changed = _changes(self.streams[name], declared)
            if changed:
                raise CheckpointError(
                    f"stream {name} has changed since the checkpoint: {', '.join(changed)}; "
                    "declare and cast it as it was, or use a new checkpoint directory"
                )

    def check(self, queries: Sequence[Query], nodes: Mapping[str, Node], shares: Sequence[Share]) -> None:
        """Refuses what would lose state silently, and tells what begins afresh."""
        place = {query.name: share.id for share in shares for query in share.queries}
        for query in queries if self.queries else ():
            before = self.queries.get(query.name)
            if before is None:
                warnings.warn(f"query {query.name} is new and begins from now on", stacklevel=4)
            elif not _is_same(before, nodes[query.name]):
                warnings.warn(f"query {query.name} has changed and begins afresh, from now on", stacklevel=4)
            elif before["share"] != place[query.name]:
                raise CheckpointError(
                    f"query {query.name} is as it was, but beside the other queries its state cannot be found again: "
                    "it is linked with other streams now; run the new queries with a checkpoint directory of their own"
                )
        for name in self.queries.keys() - place.keys():
            warnings.warn(f"query {name} is gone and its state is forgotten", stacklevel=4)


def read_plan(checkpoint: str) -> Plan:
    """The plan of the last start with this checkpoint; an empty one if there was none, or no micro-batch came of it."""
    files, path = file_system(f"{checkpoint}/penstock/plan.json")
    try:
        with files.open_input_stream(path) as stream:
            saved = json.loads(stream.read())
    except FileNotFoundError:
        return Plan()
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}; restore it, or use a new checkpoint directory") from None
    try:
        if saved["version"] > VERSION:
            raise CheckpointError(
                f"the checkpoint was written by a newer Penstock (plan version {saved['version']}, this one reads up "
                f"to {VERSION}); use that version or a later one"
            )
        plan = Plan(**{entry.name: saved[entry.name] for entry in fields(Plan)})
    except (KeyError, TypeError):
        raise CheckpointError(f"{path} is damaged; restore it, or use a new checkpoint directory") from None
    return Plan() if last_begun(checkpoint) is None else plan


def write_plan(
    checkpoint: str,
    streams: Sequence[StreamDef],
    shares: Sequence[Share],
    nodes: Mapping[str, Node],
    before: Plan,
    *,
    bounded: bool,
    gone: Mapping[str, int],
) -> None:
    now = {
        share.id: {
            "buckets": len(share.labels),
            "generation": before.generation(share),
            "columns": {part.stream.name: list(part.stream.schema.names) for part in share.parts},
        }
        for share in shares
    }
    declared = {stream.name: _declared(stream, nodes) for stream in streams}
    for name in declared.keys() & before.streams.keys():
        declared[name]["columns"] = {**before.streams[name]["columns"], **declared[name]["columns"]}
    plan: dict[str, Any] = {
        "version": VERSION,
        "streams": declared,
        "bounded": bounded,
        "shares": {**before.shares, **now},
        "gone": dict(gone),
        "queries": {
            query.name: {
                "text": query.text,
                "fingerprint": identity(nodes[query.name]),
                "spread": share.placement.spread.value,
                "share": share.id,
            }
            for share in shares
            for query in share.queries
        },
    }
    files, path = make_own_directory(checkpoint)
    draft = f"{path}/.{uuid.uuid4().hex}"
    with files.open_output_stream(draft) as stream:
        stream.write(json.dumps(plan, indent=1).encode())
    files.move(draft, f"{path}/plan.json")


def gone_shares(before: Plan, shares: Sequence[Share], batch: int | None) -> dict[str, int]:
    """`before.gone`, and the shares that were there and are not any more, since micro-batch `batch`."""
    now = {f"{share.id}-{before.generation(share)}" for share in shares}
    return {**before.gone, **dict.fromkeys(before.current_shares() - now, batch or 0)}


def _is_same(before: Mapping[str, str], node: Node) -> bool:
    return before["fingerprint"] in (identity(node), fingerprint(node))


def _declared(stream: StreamDef, nodes: Mapping[str, Node]) -> dict[str, Any]:
    read = needed_columns(stream, nodes.values())
    return {
        "event time": stream.event_time,
        "unit": stream.time_unit,
        "lateness": stream.lateness,
        "sequence": stream.sequence,
        "columns": {field.name: str(field.type) for field in stream.schema if field.name in read},
    }


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Columns may come and go as queries do, but what was read must still have its type."""
    changed = [
        f"its {key} was {before[key]} and is {now[key]}" for key in now if key != "columns" and before[key] != now[key]
    ]
    types = {name: kind for name, kind in now["columns"].items() if before["columns"].get(name, kind) != kind}
    return changed + [f"column {name} was {before['columns'][name]} and is {kind}" for name, kind in types.items()]
