"""Variances, standard deviations, covariances and correlations, from exact sums and exact products.

Created by the factory; driven by the aggregate operator. Integers are taken as they are, beside doubles, too: none is
rounded to a double before it is summed. What the answers are:

- VAR_* and COVAR_*: the exact rational value over the rows now in the window, rounded once;
- STDDEV_*: the square root of that double;
- CORR: c_xy / (sqrt(c_xx) · sqrt(c_yy)) of the three population values, each rounded once;
- a NaN or an infinity in the window makes them NaN, until it leaves;
- NULL for no row, for one row where the divisor is n - 1, and for a CORR of one pair or where a variance is zero.

Rows count where every argument has a value. What passed through the window earlier leaves no trace.

Invariants:
1. The words of a slot (see `exact_moments`) depend only on its rows now in the window and on the bases.
2. Each base is chosen once, from the first call that adds a finite value other than zero in its column, and kept for
   good, because a row must leave the accumulator it entered. That of integers is always the same.
3. `_wide` has an entry for a slot exactly while the slot's count of wide rows is not zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.aggregates import exact_moments as layout
from penstock.aggregates.columns import ALL_VALID, FLOAT64, INT32, INT64, NO_FLOATS, column, plain
from penstock.aggregates.exact_merge import BASES_WORDS, absorb_moments, common_base
from penstock.aggregates.exact_moments import play_moments
from penstock.aggregates.exact_product import PRODUCT_WORDS, SCRATCH_WORDS, SUM_WORDS
from penstock.aggregates.exact_sum import LEAST_BASE, choose_base
from penstock.aggregates.panes import Extras, PanedState, PaneRows, enter_words, leave_words
from penstock.aggregates.partials import pack, unpack
from penstock.aggregates.state import Emitted, MergeableState, Rows, Schedule, Snapshot, Want
from penstock.aggregates.wide import Words
from penstock.aggregates.wide_products import STORED_WORDS, Sums, WideProducts, exact_covariance, from_bytes, to_bytes
from penstock.arrays import Bools, Int64s, Slots
from penstock.components import component
from penstock.store.budget import Account
from penstock.store.changes import by_slot
from penstock.store.charged import UNLIMITED, ChargedArray

_POPULATION = ("VAR_POP", "STDDEV_POP", "COVAR_POP")
_SAMPLE = ("VAR_SAMP", "STDDEV_SAMP", "COVAR_SAMP")
_ROOTS = ("STDDEV_POP", "STDDEV_SAMP")


class _Results:
    """The columns one call fills; columns that no query asks for are empty."""

    def __init__(self, count: int, population: bool, sample: bool, correlation: bool) -> None:
        self.counts: Int64s = np.empty(count, dtype=np.int64)
        self.population = np.empty(count) if population else NO_FLOATS
        self.sample = np.empty(count) if sample else NO_FLOATS
        self.correlation = np.empty(count) if correlation else NO_FLOATS
        self.defined: Bools = np.empty(count, dtype=np.bool_) if correlation else ALL_VALID

    def serve(self, function: str) -> Emitted:
        if function == "CORR":
            return Emitted(self.correlation, self.defined)
        values, least = (self.population, 1) if function in _POPULATION else (self.sample, 2)
        return Emitted(np.sqrt(values) if function in _ROOTS else values, self.counts >= least)

    def put(self, index: int, count: int, sums: Sums) -> None:
        """The evaluation of a slot whose sums are given in Python's integers."""
        x, y, xy, xx, yy = sums
        self.counts[index] = count
        if len(self.population):
            self.population[index] = exact_covariance(count, count * count, x, y, xy)
        if len(self.sample):
            self.sample[index] = exact_covariance(count, count * (count - 1), x, y, xy) if count > 1 else 0.0
        if len(self.correlation):
            shared, x_variance, y_variance = (
                exact_covariance(count, count * count, a, b, ab) for a, b, ab in ((x, y, xy), (x, x, xx), (y, y, yy))
            )
            defined = count > 1 and x_variance > 0.0 and y_variance > 0.0
            self.defined[index] = defined
            # numpy's division, because two infinite variances make a NaN here as they do in the kernel.
            with np.errstate(invalid="ignore"):
                quotient = np.float64(shared) / (np.sqrt(x_variance) * np.sqrt(y_variance)) if defined else 0.0
            self.correlation[index] = quotient


