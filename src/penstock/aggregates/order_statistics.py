"""MEDIAN, PERCENTILE_CONT and PERCENTILE_DISC of one argument, exactly, at any moment of the window.

All values of the window are kept in order in one counted tree (`order_tree`); any number of percentiles read it.
NULLs are ignored and NaN is the greatest value. With n values in order, counted from zero:

    PERCENTILE_CONT(f)  the value at p = f * (n - 1); between the values a at i and b at i + 1 it is
                        a + (b - a) * (p - i). MEDIAN is PERCENTILE_CONT(0.5)
    PERCENTILE_DISC(f)  the value number ceil(f * n), at least the first: the least whose share reaches f

both in double arithmetic, as Spark 4.3 computes them.

Invariants:
1. `_counts[s]` is the number of values of slot s in the tree.
2. The pools are large enough for the rows of a call before its first row enters: a `BudgetError` from `advance`
   changes nothing.

Created by the factory; driven by the operator through `AggregateState`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.aggregates import order_tree as tree
from penstock.aggregates.columns import ALL_VALID, BOOL, plain
from penstock.aggregates.images import from_images, image_of_key, images, total_key
from penstock.aggregates.state import AggregateState, Argument, Emitted, Rows, Schedule, Snapshot, Want
from penstock.arrays import Bools, Int64s, Slots
from penstock.errors import BudgetError
from penstock.jit import tight
from penstock.store.budget import Account
from penstock.store.charged import SHARE_OF_FREE
from penstock.types import SqlType

Doubles = NDArray[np.float64]
Number = TypeVar("Number", bound=np.generic)


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

    def __init__(self, wants: Sequence[Want], argument: SqlType, account: Account) -> None:
        self._wants = tuple(wants)
        self._storage = argument.storage
        self._floating = argument.is_floating
        self._account = account
        self._discrete: Bools = np.array([w.function == "PERCENTILE_DISC" for w in wants], dtype=np.bool_)
        self._fractions: Doubles = np.array([0.5 if w.parameter is None else w.parameter for w in wants])
        self._counts: Int64s = np.zeros(0, dtype=np.int64)
        self._clear()

    def _clear(self) -> None:
        self._keys: Int64s = np.zeros((0, tree.LEAF), dtype=np.int64)
        self._slots: Slots = np.zeros((0, tree.LEAF), dtype=np.int32)
        self._sizes: Slots = np.zeros(0, dtype=np.int32)
        self._nodes: Int64s = np.zeros((0, tree.NODE_WORDS), dtype=np.int64)
        self._control = tree.empty_control()

    def ensure(self, slots: int) -> None:
        if slots > len(self._counts):
            room = max(16, slots)
            self._charge(self.nbytes + 8 * (room - len(self._counts)))
            grown = np.zeros(room, dtype=np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown

    def advance(self, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        self._reserve(added.size)
        entering, entering_valid = _column(added.arguments[0])
        leaving, leaving_valid = _column(removed.arguments[0])
        results = np.empty((len(self._wants), len(schedule.emit_slots)), dtype=np.float64)
        valid = np.empty(len(schedule.emit_slots), dtype=np.bool_)
        _play(
            self._keys,
            self._slots,
            self._sizes,
            self._nodes,
            self._control,
            self._counts,
            self._floating,
            added.slots,
            entering,
            entering_valid,
            removed.slots,
            leaving,
            leaving_valid,
            *schedule,
            self._discrete,
            self._fractions,
            results,
            results.view(np.int64),
            valid,
        )
        return tuple(
            Emitted(from_images(column.view(np.int64), self._storage) if discrete else column, valid)
            for column, discrete in zip(results, self._discrete.tolist(), strict=True)
        )

    def _reserve(self, inserts: int) -> None:
        """Room for so many values, wherever they belong."""
        leaves, nodes = tree.needed(self._control, inserts, int(self._control[tree.LEAVES_USED]))
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
        self._charge(self._bytes_with(more_leaves, more_nodes))
        self._keys = _grown(self._keys, more_leaves)
        self._slots = _grown(self._slots, more_leaves)
        self._sizes = _grown(self._sizes, more_leaves)
        self._nodes = _grown(self._nodes, more_nodes)
        if self._control[tree.LEAVES_USED] == 0:
            tree.plant(self._sizes, self._control)

    def _has(self, leaves: int, nodes: int) -> bool:
        return leaves <= len(self._sizes) and nodes <= len(self._nodes)

    def _bytes_with(self, leaves: int, nodes: int) -> int:
        return self._counts.nbytes + leaves * (12 * tree.LEAF + 4) + nodes * 8 * tree.NODE_WORDS

    def _charge(self, nbytes: int) -> None:
        try:
            self._account.resize(nbytes)
        except BudgetError as refusal:
            names = " and ".join(sorted({want.function for want in self._wants}))
            raise BudgetError(f"{names} must keep every value of the window in memory: {refusal}") from refusal

    def reset(self, slots: Slots) -> None:
        _forget(self._keys, self._slots, self._sizes, self._nodes, self._control, self._counts, slots)

    @property
    def nbytes(self) -> int:
        return self._counts.nbytes + self._keys.nbytes + self._slots.nbytes + self._sizes.nbytes + self._nodes.nbytes

    def snapshot(self) -> Snapshot:
        """The values in order: by slot, then by key."""
        keys = np.empty(int(self._counts.sum()), dtype=np.int64)
        _export(self._keys, self._sizes, self._nodes, self._control, keys)
        return {"counts": self._counts, "keys": keys}

    def restore(self, snapshot: Snapshot) -> None:
        counts: Int64s = np.array(snapshot["counts"], dtype=np.int64)
        keys: Int64s = np.array(snapshot["keys"], dtype=np.int64)
        self._clear()
        self._charge(counts.nbytes)
        self._counts = counts
        self._reserve(len(keys))
        of_slots = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        _load(self._keys, self._slots, self._sizes, self._nodes, self._control, of_slots, keys)


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
                if discrete[want]:
                    number = np.int64(math.ceil(count * fractions[want]))
                    leaf, place = tree.find_rank(nodes, control, start + (number - 1 if number > 0 else 0))
                    results_bits[want, index] = image_of_key(keys[leaf, place], floating)
                else:
                    position = (count - 1) * fractions[want]
                    lower = np.int64(math.floor(position))
                    leaf, place = tree.find_rank(nodes, control, start + lower)
                    key = keys[leaf, place]
                    value = _as_double(key, floating, results, results_bits, want, index)
                    if lower < position:
                        if place + 1 < sizes[leaf]:
                            place += 1
                        else:
                            leaf, place = tree.find_rank(nodes, control, start + lower + 1)
                        upper = _as_double(keys[leaf, place], floating, results, results_bits, want, index)
                        if upper != value if floating else keys[leaf, place] != key:
                            value = value + (upper - value) * (position - lower)
                    results[want, index] = value
        emitted = emit_upto[step]


@tight
def _as_double(key: np.int64, floating: bool, results: Doubles, results_bits: Int64s, want: int, index: int) -> float:
    """The value of a key; the cell that the result will take serves to read bits as a double."""
    if not floating:
        return np.float64(key)
    results_bits[want, index] = image_of_key(key, floating)
    value: np.float64 = results[want, index]
    return value


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
def _export(keys: Int64s, sizes: Slots, nodes: Int64s, control: Int64s, out: Int64s) -> None:
    rank = 0
    while rank < len(out):
        leaf, _ = tree.find_rank(nodes, control, rank)
        for place in range(sizes[leaf]):
            out[rank] = keys[leaf, place]
            rank += 1


@tight
def _load(
    keys: Int64s, slots: Slots, sizes: Slots, nodes: Int64s, control: Int64s, of_slots: Slots, values: Int64s
) -> None:
    for index in range(len(values)):
        tree.insert(keys, slots, sizes, nodes, control, of_slots[index], values[index])
