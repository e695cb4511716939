"""The rows of an aggregation over the last n rows of each partition: their groups, their arguments, their queues.

Rows leave in the order of their partition, not of the stream, so a FIFO store does not fit: each partition's rows are
a queue (`partitions`, `store.queues`), and queues page to disk together.

Invariant: a group's key begins with its partition's key, so the groups of one partition are neighbours in
`groups.order()`, and a group is of one partition (`owners`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.expressions.vector import Evaluated
from penstock.operators.aggregation import RowRun
from penstock.operators.chunk import Chunk
from penstock.operators.cutting import cuts_of
from penstock.operators.intake import Intake
from penstock.operators.partitions import Partitions
from penstock.operators.resources import Resources
from penstock.plan.nodes import AggregateNode, StateSpec
from penstock.store.charged import ChargedArray
from penstock.store.fifo import ColumnSpec

_TIME, _POSITION = ColumnSpec("time", np.dtype(np.int64), False), ColumnSpec("position", np.dtype(np.int64), False)
_SLOT = ColumnSpec("slot", np.dtype(np.int32), False)


class Entered(NamedTuple):
    """A chunk that is in the queues, and what had to leave for it: `gone_upto[i]` rows by row i, which may make its
    partition due, whose window then begins at `starts[i]`."""

    partitions: Slots
    due: Bools
    added: RowRun
    removed: RowRun
    gone_upto: Int64s
    starts: Int64s
    keys: list[Evaluated]


@component("PartitionedRows")
class PartitionedRows:
    """`states` are those for which rows are kept. `shown_keys` are the places of the node's keys among those of its
    groups, and `count` says how many rows may enter together, if that matters."""

    def __init__(self, name: str, node: AggregateNode, states: tuple[StateSpec, ...], resources: Resources) -> None:
        keys = tuple(dict.fromkeys(node.partition_by + node.group_by))
        self.shown_keys = [keys.index(key) for key in node.group_by]
        account = resources.account(f"{name}: groups and strings")
        self.intake = Intake(node.where, keys, states, node.input.schema, resources.reject, account)
        self.partitions = Partitions(name, node, [_TIME, _POSITION, _SLOT, *self.intake.column_specs], resources)
        self._owners = ChargedArray(account, np.int32)
        self._rows = 0
        cuts = cuts_of(node, account)
        self.count = None if cuts is None else cuts.count

    @property
    def owners(self) -> Slots:
        """The partition of each group, by slot."""
        return self._owners.array

    def enter(self, chunk: Chunk) -> Entered:
        partitions, due = self.partitions.assign(chunk)
        taken = self.intake.take(chunk, self.intake.passes(chunk))
        if self.intake.groups.capacity > len(self._owners):
            self._owners.resize(self.intake.groups.capacity)
        belongs = taken.slots >= 0
        self.owners[taken.slots[belongs]] = partitions[belongs]
        positions = np.arange(self._rows, self._rows + chunk.rows)
        fixed = (Argument(chunk.times, None), Argument(positions, None), Argument(taken.slots, None))
        (_, gone, slots, *columns), gone_upto, starts = self.partitions.enter(partitions, (*fixed, *taken.columns))
        added = RowRun(self._rows, taken.slots, taken.columns)
        removed = RowRun(0, slots.values, tuple(columns), gone.values)
        self._rows += chunk.rows
        return Entered(partitions, due, added, removed, gone_upto, starts, taken.keys)

    def forget(self, gone: RowRun) -> None:
        """After a chunk: strings and groups of rows that left may be used again."""
        self.intake.leave(gone.slots, gone.columns)
        self.intake.groups.collect(len(gone.slots))

    def snapshot(self) -> dict[str, Any]:
        """Without the groups, which are saved with the states."""
        return {"partitions": self.partitions.snapshot(), "owners": self.owners, "rows": self._rows}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.partitions.restore(snapshot["partitions"])
        self._owners.set(snapshot["owners"])
        self._rows = snapshot["rows"]