@component("SecondOrder")
class _SecondOrder(MergeableState, PanedState):
    """What one and two arguments have in common; one argument stands for both x and y."""

    def __init__(self, wants: Sequence[Want], integers: tuple[bool, ...], account: Account) -> None:
        """`integers` says of each argument whether it is of an integer type."""
        self._functions = tuple(want.function for want in wants)
        self._wanted = (
            any(function in _POPULATION for function in self._functions),
            any(function in _SAMPLE for function in self._functions),
            "CORR" in self._functions,
        )
        self._integers = integers
        self._x_integer, self._y_integer = integers[0], integers[-1]
        if len(integers) == 1:
            self._width = layout.ONE_ARGUMENT_WORDS
        else:
            self._width = layout.CORRELATION_WORDS if "CORR" in self._functions else layout.COVARIANCE_WORDS
        self._lengths = layout.INTEGERS[np.cumsum(layout.INTEGERS) <= self._width]
        self._slots = 0
        self._held = ChargedArray(account, np.uint64)
        self._x_base = layout.INTEGER_BASE if self._x_integer else 0
        self._y_base = layout.INTEGER_BASE if self._y_integer else 0
        self._wide = WideProducts(account)
        self._cursor = np.zeros(4, dtype=np.int64)
        self._scratch: Words = np.zeros(SCRATCH_WORDS, dtype=np.uint64)

    @property
    def _words(self) -> Words:
        return self._held.array

    def ensure(self, slots: int) -> None:
        if slots > self._slots:
            slots = max(16, slots)
            self._held.resize(slots * self._width)
            self._slots = slots

    def advance(self, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        results = _Results(len(schedule.emit_slots), *self._wanted)
        add_slots, remove_slots = plain(added.slots, INT32), plain(removed.slots, INT32)
        emit_slots = plain(schedule.emit_slots, INT32)
        add_x, add_y, add_valid, add_masked = self._columns(added)
        remove_x, remove_y, remove_valid, remove_masked = self._columns(removed)
        if self._x_base == 0:
            self._x_base = choose_base(add_slots, add_x.view(np.float64), add_valid, add_masked)
        if self._y_base == 0:
            self._y_base = choose_base(add_slots, add_y.view(np.float64), add_valid, add_masked)
        while True:
            stop = play_moments(
                self._words,
                self._width,
                self._x_base or LEAST_BASE,
                self._y_base or LEAST_BASE,
                self._x_integer,
                self._y_integer,
                add_slots,
                add_x,
                add_y,
                add_valid,
                add_masked,
                remove_slots,
                remove_x,
                remove_y,
                remove_valid,
                remove_masked,
                schedule.add_upto,
                schedule.remove_upto,
                schedule.emit_upto,
                emit_slots,
                self._cursor,
                self._scratch,
                results.counts,
                results.population,
                results.sample,
                results.correlation,
                results.defined,
            )
            if stop == layout.DONE:
                return tuple(results.serve(function) for function in self._functions)
            _, entered, left, emitted = self._cursor.tolist()
            if stop == layout.ADDED_WIDE:
                row = entered - 1
                x, y = _value(add_x, row, self._x_integer), _value(add_y, row, self._y_integer)
                self._wide.change(int(add_slots[row]), x, y, 1)
            elif stop == layout.REMOVED_WIDE:
                slot = int(remove_slots[left - 1])
                x, y = _value(remove_x, left - 1, self._x_integer), _value(remove_y, left - 1, self._y_integer)
                self._wide.change(slot, x, y, -1)
                if self._words[slot * self._width + layout.WIDE_AT] == 0:
                    self._wide.forget(remove_slots[left - 1 : left])
            else:
                slot = int(emit_slots[emitted])
                results.put(emitted, int(self._words[slot * self._width + layout.ROWS_AT]), self._sums(slot))
                self._cursor[3] += 1

    def _columns(self, rows: Rows) -> tuple[Words, Words, Bools, bool]:
        """The bits of x and of y, and the rows where both have a value."""
        x, x_valid, x_masked = column(rows, 0, INT64 if self._x_integer else FLOAT64)
        x = x.view(np.uint64)
        if len(self._integers) == 1:
            return x, x, x_valid, x_masked
        y, y_valid, y_masked = column(rows, 1, INT64 if self._y_integer else FLOAT64)
        y = y.view(np.uint64)
        if x_masked and y_masked:
            return x, y, x_valid & y_valid, True
        return x, y, x_valid if x_masked else y_valid if y_masked else ALL_VALID, x_masked or y_masked

    def _sums(self, slot: int) -> Sums:
        """All sums of a slot, narrow and wide together, in the units of `wide_products`."""
        words = self._words[slot * self._width : (slot + 1) * self._width]
        narrow = _narrow_sums(words, self._x_base or LEAST_BASE, self._y_base or LEAST_BASE)
        return [a + b for a, b in zip(narrow, self._wide.sums(slot), strict=True)]

    def export(self, slots: Slots) -> pa.Array:
        words = self._words.reshape(-1, self._width)[slots]
        which = np.flatnonzero(words[:, layout.WIDE_AT])
        stored = b"".join(to_bytes(self._wide.sums(slot)) for slot in slots[which].tolist())
        bases = np.full((len(slots), BASES_WORDS), (self._x_base, self._y_base), dtype=np.uint64)
        return pack(np.hstack([bases, words]), which, np.frombuffer(stored, np.uint64).reshape(-1, STORED_WORDS))

    def absorb(self, slots: Slots, partials: pa.Array) -> None:
        words, starts, sizes = unpack(partials)
        if self._x_base == 0:
            self._x_base = common_base(words[starts])
        if self._y_base == 0:
            self._y_base = common_base(words[starts + 1])
        misfits = np.empty(len(slots), np.bool_)
        x_base, y_base = self._x_base or LEAST_BASE, self._y_base or LEAST_BASE
        absorb_moments(self._words, self._width, x_base, y_base, plain(slots, INT32), words, starts, misfits)
        for row in np.flatnonzero(misfits):
            x_base, y_base = words[starts[row] : starts[row] + BASES_WORDS].tolist()
            own = words[starts[row] + BASES_WORDS :][: self._width]
            self._wide.add(int(slots[row]), _narrow_sums(own, x_base, y_base))
        for row in np.flatnonzero(sizes > BASES_WORDS + self._width):
            stored = words[starts[row] + BASES_WORDS + self._width : starts[row] + sizes[row]]
            self._wide.add(int(slots[row]), from_bytes(stored.tobytes()))

    def reset(self, slots: Slots) -> None:
        self._words.reshape(-1, self._width)[slots] = 0
        self._wide.forget(slots)

    @property
    def pane_words(self) -> int:
        return self._width

    def take_units(self, panes: _SecondOrder) -> None:
        self._x_base, self._y_base = panes._x_base, panes._y_base

    def to_panes(self, slots: Slots, words: Words, at: int) -> Extras:
        words[:, at : at + self._width] = self._words.reshape(-1, self._width)[slots]
        which = np.flatnonzero(words[:, at + layout.WIDE_AT])
        stored = (np.frombuffer(to_bytes(self._wide.sums(slot)), np.uint64) for slot in slots[which].tolist())
        return dict(zip(which.tolist(), stored, strict=True))

    def enter(self, rows: PaneRows, groups: Slots, windows: int) -> None:
        enter_words(self._words, self._width, self._lengths, rows.words, rows.at, groups, windows)
        for row, extra in rows.extras.items():
            sums = from_bytes(extra.tobytes())
            first = int(groups[row]) * windows
            for slot in range(first, first + windows):
                self._wide.add(slot, sums)

    def leave(self, rows: PaneRows, slots: Slots) -> None:
        leave_words(self._words, self._width, self._lengths, rows.words, rows.at, slots)
        for row, extra in rows.extras.items():
            self._wide.add(int(slots[row]), [-total for total in from_bytes(extra.tobytes())])
        if rows.extras:
            left = slots[list(rows.extras)]
            self._wide.forget(left[self._words.reshape(-1, self._width)[left, layout.WIDE_AT] == 0])

    def rearrange(self, kept: Slots) -> None:
        self._held.set(self._words.reshape(-1, self._width)[kept].reshape(-1))
        self._slots = len(kept)
        self._wide.rearrange(kept)

    @property
    def nbytes(self) -> int:
        return self._held.nbytes + self._wide.nbytes

    def snapshot(self) -> Snapshot:
        return {
            "words": by_slot(self._words, self._width),
            "x_base": self._x_base,
            "y_base": self._y_base,
            "wide": self._wide.snapshot(),
        }

    def restore(self, snapshot: Snapshot) -> None:
        self._held.set(snapshot["words"])
        self._slots = len(self._words) // self._width
        self._x_base, self._y_base = snapshot["x_base"], snapshot["y_base"]
        self._wide.restore(snapshot["wide"])


class MomentsState(_SecondOrder):
    """Serves any of VAR_POP, VAR_SAMP, STDDEV_POP and STDDEV_SAMP of one argument, in the order wanted."""

    def __init__(self, wants: Sequence[Want], integer: bool, account: Account = UNLIMITED) -> None:
        super().__init__(wants, (integer,), account)


class ComomentsState(_SecondOrder):
    """Serves any of COVAR_POP, COVAR_SAMP and CORR of two arguments, in the order wanted."""

    def __init__(self, wants: Sequence[Want], x_integer: bool, y_integer: bool, account: Account = UNLIMITED) -> None:
        super().__init__(wants, (x_integer, y_integer), account)


def _value(bits: Words, row: int, integer: bool) -> int | float:
    return int(bits[row].view(np.int64)) if integer else float(bits[row].view(np.float64))


def _narrow_sums(words: Words, x_base: int, y_base: int) -> Sums:
    """The sums among a slot's words, in the units of `wide_products`; 0 for those that the state does not keep."""
    x_shift, y_shift = x_base - 1, y_base - 1
    x = _integer(words, layout.X_AT, SUM_WORDS, x_shift)
    y = _integer(words, layout.Y_AT, SUM_WORDS, y_shift) if len(words) > layout.ONE_ARGUMENT_WORDS else x
    return [
        x,
        y,
        _integer(words, layout.XY_AT, PRODUCT_WORDS, x_shift + y_shift),
        _integer(words, layout.XX_AT, PRODUCT_WORDS, 2 * x_shift),
        _integer(words, layout.YY_AT, PRODUCT_WORDS, 2 * y_shift),
    ]


def _integer(words: Words, at: int, count: int, shift: int) -> int:
    """A two's complement integer times 2**shift."""
    if at >= len(words):
        return 0
    value = int.from_bytes(words[at : at + count].tobytes(), "little", signed=True)
    return value << shift if value else 0
