"""Loops over the values of slots that are in pages: see `paged_values`.

An *operation* is a value that enters or leaves a slot: two words, the owner (its complement, which is negative, for one
that leaves) and the value. A page is found by linear hashing: of so many pages, the first ones have been divided once
more than the last ones, and each page that is added takes half of the first page that has not.

    pages 6, level 4      0 | 1 | 2   3 | 0' | 1'      hash mod 8; where there is no such page yet, hash mod 4
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates import value_table as values
from penstock.aggregates.images import Word, ordering_key
from penstock.arrays import Bools, Int64s, Slots
from penstock.jit import tight

PAGE_HASH = 0xFF_FFFF
"""The bits of a hash that say which page is meant."""


@tight
def page_hash(owner: Word, value: Word) -> Word:
    """Of another hash than the place in the table of a page: else entries of one page would have few places."""
    mixed = values.mixed(owner, value)
    mixed = (mixed ^ ((mixed >> 32) & 0xFFFF_FFFF)) * np.int64(-0x61C8864680B583EB)
    return (mixed >> 40) & PAGE_HASH


@tight
def page_of(hashed: Word, pages: Word, level: Word) -> Word:
    """`level` is the largest power of two that is not above the number of pages."""
    page = hashed & (2 * level - 1)
    return page if page < pages else page - level


@tight
def list_operations(
    generations: Int64s,
    floating: bool,
    add_slots: Slots,
    entering: Int64s,
    entering_valid: Bools,
    remove_slots: Slots,
    leaving: Int64s,
    leaving_valid: Bools,
    add_upto: Int64s,
    remove_upto: Int64s,
    operations: Int64s,
    upto: Int64s,
) -> int:
    """The operations of a schedule, in their order, and how many there are up to each step."""
    entered = left = count = 0
    for step in range(len(add_upto)):
        for row in range(entered, add_upto[step]):
            slot = np.int64(add_slots[row])
            if slot >= 0 and (len(entering_valid) == 0 or entering_valid[row]):
                operations[count, 0] = values.owner_of(slot, generations)
                operations[count, 1] = ordering_key(entering[row], floating)
                count += 1
        entered = add_upto[step]
        for row in range(left, remove_upto[step]):
            slot = np.int64(remove_slots[row])
            if slot >= 0 and (len(leaving_valid) == 0 or leaving_valid[row]):
                operations[count, 0] = ~values.owner_of(slot, generations)
                operations[count, 1] = ordering_key(leaving[row], floating)
                count += 1
        left = remove_upto[step]
        upto[step] = count
    return count


@tight
def play_changes(
    operations: Int64s,
    changes: Slots,
    upto: Int64s,
    emit_upto: Int64s,
    emit_slots: Slots,
    distinct: Int64s,
    counts: Int64s,
) -> None:
    """What each operation changed, in the order of the schedule, and the counts at its evaluations."""
    done = emitted = 0
    for step in range(len(upto)):
        for at in range(done, upto[step]):
            word = operations[at, 0]
            owner = ~word if word < 0 else word
            distinct[owner & 0xFFFF_FFFF] += changes[at]
        done = upto[step]
        for index in range(emitted, emit_upto[step]):
            counts[index] = distinct[emit_slots[index]]
        emitted = emit_upto[step]


@tight
def append(operations: Int64s, partitions: Int64s, start: int, buffers: Int64s, counts: Int64s) -> int:
    """Puts operations to the buffers of their partitions; returns how far it came before one was full."""
    room = buffers.shape[1]
    for at in range(start, len(operations)):
        partition = partitions[at]
        place = counts[partition]
        if place == room:
            return at
        buffers[partition, place, 0] = operations[at, 0]
        buffers[partition, place, 1] = operations[at, 1]
        counts[partition] = place + 1
    return len(operations)


@tight
def find_pages(operations: Int64s, pages: int, level: int, found: Int64s) -> None:
    for at in range(len(operations)):
        word = operations[at, 0]
        found[at] = page_of(page_hash(~word if word < 0 else word, operations[at, 1]), pages, level)


@tight
def find_partitions(operations: Int64s, mask: int, found: Int64s) -> None:
    for at in range(len(operations)):
        word = operations[at, 0]
        found[at] = page_hash(~word if word < 0 else word, operations[at, 1]) & mask


@tight
def count_numbers(numbers: Int64s, ends: Int64s) -> None:
    """`ends` are zeros, one more than there are numbers; then where the run of each number begins."""
    for number in numbers:
        ends[number + 1] += 1
    for number in range(1, len(ends)):
        ends[number] += ends[number - 1]


@tight
def order_numbers(numbers: Int64s, begins: Int64s, order: Int64s) -> None:
    """Equal numbers side by side, in their order. `begins` is used up: then each run ends where it says."""
    for at in range(len(numbers)):
        number = numbers[at]
        order[begins[number]] = at
        begins[number] += 1


@tight
def play_page(
    entries: Int64s,
    cells: Int64s,
    generations: Int64s,
    operations: Int64s,
    order: Int64s,
    targets: Int64s,
    distinct: Int64s,
    changes: Slots,
    played: Int64s,
    dropped: Int64s,
) -> int:
    """Plays operations, in this order, on the entries of a page; returns how many entries are `played` then.

    What an operation changes goes to its target in `changes` or, without one, to its slot. `cells` are empty, before
    and after. Stale entries and operations are passed over; the entries are counted in `dropped`.
    """
    _enter(entries, cells, generations, dropped)
    for at in order:
        word = operations[at, 0]
        owner = ~word if word < 0 else word
        if not values.is_live(owner, generations):
            continue
        cell = values.find(cells, owner, operations[at, 1])
        change = 0
        if word < 0:
            cells[cell, values.LOAD] -= 1
            if cells[cell, values.LOAD] == 0:
                values.erase(cells, cell)
                change = -1
        else:
            if cells[cell, values.OWNER] == values.EMPTY:
                cells[cell, values.OWNER] = owner
                cells[cell, values.VALUE] = operations[at, 1]
                cells[cell, values.LOAD] = 0
                change = 1
            cells[cell, values.LOAD] += 1
        if targets[at] >= 0:
            changes[targets[at]] = change
        else:
            distinct[owner & 0xFFFF_FFFF] += change
    count = 0
    for cell in range(len(cells)):
        if cells[cell, values.OWNER] != values.EMPTY:
            for word in range(3):
                played[count, word] = cells[cell, word]
            cells[cell, values.OWNER] = values.EMPTY
            count += 1
    return count


@tight
def _enter(entries: Int64s, cells: Int64s, generations: Int64s, dropped: Int64s) -> None:
    for row in range(len(entries)):
        owner = entries[row, values.OWNER]
        if values.is_live(owner, generations):
            cell = values.find(cells, owner, entries[row, values.VALUE])
            for word in range(3):
                cells[cell, word] = entries[row, word]
        else:
            dropped[0] += 1


@tight
def enter_live(entries: Int64s, cells: Int64s, generations: Int64s) -> int:
    """Puts what is not stale into a table; returns how many that were."""
    count = 0
    for row in range(len(entries)):
        owner = entries[row, values.OWNER]
        if values.is_live(owner, generations):
            cell = values.find(cells, owner, entries[row, values.VALUE])
            for word in range(3):
                cells[cell, word] = entries[row, word]
            count += 1
    return count


@tight
def divide(entries: Int64s, page: int, pages: int, level: int, kept: Int64s, moved: Int64s) -> int:
    """What stays in its page of so many pages, and what goes to another; returns how many stay."""
    staying = going = 0
    for row in range(len(entries)):
        hashed = page_hash(entries[row, values.OWNER], entries[row, values.VALUE])
        if page_of(hashed, pages, level) == page:
            for word in range(3):
                kept[staying, word] = entries[row, word]
            staying += 1
        else:
            for word in range(3):
                moved[going, word] = entries[row, word]
            going += 1
    return staying


@tight
def gather_live(table: Int64s, generations: Int64s) -> int:
    """Moves the entries of a table that are not stale to its front; returns how many there are."""
    count = 0
    for cell in range(len(table)):
        owner = table[cell, values.OWNER]
        if owner != values.EMPTY and values.is_live(owner, generations):
            for word in range(3):
                table[count, word] = table[cell, word]
            count += 1
    return count


@tight
def count_pages(entries: Int64s, pages: int, level: int, begins: Int64s) -> None:
    """`begins` are zeros, one more than there are pages; then where the entries of each page will begin."""
    for row in range(len(entries)):
        begins[page_of(page_hash(entries[row, values.OWNER], entries[row, values.VALUE]), pages, level) + 1] += 1
    for page in range(pages):
        begins[page + 1] += begins[page]


@tight
def sort_by_page(entries: Int64s, pages: int, level: int, begins: Int64s, free: Int64s) -> None:
    """Sorts entries in their place: each is exchanged with what stands where it belongs. `free` is a copy of
    `begins`."""
    for page in range(pages):
        while free[page] < begins[page + 1]:
            row = free[page]
            own = page_of(page_hash(entries[row, values.OWNER], entries[row, values.VALUE]), pages, level)
            if own == page:
                free[page] += 1
                continue
            place = free[own]
            for word in range(3):
                held = entries[place, word]
                entries[place, word] = entries[row, word]
                entries[row, word] = held
            free[own] = place + 1
