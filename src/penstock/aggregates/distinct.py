"""COUNT_DISTINCT and MODE of one argument, exactly. NULLs are ignored; NaN is one value, and -0.0 is 0.0.

The distinct values of all slots are in one hash table (`value_table`). For COUNT_DISTINCT alone a cell counts the
rows that hold its value; where MODE is wanted it names the value's node in a heap per slot (`modes`).

Invariants:
1. `_distinct[s]` is the number of distinct values of slot s now in the window.
2. `_used` cells of the table are taken, `_stale` of them by slots that were reset since the last rebuild (a reset
   slot with MODE leaves nothing behind: its rows must be freed anyway).
3. Table, nodes and rows have room for the rows of a call before its first row enters: a `BudgetError` from `advance`
   changes nothing.
4. With a device, and without MODE, a table that may not grow, or whose memory others need, goes to pages
   (`paged_values`). Then `_table` is empty, and what `_used` and `_stale` say is known of the pages. Values that fit
   memory well again come back.
5. While this state asks for memory itself (`_asks`), it gives none up.

Created by the factory; driven by the operator through `AggregateState`.

Why: docs/decisions/deques-and-trees.md
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.aggregates import distinct_kernels as kernels
from penstock.aggregates import modes
from penstock.aggregates import value_page_kernels as page_kernels
from penstock.aggregates import value_table as values
from penstock.aggregates.columns import ALL_VALID, BOOL, INT32, NO_INTEGERS, plain
from penstock.aggregates.images import from_images, images
from penstock.aggregates.paged_values import LEAST_WORK, MOST_WORK, PagedValues, work_of
from penstock.aggregates.state import AggregateState, Argument, Emitted, Rows, Schedule, Snapshot, Want
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.errors import BudgetError
from penstock.store.budget import Account
from penstock.store.device import BlockDevice
from penstock.store.own_memory import give_back
from penstock.types import SqlType

_REBUILT_IN = 16
"""Parts in which a table goes over into a larger one."""

_LEAST_TABLE = 2 * LEAST_WORK
"""A table of fewer bytes does not go to pages: what these need would take as much."""

_BACK = 4
"""Values come back from pages when so many times the memory is free that they need, even if they double."""


def _in_memory(saved: Snapshot) -> Snapshot:
    """Version 2 of version 1, when all values were in memory."""
    return {**saved, "paged": None}


@component("DistinctState", 2, _in_memory)
class DistinctState(AggregateState):
    """Serves COUNT_DISTINCT and MODE, in the order wanted.

    >>> from penstock.store.budget import Budget
    >>> state = DistinctState([Want("COUNT_DISTINCT"), Want("MODE")], SqlType.INT, Budget(1 << 20).account("x"))
    >>> state.ensure(1)
    >>> rows = Rows(np.arange(4), np.zeros(4, np.int32), (Argument(np.array([7, 3, 3, 7], dtype=np.int32), None),))
    >>> none = Rows(np.arange(0), np.zeros(0, np.int32), (Argument(np.zeros(0, np.int32), None),))
    >>> once = Schedule(np.array([4]), np.array([0]), np.array([1]), np.zeros(1, np.int32))
    >>> [column.values.tolist() for column in state.advance(rows, none, once)]
    [[2], [7]]
    """

    def __init__(
        self, wants: Sequence[Want], argument: SqlType, account: Account, device: BlockDevice | None = None
    ) -> None:
        self._functions = tuple(want.function for want in wants)
        self._with_modes = "MODE" in self._functions
        self._storage = argument.storage
        self._floating = argument.is_floating
        self._account = account
        self._device = None if self._with_modes else device
        self._paged: PagedValues | None = None
        self._asks = False
        if self._device is not None:
            account.on_need(self._give_up)
        self._distinct: Int64s = NO_INTEGERS
        self._generations: Int64s = NO_INTEGERS
        self._roots: Int64s = NO_INTEGERS
        self._clear()

    def _clear(self) -> None:
        self._table = values.empty_table(values.cells_for(0))
        self._used: Int64s = np.zeros(1, dtype=np.int64)
        self._stale = 0
        self._nodes: Int64s = np.zeros((0, modes.NODE_WORDS), dtype=np.int64)
        self._rows: Int64s = np.zeros((0, modes.ROW_WORDS), dtype=np.int64)
        self._control: Int64s = np.zeros(modes.CONTROL_WORDS, dtype=np.int64)
        self._control[[modes.FREE_NODE, modes.FREE_ROW]] = modes.NONE

    def ensure(self, slots: int) -> None:
        held = len(self._distinct)
        if slots > held:
            room = max(16, slots)
            self._make_room(24 * (room - held))
            self._distinct = np.concatenate([self._distinct, np.zeros(room - held, dtype=np.int64)])
            first = np.full(room - held, values.FIRST_GENERATION, dtype=np.int64)
            self._generations = np.concatenate([self._generations, first])
            self._roots = np.concatenate([self._roots, np.full(room - held, modes.NONE, dtype=np.int64)])

    def advance(self, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        if self._paged is None:
            self._reserve(added.size)
        if self._paged is not None:
            return self._advance_paged(self._paged, added, removed, schedule)
        entering, entering_valid = _column(added.arguments[0])
        leaving, leaving_valid = _column(removed.arguments[0])
        emits = len(schedule.emit_slots)
        counts = np.empty(emits, dtype=np.int64)
        most = np.empty(emits if self._with_modes else 0, dtype=np.int64)
        kernels.play(
            self._table,
            self._used,
            self._distinct,
            self._generations,
            self._with_modes,
            self._nodes,
            self._rows,
            self._control,
            self._roots,
            self._floating,
            added.positions,
            added.slots,
            entering,
            entering_valid,
            removed.slots,
            leaving,
            leaving_valid,
            *schedule,
            counts,
            most,
        )
        return tuple(
            Emitted(from_images(most, self._storage), counts > 0) if function == "MODE" else Emitted(counts, None)
            for function in self._functions
        )

    def _reserve(self, rows: int) -> None:
        """Room for so many rows, even if each has a new value."""
        entries = int(self._used[0]) + rows
        rebuilds = values.cells_for(entries) > len(self._table)
        cells = values.cells_for(entries - self._stale) if rebuilds else len(self._table)
        nodes = _more(len(self._nodes), int(self._control[modes.NODES_USED]) + rows) if self._with_modes else 0
        kept = _more(len(self._rows), int(self._control[modes.ROWS_USED]) + rows) if self._with_modes else 0
        if not rebuilds and nodes == len(self._nodes) and kept == len(self._rows):
            return
        try:
            needed = 8 * (3 * cells + modes.NODE_WORDS * nodes + modes.ROW_WORDS * kept)
            self._charge(3 * self._distinct.nbytes + needed)
        except BudgetError:
            if not self._page():
                raise
            return
        self._nodes = _grown(self._nodes, nodes)
        self._rows = _grown(self._rows, kept)
        if rebuilds:
            table, step = values.empty_table(cells), max(1, len(self._table) // _REBUILT_IN)
            for start in range(0, len(self._table), step):
                part = self._table[start : start + step]
                kernels.rebuild(part, table, self._generations)
                give_back(part)  # so that both together take no more than the new one
            self._table = table
            self._used[0] -= self._stale
            self._stale = 0

    def _charge(self, nbytes: int) -> None:
        self._asks = True
        try:
            self._account.resize(nbytes)
        except BudgetError as refusal:
            what = "every row" if self._with_modes else "every distinct value"
            names = " and ".join(sorted(set(self._functions)))
            raise BudgetError(f"{names} must keep {what} of the window in memory: {refusal}") from refusal
        finally:
            self._asks = False

    def _make_room(self, nbytes: int) -> None:
        """So many bytes for slots, before what may page."""
        while True:
            try:
                self._charge(self.nbytes + nbytes)
                return
            except BudgetError:
                if not self._give_up():
                    raise

    # Pages

    @property
    def pageable_nbytes(self) -> int:
        """What pages have, or could have: values page by themselves before their groups do."""
        if self._paged is not None:
            return self._paged.nbytes
        return self._table.nbytes if self._device is not None else 0

    def _give_up(self) -> bool:
        """Others need memory: whether some was given back."""
        if self._asks:
            return False
        return self._page() if self._paged is None else self._paged.page_out()

    def _page(self) -> bool:
        """All values go to pages; whether that was possible and of any use."""
        table = self._table
        if self._device is None or table.nbytes < _LEAST_TABLE:
            return False
        entries = table[: page_kernels.gather_live(table, self._generations)]
        self._clear()
        # The table leaves the account first: what the pages take is less, and touched only when the table is gone.
        self._account.resize(self.nbytes)
        self._fill_pages(entries, max(min(LEAST_WORK, table.nbytes // 2), min(MOST_WORK, table.nbytes // 4)))
        return True

    def _fill_pages(self, entries: Int64s, nbytes: int) -> None:
        assert self._device is not None
        self._asks = True
        try:
            self._paged = PagedValues(self._device, self._account, nbytes)
            self._paged.fill(entries)
        finally:
            self._asks = False

    def _advance_paged(self, paged: PagedValues, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        operations = np.empty((added.size + removed.size, 2), np.int64)
        upto = np.empty(len(schedule.add_upto), np.int64)
        count = page_kernels.list_operations(
            self._generations,
            self._floating,
            added.slots,
            *_column(added.arguments[0]),
            removed.slots,
            *_column(removed.arguments[0]),
            schedule.add_upto,
            schedule.remove_upto,
            operations,
            upto,
        )
        operations = operations[:count]
        counts = np.empty(len(schedule.emit_slots), np.int64)
        self._asks = True
        try:
            if len(counts):
                changes = paged.play(operations, self._distinct, self._generations)
                page_kernels.play_changes(
                    operations, changes, upto, schedule.emit_upto, schedule.emit_slots, self._distinct, counts
                )
                self._come_back(paged)
            else:
                paged.append(operations, self._distinct, self._generations)
        finally:
            self._asks = False
        return tuple(Emitted(counts, None) for _ in self._functions)

    def _come_back(self, paged: PagedValues) -> None:
        """Values that fit memory well are in memory. Nothing waits."""
        cells = values.cells_for(2 * paged.entries)
        nbytes = 8 * 3 * cells
        if _BACK * nbytes > self._account.free:
            return
        self._account.charge(nbytes - self._table.nbytes)
        self._table = values.empty_table(cells)
        self._used[0] = paged.into_table(self._table, self._generations)
        self._leave_pages(paged)

    def _leave_pages(self, paged: PagedValues) -> None:
        paged.close()
        self._paged = None

    def reset(self, slots: Slots) -> None:
        if self._with_modes:
            kernels.forget(
                self._table,
                self._used,
                self._generations,
                self._nodes,
                self._rows,
                self._control,
                self._roots,
                plain(slots, INT32),
            )
        else:
            stale = int(self._distinct[slots].sum())
            self._generations[slots] += 1
            if self._paged is None:
                self._stale += stale
            else:
                self._paged.stale += stale
        self._distinct[slots] = 0
        if self._paged is not None and self._paged.is_empty:
            self._leave_pages(self._paged)

    @property
    def nbytes(self) -> int:
        paged = 0 if self._paged is None else self._paged.nbytes
        return 3 * self._distinct.nbytes + self._table.nbytes + self._nodes.nbytes + self._rows.nbytes + paged

    def snapshot(self) -> Snapshot:
        """Per distinct value its slot, key and count; with MODE also the positions of its rows, oldest first."""
        entries = int(self._used[0]) - self._stale
        found = np.empty((3, entries), dtype=np.int64)
        kernels.export(self._table, self._generations, self._with_modes, self._nodes, found)
        positions = np.empty(int(found[2].sum()) if self._with_modes else 0, dtype=np.int64)
        if self._with_modes:
            kernels.export_positions(self._table, self._generations, self._nodes, self._rows, positions)
        return {
            "slots": len(self._distinct),
            "entry_slots": found[0],
            "entry_keys": found[1],
            "entry_counts": found[2],
            "positions": positions,
            "paged": None if self._paged is None else self._saved_pages(self._paged),
        }

    def _saved_pages(self, paged: PagedValues) -> Snapshot:
        return {
            "values": paged.snapshot(),
            "work": paged.work_nbytes,
            "distinct": self._distinct,
            "generations": self._generations,
        }

    def restore(self, snapshot: Snapshot) -> None:
        counts = np.array(snapshot["entry_counts"], dtype=np.int64)
        self._clear()
        self._distinct = self._generations = self._roots = NO_INTEGERS
        self.ensure(snapshot["slots"])
        if snapshot["paged"] is not None:
            self._restore_pages(snapshot["paged"])
            return
        try:
            self._reserve(int(counts.sum()) if self._with_modes else len(counts))
        except BudgetError:
            if self._device is None:
                raise
            self._page_saved(snapshot, counts)
            return
        kernels.load(
            self._table,
            self._used,
            self._distinct,
            self._generations,
            self._with_modes,
            self._nodes,
            self._rows,
            self._control,
            self._roots,
            np.array(snapshot["entry_slots"], dtype=np.int64),
            np.array(snapshot["entry_keys"], dtype=np.int64),
            counts,
            np.array(snapshot["positions"], dtype=np.int64),
        )

    def _restore_pages(self, saved: Snapshot) -> None:
        assert self._device is not None, "pages are saved where there is a device"
        slots = len(saved["distinct"])
        self._distinct[:slots] = saved["distinct"]
        self._generations[:slots] = saved["generations"]
        nbytes = min(saved["work"], work_of(self._account))
        self._asks = True
        try:
            self._paged = PagedValues(self._device, self._account, nbytes)
            self._paged.restore(saved["values"])
        finally:
            self._asks = False

    def _page_saved(self, snapshot: Snapshot, counts: Int64s) -> None:
        """What was in memory does not fit it any more."""
        slots = np.array(snapshot["entry_slots"], dtype=np.int64)
        owners = values.FIRST_GENERATION << 32 | slots
        self._fill_pages(np.stack((owners, snapshot["entry_keys"], counts), axis=1), work_of(self._account))
        self._distinct += np.bincount(slots, minlength=len(self._distinct))


def _column(argument: Argument) -> tuple[Int64s, Bools]:
    return images(argument.values), ALL_VALID if argument.valid is None else plain(argument.valid, BOOL)


def _more(held: int, needed: int) -> int:
    return held if needed <= held else max(needed, held + held // 2)


def _grown(array: Int64s, length: int) -> Int64s:
    if length == len(array):
        return array
    grown = np.empty((length, array.shape[1]), dtype=np.int64)
    grown[: len(array)] = array
    return grown
