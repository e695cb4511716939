"""Loops over the values of slots that are in pages in their order: see `paged_order`.

A row of the *directory* is a page: the least (slot, key) that may belong to it, and what is known without reading it.
An *operation* is a value that enters or leaves a slot: two words, the slot (its complement, which is negative, for one
that leaves) and the key. A *query* asks for the key that so many others of a page precede, after so many operations.
A *line* has the entries of a page, with those of load 0 that its operations need.
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates.images import Word, image_of_key, total_key
from penstock.aggregates.order_line import put_between, rank_of
from penstock.aggregates.order_tree_nodes import precedes
from penstock.aggregates.value_table import LOAD, OWNER, VALUE
from penstock.arrays import Bools, Floats, Int64s, Slots
from penstock.jit import inline, tight

SLOT, KEY, PAGE, COUNT, ENTRIES, WAITING, PARTITION, ASKED = range(8)
"""Of a page: the least slot and key, its number, how many values and how many different ones it has, how many
operations wait for it in which partition of the log, and the last turn in which it was asked."""

DIRECTORY_WORDS = 8
LEAST_KEY = -0x8000_0000_0000_0000

PLACE, RANK, AFTER, TARGET = range(4)
QUERY_WORDS = 4
"""Of a query: the place of its page in the directory, the rank, the operations before it, where the answer goes."""

_BLOCK_BITS = 6
"""Loads are summed up by blocks of so many bits of a place."""


@tight
def place_of(directory: Int64s, pages: Word, slot: Word, key: Word) -> Word:
    """The page to which a value belongs."""
    low, high = np.int64(1), np.int64(pages)
    while low < high:
        middle = (low + high) >> 1
        if precedes(slot, key, directory[middle, SLOT], directory[middle, KEY]):
            high = middle
        else:
            low = middle + 1
    return low - 1


@tight
def find_places(directory: Int64s, pages: int, operations: Int64s, found: Int64s) -> None:
    for at in range(len(operations)):
        word = operations[at, 0]
        found[at] = place_of(directory, pages, ~word if word < 0 else word, operations[at, 1])


# Sums of counts (Fenwick trees): entry i of `sums` counts from 1


@tight
def sum_up(sums: Int64s, count: Word) -> None:
    """Makes sums of single counts."""
    for at in range(1, count + 1):
        above = at + (at & -at)
        if above <= count:
            sums[above] += sums[at]


@tight
def sum_up_pages(directory: Int64s, pages: int, sums: Int64s) -> None:
    for place in range(pages):
        sums[place + 1] = directory[place, COUNT]
    sum_up(sums, pages)


@tight
def sum_up_slots(counts: Int64s, sums: Int64s) -> None:
    for slot in range(len(counts)):
        sums[slot + 1] = counts[slot]
    sum_up(sums, len(counts))


@inline
def _change(sums: Int64s, count: Word, place: Word, by: Word) -> None:
    at = place + 1
    while at <= count:
        sums[at] += by
        at += at & -at


@tight
def _before(sums: Int64s, place: Word) -> Word:
    total = np.int64(0)
    at = np.int64(place)
    while at > 0:
        total += sums[at]
        at -= at & -at
    return total


@tight
def _find(sums: Int64s, count: Word, rank: Word) -> tuple[Word, Word]:
    """The place with the value that `rank` others precede, and how many of these are there."""
    step = np.int64(1)
    while 2 * step <= count:
        step *= 2
    place = np.int64(0)
    while step > 0:
        if place + step <= count and sums[place + step] <= rank:
            place += step
            rank -= sums[place]
        step >>= 1
    return place, rank


@tight
def play_schedule(
    directory: Int64s,
    pages: int,
    page_sums: Int64s,
    slot_sums: Int64s,
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
    begin: int,
    end: int,
    with_sums: bool,
    discrete: Bools,
    fractions: Floats,
    operations: Int64s,
    places: Int64s,
    queries: Int64s,
    held: Int64s,
    listed: Int64s,
) -> None:
    """Counts what enters and leaves in some steps of a schedule, and lists the operations with their places and the
    queries, each in their order: `listed` says how many. `held` are the counts that evaluations find. Without an
    evaluation in these steps there are no sums."""
    entered = add_upto[begin - 1] if begin > 0 else np.int64(0)
    left = remove_upto[begin - 1] if begin > 0 else np.int64(0)
    emitted = first = emit_upto[begin - 1] if begin > 0 else np.int64(0)
    emits = emit_upto[end - 1] - first if end > begin else np.int64(0)
    done = asked = np.int64(0)
    slots = np.int64(len(counts))
    for step in range(begin, end):
        for row in range(entered, add_upto[step]):
            slot = np.int64(add_slots[row])
            if slot >= 0 and (len(entering_valid) == 0 or entering_valid[row]):
                key = total_key(entering[row], floating)
                place = place_of(directory, pages, slot, key)
                operations[done, 0], operations[done, 1], places[done] = slot, key, place
                directory[place, COUNT] += 1
                counts[slot] += 1
                if with_sums:
                    _change(page_sums, pages, place, 1)
                    _change(slot_sums, slots, slot, 1)
                done += 1
        entered = add_upto[step]
        for row in range(left, remove_upto[step]):
            slot = np.int64(remove_slots[row])
            if slot >= 0 and (len(leaving_valid) == 0 or leaving_valid[row]):
                key = total_key(leaving[row], floating)
                place = place_of(directory, pages, slot, key)
                operations[done, 0], operations[done, 1], places[done] = ~slot, key, place
                directory[place, COUNT] -= 1
                counts[slot] -= 1
                if with_sums:
                    _change(page_sums, pages, place, -1)
                    _change(slot_sums, slots, slot, -1)
                done += 1
        left = remove_upto[step]
        for index in range(emitted, emit_upto[step]):
            slot = np.int64(emit_slots[index])
            count = counts[slot]
            held[index - first] = count
            if count == 0:
                continue
            start = _before(slot_sums, slot)
            for want in range(len(fractions)):
                rank, position = rank_of(discrete[want], fractions[want], count)
                for upper in range(2 if rank < position else 1):
                    place, before = _find(page_sums, pages, start + rank + upper)
                    queries[PLACE, asked], queries[RANK, asked] = place, before
                    queries[AFTER, asked] = done
                    queries[TARGET, asked] = (2 * want + upper) * emits + index - first
                    asked += 1
        emitted = emit_upto[step]
    listed[0], listed[1] = done, asked


@tight
def gather(waiting: Int64s, operations: Int64s, own: Int64s, words: Int64s, slots: Slots, keys: Int64s) -> None:
    """The operations of a page side by side: those that wait, then some of a call."""
    count = len(waiting)
    for at in range(count + len(own)):
        if at < count:
            words[at], keys[at] = waiting[at, 0], waiting[at, 1]
        else:
            words[at], keys[at] = operations[own[at - count], 0], operations[own[at - count], 1]
        slots[at] = ~words[at] if words[at] < 0 else words[at]


@tight
def line_up(
    entries: Int64s,
    words: Int64s,
    slots: Slots,
    keys: Int64s,
    rows: Slots,
    count: int,
    settled: int,
    line: Int64s,
    places: Int64s,
) -> int:
    """Makes the line of a page; returns its length. `keys` are in order, and `rows` say to which operations they
    belong. The first `settled` operations are played; of the others only the `places` in the line are found."""
    length = entry = at = np.int64(0)
    while at < count:
        slot, key = np.int64(slots[rows[at]]), keys[at]
        while entry < len(entries) and precedes(entries[entry, OWNER], entries[entry, VALUE], slot, key):
            _copy(entries, entry, line, length)
            length += 1
            entry += 1
        if entry < len(entries) and entries[entry, OWNER] == slot and entries[entry, VALUE] == key:
            _copy(entries, entry, line, length)
            entry += 1
        else:
            line[length, OWNER], line[length, VALUE], line[length, LOAD] = slot, key, 0
        while at < count and keys[at] == key and slots[rows[at]] == slot:
            row = rows[at]
            if row < settled:
                line[length, LOAD] += -1 if words[row] < 0 else 1
            else:
                places[row - settled] = length
            at += 1
        length += 1
    while entry < len(entries):
        _copy(entries, entry, line, length)
        length += 1
        entry += 1
    return int(length)


@inline
def _copy(entries: Int64s, entry: Word, to: Int64s, place: Word) -> None:
    for word in range(3):
        to[place, word] = entries[entry, word]


@tight
def answer(
    line: Int64s,
    length: int,
    sums: Int64s,
    words: Int64s,
    places: Int64s,
    own: Int64s,
    queries: Int64s,
    order: Int64s,
    begin: int,
    end: int,
    found: Int64s,
) -> None:
    """Plays the operations `own` of a call on a line, and answers the queries that come in between. `words` and
    `places` are those of these operations. The queries are those of `order` from `begin` to `end`."""
    sums[: (length >> _BLOCK_BITS) + 1] = 0
    for row in range(length):
        sums[row >> _BLOCK_BITS] += line[row, LOAD]
    block = before = played = np.int64(0)
    for number in range(begin, end):
        query = order[number]
        while played < len(own) and own[played] < queries[AFTER, query]:
            place, by = places[played], np.int64(-1 if words[played] < 0 else 1)
            line[place, LOAD] += by
            sums[place >> _BLOCK_BITS] += by
            before += by * np.int64(place >> _BLOCK_BITS < block)
            played += 1
        rank = queries[RANK, query]
        while rank < before:
            block -= 1
            before -= sums[block]
        while rank >= before + sums[block]:
            before += sums[block]
            block += 1
        place, ahead = block << _BLOCK_BITS, rank - before
        while ahead >= line[place, LOAD]:
            ahead -= line[place, LOAD]
            place += 1
        found[queries[TARGET, query]] = line[place, VALUE]
    while played < len(own):
        line[places[played], LOAD] += -1 if words[played] < 0 else 1
        played += 1


@tight
def without_empty(line: Int64s, length: int) -> int:
    """Leaves the entries of a line; returns how many there are."""
    count = 0
    for place in range(length):
        if line[place, LOAD] != 0:
            if count < place:
                _copy(line, place, line, count)
            count += 1
    return count


@tight
def finish(
    found: Int64s,
    held: Int64s,
    first: int,
    floating: bool,
    discrete: Bools,
    fractions: Floats,
    results: Floats,
    results_bits: Int64s,
    valid: Bools,
) -> None:
    """Makes results of the keys that were found, from evaluation `first` on."""
    emits = len(held)
    for at in range(emits):
        index, count = first + at, held[at]
        valid[index] = count > 0
        if count == 0:
            results_bits[:, index] = 0
            continue
        for want in range(len(fractions)):
            rank, position = rank_of(discrete[want], fractions[want], count)
            key = found[2 * want * emits + at]
            if discrete[want]:
                results_bits[want, index] = image_of_key(key, floating)
            else:
                above = found[(2 * want + 1) * emits + at] if rank < position else key
                put_between(key, above, position - rank, floating, results, results_bits, want, index)


# All values at once


@tight
def run_lengths(keys: Int64s, counts: Int64s, cursor: Int64s, entries: Int64s, held: int) -> int:
    """Puts keys that follow each other in the order of all values behind `held` entries; returns how many there are
    then. `cursor` has the slot of the key before, and how many of its values have come."""
    slot, of_slot = cursor[0], cursor[1]
    for key in keys:
        while of_slot == counts[slot]:
            slot += 1
            of_slot = 0
        of_slot += 1
        if held > 0 and entries[held - 1, OWNER] == slot and entries[held - 1, VALUE] == key:
            entries[held - 1, LOAD] += 1
        else:
            entries[held, OWNER], entries[held, VALUE], entries[held, LOAD] = slot, key, 1
            held += 1
    cursor[0], cursor[1] = slot, of_slot
    return held


@tight
def list_keys(entries: Int64s, keys: Int64s, start: int) -> int:
    """Each value of the entries, from `start` on; returns where they end."""
    at = np.int64(start)
    for row in range(len(entries)):
        for _ in range(entries[row, LOAD]):
            keys[at] = entries[row, VALUE]
            at += 1
    return int(at)


@tight
def mark_places(directory: Int64s, pages: int, slots: Slots, marked: Bools) -> None:
    """The pages that may have values of some slots."""
    for slot in slots:
        place = place_of(directory, pages, np.int64(slot), np.int64(LEAST_KEY))
        marked[place] = True
        place += 1
        while place < pages and directory[place, SLOT] <= slot:
            marked[place] = True
            place += 1


@tight
def without_slots(entries: Int64s, gone: Bools, kept: Int64s) -> int:
    """The entries of slots that are not gone; returns how many there are."""
    count = 0
    for row in range(len(entries)):
        if not gone[entries[row, OWNER]]:
            _copy(entries, row, kept, count)
            count += 1
    return count
