"""A member of a shared window: how it is called, what it reads, and how far its own window has come."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.expressions.vector import Evaluated
from penstock.operators.arguments import OwnColumns
from penstock.operators.chunk import Chunk
from penstock.operators.cutting import Cuts
from penstock.operators.grouping import Grouping
from penstock.operators.leaving import WindowTail
from penstock.plan.nodes import AggregateNode
from penstock.store.changes import by_slot


class Entered(NamedTuple):
    """Rows that entered together: columns by name, slots and keys by the name of the grouping. Where the groups are in
    shards there are no slots; `keeps` has the rows that are in a group then. `stream_times` are the times of all rows
    of the stream, also of rows that fail the WHERE of every member."""

    stream_times: Int64s
    times: Int64s
    first: int
    columns: dict[str, Argument]
    slots: dict[str, Slots]
    keys: dict[str, list[Evaluated]]
    keeps: dict[str, Bools | None]
    texts: dict[str, Evaluated]


class Aggregating(Protocol):
    """What reads a shared window; it has a window and states of its own."""

    @property
    def takes_columns(self) -> bool:
        """Whether `enter_columns` may take rows."""

    def enter_columns(self, chunk: Chunk) -> int:
        """Stores and plays rows of a chunk itself, as far as it can; returns how many. For the only member."""

    def enter(self, entered: Entered, watermark: int) -> None:
        """Takes rows that entered, and the time that the stream has reached."""

    def send(self, watermark: int) -> None:
        """A call is done: what came of it goes to the queries."""

    def finish(self, last_time: int | None) -> None:
        """The end of a bounded run (`Stage.finish`)."""

    def waits_for(self, watermark: int) -> bool:
        """Whether time alone can give results, once it has come so far."""

    @property
    def may_page(self) -> bool:
        """Whether its groups can go to shards."""

    @property
    def group_bytes(self) -> int:
        """What its groups and their states take, without what states give up by themselves."""

    def page(self) -> None:
        """Puts the groups into shards, as the stored rows have them. The window forgets them afterwards."""

    def forget_groups(self) -> None:
        """The groups are in shards, and those of the grouping are gone."""

    def can_do_without(self, text: str) -> bool:
        """Whether it can count the strings of a column elsewhere (`operators.paged.texts`)."""

    def page_text(self, text: str) -> None:
        """Puts the strings of a column elsewhere, as the stored rows have them. The window forgets them afterwards."""

    def begin_text(self, text: str) -> None:
        """The strings of a column are elsewhere; those of stored rows are there already."""

    @property
    def logs_texts(self) -> bool:
        """Whether groups that go to shards take the strings that they read with them: stored rows need none."""

    @property
    def reads_stored_rows(self) -> bool:
        """Whether its tail stays in the store while its groups are in shards."""


@component("WindowMember")
class WindowMember:
    """A member's place: what it reads, how many rows each group has in its window, and how far that has come.

    `has_slots`: the slot is stored, after the time; without, all rows are of one group. A landmark window has no tail.
    `texts` says where the tail shows the strings of the whole window, and `began` how many rows that had seen when the
    member came; `cuts` says how many rows may enter together, if that matters. What a member reads is the window's to
    save, except for the row counts.
    """

    def __init__(
        self,
        node: AggregateNode,
        aggregation: Aggregating,
        grouping: Grouping,
        columns: OwnColumns,
        has_slots: bool,
        tail: WindowTail | None,
        texts: dict[str, int],
        began: int,
        cuts: Cuts | None,
    ) -> None:
        self.aggregation = aggregation
        self.grouping = grouping
        self.groups = grouping.groups
        self.columns = columns
        self.names = columns.names
        self.interners = columns.interners
        self.state_columns = columns.state_columns
        self.no_columns = columns.nothing
        self.has_slots = has_slots
        self.tail = tail
        self.texts = texts
        self.began = began
        self.cuts = cuts
        self.admits_all = node.where is None or not node.filter_first
        self.tally = grouping.groups.tally()

    @property
    def counts(self) -> Int64s:
        return self.tally.rows

    @property
    def position(self) -> int:
        return 0 if self.tail is None else self.tail.position

    def seek(self, position: int) -> None:
        if self.tail is not None:
            self.tail.seek(position)

    def empty(self) -> None:
        """The grouping has no groups any more: they are in shards."""
        self.groups = self.grouping.groups
        self.tally = self.groups.tally()
        self.aggregation.forget_groups()

    def snapshot(self) -> dict[str, Any]:
        return {"counts": by_slot(self.counts), "began": self.began}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.counts[: len(snapshot["counts"])] = snapshot["counts"]
        self.began = snapshot["began"]
