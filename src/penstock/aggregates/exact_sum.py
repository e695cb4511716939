"""The hot loops of exact sums: each plays a whole schedule in one call.

A float is an integer of 53 bits times a power of two. The narrow accumulator of a slot is a two's complement integer
of three 64-bit words in units of 2**(base - 1075): adding a float is a shift and an addition with carry, removing it
the opposite, so the accumulator holds the exact sum of what is in the window. A value goes there when its exponent
lies in base .. base + 97; it then has at most 150 bits, and 2**41 of them cannot overflow. Anything else goes to
`wide`. Which way depends on the value and the base alone, so a value leaves the way it came.

Words per slot: [count, low, middle, high] for floats, [count, low, high] for integers. Indices are unsigned: numba
would otherwise test each of them for being negative, which costs a tenth of the speed.

Why: docs/decisions/exact-sums.md
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.aggregates.rounding import EXPONENT_BIAS, GREATEST_EXPONENT, LEAST_EXPONENT, U0, U1, round_three_words
from penstock.aggregates.wide import USED, Words, change_wide, wide_total
from penstock.arrays import Bools, Floats, Int64s, Slots
from penstock.jit import inline, intrinsic, kernel, numba_types

NULLS, FAILURES, NO_ROOM = 1, 2, 4
"""What a call of `play_*` met, as bits: some result is NULL, some overflowed; it stopped for want of a wide row."""

_SPAN = np.uint64(97)
LEAST_BASE, GREATEST_BASE = LEAST_EXPONENT + EXPONENT_BIAS, GREATEST_EXPONENT + EXPONENT_BIAS
"""So far from the ends that a narrow sum is always rounded to a normal double, and that no span reaches the biased
exponent 2047 of NaN and the infinities."""

_FLOAT_WORDS = np.uint64(4)
_INTEGER_WORDS = np.uint64(3)
_U52 = np.uint64(52)
_U63 = np.uint64(63)
_EXPONENT_MASK = np.uint64(0x7FF)
_FRACTION_MASK = np.uint64((1 << 52) - 1)
_U2 = np.uint64(2)
_U3 = np.uint64(3)


def choose_base(slots: Slots, values: Floats, valid: Bools, masked: bool) -> int:
    """A base whose span covers the exponents of these values; 0 if there is no finite value but zero. A state asks
    once, so this is no kernel: it would be one more to compile.

    Of the span that is left over, three fifths lie below the least value, so that what cancellation leaves of a first
    value, down to 2**-53 of it, is narrow too.
    """
    counted = (slots >= 0) & (values != 0.0)
    if masked:
        counted &= valid
    biased = (values[counted].view(np.uint64) >> _U52) & _EXPONENT_MASK
    finite = biased[biased < _EXPONENT_MASK]
    if not len(finite):
        return 0
    least, greatest = int(finite.min()), int(finite.max())
    spare = int(_SPAN) - (greatest - least)
    return min(max(least - spare * 3 // 5, LEAST_BASE), GREATEST_BASE)


@kernel
def split(bits: np.uint64, base: np.uint64) -> tuple[np.uint64, np.uint64, bool]:
    """A double as mantissa · 2**shift units, and whether the narrow accumulator takes it (zero always fits)."""
    biased = (bits >> _U52) & _EXPONENT_MASK
    normal = np.uint64(biased != U0)
    mantissa = (bits & _FRACTION_MASK) | (normal << _U52)
    shift = biased + (U1 - normal) - base
    return mantissa, shift, bool(shift <= _SPAN or mantissa == U0)


@intrinsic
def _shifted_sum(typing: Any, low: Any, middle: Any, high: Any, signed: Any, shift: Any) -> Any:
    """Three words, plus a signed word · 2**shift for shift ≤ 127: one addition of 192 bits, which LLVM makes three
    instructions that hand on their carry. Written out in words it takes three times as many."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        word, pair, triple = ir.IntType(64), ir.IntType(128), ir.IntType(192)
        *held, value, places = arguments
        bit = builder.zext(builder.and_(places, word(63)), pair)
        moved = builder.shl(builder.sext(value, pair), bit)
        first = builder.trunc(moved, word)
        second = builder.trunc(builder.lshr(moved, pair(64)), word)
        is_upper = builder.icmp_unsigned(">", places, word(63))
        added = (
            builder.select(is_upper, word(0), first),
            builder.select(is_upper, first, second),
            builder.select(is_upper, second, builder.ashr(second, word(63))),
        )

        def joined(words: Any) -> Any:
            parts = [builder.shl(builder.zext(one, triple), triple(64 * at)) for at, one in enumerate(words)]
            return builder.or_(builder.or_(parts[0], parts[1]), parts[2])

        total = builder.add(joined(held), joined(added))
        sums = [builder.trunc(builder.lshr(total, triple(64 * at)), word) for at in range(3)]
        return context.make_tuple(builder, signature.return_type, sums)

    types = numba_types()
    kind = types.uint64
    return types.UniTuple(kind, 3)(kind, kind, kind, kind, kind), generate


