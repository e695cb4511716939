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
1. What waits for a page is in its partition of the log, with what waits for its neighbours.
2. A page is played once at most in a part of a call, and keeps its place until its end.
3. What takes memory here beyond pages that may go at any moment was less than what the tree took that came before.
4. No partition keeps more than `_most` operations waiting: they are read as a whole.

Owned by one `order_statistics.OrderState`, which has all of it on its account.

Why: docs/decisions/ordered-pages.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock.aggregates import order_line as line
from penstock.aggregates import ordered_page_kernels as kernels
from penstock.aggregates.columns import ALL_VALID
from penstock.aggregates.ordered_page_kernels import (
    COUNT,
    PARTITION,
    PLACE,
    QUERY_WORDS,
    WAITING,
)
from penstock.aggregates.ordered_pages import OrderedPages
from penstock.aggregates.packed_pages import NO_ENTRIES
from penstock.aggregates.paged_values import sorted_numbers
from penstock.aggregates.state import Schedule, Snapshot
from penstock.aggregates.value_log import ValueLog
from penstock.arrays import Bools, Floats, Int64s, Slots
from penstock.components import component
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray
from penstock.store.device import BlockDevice

_BUFFER_BYTES = 8192
_LEAST_PARTITIONS, _MOST_PARTITIONS = 4, 256

