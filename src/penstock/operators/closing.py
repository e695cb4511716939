"""Aggregation over windows that close as a whole: tumbling windows and sessions.

Each row belongs to exactly one window, so nothing needs to be stored and nothing leaves: a group is (window, key),
and when its window closes it is shown once and forgotten. What tells the two apart is only how windows are named
(`closing_windows`).

Invariants:
1. A window has an instance number; the instance is the first word of its groups' keys.
2. Windows close in the order of (window_end, partition key, group key).
3. Windows close after each part of a chunk, and the parts are cut so (`cutting`) that it is a matter of the stream
   alone how many windows are open.
4. Rows that come one by one, and on which nothing can fail, may wait for each other (`_waiting`): they all lie in one
   tumbling window, and are added together before anything looks at the groups.
5. Groups stay in memory while there is enough of it. Then rows go to shards: `paged.windows`, until a window closes
   behind which there are none and whose groups would have fit; with PARTITION BY `paged.sessions`, until no session is
   open.

Why: docs/decisions/closing-windows.md
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.errors import BudgetError
from penstock.expressions.batch import Row, columns_of_tuples, row_getter
from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Column, Expression, walk
from penstock.operators.aggregation import Aggregation, RowRun
from penstock.operators.chunk import Chunk, from_bytes, to_bytes
from penstock.operators.closing_windows import Closed, TumblingWindows, Windows
from penstock.operators.cutting import Cuts
from penstock.operators.groups import TooManyGroups
from penstock.operators.intake import Intake, ReadRows, Taken
from penstock.operators.operator import Operator, Progress
from penstock.operators.outgoing import Receive
from penstock.operators.paged.sessions import PagedSessions
from penstock.operators.paged.shard import EnteringRows
from penstock.operators.paged.windows import PagedWindows
from penstock.operators.resources import Resources
from penstock.operators.results import ResultShow, slice_of
from penstock.operators.session_windows import SessionWindows
from penstock.plan.nodes import AggregateNode
from penstock.plan.reads import reads_of
from penstock.store.state import decode, encode
from penstock.types import SqlType
from penstock.windows.spec import Session
from penstock.windows.steps import FOREVER

_WAITING, _LEAST_WAITING = 256, 8
"""So many single rows are added together at most; fewer are not worth it."""

_WAITING_SHARE = 1024
"""Rows that wait take no more than this part of the memory."""

_ROW_BYTES, _VALUE_BYTES = 192, 40
"""What a row that waits takes, and each of its values besides."""

_LEAST_FREE, _MANY_GROUPS = 2, 8
"""Rows go to shards when groups would leave less than the one part of the memory, and have more than the other."""

_LEAST_GROUP_BYTES = 1 << 16
"""Groups of fewer bytes stay in memory: what is known of their shards would take as much."""

_TEXT_BYTES = 128
"""What a text in a key takes, about, before there are some."""

_FEW_GROUPS = 4
"""Groups that take less than such a part of the memory go back to it."""


def _with_show(saved: dict[str, Any]) -> dict[str, Any]:
    rest = {name: part for name, part in saved.items() if name != "emitter"}
    return {**rest, "show": {"emitter": saved["emitter"]}, "paged": None, "is_paging": False, "waiting": None}


@component("ClosingAggregate", 2, _with_show)
class ClosingAggregate(Operator):
    pages = True
    """Whether groups may be in shards."""

    def __init__(self, name: str, node: AggregateNode, resources: Resources) -> None:
        self._name = name
        self._node = node
        self._resources = resources
        self._filter_first = node.filter_first
        account = resources.account(f"{name}: groups and strings")
        self._account = account
        self._intake = Intake(
            node.where, node.group_by, node.states, node.input.schema, resources.reject, account, with_instances=True
        )
        self._aggregation = Aggregation(name, self._intake, node.states, resources)
        compared = resources.account(f"{name}: rows that the next are compared with")
        self._show = ResultShow(node, node.answers, resources.reject, compared, keys=())
        self._windows: Windows
        if isinstance(node.window.extent, Session):
            sessions = resources.account(f"{name}: sessions")
            self._windows = SessionWindows(node.window.extent.gap, node.partition_by, sessions)
            self._windows.hold(self._show.remembers)
        else:
            assert node.window.time_slide is not None, "tumbling windows have a slide of time"
            self._windows = TumblingWindows(node.window.time_slide, node.window.when_full)
        self._cuts = Cuts(account, self._windows.next_close)
        self._rows = 0
        """A position behind those of all rows in memory."""
        self._may_page = self.pages and _groups_may_page(node)
        self._may_grow = self._may_page and any(state.traits.grows for state in node.states)
        self._paged: PagedWindows | PagedSessions | None = None
        self._is_paging = False
        """Whether rows go to shards."""
        self._sweeping: PagedSessions | None = None
        """While rows of sessions go to shards."""
        self._state_bytes = sum([state.traits.bytes_in_formulas for state in node.states])
        self._state_bytes += _TEXT_BYTES * node.key_types.count(SqlType.STRING)
        """About what a group takes that is not to be seen of those there are: its states, and its texts."""
        self._nothing_held = encode(self._aggregation.snapshot()) if self._may_page else b""
        """The groups and states as they are when there are none."""
        self._nothing_open = encode(self._windows.snapshot()) if self._may_page else b""
        self._nothing = Progress([], -FOREVER)
        self._reads = _safe_reads(node)
        """The columns that are read, if rows may wait: none is a text and nothing can fail."""
        self._get = row_getter(self._reads or {"": SqlType.NULL})
        self._waiting: list[tuple[int, tuple[Any, ...]]] = []
        self._waiting_account = resources.account(f"{name}: rows that are added together")
        self._row_bytes = _ROW_BYTES + _VALUE_BYTES * len(self._reads or ())
        self._most_waiting = min(_WAITING, self._waiting_account.total // _WAITING_SHARE // self._row_bytes)
        if self._most_waiting < _LEAST_WAITING:
            self._reads = None
        self._waiting_until = -FOREVER
        """The end of the window in which the rows that wait lie."""

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        if isinstance(chunk.columns, Row) and self._reads is not None:
            time = chunk.times.item(0)
            if self._may_wait(time, watermark):
                self._waiting.append((time, self._get(chunk.columns.values)))
                if self._nothing.watermark != watermark:
                    self._nothing = Progress([], watermark)
                return self._nothing
        elif not chunk.rows and not self.waits_for(port, watermark):
            return Progress([], self._shown_up_to(watermark))
        self._add_waiting()
        for part, reached in chunk.parts(watermark, None if self._sweeping else self._cuts.count):
            if part.rows:
                self._add(part)
            self._close(reached)
            if self._may_grow and not self._is_paging and self._is_short():
                self._begin_paging()
        return Progress(self._take(), self._shown_up_to(watermark))

    def send_to(self, receive: Receive) -> None:
        self._show.outgoing.receiver = receive

    def waits_for(self, port: int, watermark: int) -> bool:
        return self._windows.is_due(watermark) if self._sweeping is None else self._sweeping.is_due(watermark)

    def _shown_up_to(self, watermark: int) -> int:
        """The time that later results do not precede."""
        return watermark if self._sweeping is None else self._sweeping.reached(watermark)

    def _may_wait(self, time: int, watermark: int) -> bool:
        """Whether a row of this time may wait for more of them. The first row of a window does not, so that the window
        is open."""
        if not self._waiting:
            assert isinstance(self._windows, TumblingWindows), "rows of sessions do not wait"
            self._waiting_until = self._windows.next_close(time)
            return (
                self._windows.is_open(self._waiting_until)
                and watermark < self._waiting_until
                and self._waiting_account.try_resize(self._most_waiting * self._row_bytes)
            )
        return time < self._waiting_until > watermark and len(self._waiting) < self._most_waiting

    def _add_waiting(self) -> None:
        if not self._waiting:
            return
        waiting = self._waiting_rows()
        self._waiting = []
        self._add(waiting)
        self._waiting_account.resize(0)

    def _waiting_rows(self) -> Chunk:
        assert self._reads is not None
        times = np.array([time for time, _ in self._waiting], np.int64)
        return Chunk(times, columns_of_tuples([values for _, values in self._waiting], self._reads))

    def _take(self) -> list[Chunk]:
        """The results of a call."""
        return self._show.outgoing.take()

    def _add(self, chunk: Chunk) -> None:
        instances = self._assign(chunk)
        keep = self._intake.passes(chunk)
        if keep is not None and self._filter_first:
            chunk, instances, keep = chunk.filter(keep), instances[keep], None
        if chunk.rows:
            windows = pa.array(instances)
            read = self._intake.read(chunk, keep, windows)
            taken = None if self._is_paging else self._enter(read, chunk.rows, windows)
            if taken is None:
                self._log(chunk, read)
            else:
                self._aggregation.add(RowRun(self._rows, taken.slots, taken.columns))
                self._rows += chunk.rows

    def _assign(self, chunk: Chunk) -> Int64s:
        """The instance of each row's window; of no meaning for rows of sessions that go to shards."""
        if self._sweeping is None:
            try:
                return self._windows.assign(chunk)
            except BudgetError:
                if not self._may_page or self._held_bytes < _LEAST_GROUP_BYTES:
                    raise
                self._begin_paging(with_last_rows=True)
        return np.zeros(chunk.rows, np.int64)

    def _enter(self, read: ReadRows, rows: int, windows: pa.Array) -> Taken | None:
        """Rows get slots; None if memory is too short for their groups, which are in shards from here on."""
        try:
            if self._may_page:
                self._intake.groups.most = self._most_groups()
            taken = self._intake.enter(read, rows, windows)
            self._aggregation.fit()
        except TooManyGroups:
            self._begin_paging(with_last_rows=True)
        except BudgetError:
            if not self._may_page or self._held_bytes < _LEAST_GROUP_BYTES:
                raise
            self._begin_paging(with_last_rows=True)
        else:
            return taken
        return None

    # Groups page

    @property
    def _held_bytes(self) -> int:
        """What groups and their windows take in memory."""
        return self._aggregation.nbytes + self._windows.nbytes

    def _most_groups(self) -> int:
        """For how many groups there is room in memory, rather too few: it is asked again before the next rows."""
        account, groups = self._account, self._intake.groups
        group_bytes = groups.nbytes // groups.capacity + self._state_bytes
        group_bytes += self._windows.bytes_for_group(groups.capacity)
        group_bytes *= 2
        spare = account.free - account.total // _LEAST_FREE
        least = max(account.total // _MANY_GROUPS, _LEAST_GROUP_BYTES)
        return max(groups.capacity + spare // group_bytes, least // group_bytes)

    def _is_short(self) -> bool:
        """Whether states that grow with their rows have got too large."""
        account = self._account
        if account.free * _LEAST_FREE > account.total:
            return False
        return self._aggregation.nbytes >= max(account.total // _MANY_GROUPS, _LEAST_GROUP_BYTES)

    def _begin_paging(self, *, with_last_rows: bool = False) -> None:
        """Rows go to shards from here on, also those that came last if it is `with_last_rows`. Groups that are in
        memory stay there until their window closes."""
        self._intake.groups.changes.clear()  # it may know of slots for which states have no room yet
        for interner in self._intake.groups.interners:
            if interner is not None:
                interner.sweep()  # texts of rows that were refused
        paged = self._make_paged()
        if isinstance(paged, PagedSessions):
            paged.begin(with_last_rows=with_last_rows)
            self._sweeping = paged
        self._is_paging = True

    def _make_paged(self) -> PagedWindows | PagedSessions:
        if self._paged is None:
            parts = self._name, self._node, self._intake.own, self._show, self._resources
            if isinstance(self._windows, SessionWindows) and self._node.partition_by:
                self._paged = PagedSessions(*parts, self._windows, self._aggregation)
            else:
                self._paged = PagedWindows(*parts)
        return self._paged

    def _log(self, chunk: Chunk, read: ReadRows) -> None:
        assert self._paged is not None
        keys = [slice_of(key, 0, chunk.rows) for key in read.keys[1:]]
        columns, interners = self._intake.own_columns(read), self._intake.interners
        positions = np.arange(chunk.rows)  # not logged
        self._paged.add(EnteringRows(chunk.times, positions, keys, columns, interners, read.keep))

    def _close_paged(self, paged: PagedWindows, closed: Closed) -> None:
        """Windows close of which some have rows in shards."""
        aggregation, groups = self._aggregation, self._intake.groups
        for instance, start, end in zip(closed.instances, closed.starts.tolist(), closed.ends.tolist(), strict=True):
            alive = np.flatnonzero(groups.counts).astype(np.int32)
            slots = alive[groups.words(alive) == instance]
            runs, self._rows = paged.play(start, end, aggregation, slots, self._rows)
            self._shrink()
            paged.show(runs, start, end)
        alive = np.flatnonzero(groups.counts).astype(np.int32)
        aggregation.reset(alive[groups.words(alive) <= closed.instances[-1]])
        paged.release(int(closed.ends[-1]))
        self._shrink()
        if paged.is_empty and paged.played_bytes * _FEW_GROUPS <= self._account.total:
            self._is_paging = False

    def _shrink(self) -> None:
        """If no group is left in memory, the memory that they had is for shards; and so for sessions."""
        groups, windows = self._intake.groups, self._windows
        if groups.size and not groups.counts.any():
            groups.changes.clear()
            self._aggregation.restore(decode(self._nothing_held))
        if self._sweeping is not None and isinstance(windows, SessionWindows) and not len(windows.open.numbers):
            windows.partitions.changes.clear()
            windows.restore(decode(self._nothing_open))

    def _sweep(self, sessions: PagedSessions, watermark: int) -> None:
        self._rows = sessions.sweep(watermark, self._rows)
        self._shrink()
        if sessions.is_empty:
            self._sweeping, self._is_paging = None, False

    # Windows close

    def _close(self, watermark: int) -> None:
        if self._sweeping is not None:
            if self._sweeping.is_due(watermark):
                self._sweep(self._sweeping, watermark)
            return
        closed = self._windows.close(watermark)
        if len(closed.instances) == 0:
            return
        if isinstance(self._paged, PagedWindows) and self._paged.oldest < closed.ends[-1]:
            self._close_paged(self._paged, closed)
            return
        groups = self._intake.groups
        alive = np.flatnonzero(groups.counts).astype(np.int32)
        instance = groups.words(alive)
        by_number = np.argsort(closed.instances)
        found = np.searchsorted(closed.instances[by_number], instance)
        found = np.minimum(found, len(by_number) - 1)
        closes = closed.instances[by_number][found] == instance
        slots = groups.sorted(alive[closes])
        rank = by_number[np.searchsorted(closed.instances[by_number], groups.words(slots))]
        sort = np.argsort(rank, kind="stable")
        slots = slots[sort]
        upto = np.searchsorted(rank[sort], np.arange(len(closed.instances)), "right")
        self._show_groups(slots, upto, closed)
        # A tumbling window that WHEN FULL keeps silent is forgotten with those before the watermark.
        done = alive[instance <= closed.instances[-1]] if isinstance(self._windows, TumblingWindows) else slots
        self._aggregation.reset(done)
        self._intake.close_windows(closed.instances)
        groups.collect(len(done))

    def _show_groups(self, slots: Slots, upto: Int64s, closed: Closed) -> None:
        """What comes out of windows that close: window k has the groups slots[upto[k-1]:upto[k]]."""
        played = self._aggregation.evaluate(slots, upto)
        keys = self._intake.groups.keys(slots)[1:]
        self._show.see(keys, played, upto, closed.starts, closed.ends, closed.partitions)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        self._add_waiting()
        end = self._windows.end(last_time)
        if self._sweeping is not None:
            self._sweep(self._sweeping, self._sweeping.end)
        elif end is not None:
            self._close(end)
        return self._take()

    # Durability

    def snapshot(self) -> dict[str, Any]:
        """Rows that wait are saved as they are: there may be no room for their groups, and the app goes on."""
        waiting = None
        if self._waiting:
            rows = self._waiting_rows()
            waiting = {"times": rows.times, "rows": to_bytes(rows.arrow)}
        return {
            "windows": self._windows.snapshot(),
            "aggregation": self._aggregation.snapshot(),
            "show": self._show.snapshot(),
            "rows": self._rows,
            "waiting": waiting,
            "paged": None if self._paged is None else self._paged.snapshot(),
            "is_paging": self._is_paging,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._windows.restore(snapshot["windows"])
        self._aggregation.restore(snapshot["aggregation"])
        self._show.restore(snapshot["show"])
        self._rows = snapshot["rows"]
        if snapshot["paged"] is not None:
            paged = self._make_paged()
            paged.restore(snapshot["paged"])
            if isinstance(paged, PagedSessions) and snapshot["is_paging"]:
                self._sweeping = paged
        self._is_paging = snapshot["is_paging"]
        waiting = snapshot["waiting"]
        if waiting is not None:
            self._add(Chunk(waiting["times"], from_bytes(waiting["rows"])))


def _groups_may_page(node: AggregateNode) -> bool:
    """Groups of tumbling windows do; those of sessions, if nothing is compared with the session before, and no state
    keeps texts, whose codes those in memory know."""
    if not node.group_by or not node.window.extent.closes:
        return bool(node.group_by)
    has_texts = any(arg.type is SqlType.STRING for state in node.states for arg in state.args)
    return not has_texts and not node.emission.emit.compares


def _safe_reads(node: AggregateNode) -> dict[str, SqlType] | None:
    """The columns that an aggregation over tumbling windows reads, if it can fail on no row and keeps no texts."""
    if node.window.extent.closes or any(state.user is not None for state in node.states):
        return None
    read: list[Expression] = [*node.group_by, *(read.expression for read in reads_of(node.states))]
    if node.where is not None:
        read.append(node.where)
    columns = {c.name: c.type for expression in read for c in walk(expression) if isinstance(c, Column)}
    is_safe = all(map(is_total, read)) and SqlType.STRING not in columns.values()
    return columns if is_safe and columns else None
