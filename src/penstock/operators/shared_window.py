"""A stored window that one query has or several share: each row is stored once, however many windows it is in.

    rows ─▶ columns, groups ─▶ store ─┬▶ aggregation 1: its own policy, tail and states
                                      ├▶ aggregation 2: ...
                                      └▶ ...

A row has a time, a slot for each distinct grouping (WHERE and keys) and each distinct argument and FILTER that some
query reads. The windows of the queries are tails of different length of the same rows, as in Shared SlideM.

Invariants:
1. Every member sees every call. When all members have seen it, each sends what came of it to its queries.
2. A row that some member admits is stored; members for which it fails WHERE see it with slot -1. A grouping has no
   slot column if every row stored is in its one group.
3. A row stays until every member's window has passed it: rows before `_floor()` are released, and so are the strings
   of rows before `_released`. Strings that went to shards are not stored: `_stale` has their columns.
4. The columns of the store are fixed when it is made. A column whose last reader has left is written as zeros; it is
   `_stale` from then on, also if it gets a reader again.

The members are aggregations (`shared_aggregation`), each for one query or several. The runtime makes the window for the
queries that it runs together.

Why: docs/decisions/one-stored-window.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component, read_as
from penstock.errors import BudgetError
from penstock.expressions.vector import Evaluated
from penstock.operators.aggregation import RowRun
from penstock.operators.arguments import ArgumentColumns, Computed
from penstock.operators.chunk import CHUNK_ROWS, NO_EVENTS, Chunk
from penstock.operators.cutting import Cuts, cuts_of
from penstock.operators.grouping import Grouping
from penstock.operators.leaving import CommonRows, Leaving, WindowTail
from penstock.operators.outgoing import Share
from penstock.operators.resources import Resources
from penstock.operators.stage import Stage
from penstock.operators.window_member import Aggregating, Entered, WindowMember
from penstock.plan.nodes import AggregateNode
from penstock.plan.physical.circumstances import StoredRows
from penstock.plan.reads import TEXT, grouping_of, holds_all_rows, reads_of
from penstock.store.fifo import ColumnSpec, FifoStore
from penstock.windows.spec import WindowSpec

_TIME = "time"

_FIRST_ROWS = 256
"""The first rows of a window take the ordinary path: by them states find what the lane needs to know."""

_COLLECTED = 1024
"""Slots of groups are looked at once so many rows have left that entered one by one."""

_LEAST_FREE, _MANY_GROUPS = 3, 8
"""Groups go to shards when less than the one part of the memory is free, and they have more than the other."""

_LEAST_GROUP_BYTES = 1 << 16
"""Groups of fewer bytes, for each aggregation, stay in memory: what is known of their shards would take as much."""

LEAST_TURN = 1024
"""Members take turns after no fewer rows than this: a turn has its price, however small the blocks are."""


def _with_codes(saved: dict[str, Any]) -> dict[str, Any]:
    """Version 2 of version 1, when all strings had codes."""
    return {**saved, "uncoded": []}


@component("SharedWindow", 2, _with_codes)
class SharedWindow(Stage):
    """`nodes` are the members to be. A window that goes on from saved state has the columns of its `saved` layout,
    whichever of its members are left."""

    def __init__(
        self,
        name: str,
        nodes: Sequence[AggregateNode],
        resources: Resources,
        saved: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.stream = nodes[0].input.stream_name
        self._resources = resources
        self._account = resources.account(f"{name}: groups and strings")
        self._columns = ArgumentColumns(nodes[0].input.schema, self._account)
        self._groupings: dict[str, Grouping] = {}
        self._left: dict[str, int] = {}
        self._members: list[WindowMember] = []
        self._common: dict[WindowSpec, CommonRows] = {}
        self._stale: set[str] = set()
        self._admits_all = False
        self._cuts: list[Cuts] = []
        self._filtering: list[str] = []
        self._rows = 0
        self._released = 0
        self.share = Share()
        self._since = nodes[0].window.extent.since
        self._layout = self._planned(nodes) if saved is None else _loaded(read_as(SharedWindow, saved)["layout"])
        self._store = None if self._since is not None else resources.fifo(name, self._layout, nodes)

    def _planned(self, nodes: Sequence[AggregateNode]) -> list[ColumnSpec]:
        specs = {_TIME: ColumnSpec(_TIME, np.dtype(np.int64), False)}
        for key in map(grouping_of, nodes):
            if not holds_all_rows(key, nodes):
                specs[key.name] = ColumnSpec(key.name, np.dtype(np.int32), False)
        for node in nodes:
            for read in reads_of(node.states):
                specs.setdefault(read.name, self._columns.spec(read))
        return list(specs.values())

    # Members come and go

    @property
    def is_used(self) -> bool:
        return bool(self._members)

    @property
    def held(self) -> StoredRows | None:
        """What a query that begins now can read of its rows; None if it stores none."""
        if self._store is None or self.stream is None:
            return None
        in_shards = {name for name, grouping in self._groupings.items() if grouping.is_paged}
        in_shards |= self._columns.uncoded
        names = frozenset(spec.name for spec in self._layout if spec.name not in in_shards)
        texts = frozenset(name for name in names if name.startswith(TEXT) and self._columns.knows([name]))
        keys = tuple(grouping.key for name, grouping in self._groupings.items() if name not in in_shards)
        return StoredRows(self.name, self.stream, names, keys, texts)

    def join(self, node: AggregateNode, aggregation: Aggregating) -> WindowMember:
        """A member from the next row on: one of those that the window was made for, or one that the window
        has `held` all columns for."""
        key = grouping_of(node)
        grouping = self._groupings.get(key.name) or Grouping(key, [], self._account)
        self._groupings[key.name] = grouping
        own = self._columns.read(node.states)
        tail, texts, has_slots = None, {}, True
        if self._store is not None:
            places = {spec.name: place for place, spec in enumerate(self._layout)}
            has_slots = key.name in places
            shown = dict.fromkeys([_TIME, *([key.name] if has_slots else []), *own.names])
            shown |= dict.fromkeys(name for name in places if name.startswith(TEXT))
            texts = {name: at for at, name in enumerate(shown) if name.startswith(TEXT)}
            by_position = node.window.extent.limit is not None
            columns = tuple(places[name] for name in shown)
            common = self._common.setdefault(node.window, CommonRows())
            tail = WindowTail(self._store, columns, self._release, common, by_position=by_position)
        else:
            has_slots = not holds_all_rows(key, (node,))
        cuts = cuts_of(node, self._account)
        member = WindowMember(node, aggregation, grouping, own, has_slots, tail, texts, self._rows, cuts)
        self._members.append(member)
        self._note_members()
        return member

    def leave(self, member: WindowMember) -> None:
        """A member goes; what only it needed goes with it, and with the last one the window."""
        self._members.remove(member)
        if member.tail is not None:
            member.tail.close()
        self._columns.forget(member.columns)
        self._stale |= {name for name in member.names if not self._columns.knows([name])}
        member.groups.forget(member.tally)
        if all(other.grouping is not member.grouping for other in self._members):
            self._groupings.pop(member.grouping.key.name).groups.close()
            self._stale.add(member.grouping.key.name)
        if self._members:
            self._note_members()
            self.settle()
        else:
            self.close()

    def close(self) -> None:
        """Gives everything back; the members are gone, or never came."""
        self._resources.close()

    def _note_members(self) -> None:
        self._admits_all = any(member.admits_all for member in self._members)
        self._cuts = [member.cuts for member in self._members if member.cuts is not None]
        self._filtering = [name for name, grouping in self._groupings.items() if grouping.key.where is not None]
        self._left = dict.fromkeys(self._groupings, 0)

    # Rows pass

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> None:
        if chunk.rows or self.waits_for(port, watermark):
            for part, reached in chunk.parts(watermark, self._count):
                self._pass(part, reached)
                self._collect()
                self._page_groups()
                self._page_texts()
        for member in self._members:
            member.aggregation.send(watermark)

    def _pass(self, chunk: Chunk, watermark: int) -> None:
        only = self._members[0].aggregation if len(self._members) == 1 else None
        if only is not None and only.takes_columns and chunk.rows:
            if self._rows == 0 and chunk.rows > _FIRST_ROWS:
                self._enter_all(chunk.slice(0, _FIRST_ROWS), watermark)
                chunk = chunk.slice(_FIRST_ROWS, chunk.rows)
            done = only.enter_columns(chunk)
            if done == chunk.rows:
                return
            chunk = chunk.slice(done, chunk.rows) if done else chunk
        self._enter_all(chunk, watermark)

    def _enter_all(self, chunk: Chunk, watermark: int) -> None:
        """On the ordinary path, for all members."""
        entered = self._enter(chunk)
        for member in self._members:
            member.aggregation.enter(entered, watermark)
        if self._store is None and entered.columns and all(member.grouping.is_paged for member in self._members):
            self._columns.release(entered.columns)

    def waits_for(self, port: int, watermark: int) -> bool:
        return any(member.aggregation.waits_for(watermark) for member in self._members)

    def finish(self, last_time: int | None) -> None:
        for member in tuple(self._members):
            member.aggregation.finish(last_time)

    def _count(self, times: Int64s, start: int) -> int:
        """How many rows enter before members take turns."""
        count = self._rows_at_once()
        for cuts in self._cuts:
            count = min(count, cuts.count(times, start))
        return count

    def _rows_at_once(self) -> int:
        """Several windows over blocks on disk take turns: the blocks that one of them has read are then still there
        when the next one comes, which is so while they take half of the memory that there is for each place at which
        windows stand. Where memory is too small even for the block at which each of them is, a turn is longer, since
        each begins by reading that block again."""
        if len(self._members) == 1 or self._store is None or not self._store.is_paged:
            return CHUNK_ROWS
        block_rows = self._store.block_rows
        places = len({member.position // block_rows for member in self._members})
        frames = (len(self._store.pool.frames) - 1) // places
        return min(CHUNK_ROWS, max(LEAST_TURN, max(frames // 2, 1) * block_rows)) if frames else CHUNK_ROWS

    def _pass_paged(self, store: FifoStore) -> None:
        """Members whose groups are in shards have their rows there, too; some still ask the store when rows leave."""
        for member in self._members:
            if member.grouping.is_paged and not member.aggregation.reads_stored_rows:
                member.seek(store.head)
        if self._columns.has_texts:
            self.settle()

    def pass_time(self, member: WindowMember, watermark: int) -> None:
        """Time passes for one member alone: the end of a bounded run is not the same for all."""
        member.aggregation.enter(self._enter(NO_EVENTS), watermark)
        self._collect()

    def _enter(self, chunk: Chunk) -> Entered:
        """Computes what the members read of the rows, and stores it."""
        stream_times = chunk.times
        if self._since is not None and chunk.rows:
            chunk = chunk.slice(int(np.searchsorted(chunk.times, self._since)), chunk.rows)
        passing = self._passing(chunk)
        if passing and not self._admits_all:
            chunk, passing = _admitted(chunk, passing)
        first = self._rows
        if chunk.rows == 0:
            return Entered(stream_times, chunk.times, first, {}, {}, {}, {}, {})
        computed = self._computed(chunk)
        slots: dict[str, Slots] = {}
        keys: dict[str, list[Evaluated]] = {}
        keeps: dict[str, Bools | None] = {}
        for name, grouping in self._groupings.items():
            if grouping.is_paged:
                keys[name], keeps[name] = grouping.keys_of(chunk, passing.get(name), computed)
            else:
                slots[name], keys[name] = grouping.assign(chunk, passing.get(name), computed)
        if self._columns.has_texts:
            self._columns.use(computed.columns)
        self._rows += chunk.rows
        if self._store is not None:
            self._store.append(self._stored(chunk.times, slots, computed))
        return Entered(stream_times, chunk.times, first, computed.columns, slots, keys, keeps, computed.texts)

    def _computed(self, chunk: Chunk) -> Computed:
        """The columns of rows that come. If there is no room for their strings, these go to shards."""
        while True:
            try:
                return self._columns.compute(chunk)
            except BudgetError:
                self._columns.sweep()
                if not self._page_text(_LEAST_GROUP_BYTES):
                    raise

    def _passing(self, chunk: Chunk) -> dict[str, Bools]:
        """Which rows pass each WHERE there is."""
        passing: dict[str, Bools] = {}
        for name in self._filtering:
            mask = self._groupings[name].passes(chunk)
            if mask is not None:
                passing[name] = mask
        return passing

    def _stored(self, times: Int64s, slots: dict[str, Slots], computed: Computed) -> list[Argument]:
        columns: list[Argument] = [Argument(times, None)]
        for spec in self._layout[1:]:
            column = computed.columns.get(spec.name)
            if column is None:
                own = slots.get(spec.name)
                column = Argument(np.zeros(len(times), spec.dtype) if own is None else own, None)
            columns.append(column)
        return columns

    def stored(self, member: WindowMember, begin: int) -> Iterator[tuple[Int64s, RowRun]]:
        """What a member reads of the stored rows from a position on, and their times."""
        assert self._store is not None
        names = [spec.name for spec in self._layout]
        for view in self._store.scan(begin, self._store.head):
            columns = dict(zip(names, view.columns, strict=True))
            slots = columns[member.grouping.key.name].values if member.has_slots else np.zeros(view.count, np.int32)
            yield columns[_TIME].values, RowRun(view.first, slots, tuple([columns[name] for name in member.names]))

    def has_kept(self, member: WindowMember) -> bool:
        """Whether all that a member reads has been written of every row that is stored."""
        return self._stale.isdisjoint((*member.names, member.grouping.key.name))

    @property
    def store(self) -> FifoStore | None:
        return self._store

    @property
    def only(self) -> WindowMember | None:
        """Its one member; None if there are several."""
        return self._members[0] if len(self._members) == 1 else None

    def note_entered(self, rows: int, left: int) -> None:
        """The only member has stored and played so many rows itself, and so many have left its window. None is in
        flight."""
        self._rows += rows
        if left:
            name = self._members[0].grouping.key.name
            self._left[name] += left
            if self._left[name] >= _COLLECTED:
                self._collect()

    def note_rows(self, rows: int, left: int) -> None:
        """The same where others of the call are still to come."""
        self._rows += rows
        self.note_left(self._members[0], left)

    # Rows go

    def let_go(self, member: WindowMember, leaving: Leaving) -> None:
        """Rows have left a member's window and its states. Strings go with the last window that a row was in."""
        self.note_left(member, len(leaving.columns[0].values))
        if not self._columns.has_texts:
            return
        floor = self._floor()
        if floor > self._released:
            begin, end = self._released - leaving.first, floor - leaving.first
            columns = {name: leaving.columns[at].at(slice(begin, end)) for name, at in member.texts.items()}
            self._columns.release(columns)
            self._released = floor

    def note_left(self, member: WindowMember, rows: int) -> None:
        """So many rows have left a member's window."""
        self._left[member.grouping.key.name] += rows

    @property
    def has_texts(self) -> bool:
        """Whether some argument is a string: those that are stored are let go row by row."""
        return self._columns.has_texts or bool(self._columns.uncoded)

    def settle(self) -> None:
        """Lets go what a member that is gone held back."""
        if self._store is None:
            return
        floor = self._floor()
        if self._columns.has_texts and floor > self._released:
            names = [spec.name for spec in self._layout]
            for view in self._store.scan(self._released, floor):
                self._columns.release(dict(zip(names, view.columns, strict=True)))
        self._released = floor
        self._store.release(floor)

    def _floor(self) -> int:
        """The oldest row that some member's window holds."""
        return min([member.position for member in self._members])

    def _release(self, position: int) -> None:
        """A member has come to the end of a block. Where that was the oldest one, it may go at once."""
        assert self._store is not None
        if position - self._store.block_rows <= self._store.tail:
            self._store.release(position if len(self._members) == 1 else self._floor())

    def _collect(self) -> None:
        """After a chunk: blocks that all have passed go, and slots whose rows are gone, for none is in flight."""
        for common in self._common.values():
            common.read = None
        if self._store is not None and any(grouping.is_paged for grouping in self._groupings.values()):
            self._pass_paged(self._store)
        if self._store is not None:
            self._store.release(self._floor())
        for name, left in self._left.items():
            if left:
                self._groupings[name].groups.collect(left)
                self._left[name] = 0

    # Groups page

    def _page_groups(self) -> None:
        """Groups that leave too little memory for others go to shards."""
        if self._account.free * _LEAST_FREE > self._account.total:
            return
        for name, grouping in self._groupings.items():
            aggregations = self._aggregations_of(grouping)
            if grouping.is_paged or not self._may_page(grouping):
                continue
            nbytes = sum(aggregation.group_bytes for aggregation in aggregations)
            if nbytes >= max(self._account.total // _MANY_GROUPS, _LEAST_GROUP_BYTES * len(aggregations)):
                self._page_grouping(name)

    def _aggregations_of(self, grouping: Grouping) -> list[Aggregating]:
        return [member.aggregation for member in self._members if member.grouping is grouping]

    def _may_page(self, grouping: Grouping) -> bool:
        return all(aggregation.may_page for aggregation in self._aggregations_of(grouping))

    def _page_grouping(self, name: str) -> None:
        for aggregation in self._aggregations_of(self._groupings[name]):
            aggregation.page()
        self.forget_groups(name)

    def forget_groups(self, name: str) -> None:
        """The groups of a grouping are in shards: they are not kept here."""
        grouping = self._groupings[name]
        grouping.page()
        for member in self._members:
            if member.grouping is grouping:
                member.empty()
                if self._store is not None and not member.aggregation.reads_stored_rows:
                    member.seek(self._store.head)
        if self._store is None:
            self._columns.forget_texts()

    # Texts page

    @property
    def uncoded(self) -> Set[str]:
        """The columns of strings that are stored as zeros."""
        return self._columns.uncoded

    def _page_texts(self) -> None:
        """Texts that leave too little memory for others go to shards, the largest column first."""
        least = max(self._account.total // _MANY_GROUPS // max(1, len(self._columns.texts)), _LEAST_GROUP_BYTES)
        while self._columns.has_texts and self._account.free * _LEAST_FREE <= self._account.total:
            if not self._page_text(least):
                return

    def _page_text(self, least: int) -> bool:
        """The largest column of strings without which its readers can do goes to shards, if it takes so many bytes.
        Readers that show groups have these in shards, with their strings."""
        found = None
        for name, interner in self._columns.texts.items() if self._store is not None else ():
            nbytes = interner.nbytes
            if nbytes >= least and all(self._can_be_without(member, name) for member in self._readers(name)):
                found, least = name, nbytes
        if found is None:
            return False
        for member in self._readers(found):
            if member.aggregation.can_do_without(found):
                member.aggregation.page_text(found)
            else:
                self._page_grouping(member.grouping.key.name)
        self._forget_text(found)
        return True

    def _can_be_without(self, member: WindowMember, text: str) -> bool:
        aggregation = member.aggregation
        return aggregation.can_do_without(text) or (aggregation.logs_texts and self._may_page(member.grouping))

    def _readers(self, text: str) -> list[WindowMember]:
        return [member for member in self._members if text in member.names]

    def _forget_text(self, name: str) -> None:
        """The strings of a column are elsewhere: what comes is stored as zeros."""
        self._columns.leave_uncoded(name)
        self._stale.add(name)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {
            "layout": [[spec.name, spec.dtype.str, spec.nullable] for spec in self._layout],
            "groups": {name: grouping.groups.snapshot() for name, grouping in self._groupings.items()},
            "texts": self._columns.snapshot(),
            "rows": self._rows,
            "released": self._released,
            "stale": sorted(self._stale),
            "uncoded": sorted(self._columns.uncoded),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Before its members are; when all of them are, `settle`."""
        for name, grouping in self._groupings.items():
            grouping.groups.restore(snapshot["groups"][name])
        for name in self._columns.texts.keys() & set(snapshot["uncoded"]):
            for member in self._readers(name):
                member.aggregation.begin_text(name)
            self._forget_text(name)
        self._columns.restore(snapshot["texts"])
        self._rows, self._released = snapshot["rows"], snapshot["released"]
        unread = {spec.name for spec in self._layout[1:]} - set(self._groupings)
        self._stale = {name for name in unread if not self._columns.knows([name])} | set(snapshot["stale"])


def _admitted(chunk: Chunk, passing: dict[str, Bools]) -> tuple[Chunk, dict[str, Bools]]:
    """The rows that pass the WHERE of some member, and which of them pass each; none for all."""
    if len(passing) == 1:
        (admitted,) = passing.values()
        return chunk if admitted.all() else chunk.filter(admitted), {}
    admitted = np.logical_or.reduce(list(passing.values()))
    if admitted.all():
        return chunk, passing
    return chunk.filter(admitted), {name: mask[admitted] for name, mask in passing.items()}


def _loaded(layout: list[list[Any]]) -> list[ColumnSpec]:
    return [ColumnSpec(name, np.dtype(dtype), nullable) for name, dtype, nullable in layout]