_WORK_BYTES = 64
"""What an operation or a query takes while those of a part, or of a partition, are played."""

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
        account.charge(nbytes)
        self._held = nbytes
        partitions = max(_LEAST_PARTITIONS, min(_MOST_PARTITIONS, work // _BUFFER_BYTES))
        self._log = ValueLog(device, partitions, nbytes - work)
        self._pages = OrderedPages(device, account, work)
        self._slot_sums = ChargedArray(account, np.int64)
        self._line: Int64s = np.empty((0, 3), np.int64)
        self._block_sums: Int64s = _NONE

    @staticmethod
    def bytes_for(device: BlockDevice, slots: int, values: int, nbytes: int) -> int:
        """What so many values take here, at most, when they come."""
        return nbytes + 16 * slots + OrderedPages.bytes_for(device, values, nbytes // 2)

    @property
    def work_nbytes(self) -> int:
        """What is there whatever pages are in memory."""
        return self._held

    @property
    def nbytes(self) -> int:
        return self._held + self._pages.nbytes + self._slot_sums.nbytes

    @property
    def values(self) -> int:
        """How many there are, with what waits."""
        return int(self._pages.rows[:, COUNT].sum())

    def fill(self, counts: Int64s, read: Callable[[int, Int64s], None]) -> None:
        """Takes over all values: `counts` of each slot, and `read` gives the keys from a rank on."""
        self._pages.fill(counts, read)
        self._deal_out()

    def list_keys(self, keys: Int64s) -> None:
        """All keys in their order."""
        self._settle_all()
        self._pages.list_keys(keys)

    # Calls

    def play(
        self, counts: Int64s, wanted: Wanted, enters: Column, leaves: Column, schedule: Schedule, answers: Answers
    ) -> None:
        """Plays a schedule, part by part, and keeps `counts` of the slots."""
        self._pages.fit()
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
        page_sums = _NONE
        if emits:
            page_sums = self._pages.sums()
            kernels.sum_up_slots(counts, self._slot_sums.array)
        operations, places = np.empty((added + removed, 2), np.int64), np.empty(added + removed, np.int64)
        queries, held = np.empty((QUERY_WORDS, asked), np.int64), np.empty(emits, np.int64)
        listed = np.empty(2, np.int64)
        known = (self._pages.rows, self._pages.length, page_sums, self._slot_sums.array, counts)
        listing = (operations, places, queries, held, listed)
        asks = (emits > 0, wanted.discrete, wanted.fractions)
        taken: list[Any] = [*known, wanted.floating, *enters, *leaves, *schedule, begin, end, *asks, *listing]
        kernels.play_schedule(*taken)
        done, questions = listed.tolist()
        found = np.empty(asked, np.int64)
        self._play(operations[:done], places[:done], queries, questions, found)
        if emits:
            kernels.finish(found, held, since[2], wanted.floating, wanted.discrete, wanted.fractions, *answers)

    def _play(self, operations: Int64s, places: Int64s, queries: Int64s, count: int, found: Int64s) -> None:
        """Operations and queries, whose places are known: those of pages that are asked are played, and others wait."""
        rows, pages = self._pages.rows, self._pages.length
        order, begins = sorted_numbers(places, pages)
        own = np.diff(begins)
        questions, asked = _NO_QUESTIONS, np.zeros(pages, np.bool_)
        if count:
            asked_order, asked_begins = sorted_numbers(queries[PLACE, :count], pages)
            questions = _Questions(queries, asked_order, asked_begins, found)
            asked = np.diff(asked_begins) > 0
            self._pages.remember(asked)
        is_settled = rows[:, WAITING] == 0
        settling = np.unique(rows[asked & ~is_settled, PARTITION])
        at_once = asked | ((own > 0) & is_settled & self._pages.remembered)
        read = ~is_settled & np.isin(rows[:, PARTITION], settling)
        for partition in settling.tolist():
            for place, waiting in self._waiting_of(partition):
                self._play_page(place, waiting, operations, order[begins[place] : begins[place + 1]], questions)
            self._log.forget(partition)
        for place in np.flatnonzero(at_once & ~read).tolist():
            self._play_page(place, _NO_OPERATIONS, operations, order[begins[place] : begins[place + 1]], questions)
        later, rows = ~(at_once | read), self._pages.rows
        rows[later, WAITING] += own[later]
        kept = later[places]
        self._log.append(operations[kept], rows[places[kept], PARTITION])
        self._pages.change_directory()
        for partition in np.flatnonzero(self._log.waiting > self._most).tolist():
            self._settle(partition)
        self._even_out()

    def _waiting_of(self, partition: int) -> Iterator[tuple[int, Int64s]]:
        """The places for which something waits in a partition, and what that is."""
        operations = self._log.read(partition)
        order, begins = sorted_numbers(self._pages.places_of(operations), self._pages.length)
        for place in np.flatnonzero(np.diff(begins)).tolist():
            yield place, operations[order[begins[place] : begins[place + 1]]]

    def _settle(self, partition: int) -> None:
        """Plays what waits in a partition."""
        for place, waiting in self._waiting_of(partition):
            self._play_page(place, waiting, _NO_OPERATIONS, _NONE, _NO_QUESTIONS)
        self._log.forget(partition)
        self._pages.change_directory()

    def _play_page(self, place: int, waiting: Int64s, operations: Int64s, own: Int64s, questions: _Questions) -> None:
        """What waits for a page, and then the operations `own` of a call and the questions of the page."""
        count = len(waiting) + len(own)
        words, keys = np.empty(count, np.int64), np.empty((3, count + 1), np.int64)
        slots, rows = np.empty(count, np.int32), np.empty((2, count + 1), np.int32)
        kernels.gather(waiting, operations, own, words, slots, keys[0])
        starts = np.empty(line.DIGITS, np.int64)
        line.sort_rows(False, slots, keys[0, :count], ALL_VALID, keys[1], rows[0], keys[2], rows[1], starts)
        entries = self._pages.read(place)
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
        self._pages.rows[place, WAITING] = 0
        if count:
            self._pages.put(place, self._line[: kernels.without_empty(self._line, length)])

    def _settle_all(self) -> None:
        for partition in np.flatnonzero(self._log.waiting).tolist():
            self._settle(partition)

    def _even_out(self) -> None:
        """No partition of the log has many more pages than others."""
        most = np.bincount(self._pages.rows[:, PARTITION]).max()
        if most > _UNEVEN * (self._pages.length // self._log.partitions + 1):
            self._settle_all()
            self._deal_out()

    def _deal_out(self) -> None:
        """Neighbours are in the same partition of the log, in which nothing waits."""
        length = self._pages.length
        self._pages.rows[:, PARTITION] = np.arange(length) * self._log.partitions // length

    # Slots, memory and durability

    def drop(self, slots: Slots, count: int) -> None:
        """Forgets all values of some of so many slots."""
        waiting = self._pages.with_values_of(slots) & (self._pages.rows[:, WAITING] > 0)
        for partition in np.unique(self._pages.rows[waiting, PARTITION]).tolist():
            self._settle(partition)
        gone = np.zeros(count, np.bool_)
        gone[slots] = True
        for place in np.flatnonzero(self._pages.with_values_of(slots)).tolist():
            if self._pages.is_within(place, gone):
                self._pages.put(place, NO_ENTRIES)
                continue
            entries = self._pages.read(place)
            kept = np.empty_like(entries)
            left = kernels.without_slots(entries, gone, kept)
            if left < len(entries):
                self._pages.put(place, kept[:left])
        self._pages.change_directory()

    def page_out(self) -> bool:
        """Gives up pages that are in memory; whether there were some."""
        return self._pages.page_out()

    def close(self) -> None:
        """Nothing stays, on the device or on the account."""
        for partition in range(self._log.partitions):
            self._log.forget(partition)
        self._pages.close()
        self._slot_sums.clear()
        self._account.release(self._held)
        self._held = 0

    def snapshot(self) -> Snapshot:
        return {"log": self._log.snapshot(), "pages": self._pages.snapshot()}

    def restore(self, snapshot: Snapshot) -> None:
        self._pages.restore(snapshot["pages"])
        self._log.restore(snapshot["log"], self._partitions_of)

    def _partitions_of(self, operations: Int64s) -> Int64s:
        partitions: Int64s = self._pages.rows[self._pages.places_of(operations), PARTITION]
        return partitions
