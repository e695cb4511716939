"""The values of slots in order, where there are too many for memory: in pages on a device, with a directory in memory.

    directory   first, count | first, count | first, count ...     in the order of (slot, key)
    log         ─────── partition 0 ─────── | ─── partition 1 ...  what has come and gone, by neighbouring pages
    device      entries      | entries      | entries ...          each: (slot, key) ─▶ how often

A value that enters or leaves changes the count of its page, and waits in the log. The counts say in which page a rank
falls; only that page is read, and what waits for the pages of its partition is played. A page that has been asked of
late stays in memory, and what comes for it is played at once: ranks move by little from event to event.

A call is played twice: first on the directory alone, which gives each question its page and its rank there, then page
by page, with the operations and the questions of a page in their order. So no page is read twice in a part of a call,
and the answers are those of every single event.

Invariants:
1. A page has the values from its first (slot, key) up to that of the next one; those of the first page begin with the
   least that there may be. All values that are equal are in one page.
2. COUNT of a page is how many values it has, with what waits for it. WAITING operations of the partition PARTITION are
   for it. ENTRIES and the page itself are without these.
3. While a call is played, pages do not change their places: those that are divided, empty or small follow at the end.
4. What takes memory here beyond pages that may go at any moment was less than what the tree took that came before.
5. No partition keeps more than `_most` operations waiting: they are read as a whole.

Owned by one `order_statistics.OrderState`, which has all of it on its account.

Why: docs/decisions/ordered-pages.md
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from penstock.aggregates import order_line as line
from penstock.aggregates import ordered_page_kernels as kernels
from penstock.aggregates.columns import ALL_VALID
from penstock.aggregates.ordered_page_kernels import (
    ASKED,
    COUNT,
    DIRECTORY_WORDS,
    ENTRIES,
    KEY,
    LEAST_KEY,
    PAGE,
    PARTITION,
    PLACE,
    QUERY_WORDS,
    SLOT,
    WAITING,
)
from penstock.aggregates.packed_pages import NO_ENTRIES, PackedPages, mean_entries
from penstock.aggregates.paged_values import sorted_numbers
from penstock.aggregates.state import Schedule, Snapshot
from penstock.aggregates.value_log import ValueLog
from penstock.aggregates.value_table import LOAD, OWNER, VALUE
from penstock.arrays import Bools, Floats, Int64s, Slots
from penstock.components import component
from penstock.errors import BudgetError
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray
from penstock.store.device import BlockDevice

_BUFFER_BYTES = 16384
_LEAST_PARTITIONS, _MOST_PARTITIONS = 4, 256

_WORK_BYTES = 160
"""What an operation takes while the operations of its partition are played: read, sorted, and in a page of its own."""

_REMEMBERED = 4
"""A page that was asked in so many turns is still played at once."""

_UNEVEN = 4
"""Pages are dealt out to the partitions anew when one has so many times its share."""

_NONE = np.empty(0, np.int64)
_NO_OPERATIONS = np.empty((0, 2), np.int64)

Column = tuple[Slots, Int64s, Bools]
"""Slots, images of values and validity of rows."""


class Wanted(NamedTuple):
    """The percentiles, and what the values are."""

    discrete: Bools
    fractions: Floats
    floating: bool


class Answers(NamedTuple):
    """A column for each percentile, the same as bits, and whether an evaluation has a value."""

    results: Floats
    results_bits: Int64s
    valid: Bools


class _Questions(NamedTuple):
    """Queries, the order in which those of a page are side by side, and where those of each page begin."""

    queries: Int64s
    order: Int64s
    begins: Int64s
    found: Int64s


_NO_QUESTIONS = _Questions(np.empty((QUERY_WORDS, 0), np.int64), _NONE, _NONE, _NONE)


@component("PagedOrder")
class PagedOrder:
    """`nbytes` of memory are for the log and for the work on pages."""

    def __init__(self, device: BlockDevice, account: Account, nbytes: int) -> None:
        self._account = account
        work = nbytes // 2
        self._most = max(1, work // _WORK_BYTES)
        self._mean = mean_entries(device.capacity, work)
        account.charge(nbytes)
        self._held = nbytes
        partitions = max(_LEAST_PARTITIONS, min(_MOST_PARTITIONS, work // _BUFFER_BYTES))
        self._log = ValueLog(device, partitions, nbytes - work)
        self._pages = PackedPages(device, account)
        self._directory = ChargedArray(account, np.int64, (DIRECTORY_WORDS,))
        self._length = 0
        self._made = 0
        self._free: list[int] = []
        """Pages that there were, and of these the numbers that are not in use."""
        self._turn = _REMEMBERED
        self._changed: dict[int, Int64s] = {}
        """Rows that take the place of one in the directory."""
        self._has_small = False
        self._page_sums = ChargedArray(account, np.int64)
        self._slot_sums = ChargedArray(account, np.int64)
        self._line: Int64s = np.empty((0, 3), np.int64)
        self._block_sums: Int64s = _NONE

    @staticmethod
    def bytes_for(device: BlockDevice, slots: int, values: int, nbytes: int) -> int:
        """What so many values take here, at most, when they come."""
        pages = values // mean_entries(device.capacity, nbytes // 2) + 1
        return nbytes + 2 * (8 * slots + (8 * DIRECTORY_WORDS + 8 * 3 + 8) * pages)

    @property
    def work_nbytes(self) -> int:
        """What is there whatever pages are in memory."""
        return self._held

    @property
    def nbytes(self) -> int:
        arrays = self._directory.nbytes + self._page_sums.nbytes + self._slot_sums.nbytes
        return self._held + self._pages.nbytes + arrays

    @property
    def values(self) -> int:
        """How many there are, with what waits."""
        return int(self._rows[:, COUNT].sum())

    @property
    def _rows(self) -> Int64s:
        rows: Int64s = self._directory.array[: self._length]
        return rows

    # All values at once

    def fill(self, counts: Int64s, read: Callable[[int, Int64s], None]) -> None:
        """Takes over all values: `counts` of each slot, and `read` gives the keys from a rank on."""
        total, part = int(counts.sum()), 2 * self._mean
        most = total // self._mean + 1
        self._directory.fit(most)
        self._pages.reserve(most)
        keys, entries = np.empty(part, np.int64), np.empty((2 * part, 3), np.int64)
        cursor: Int64s = np.zeros(2, np.int64)
        held = 0
        for start in range(0, total, part):
            taken = keys[: min(part, total - start)]
            read(start, taken)
            held = kernels.run_lengths(taken, counts, cursor, entries, held)
            while held > self._mean:
                self._put_last(entries[: self._mean])
                held -= self._mean
                entries[:held] = entries[self._mean : self._mean + held].copy()
        self._put_last(entries[:held])
        self._deal_out()

    def _put_last(self, entries: Int64s) -> None:
        page = self._length
        self._pages.write(page, entries, keep=False)
        first = entries[0].tolist() if page else (0, LEAST_KEY, 0)
        self._directory.array[page] = first[OWNER], first[VALUE], page, entries[:, LOAD].sum(), len(entries), 0, 0, 0
        self._length = self._made = page + 1

    def list_keys(self, keys: Int64s) -> None:
        """All keys in their order."""
        for partition in np.flatnonzero(self._log.waiting).tolist():
            self._settle(partition)
        at = 0
        for page in self._rows[:, PAGE].tolist():
            at = kernels.list_keys(self._pages.read(page), keys, at)

    # Calls

    def play(
        self, counts: Int64s, wanted: Wanted, enters: Column, leaves: Column, schedule: Schedule, answers: Answers
    ) -> None:
        """Plays a schedule, part by part, and keeps `counts` of the slots."""
        self._page_sums.fit(self._length + 1)
        self._slot_sums.fit(len(counts) + 1)
        work = schedule.add_upto + schedule.remove_upto + 2 * len(wanted.fractions) * schedule.emit_upto
        begin, steps = 0, len(work)
        while begin < steps:
            before = int(work[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(work, before + self._most, side="right")))
            self._play_part(counts, wanted, enters, leaves, schedule, answers, begin, end)
            begin = end
        self._pages.settle()

    def _play_part(
        self,
        counts: Int64s,
        wanted: Wanted,
        enters: Column,
        leaves: Column,
        schedule: Schedule,
        answers: Answers,
        begin: int,
        end: int,
    ) -> None:
        since = [int(upto[begin - 1]) if begin else 0 for upto in schedule[:3]]
        added, removed, emits = (int(upto[end - 1]) - first for upto, first in zip(schedule[:3], since, strict=True))
        asked = 2 * len(wanted.fractions) * emits
        if emits:
            self._sum_up(counts)
        operations, places = np.empty((added + removed, 2), np.int64), np.empty(added + removed, np.int64)
        queries, held = np.empty((QUERY_WORDS, asked), np.int64), np.empty(emits, np.int64)
        listed = np.empty(2, np.int64)
        kernels.play_schedule(
            self._directory.array,
            self._length,
            self._page_sums.array,
            self._slot_sums.array,
            counts,
            wanted.floating,
            *enters,
            *leaves,
            *schedule,
            begin,
            end,
            emits > 0,
            wanted.discrete,
            wanted.fractions,
            operations,
            places,
            queries,
            held,
            listed,
        )
        done, questions = listed.tolist()
        found = np.empty(asked, np.int64)
        self._play(operations[:done], places[:done], queries, questions, found)
        if emits:
            kernels.finish(found, held, since[2], wanted.floating, wanted.discrete, wanted.fractions, *answers)

    def _sum_up(self, counts: Int64s) -> None:
        self._page_sums.fit(self._length + 1)
        kernels.sum_up_pages(self._directory.array, self._length, self._page_sums.array)
        kernels.sum_up_slots(counts, self._slot_sums.array)

    def _play(self, operations: Int64s, places: Int64s, queries: Int64s, count: int, found: Int64s) -> None:
        """Operations and queries, whose places are known: those of pages that are asked are played, and others wait."""
        rows, pages = self._rows, self._length
        order, begins = sorted_numbers(places, pages)
        own = np.diff(begins)
        questions, asked = _NO_QUESTIONS, np.zeros(pages, np.bool_)
        if count:
            self._turn += 1
            asked_order, asked_begins = sorted_numbers(queries[PLACE, :count], pages)
            questions = _Questions(queries, asked_order, asked_begins, found)
            asked = np.diff(asked_begins) > 0
            rows[asked, ASKED] = self._turn
            for page in rows[rows[:, ASKED] == self._turn - _REMEMBERED, PAGE].tolist():
                self._pages.put_out(page)
        is_settled = rows[:, WAITING] == 0
        settling = np.unique(rows[asked & ~is_settled, PARTITION])
        at_once = asked | ((own > 0) & is_settled & (rows[:, ASKED] > self._turn - _REMEMBERED))
        read = ~is_settled & np.isin(rows[:, PARTITION], settling)
        for partition in settling.tolist():
            for place, waiting in self._waiting_of(partition):
                self._play_page(place, waiting, operations, order[begins[place] : begins[place + 1]], questions)
            self._log.forget(partition)
        for place in np.flatnonzero(at_once & ~read).tolist():
            self._play_page(place, _NO_OPERATIONS, operations, order[begins[place] : begins[place + 1]], questions)
        later, rows = ~(at_once | read), self._rows
        rows[later, WAITING] += own[later]
        kept = later[places]
        self._log.append(operations[kept], rows[places[kept], PARTITION])
        self._change_directory()
        for partition in np.flatnonzero(self._log.waiting > self._most).tolist():
            self._settle(partition)
        self._even_out()

    def _waiting_of(self, partition: int) -> Iterator[tuple[int, Int64s]]:
        """The places for which something waits in a partition, and what that is."""
        operations = self._log.read(partition)
        order, begins = sorted_numbers(self._places_of(operations), self._length)
        for place in np.flatnonzero(np.diff(begins)).tolist():
            yield place, operations[order[begins[place] : begins[place + 1]]]

    def _places_of(self, operations: Int64s) -> Int64s:
        places = np.empty(len(operations), np.int64)
        kernels.find_places(self._directory.array, self._length, operations, places)
        return places

    def _settle(self, partition: int) -> None:
        """Plays what waits in a partition."""
        for place, waiting in self._waiting_of(partition):
            self._play_page(place, waiting, _NO_OPERATIONS, _NONE, _NO_QUESTIONS)
        self._log.forget(partition)
        self._change_directory()

    def _play_page(
        self, place: int, waiting: Int64s, operations: Int64s, own: Int64s, questions: _Questions
    ) -> None:
        """What waits for a page, and then the operations `own` of a call and the questions of the page."""
        row = self._directory.array[place]
        count = len(waiting) + len(own)
        words, keys = np.empty(count, np.int64), np.empty((3, count + 1), np.int64)
        slots, rows = np.empty(count, np.int32), np.empty((2, count + 1), np.int32)
        kernels.gather(waiting, operations, own, words, slots, keys[0])
        starts = np.empty(line.DIGITS, np.int64)
        line.sort_rows(False, slots, keys[0, :count], ALL_VALID, keys[1], rows[0], keys[2], rows[1], starts)
        entries = self._pages.read(int(row[PAGE]), self._is_remembered(row))
        if len(entries) + count > len(self._line):
            self._line = np.empty((len(entries) + count + count // 4, 3), np.int64)
        begin, end = questions.begins[place : place + 2].tolist() or (0, 0)
        settled = len(waiting) if begin < end else count
        length = kernels.line_up(
            entries, words, slots, keys[1], rows[0], count, settled, self._line, places := np.empty_like(own)
        )
        if begin < end:
            if length // 64 + 1 > len(self._block_sums):
                self._block_sums = np.empty(length // 32 + 1, np.int64)
            words, queries = words[settled:], questions.queries
            kernels.answer(
                self._line,
                length,
                self._block_sums,
                words,
                places,
                own,
                queries,
                questions.order,
                begin,
                end,
                questions.found,
            )
        row[WAITING] = 0
        if count:
            self._put(place, self._line[: kernels.without_empty(self._line, length)])

    # Pages that are divided, empty or small

    def _put(self, place: int, entries: Int64s) -> None:
        """All entries of a page, for which nothing waits. It is divided if it has become long, and its place is to go
        if there are none."""
        pieces = round(len(entries) / self._mean) if len(entries) > 2 * self._mean else 1
        if pieces > 1 and not self._has_room(pieces - 1):
            pieces = 1  # it stays long then
        row = self._directory.array[place]
        keep = self._is_remembered(row)
        begins = np.arange(pieces + 1) * len(entries) // pieces
        rows = np.repeat(row.reshape(1, -1), pieces, axis=0)
        for piece in range(pieces):
            own = entries[begins[piece] : begins[piece + 1]]
            if piece:
                rows[piece, PAGE] = self._new_page()
                rows[piece, [SLOT, KEY]] = own[0, [OWNER, VALUE]]
            rows[piece, [COUNT, ENTRIES]] = own[:, LOAD].sum(), len(own)
            self._pages.write(int(rows[piece, PAGE]), own, keep)
        self._has_small |= 2 * len(entries) <= self._mean
        if pieces == 1 and len(entries):
            self._directory.array[place] = rows[0]
        else:
            self._changed[place] = rows if len(entries) else rows[:0]
            if not len(entries):
                self._free.append(int(row[PAGE]))

    def _is_remembered(self, row: Int64s) -> bool:
        return bool(row[ASKED] > self._turn - _REMEMBERED)

    def _has_room(self, pages: int) -> bool:
        """Whether there may be so many pages more."""
        length = self._length + pages + sum(len(rows) for rows in self._changed.values())
        with contextlib.suppress(BudgetError):
            self._directory.fit(length)
            self._page_sums.fit(length + 1)
            self._pages.reserve(self._made + pages)
            return True
        return False

    def _new_page(self) -> int:
        if self._free:
            return self._free.pop()
        self._made += 1
        return self._made - 1

    def _change_directory(self) -> None:
        """Rows that have changed take their places, and small pages are united."""
        if self._changed:
            parts, begin = [], 0
            for place in sorted(self._changed):
                parts += [self._rows[begin:place], self._changed[place]]
                begin = place + 1
            self._take_rows(np.concatenate([*parts, self._rows[begin:]]))
            self._changed = {}
        if self._has_small:
            self._unite()
            self._has_small = False

    def _take_rows(self, rows: Int64s) -> None:
        if not len(rows):
            rows = np.array([[0, LEAST_KEY, self._new_page(), 0, 0, 0, 0, 0]])
        self._length = len(rows)
        self._directory.array[: self._length] = rows
        self._directory.array[0, [SLOT, KEY]] = 0, LEAST_KEY

    def _unite(self) -> None:
        """Neighbours that are one page in size, and for which nothing waits, become one."""
        rows = self._rows
        fit = rows[:-1, ENTRIES] + rows[1:, ENTRIES] <= self._mean
        fit &= rows[:-1, PARTITION] == rows[1:, PARTITION]
        fit &= (rows[:-1, WAITING] == 0) & (rows[1:, WAITING] == 0)
        gone = np.zeros(len(rows), np.bool_)
        for place in np.flatnonzero(fit)[::-1].tolist():
            left, right = rows[place], rows[place + 1]
            if left[ENTRIES] + right[ENTRIES] > self._mean:
                continue
            entries = np.concatenate([self._pages.read(page).copy() for page in (left[PAGE], right[PAGE])])
            self._pages.write(int(right[PAGE]), NO_ENTRIES)
            self._free.append(int(right[PAGE]))
            left[[COUNT, ENTRIES]] += right[[COUNT, ENTRIES]]
            left[ASKED] = max(left[ASKED], right[ASKED])
            self._pages.write(int(left[PAGE]), entries, self._is_remembered(left))
            gone[place + 1] = True
        self._take_rows(rows[~gone])

    def _even_out(self) -> None:
        """No partition of the log has many more pages than others."""
        most = np.bincount(self._rows[:, PARTITION]).max()
        if most > _UNEVEN * (self._length // self._log.partitions + 1):
            for partition in np.flatnonzero(self._log.waiting).tolist():
                self._settle(partition)
            self._deal_out()

    def _deal_out(self) -> None:
        """Neighbours are in the same partition of the log, in which nothing waits."""
        self._rows[:, PARTITION] = np.arange(self._length) * self._log.partitions // self._length

    # Slots, memory and durability

    def drop(self, slots: Slots, count: int) -> None:
        """Forgets all values of some of so many slots."""
        marked = self._with_values_of(slots)
        waiting = marked & (self._rows[:, WAITING] > 0)
        for partition in np.unique(self._rows[waiting, PARTITION]).tolist():
            self._settle(partition)
        gone = np.zeros(count, np.bool_)
        gone[slots] = True
        for place in np.flatnonzero(self._with_values_of(slots)).tolist():
            if self._is_within(place, gone):
                self._put(place, NO_ENTRIES)
                continue
            entries = self._pages.read(int(self._rows[place, PAGE]))
            kept = np.empty_like(entries)
            left = kernels.without_slots(entries, gone, kept)
            if left < len(entries):
                self._put(place, kept[:left])
        self._change_directory()

    def _with_values_of(self, slots: Slots) -> Bools:
        """The pages that may have values of some slots."""
        marked = np.zeros(self._length, np.bool_)
        kernels.mark_places(self._directory.array, self._length, slots, marked)
        return marked

    def _is_within(self, place: int, slots: Bools) -> bool:
        """Whether all values of a page belong to one of these slots."""
        if place == 0 or place + 1 == self._length:
            return False
        slot, following = self._rows[place : place + 2, SLOT].tolist()
        return slot == following and bool(slots[slot])

    def page_out(self) -> bool:
        """Gives up pages that are in memory; whether there were some."""
        return self._pages.page_out()

    def close(self) -> None:
        """Nothing stays, on the device or on the account."""
        for partition in range(self._log.partitions):
            self._log.forget(partition)
        self._pages.close()
        for array in (self._directory, self._page_sums, self._slot_sums):
            array.clear()
        self._account.release(self._held)
        self._held = 0

    def snapshot(self) -> Snapshot:
        return {
            "turn": self._turn,
            "directory": self._rows,
            "places": self._pages.saved_places(self._made),
            "log": self._log.snapshot(),
        }

    def restore(self, snapshot: Snapshot) -> None:
        rows = snapshot["directory"]
        self._directory.fit(len(rows))
        self._take_rows(rows)
        self._turn = snapshot["turn"]
        self._made = len(snapshot["places"])
        self._free = np.setdiff1d(np.arange(self._made), self._rows[:, PAGE]).tolist()
        self._pages.take_places(snapshot["places"])
        self._log.restore(snapshot["log"], lambda operations: self._rows[self._places_of(operations), PARTITION])
