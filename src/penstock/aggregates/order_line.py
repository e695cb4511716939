"""Percentiles over many rows at once: all values that are in the window during a call, in one sorted *line*.

    tree      in order   3   5   5   8        values of the window before the call
    entering  sorted       4       6          with the place that each one will have
    line      3   4   5   5   6   8
    live      1   0   1   1   0   1           a bit is set when its value enters, and cleared when it leaves

While the schedule is played, a *cursor* per group and percentile stands at a place of the line and knows how many live
values of its group come before. A value that enters or leaves changes one bit and that number; the next answer is a few
bits away. In the tree each of the two is a way down to a leaf that is in no cache.

A line costs a walk over all values, so it is for calls with many rows. The answers are those of the tree.

Invariants:
1. Of values that are equal, those of the tree come first in the line, then those that enter, in their order. Rows of a
   group leave in the order in which they entered, so the one that leaves is the first of them that is live.
2. Every slot that is in the line has a cursor for each percentile. It is at the first place of its slot, or at the
   first of a word of `live`.

Called by `order_statistics.OrderState` alone.

Why: docs/decisions/deques-and-trees.md
"""

from __future__ import annotations

import math

import numpy as np

from penstock.aggregates import order_tree as tree
from penstock.aggregates.images import Word, image_of_key, total_key
from penstock.arrays import Bools, Floats, Int64s, Slots, UInt64s
from penstock.jit import bit_count, inline, tight, trailing_zeros

_DIGIT_BITS = 11
DIGITS = 1 << _DIGIT_BITS
_MASK = DIGITS - 1
_SIGN = np.int64(-0x8000_0000_0000_0000)
_GREATEST = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_WINDOW_DIGITS = 3
_MOVES = 8
"""Rows are sorted by the first digits in which they differ. If what is left takes more than so many moves per row, all
digits are sorted."""

PLACE, BEFORE, FIRST = 0, 1, 2
CURSOR_WORDS = 3
"""Of a cursor: its place, how many live values of its slot come before it, and the first place of its slot."""

_U0, _U1 = np.uint64(0), np.uint64(1)
_ALL = ~np.uint64(0)


@tight
def sort_rows(
    floating: bool,
    slots: Slots,
    images: Int64s,
    valid: Bools,
    keys: Int64s,
    rows: Slots,
    other_keys: Int64s,
    other_rows: Slots,
    starts: Int64s,
) -> int:
    """The rows that have a group and a value, by slot, key and row; returns how many. One row follows that is not
    there. `starts` has DIGITS words."""
    count = np.int64(0)
    greatest = 0
    differing = np.int64(0)
    first: Word = np.int64(0)
    for row in range(len(slots)):
        if slots[row] >= 0 and (len(valid) == 0 or valid[row]):
            key = total_key(images[row], floating)
            if count == 0:
                first = key
            differing |= key ^ first
            keys[count] = key
            rows[count] = row
            greatest = max(greatest, slots[row])
            count += 1
    high = 0
    while high < 64 and np.uint64(differing) >> np.uint64(high) != _U0:
        high += 1
    from_bit = max(0, high - _WINDOW_DIGITS * _DIGIT_BITS)
    _sort_bits(keys, rows, other_keys, other_rows, starts, count, from_bit, high)
    if from_bit > 0 and not _settle(keys, rows, count):
        _sort_bits(keys, rows, other_keys, other_rows, starts, count, 0, high)
    bit = 0
    while greatest >> bit > 0:
        for digit in range(DIGITS):
            starts[digit] = 0
        for index in range(count):
            starts[(slots[rows[index]] >> bit) & _MASK] += 1
        _sum_up(starts)
        for index in range(count):
            digit = (slots[rows[index]] >> bit) & _MASK
            other_keys[starts[digit]] = keys[index]
            other_rows[starts[digit]] = rows[index]
            starts[digit] += 1
        for index in range(count):
            keys[index] = other_keys[index]
            rows[index] = other_rows[index]
        bit += _DIGIT_BITS
    keys[count], rows[count] = _GREATEST, len(slots)
    return int(count)


@tight
def _sum_up(starts: Int64s) -> None:
    """From how many there are of each digit to where they begin."""
    total = np.int64(0)
    for digit in range(DIGITS):
        more = starts[digit]
        starts[digit] = total
        total += more


@tight
def _sort_bits(
    keys: Int64s,
    rows: Slots,
    other_keys: Int64s,
    other_rows: Slots,
    starts: Int64s,
    count: Word,
    bit: int,
    upto: int,
) -> None:
    """Sorts by the bits from `bit` to `upto`, the last digit first. The order of equal ones stays."""
    swapped = False
    while bit < upto:
        if swapped:
            _scatter(other_keys, other_rows, keys, rows, starts, count, bit)
        else:
            _scatter(keys, rows, other_keys, other_rows, starts, count, bit)
        swapped = not swapped
        bit += _DIGIT_BITS
    if swapped:
        for index in range(count):
            keys[index] = other_keys[index]
            rows[index] = other_rows[index]


