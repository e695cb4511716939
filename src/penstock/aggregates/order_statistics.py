"""MEDIAN, PERCENTILE_CONT and PERCENTILE_DISC of one argument, exactly, at any moment of the window.

All values of the window are kept in order in one counted tree (`order_tree`); any number of percentiles read it. Calls
with many rows play them on a line that is made of the tree, and make a new tree of it (`order_line`).
NULLs are ignored and NaN is the greatest value. With n values in order, counted from zero:

    PERCENTILE_CONT(f)  the value at p = f * (n - 1); between the values a at i and b at i + 1 it is
                        a + (b - a) * (p - i). MEDIAN is PERCENTILE_CONT(0.5)
    PERCENTILE_DISC(f)  the value number ceil(f * n), at least the first: the least whose share reaches f

both in double arithmetic, as Spark 4.3 computes them.

Invariants:
1. `_counts[s]` is the number of values of slot s in the tree.
2. The pools are large enough for the rows of a call before its first row enters: a `BudgetError` from `advance`
   changes nothing.
3. What a line takes is on the account while it is there. It takes a small part of the free memory, or there is none.
4. With a device, a tree that may not grow, or whose memory others need, goes to pages (`paged_order`). Then the tree is
   empty. Values that fit memory well again come back.
5. While this state asks for memory itself (`_asks`), it gives none up.

Created by the factory; driven by the operator through `AggregateState`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.aggregates import order_line as line
from penstock.aggregates import order_tree as tree
from penstock.aggregates.columns import ALL_VALID, BOOL, INT32, plain
from penstock.aggregates.images import from_images, image_of_key, images, total_key
from penstock.aggregates.order_tree_nodes import LEAF, LEAVES_USED, NODE_WORDS, empty_control, plant
from penstock.aggregates.paged_order import Answers, Column, PagedOrder, Wanted
from penstock.aggregates.paged_values import LEAST_WORK, MOST_WORK, work_of
from penstock.aggregates.state import AggregateState, Argument, Emitted, Rows, Schedule, Snapshot, Want
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.errors import BudgetError
from penstock.jit import tight
from penstock.store.budget import Account
from penstock.store.charged import SHARE_OF_FREE
from penstock.store.device import BlockDevice
from penstock.types import SqlType

Doubles = NDArray[np.float64]
_Tree = tuple[Int64s, Slots, Slots, Int64s, Int64s]
_Answers = tuple[Bools, Doubles, Doubles, Int64s, Bools]

_LEAST_ROWS = 256
_VALUES_PER_ROW = 16
"""A line is for calls with so many rows at least, and with so many values in the line for each row at most."""

_LINE_ROW_BYTES = 32
"""Keys and places of a row, twice, and its place in the line."""

_LEAST_TREE = 2 * LEAST_WORK
"""A tree of fewer bytes does not go to pages: what these need would take as much."""

_BACK = 4
"""Values come back from pages when so many times the memory is free that they need, even if they double."""

Number = TypeVar("Number", bound=np.generic)


def _in_memory(saved: Snapshot) -> Snapshot:
    """Version 2 of version 1, when all values were in memory."""
    return {**saved, "paged": None}


@component("OrderState", 2, _in_memory)
class OrderState(AggregateState):
    """Serves the wanted percentiles, in their order.

    >>> from penstock.store.budget import Budget
    >>> state = OrderState([Want("MEDIAN"), Want("PERCENTILE_DISC", 0.5)], SqlType.INT, Budget(1 << 20).account("x"))
    >>> state.ensure(1)
    >>> values = Argument(np.array([4, 1, 2, 9], dtype=np.int32), None)
    >>> rows = Rows(np.arange(4), np.zeros(4, np.int32), (values,))
    >>> none = Rows(np.arange(0), np.zeros(0, np.int32), (Argument(np.zeros(0, np.int32), None),))
    >>> once = Schedule(np.array([4]), np.array([0]), np.array([1]), np.zeros(1, np.int32))
    >>> [column.values.tolist() for column in state.advance(rows, none, once)]
    [[3.0], [2]]
    """

    def __init__(
        self, wants: Sequence[Want], argument: SqlType, account: Account, device: BlockDevice | None = None
    ) -> None:
        self._wants = tuple(wants)
        self._storage = argument.storage
        self._floating = argument.is_floating
        self._account = account
        self._device = device
        self._paged: PagedOrder | None = None
        self._asks = False
        if device is not None:
            account.on_need(self._give_up)
        self._discrete: Bools = np.array([w.function == "PERCENTILE_DISC" for w in wants], dtype=np.bool_)
        self._fractions: Doubles = np.array([0.5 if w.parameter is None else w.parameter for w in wants])
        self._counts: Int64s = np.zeros(0, dtype=np.int64)
        self._clear()

    def _clear(self) -> None:
        self._keys: Int64s = np.zeros((0, LEAF), dtype=np.int64)
        self._slots: Slots = np.zeros((0, LEAF), dtype=np.int32)
        self._sizes: Slots = np.zeros(0, dtype=np.int32)
        self._nodes: Int64s = np.zeros((0, NODE_WORDS), dtype=np.int64)
        self._control = empty_control(len(self._wants))

    def ensure(self, slots: int) -> None:
        if slots > len(self._counts):
            room = max(16, slots)
            self._make_room(8 * (room - len(self._counts)))
            grown = np.zeros(room, dtype=np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown

    def advance(self, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        entering, entering_valid = _column(added.arguments[0])
        leaving, leaving_valid = _column(removed.arguments[0])
        results = np.empty((len(self._wants), len(schedule.emit_slots)), dtype=np.float64)
        valid = np.empty(len(schedule.emit_slots), dtype=np.bool_)
        answers = (self._discrete, self._fractions, results, results.view(np.int64), valid)
        enters, leaves = (added.slots, entering, entering_valid), (removed.slots, leaving, leaving_valid)
        if self._paged is None:
            self._play_in_memory(enters, leaves, schedule, answers)
        else:
            self._play_paged(self._paged, enters, leaves, schedule, Answers(*answers[2:]))
        return tuple(
            Emitted(from_images(column.view(np.int64), self._storage) if discrete else column, valid)
            for column, discrete in zip(results, self._discrete.tolist(), strict=True)
        )

    def _play_in_memory(self, enters: Column, leaves: Column, schedule: Schedule, answers: _Answers) -> None:
        if (spare := self._room_for_line(len(enters[0]), len(leaves[0]))) > 0:
            self._charge(self.nbytes + spare)
            self._play_line(enters, leaves, schedule, answers)
            self._account.resize(self.nbytes)
        else:
            self._reserve(len(enters[0]))
            if self._paged is not None:
                self._play_paged(self._paged, enters, leaves, schedule, Answers(*answers[2:]))
                return
            taken: list[Any] = [*self._tree, self._counts, self._floating, *enters, *leaves, *schedule, *answers]
            _play(*taken)

    @property
    def _tree(self) -> _Tree:
        return self._keys, self._slots, self._sizes, self._nodes, self._control

    def _room_for_line(self, inserts: int, deletes: int) -> int:
        """The bytes that a line takes for so many rows, besides the tree; 0 if they are better played on the tree."""
        if inserts + deletes < _LEAST_ROWS:
            return 0
        most = int(tree.entries(self._sizes, self._nodes, self._control)) + inserts
        cursors = line.CURSOR_WORDS * len(self._counts) * len(self._wants)
        if most + cursors > _VALUES_PER_ROW * (inserts + deletes):
            return 0
        leaves, nodes = tree.built(most)
        grown = self._bytes_with(max(leaves, len(self._sizes)), max(nodes, len(self._nodes))) - self.nbytes
        spare = grown + 8 * (most + most // 64 + cursors) + _LINE_ROW_BYTES * (inserts + deletes) + 8 * line.DIGITS
        return spare if spare <= self._account.free // SHARE_OF_FREE else 0

    def _play_line(self, enters: Column, leaves: Column, schedule: Schedule, answers: _Answers) -> None:
        """Plays rows that are many beside the values of the tree; what that takes is on the account."""
        held = int(tree.entries(self._sizes, self._nodes, self._control))
        in_keys, in_rows, entering = _sorted_rows(self._floating, enters)
        out_keys, out_rows, leaving = _sorted_rows(self._floating, leaves)
        in_places, out_places = np.empty(len(in_rows), np.int64), np.empty(len(out_rows), np.int64)
        values, live = np.empty(held + entering, np.int64), np.empty((held + entering) // 64 + 1, np.uint64)
        cursors = np.empty((len(self._counts), len(self._wants), line.CURSOR_WORDS), np.int64)
        places = (values, live, in_places, out_places, cursors)
        rows = (enters[0], in_keys, in_rows, entering, leaves[0], out_keys, out_rows, leaving)
        lined: list[Any] = [self._keys, self._sizes, self._nodes, self._control, self._counts, *rows, *places]
        line.line_up(*lined)
        valid = (enters[0], enters[2], leaves[0], leaves[2])
        taken: list[Any] = [*places, self._counts, self._floating, *valid, *schedule, *answers]
        line.play_line(*taken)
        left = held + entering - leaving
        line.keep_live(values, live, left)
        self._grow(*tree.built(left))
        tree.build(*self._tree, self._counts, values)

    def _reserve(self, inserts: int) -> None:
        """Room for so many values, wherever they belong, or all values are in pages."""
        leaves, nodes = tree.needed(self._control, inserts, int(self._control[LEAVES_USED]))
        if self._has(leaves, nodes):
            return
        filled = int(tree.most_filled(self._sizes, self._control, inserts))
        leaves, nodes = tree.needed(self._control, inserts, filled)
        if self._has(leaves, nodes):
            return
        more_leaves = max(leaves, math.ceil(1.25 * len(self._sizes)))
        more_nodes = max(nodes, math.ceil(1.25 * len(self._nodes)))
        if self._bytes_with(more_leaves, more_nodes) - self.nbytes > self._account.free // SHARE_OF_FREE:
            more_leaves, more_nodes = max(leaves, len(self._sizes)), max(nodes, len(self._nodes))
        try:
            self._charge(self._bytes_with(more_leaves, more_nodes))
        except BudgetError:
            if not self._page(self._account.free // 2):
                raise
            return
        self._grow(more_leaves, more_nodes)
        if self._control[LEAVES_USED] == 0:
            plant(self._sizes, self._control)

    def _grow(self, leaves: int, nodes: int) -> None:
        """Pools of at least so many leaves and nodes."""
        if leaves > len(self._sizes):
            self._keys, self._slots = _grown(self._keys, leaves), _grown(self._slots, leaves)
            self._sizes = _grown(self._sizes, leaves)
        if nodes > len(self._nodes):
            self._nodes = _grown(self._nodes, nodes)

    def _has(self, leaves: int, nodes: int) -> bool:
        return leaves <= len(self._sizes) and nodes <= len(self._nodes)

    def _bytes_with(self, leaves: int, nodes: int) -> int:
        return self._counts.nbytes + leaves * (12 * LEAF + 4) + nodes * 8 * NODE_WORDS

    def _charge(self, nbytes: int) -> None:
        self._asks = True
        try:
            self._account.resize(nbytes)
        except BudgetError as refusal:
            names = " and ".join(sorted({want.function for want in self._wants}))
            raise BudgetError(f"{names} must keep every value of the window in memory: {refusal}") from refusal
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
        return self.nbytes - self._counts.nbytes if self._device is not None else 0

    def _give_up(self) -> bool:
        """Others need memory: whether some was given back."""
        if self._asks:
            return False
        return self._page() if self._paged is None else self._paged.page_out()

    def _page(self, spare: int = 0) -> bool:
        """All values go to pages, which may take so many bytes more than the tree; whether that was possible and of any
        use."""
        nbytes, values = self.nbytes - self._counts.nbytes + spare, int(self._counts.sum())
        if self._device is None or nbytes < _LEAST_TREE:
            return False
        work = max(min(LEAST_WORK, nbytes // 2), min(MOST_WORK, nbytes // 4))
        if PagedOrder.bytes_for(self._device, len(self._counts), values, work) >= nbytes:
            return False
        keys, _, sizes, nodes, control = self._tree
        self._clear()
        # The tree leaves the account first: what the pages take is less, and touched only as they are written.
        self._account.resize(self.nbytes)

        def read(rank: int, out: Int64s) -> None:
            _export(keys, sizes, nodes, control, rank, out)

        self._fill_pages(read, work)
        return True

    def _fill_pages(self, read: Callable[[int, Int64s], None], nbytes: int) -> None:
        assert self._device is not None
        self._asks = True
        try:
            self._paged = PagedOrder(self._device, self._account, nbytes)
            self._paged.fill(self._counts, read)
        finally:
            self._asks = False

    def _play_paged(
        self, paged: PagedOrder, enters: Column, leaves: Column, schedule: Schedule, answers: Answers
    ) -> None:
        wanted = Wanted(self._discrete, self._fractions, self._floating)
        self._asks = True
        try:
            paged.play(self._counts, wanted, enters, leaves, schedule, answers)
            if len(schedule.emit_slots):
                self._come_back(paged)
        finally:
            self._asks = False

    def _come_back(self, paged: PagedOrder) -> None:
        """Values that fit memory well are in memory."""
        count = paged.values
        if count == 0:
            self._leave_pages(paged)
            return
        leaves, nodes = tree.built(2 * count)
        if _BACK * (self._bytes_with(leaves, nodes) + 8 * count) > self._account.free:
            return
        grown = self._bytes_with(*tree.built(count)) - self._counts.nbytes
        self._account.charge(grown + 8 * count)
        keys = np.empty(count, np.int64)
        paged.list_keys(keys)
        self._grow(*tree.built(count))
        tree.build(*self._tree, self._counts, keys)
        self._leave_pages(paged)
        self._account.resize(self.nbytes)

    def _leave_pages(self, paged: PagedOrder) -> None:
        paged.close()
        self._paged = None

    def reset(self, slots: Slots) -> None:
        if self._paged is None:
            _forget(*self._tree, self._counts, slots)
            return
        gone = plain(slots[self._counts[slots] > 0], INT32)
        self._counts[slots] = 0
        if not self._counts.any():
            self._leave_pages(self._paged)
        elif len(gone):
            self._asks = True
            try:
                self._paged.drop(gone, len(self._counts))
            finally:
                self._asks = False

    @property
    def nbytes(self) -> int:
        held = self._counts.nbytes + self._keys.nbytes + self._slots.nbytes + self._sizes.nbytes + self._nodes.nbytes
        return held if self._paged is None else held + self._paged.nbytes

    def snapshot(self) -> Snapshot:
        """The values in order, by slot, then by key; or their pages."""
        keys = np.empty(0 if self._paged is not None else int(self._counts.sum()), dtype=np.int64)
        _export(self._keys, self._sizes, self._nodes, self._control, 0, keys)
        paged = self._paged and {"values": self._paged.snapshot(), "work": self._paged.work_nbytes}
        return {"counts": self._counts, "keys": keys, "paged": paged}

    def restore(self, snapshot: Snapshot) -> None:
        counts: Int64s = np.array(snapshot["counts"], dtype=np.int64)
        keys: Int64s = np.array(snapshot["keys"], dtype=np.int64)
        self._clear()
        self._counts = counts
        if snapshot["paged"] is not None:
            self._restore_pages(snapshot["paged"])
            return
        try:
            self._charge(self._bytes_with(*tree.built(len(keys))))
        except BudgetError:
            if self._device is None:
                raise
            self._charge(counts.nbytes)
            self._fill_pages(_reader_of(keys), work_of(self._account))
            return
        self._grow(*tree.built(len(keys)))
        tree.build(*self._tree, counts, keys)

    def _restore_pages(self, saved: Snapshot) -> None:
        assert self._device is not None, "pages are saved where there is a device"
        self._charge(self._counts.nbytes)
        self._asks = True
        try:
            self._paged = PagedOrder(self._device, self._account, min(saved["work"], work_of(self._account)))
            self._paged.restore(saved["values"])
        finally:
            self._asks = False


def _reader_of(keys: Int64s) -> Callable[[int, Int64s], None]:
    def read(rank: int, out: Int64s) -> None:
        out[:] = keys[rank : rank + len(out)]

    return read


def _sorted_rows(floating: bool, column: Column) -> tuple[Int64s, Slots, int]:
    """Keys and numbers of the rows that have a value, in order, and how many there are; one more follows."""
    rows = len(column[0])
    keys, places = np.empty((2, rows + 1), np.int64), np.empty((2, rows + 1), np.int32)
    starts = np.empty(line.DIGITS, np.int64)
    count = line.sort_rows(floating, *column, keys[0], places[0], keys[1], places[1], starts)
    return keys[0], places[0], count


def _column(argument: Argument) -> tuple[Int64s, Bools]:
    return images(argument.values), ALL_VALID if argument.valid is None else plain(argument.valid, BOOL)


def _grown(array: NDArray[Number], length: int) -> NDArray[Number]:
    grown = np.empty((length, *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    return grown


@tight
def _play(
    keys: Int64s,
    slots: Slots,
    sizes: Slots,
    nodes: Int64s,
    control: Int64s,
    counts: Int64s,
    floating: bool,
    add_slots: Slots,
    entering: Int64s,
    entering_valid: Bools,
    remove_slots: Slots,
    leaving: Int64s,
    leaving_valid: Bools,
    add_upto: Int64s,
    remove_upto: Int64s,
    emit_upto: Int64s,
    emit_slots: Slots,
    discrete: Bools,
    fractions: Doubles,
    results: Doubles,
    results_bits: Int64s,
    valid: Bools,
) -> None:
    entered = left = emitted = 0
    for step in range(len(add_upto)):
        for row in range(entered, add_upto[step]):
            slot = add_slots[row]
            if slot >= 0 and (len(entering_valid) == 0 or entering_valid[row]):
                tree.insert(keys, slots, sizes, nodes, control, slot, total_key(entering[row], floating))
                counts[slot] += 1
        entered = add_upto[step]
        for index in range(left, remove_upto[step]):
            slot = remove_slots[index]
            if slot >= 0 and (len(leaving_valid) == 0 or leaving_valid[index]):
                tree.delete(keys, slots, sizes, nodes, control, slot, total_key(leaving[index], floating))
                counts[slot] -= 1
        left = remove_upto[step]
        for index in range(emitted, emit_upto[step]):
            slot = emit_slots[index]
            count = counts[slot]
            valid[index] = count > 0
            if count == 0:
                results_bits[:, index] = 0
                continue
            start = tree.rank_of_slot(keys, slots, sizes, nodes, control, slot)
            for want in range(len(fractions)):
                rank, position = line.rank_of(discrete[want], fractions[want], count)
                leaf, place = tree.find_near(sizes, nodes, control, want, start + rank)
                key = keys[leaf, place]
                if discrete[want]:
                    results_bits[want, index] = image_of_key(key, floating)
                else:
                    above = key
                    if rank < position:
                        if place + 1 < sizes[leaf]:
                            place += 1
                        else:
                            leaf, place = tree.find_rank(nodes, control, start + rank + 1)
                        above = keys[leaf, place]
                    line.put_between(key, above, position - rank, floating, results, results_bits, want, index)
        emitted = emit_upto[step]


@tight
def _forget(
    keys: Int64s, slots: Slots, sizes: Slots, nodes: Int64s, control: Int64s, counts: Int64s, gone: Slots
) -> None:
    for slot in gone:
        while counts[slot] > 0:
            leaf, place = tree.find_rank(nodes, control, tree.rank_of_slot(keys, slots, sizes, nodes, control, slot))
            tree.delete(keys, slots, sizes, nodes, control, slot, keys[leaf, place])
            counts[slot] -= 1


@tight
def _export(keys: Int64s, sizes: Slots, nodes: Int64s, control: Int64s, rank: int, out: Int64s) -> None:
    """The keys of entries in their order, from a rank on."""
    done = 0
    while done < len(out):
        leaf, place = tree.find_rank(nodes, control, rank + done)
        while place < sizes[leaf] and done < len(out):
            out[done] = keys[leaf, place]
            place += 1
            done += 1