@inline
def changed(
    low: np.uint64, middle: np.uint64, high: np.uint64, mantissa: np.uint64, shift: np.uint64, negative: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Three words, plus ±mantissa · 2**shift for shift ≤ 97, without a branch."""
    flip = U0 - negative
    found: tuple[np.uint64, np.uint64, np.uint64] = _shifted_sum(low, middle, high, (mantissa ^ flip) - flip, shift)
    return found


@inline
def change_narrow(words: Words, at: np.uint64, mantissa: np.uint64, shift: np.uint64, negative: np.uint64) -> None:
    """The three words at `at` += ±mantissa · 2**shift, for shift ≤ 97."""
    low, middle, high = changed(words[at], words[at + U1], words[at + _U2], mantissa, shift, negative)
    words[at], words[at + U1], words[at + _U2] = low, middle, high


@inline
def change_integer(words: Words, at: np.uint64, value: np.uint64, leaving: np.uint64) -> None:
    """The three words at `at` += a BIGINT, given by its bits; -= where `leaving` is 1."""
    flip = U0 - leaving
    addend = value ^ flip
    above = (U0 - (value >> _U63)) ^ flip
    partial = words[at] + addend
    overflow = np.uint64(partial < addend)
    low = partial + leaving
    carry = overflow | np.uint64(low < leaving)
    words[at] = low
    partial = words[at + U1] + above
    overflow = np.uint64(partial < above)
    middle = partial + carry
    words[at + U1] = middle
    words[at + _U2] += above + (overflow | np.uint64(middle < carry))


@kernel
def play_floats(
    words: Words,
    base: int,
    table: Words,
    row_of: Slots,
    links: Int64s,
    add_slots: Slots,
    add_values: Floats,
    add_valid: Bools,
    add_masked: bool,
    remove_slots: Slots,
    remove_values: Floats,
    remove_valid: Bools,
    remove_masked: bool,
    add_upto: Int64s,
    remove_upto: Int64s,
    emit_upto: Int64s,
    emit_slots: Slots,
    cursor: Int64s,
    sums: Floats,
    averages: Floats,
    counts: Int64s,
    present: Bools,
) -> int:
    """Floats. `cursor` is where a call that found no wide row stopped; the caller makes room and calls again."""
    add_bits = add_values.view(np.uint64)
    remove_bits = remove_values.view(np.uint64)
    unsigned_base = np.uint64(base)
    exponent = base - EXPONENT_BIAS
    wants_average = len(averages) > 0
    wants_count = len(counts) > 0
    met = 0
    narrow_only = links[USED] == 0
    step, entered = np.uint64(cursor[0]), np.uint64(cursor[1])
    left, emitted = np.uint64(cursor[2]), np.uint64(cursor[3])
    steps = np.uint64(len(add_upto))
    while step < steps:
        stop = np.uint64(add_upto[step])
        while entered < stop:
            slot = add_slots[entered]
            if slot >= 0 and (not add_masked or add_valid[entered]):
                bits = add_bits[entered]
                mantissa, shift, narrow = split(bits, unsigned_base)
                at = np.uint64(slot) * _FLOAT_WORDS
                if narrow:
                    change_narrow(words, at + U1, mantissa, shift, bits >> _U63)
                elif not change_wide(table, row_of, links, slot, bits, False):
                    cursor[0], cursor[1], cursor[2], cursor[3] = step, entered, left, emitted
                    return NO_ROOM | met
                else:
                    narrow_only = False
                words[at] += U1
            entered += U1
        stop = np.uint64(remove_upto[step])
        while left < stop:
            slot = remove_slots[left]
            if slot >= 0 and (not remove_masked or remove_valid[left]):
                bits = remove_bits[left]
                mantissa, shift, narrow = split(bits, unsigned_base)
                at = np.uint64(slot) * _FLOAT_WORDS
                if narrow:
                    change_narrow(words, at + U1, mantissa, shift, (bits >> _U63) ^ U1)
                else:
                    change_wide(table, row_of, links, slot, bits, True)
                words[at] -= U1
            left += U1
        stop = np.uint64(emit_upto[step])
        while emitted < stop:
            slot = emit_slots[emitted]
            at = np.uint64(slot) * _FLOAT_WORDS
            count = np.int64(words[at])
            low, middle, high = words[at + U1], words[at + _U2], words[at + _U3]
            if narrow_only or row_of[np.uint64(slot)] == 0:
                total = round_three_words(high, middle, low, exponent)
            else:
                total = wide_total(table[row_of[np.uint64(slot)] - 1], low, middle, high, unsigned_base - U1)
            sums[emitted] = total
            present[emitted] = count > 0
            met |= int(np.int64(count == 0))
            if wants_average:
                averages[emitted] = total / count
            if wants_count:
                counts[emitted] = count
            emitted += U1
        step += U1
    cursor[:] = 0
    return met


@kernel
def play_integers(
    words: Words,
    add_slots: Slots,
    add_values: Int64s,
    add_valid: Bools,
    add_masked: bool,
    remove_slots: Slots,
    remove_values: Int64s,
    remove_valid: Bools,
    remove_masked: bool,
    add_upto: Int64s,
    remove_upto: Int64s,
    emit_upto: Int64s,
    emit_slots: Slots,
    sums: Int64s,
    averages: Floats,
    counts: Int64s,
    present: Bools,
    failed: Bools,
) -> int:
    """Integers: 128-bit sums; `failed` marks those that do not fit 64 bits."""
    wants_average = len(averages) > 0
    wants_count = len(counts) > 0
    met = 0
    step = entered = left = emitted = U0
    steps = np.uint64(len(add_upto))
    while step < steps:
        stop = np.uint64(add_upto[step])
        while entered < stop:
            slot = add_slots[entered]
            if slot >= 0 and (not add_masked or add_valid[entered]):
                at = np.uint64(slot) * _INTEGER_WORDS
                value = add_values[entered]
                addend = np.uint64(value)
                low = words[at + U1] + addend
                words[at] += U1
                words[at + U1] = low
                words[at + _U2] += np.uint64(value >> 63) + np.uint64(low < addend)
            entered += U1
        stop = np.uint64(remove_upto[step])
        while left < stop:
            slot = remove_slots[left]
            if slot >= 0 and (not remove_masked or remove_valid[left]):
                at = np.uint64(slot) * _INTEGER_WORDS
                value = remove_values[left]
                low = words[at + U1]
                words[at] -= U1
                words[at + U1] = low - np.uint64(value)
                words[at + _U2] -= np.uint64(value >> 63) + np.uint64(low < np.uint64(value))
            left += U1
        stop = np.uint64(emit_upto[step])
        while emitted < stop:
            at = np.uint64(emit_slots[emitted]) * _INTEGER_WORDS
            count = np.int64(words[at])
            low, high = words[at + U1], words[at + _U2]
            total = np.int64(low)
            fits = high == np.uint64(total >> 63)
            sums[emitted] = total
            failed[emitted] = not fits
            present[emitted] = count > 0
            met |= int(np.int64(count == 0) | (FAILURES * np.int64(not fits)))
            if wants_average:
                if fits:
                    averages[emitted] = np.float64(total) / count
                else:
                    averages[emitted] = round_three_words(np.uint64(np.int64(high) >> 63), high, low, 0) / count
            if wants_count:
                counts[emitted] = count
            emitted += U1
        step += U1
    return met