@tight
def _scatter(keys: Int64s, rows: Slots, to_keys: Int64s, to_rows: Slots, starts: Int64s, count: Word, bit: int) -> None:
    shift, mask = np.uint64(bit), np.uint64(_MASK)
    for digit in range(DIGITS):
        starts[digit] = 0
    for index in range(count):
        starts[(np.uint64(keys[index] ^ _SIGN) >> shift) & mask] += 1
    _sum_up(starts)
    for index in range(count):
        found = (np.uint64(keys[index] ^ _SIGN) >> shift) & mask
        to = np.uint64(starts[found])
        to_keys[to] = keys[index]
        to_rows[to] = rows[index]
        starts[found] += 1


@tight
def _settle(keys: Int64s, rows: Slots, count: Word) -> bool:
    """Sorts rows that are nearly in order; gives up, with the order of equal ones as it was, if they are not."""
    left = _MOVES * count
    for index in range(1, count):
        key = keys[index]
        if keys[index - 1] > key:
            row = rows[index]
            place = index
            while place > 0 and keys[place - 1] > key:
                keys[place] = keys[place - 1]
                rows[place] = rows[place - 1]
                place -= 1
            keys[place] = key
            rows[place] = row
            left -= index - place
            if left < 0:
                return False
    return True


@tight
def line_up(
    keys: Int64s,
    sizes: Slots,
    nodes: Int64s,
    control: Int64s,
    counts: Int64s,
    add_slots: Slots,
    in_keys: Int64s,
    in_rows: Slots,
    entering: int,
    remove_slots: Slots,
    out_keys: Int64s,
    out_rows: Slots,
    leaving: int,
    line: Int64s,
    live: UInt64s,
    in_places: Int64s,
    out_places: Int64s,
    cursors: Int64s,
) -> None:
    """Makes the line of the values of the tree and of the sorted rows that enter. Finds the places of all rows that
    enter and leave, and sets all cursors to the first value of their slot.

    The rows are followed by one more, so that the loop need not branch: a place is written until it is right.
    """
    leaf: Word = 0
    place: Word = 0
    at = rank = entered = left = size = np.int64(0)
    for slot in range(len(counts)):
        in_end, out_end, held = entered, left, rank + counts[slot]
        while in_end < entering and add_slots[in_rows[in_end]] == slot:
            in_end += 1
        while out_end < leaving and remove_slots[out_rows[out_end]] == slot:
            out_end += 1
        if rank == held and entered == in_end:
            continue
        for want in range(cursors.shape[1]):
            cursors[slot, want, PLACE] = cursors[slot, want, FIRST] = at
            cursors[slot, want, BEFORE] = 0
        while rank < held:
            if place == size:
                leaf, place = tree.find_rank(nodes, control, rank)
                size = np.int64(sizes[leaf])
            stop = min(size, place + held - rank)
            rank += stop - place
            while place < stop:
                key, other = keys[leaf, place], in_keys[entered]
                enters = np.int64(entered < in_end) & np.int64(other < key)
                key ^= (key ^ other) & -enters
                line[at] = key
                in_places[in_rows[entered]] = at
                out_places[out_rows[left]] = at
                entered += enters
                place += 1 - enters
                left += np.int64(left < out_end) & np.int64(out_keys[left] == key)
                at += 1
        while entered < in_end:
            key = in_keys[entered]
            line[at] = key
            in_places[in_rows[entered]] = at
            out_places[out_rows[left]] = at
            entered += 1
            left += np.int64(left < out_end) & np.int64(out_keys[left] == key)
            at += 1
    for word in range(at >> 6):
        live[word] = _ALL
    live[at >> 6] = (_U1 << np.uint64(at & 63)) - _U1
    for index in range(entering):
        _flip(live, in_places[in_rows[index]])


@inline
def _flip(live: UInt64s, place: Word) -> None:
    live[place >> 6] ^= _U1 << np.uint64(place & 63)


@inline
def _change(live: UInt64s, cursors: Int64s, slot: Word, place: Word, by: int) -> None:
    """A value enters or leaves."""
    _flip(live, place)
    for want in range(cursors.shape[1]):
        cursors[slot, want, BEFORE] += np.int64(place < cursors[slot, want, PLACE]) * by


@inline
def _bits_from(live: UInt64s, place: Word) -> np.uint64:
    """The live values from a place on, up to the end of its word."""
    word: np.uint64 = live[place >> 6]
    return (word >> np.uint64(place & 63)) << np.uint64(place & 63)


@tight
def _find(live: UInt64s, cursors: Int64s, slot: Word, want: Word, rank: Word) -> Word:
    """The place of the live value of a slot that `rank` others of it precede. The cursor goes to the word of it."""
    place, ahead = cursors[slot, want, PLACE], rank - cursors[slot, want, BEFORE]
    bits = _bits_from(live, place)
    if ahead < 0 or ahead >= np.int64(bit_count(bits)):
        while ahead < 0:
            place = max((place - 1) & -64, cursors[slot, want, FIRST])
            bits = _bits_from(live, place)
            ahead += np.int64(bit_count(bits))
        while ahead >= np.int64(bit_count(bits)):
            ahead -= np.int64(bit_count(bits))
            place = (place | 63) + 1
            bits = live[place >> 6]
        cursors[slot, want, PLACE], cursors[slot, want, BEFORE] = place, rank - ahead
    found: Word = (place & -64) + _select(bits, ahead)
    return found


