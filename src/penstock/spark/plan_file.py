"""What a checkpoint's state belongs to: a small file beside it that says how each query was placed.

    <checkpoint>/penstock/plan.json   {"version": 1, "shares": {id: {...}}, "queries": {name: {...}}}

When an application starts again with other queries, those that are as they were stay where their state is, whatever
is placed beside them. New and changed queries begin afresh, which is told by a warning. What cannot be done so is
refused: a query whose state would be looked for in the wrong place would silently begin afresh.

A share that was gone for a while and comes back has missed events. Its generation counts up, so that its buckets are
new ones and the old state is not taken for a current one.
"""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import CheckpointError, InputError
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import Query
from penstock.plan.nodes import Node
from penstock.plan.placement import Spread
from penstock.spark.file_system import file_system
from penstock.spark.shares import Share

VERSION = 1


@dataclass(frozen=True)
class Plan:
    """`queries` has fingerprint, spread and share of each query of the last start; `shares` has the number of buckets
    and the generation of all shares that there ever were."""

    shares: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    queries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def spreads(self, nodes: Mapping[str, Node]) -> dict[str, Spread]:
        """How the queries were placed that are as they were."""
        return {
            name: Spread(before["spread"])
            for name, before in self.queries.items()
            if name in nodes and before["fingerprint"] == fingerprint(nodes[name])
        }

    def buckets(self, share: Share, asked: int | None, default: int) -> int:
        """The number of buckets that a share has; it belongs to the checkpoint."""
        if not self._is_current(share.id):
            return asked or default
        before = self.shares[share.id]["buckets"]
        if asked is not None and asked != before:
            raise InputError(
                f"the checkpoint was made with {before} buckets and cannot go on with {asked}; "
                "leave buckets out, or use a new checkpoint directory"
            )
        return before

    def generation(self, share: Share) -> int:
        if share.id not in self.shares:
            return 0
        return self.shares[share.id]["generation"] + (not self._is_current(share.id))

    def _is_current(self, share_id: str) -> bool:
        return any(query["share"] == share_id for query in self.queries.values())

    def check(self, queries: Sequence[Query], nodes: Mapping[str, Node], shares: Sequence[Share]) -> None:
        """Refuses what would lose state silently, and tells what begins afresh."""
        place = {query.name: share.id for share in shares for query in share.queries}
        for query in queries if self.queries else ():
            before = self.queries.get(query.name)
            if before is None:
                warnings.warn(f"query {query.name} is new and begins from now on", stacklevel=4)
            elif before["fingerprint"] != fingerprint(nodes[query.name]):
                warnings.warn(f"query {query.name} has changed and begins afresh, from now on", stacklevel=4)
            elif before["share"] != place[query.name]:
                raise CheckpointError(
                    f"query {query.name} is as it was, but beside the other queries its state cannot be found again: "
                    "it is linked with other streams now; run the new queries with a checkpoint directory of their own"
                )


def read_plan(checkpoint: str) -> Plan:
    """The plan of the last start with this checkpoint; an empty one if there was none."""
    files, path = file_system(f"{checkpoint}/penstock/plan.json")
    try:
        with files.open_input_stream(path) as stream:
            saved = json.loads(stream.read())
    except FileNotFoundError:
        return Plan()
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}; restore it, or use a new checkpoint directory") from None
    if saved["version"] > VERSION:
        raise CheckpointError(
            f"the checkpoint was written by a newer Penstock (plan version {saved['version']}, this one reads up to "
            f"{VERSION}); use that version or a later one"
        )
    return Plan(saved["shares"], saved["queries"])


def write_plan(checkpoint: str, shares: Sequence[Share], nodes: Mapping[str, Node], before: Plan) -> None:
    now = {share.id: {"buckets": len(share.labels), "generation": before.generation(share)} for share in shares}
    plan: dict[str, Any] = {
        "version": VERSION,
        "shares": {**before.shares, **now},
        "queries": {
            query.name: {
                "fingerprint": fingerprint(nodes[query.name]),
                "spread": share.placement.spread.value,
                "share": share.id,
            }
            for share in shares
            for query in share.queries
        },
    }
    directory = f"{checkpoint}/penstock"
    files, path = file_system(directory)
    files.create_dir(path, recursive=True)
    draft = f"{path}/.{uuid.uuid4().hex}"
    with files.open_output_stream(draft) as stream:
        stream.write(json.dumps(plan, indent=1).encode())
    files.move(draft, f"{path}/plan.json")