@inline
def _select(bits: np.uint64, skipped: Word) -> Word:
    """The place in a word of a set bit, the first after so many others. Without a branch, since none can be guessed."""
    place = np.int64(0)
    for step in range(6):
        width = np.int64(32) >> step
        before = np.int64(bit_count(bits & ((_U1 << np.uint64(width)) - _U1)))
        further = np.int64(skipped >= before)
        skipped -= before * further
        bits >>= np.uint64(width * further)
        place += width * further
    return place


@tight
def _next(live: UInt64s, place: Word) -> Word:
    """The live value behind that of a place; there is one."""
    bits = _bits_from(live, place)
    bits &= bits - _U1
    word = place >> 6
    while bits == _U0:
        word += 1
        bits = live[word]
    return word * 64 + np.int64(trailing_zeros(bits))


@tight
def play_line(
    line: Int64s,
    live: UInt64s,
    in_places: Int64s,
    out_places: Int64s,
    cursors: Int64s,
    counts: Int64s,
    floating: bool,
    add_slots: Slots,
    entering_valid: Bools,
    remove_slots: Slots,
    leaving_valid: Bools,
    add_upto: Int64s,
    remove_upto: Int64s,
    emit_upto: Int64s,
    emit_slots: Slots,
    discrete: Bools,
    fractions: Floats,
    results: Floats,
    results_bits: Int64s,
    valid: Bools,
) -> None:
    entered = left = emitted = 0
    for step in range(len(add_upto)):
        for row in range(entered, add_upto[step]):
            slot = np.int64(add_slots[row])
            if slot >= 0 and (len(entering_valid) == 0 or entering_valid[row]):
                _change(live, cursors, slot, in_places[row], 1)
                counts[slot] += 1
        entered = add_upto[step]
        for row in range(left, remove_upto[step]):
            slot = np.int64(remove_slots[row])
            if slot >= 0 and (len(leaving_valid) == 0 or leaving_valid[row]):
                _change(live, cursors, slot, out_places[row], -1)
                counts[slot] -= 1
        left = remove_upto[step]
        for index in range(emitted, emit_upto[step]):
            slot = np.int64(emit_slots[index])
            count = counts[slot]
            valid[index] = count > 0
            if count == 0:
                results_bits[:, index] = 0
                continue
            for want in range(len(fractions)):
                rank, position = rank_of(discrete[want], fractions[want], count)
                place = _find(live, cursors, slot, np.int64(want), rank)
                key = line[place]
                if discrete[want]:
                    results_bits[want, index] = image_of_key(key, floating)
                else:
                    above = key
                    if rank < position:
                        above = line[_next(live, place)]
                    put_between(key, above, position - rank, floating, results, results_bits, want, index)
        emitted = emit_upto[step]


@inline
def rank_of(discrete: bool, fraction: float, count: Word) -> tuple[Word, float]:
    """How many values come before the one that a percentile reads, and where between it and the next it lies."""
    if discrete:
        number = np.int64(math.ceil(count * fraction))
        rank = number - 1 if number > 0 else np.int64(0)
        return rank, np.float64(rank)
    position = np.float64((count - 1) * fraction)
    return np.int64(math.floor(position)), position


@tight
def put_between(
    key: Word,
    above: Word,
    share: float,
    floating: bool,
    results: Floats,
    results_bits: Int64s,
    want: int,
    index: int,
) -> None:
    """A result between the values of two keys; above the first by a share of what lies between them."""
    value = _as_double(key, floating, results, results_bits, want, index)
    if share > 0.0:
        upper = _as_double(above, floating, results, results_bits, want, index)
        if upper != value if floating else above != key:
            value = value + (upper - value) * share
    results[want, index] = value


@tight
def _as_double(key: Word, floating: bool, results: Floats, results_bits: Int64s, want: int, index: int) -> float:
    """The value of a key; the cell that the result will take serves to read bits as a double."""
    if not floating:
        return np.float64(key)
    results_bits[want, index] = image_of_key(key, floating)
    value: np.float64 = results[want, index]
    return value


@tight
def keep_live(line: Int64s, live: UInt64s, count: int) -> None:
    """Brings the live values of a line to its beginning; they are so many."""
    kept = np.int64(0)
    word = np.int64(0)
    while kept < count:
        bits = live[word]
        at = word * 64
        if bits == _ALL:
            for bit in range(64):
                line[kept + bit] = line[at + bit]
            kept += 64
        else:
            while bits != _U0:
                line[kept] = line[at + np.int64(trailing_zeros(bits))]
                kept += 1
                bits &= bits - _U1
        word += 1
