"""Changes a table: the ON statements of its streams, carried out in the total order of events.

A run of events becomes operations, in order of (time, stream position, sequence, statement). Those on different keys do
not touch each other, so they are done in rounds: the first of each key together, then the second of each key, and so
on. If a statement sets values that are known before, or adds to what is there, `runs` does all rounds in one pass.
Events that concern different keys are done statement by statement. An operation that finds its rows by other columns
than the key is done alone.

Invariants:
1. With several streams, events wait until no event can come that belongs before them; `table.heard` is how far each
   stream has come. Events of a table that one stream writes do not wait.
2. Sequences count the rows of each stream as `Flow.passed` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.aggregates.state import Argument
from penstock.arrays import Int64s
from penstock.components import component
from penstock.expressions.batch import Row
from penstock.jit import kernel
from penstock.lang.table_defs import TableWrite
from penstock.operators.chunk import CHUNK_ROWS, NO_EVENTS, Chunk
from penstock.operators.ports import Due, Ports
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.tables.changes import Operations, Outcome, Statement
from penstock.operators.tables.expiry import Expiry
from penstock.operators.tables.history import DERIVED, Entries, Stamps
from penstock.operators.tables.runs import run_together
from penstock.operators.tables.single import SingleWrite
from penstock.operators.tables.table import END, Table
from penstock.store.keyed import KeyedStore
from penstock.store.seen_keys import SeenKeys


@kernel
def _occurrences(ids: Int64s, seen: Int64s, found: Int64s) -> int:
    """For each operation the how-manieth of its key it is; returns how many rounds there are."""
    most = 0
    for i in range(len(ids)):
        n = seen[ids[i]]
        found[i] = n
        seen[ids[i]] = n + 1
        if n + 1 > most:
            most = n + 1
    return most


@component("TableWriter")
class TableWriter:
    """`positions` are those of the streams in the total order; `passed` how many rows of each have gone by."""

    def __init__(
        self,
        table: Table,
        writes: Sequence[tuple[int, TableWrite]],
        positions: Mapping[str, int],
        passed: Mapping[str, int],
        resources: Resources,
    ) -> None:
        self._table = table
        self._statements: dict[str, list[Statement]] = {}
        for number, write in writes:
            own = Statement(number, write, table, resources)
            self._statements.setdefault(write.stream, []).append(own)
        self.streams = sorted(self._statements, key=lambda stream: positions[stream])
        self._positions = positions
        self._passed = {stream: passed.get(stream, 0) for stream in self.streams}
        account = resources.account(f"table {table.definition.name}: events that wait for other streams")
        self._ports = Ports(len(self.streams), account)
        self._seen = SeenKeys()
        table.cold.can_go = lambda: not table.has_copy
        self._single: SingleWrite | None = None
        if len(writes) == 1 and SingleWrite.fits(table, writes[0][1]):
            self._single = SingleWrite(table, writes[0][1], positions[writes[0][1].stream])
        table.heard = {positions[stream]: START for stream in self.streams}

    def process(self, stream: str, chunks: list[Chunk], watermark: int) -> None:
        """Makes the changes of a stream's events."""
        position, heard = self._positions[stream], self._table.heard
        if watermark > heard[position]:
            heard[position] = watermark
        expiry = self._table.expiry
        if expiry is not None:
            self._note_time(expiry)
        if len(self.streams) == 1:
            for chunk in chunks:
                if self._single is not None and isinstance(chunk.columns, Row):
                    sequence, time = self._passed[stream], chunk.times.item(0)
                    if self._single.make(chunk.columns.values, time, sequence):
                        self._passed[stream] = sequence + 1
                        if expiry is not None:
                            expiry.note(time)
                        continue
                for part in self._runs(chunk, watermark):
                    self._make([(stream, part)])
            return
        port = self.streams.index(stream)
        for chunk in chunks or [NO_EVENTS]:
            self._ports.put(port, chunk, watermark)
        self._make_due(self._ports.take_due())

    def _runs(self, chunk: Chunk, watermark: int) -> Iterator[Chunk]:
        """The chunk in parts, each of which is carried out as a whole."""
        count = None
        if self._table.interners and chunk.rows > 1:
            most = min(CHUNK_ROWS, self._table.cold.rows_at_once(chunk.rows, chunk.columns.nbytes))
            if most < chunk.rows:
                count = lambda times, start: most  # noqa: E731
        for part, _ in chunk.parts(watermark, count):
            yield part

    def waits_for(self, watermark: int) -> bool:
        """Whether changes wait for the time of a stream."""
        return self._ports.has_rows

    def _make_due(self, due: Due) -> None:
        self._make([(self.streams[port], chunk) for port in sorted(due) for chunk in due[port]])

    def finish(self) -> None:
        """No more events come."""
        if len(self.streams) > 1:
            self._make_due(self._ports.take(END))
        self._table.heard = dict.fromkeys(self._table.heard, END)

    def _note_time(self, expiry: Expiry) -> None:
        """Declared streams tell how far they have come. Derived ones tell it by their rows, or later."""
        if all(position < DERIVED for position in self._table.heard):
            expiry.note(min(self._table.heard.values()))

    def _make(self, chunks: list[tuple[str, Chunk]]) -> None:
        self._table.cold.prepare([chunk for _, chunk in chunks])
        with self._table.cold.at_work:
            asked = [operations for stream, chunk in chunks for operations in self._asked(stream, chunk)]
            done = self._carry_out(asked) if asked else []
        if asked:
            self._table.changed(_together(done))

    def _asked(self, stream: str, chunk: Chunk) -> Iterator[Operations]:
        """What the events of a chunk ask for."""
        if not chunk.rows:
            return
        if self._table.expiry is not None:
            self._table.expiry.note(int(chunk.times[-1]))
        first = self._passed[stream]
        self._passed[stream] = first + chunk.rows
        sequences = np.arange(first, first + chunk.rows)
        for statement in self._statements[stream]:
            operations = statement.operations(chunk, self._positions[stream], sequences)
            if operations is not None:
                yield operations

    def _carry_out(self, asked: list[Operations]) -> list[Entries]:
        """All operations in their order; returns what was there before."""
        most = self._table.cold.keys_at_once
        if len(asked[0]) <= most and _of_the_same_keys(asked) and self._seen.all_differ(asked[0].words):
            self._bring(asked, asked[0].words)
            return self._at_once(asked)
        which = np.concatenate([np.full(len(ops), i, np.int64) for i, ops in enumerate(asked)])
        rows = np.concatenate([np.arange(len(ops), dtype=np.int64) for ops in asked])
        if len(asked) > 1:
            order = _order(asked, which)
            which, rows = which[order], rows[order]
        lonely = np.array([ops.statement.is_alone for ops in asked])[which]
        done: list[Entries] = []
        start = 0
        for at in [*np.flatnonzero(lonely).tolist(), len(which)]:
            for first in range(start, at, most):
                some = slice(first, min(first + most, at))
                done += self._keyed(asked, which[some], rows[some])
            if at < len(which):
                operations, row = asked[which[at]], int(rows[at])
                self._table.cold.bring_all()
                words, outcome = operations.statement.apply_alone(operations, row)
                stamps = [np.full(len(words), part[row]) for part in operations.stamps]
                done += self._entries(Stamps(*stamps), words, [(outcome.places, outcome)])
            start = at + 1
        return done

    def _keyed(self, asked: list[Operations], which: Int64s, rows: Int64s) -> list[Entries]:
        used = np.unique(which).tolist()
        if len(used) == 1:
            operations = asked[used[0]]
            spans = self._spans(operations, rows)
            if len(spans) > 1:
                return [done for a, b in spans for done in self._keyed(asked, which[a:b], rows[a:b])]
            self._bring([operations], operations.words[rows])
            together = run_together(self._table, operations, rows)
            if together is not None:
                return [together]
        words = np.empty((len(rows), len(self._table.definition.key)), np.int64)
        stamps = Stamps(*(np.empty(len(rows), np.int64) for _ in range(3)))
        for i in used:
            own = which == i
            words[own] = asked[i].words[rows[own]]
            for mine, theirs in zip(stamps, asked[i].stamps, strict=True):
                mine[own] = theirs[rows[own]]
        self._bring([asked[i] for i in used], words)
        scratch, numbers, _ = KeyedStore.numbering(words)
        ids = numbers.astype(np.int64)
        found = np.empty(len(ids), np.int64)
        rounds = _occurrences(ids, np.zeros(scratch.partitions * scratch.capacity, np.int64), found)
        by_round = np.argsort(found, kind="stable")
        ends = np.searchsorted(found[by_round], np.arange(1, rounds + 1))
        outcomes: list[tuple[Int64s, Outcome]] = []
        start = 0
        for end in ends.tolist():
            turn = by_round[start:end]
            for i in used if len(used) > 1 else (used[0],):
                own = turn[which[turn] == i] if len(used) > 1 else turn
                if len(own):
                    outcome = asked[i].statement.apply(asked[i], rows[own])
                    outcomes.append((own[outcome.places], outcome))
            start = end
        return self._entries(stamps, words, outcomes)

    def _bring(self, asked: list[Operations], words: Int64s) -> None:
        """The rows that operations concern come to memory, unless it does not matter what they are."""
        self._table.cold.bring(words, new=True, blind=all(ops.statement.is_blind for ops in asked))

    def _spans(self, operations: Operations, rows: Int64s) -> list[tuple[int, int]]:
        """Operations that may be one pass: with a time to live, as long as no row that is changed is over."""
        expiry = self._table.expiry
        if expiry is None or not operations.statement.runs:
            return [(0, len(rows))]
        times = operations.stamps.times[rows]
        begins = [0]
        while times[-1] - times[begins[-1]] >= expiry.ttl:
            begins.append(int(np.searchsorted(times, times[begins[-1]] + expiry.ttl)))
        return list(zip(begins, [*begins[1:], len(rows)], strict=True))

    def _at_once(self, asked: list[Operations]) -> list[Entries]:
        """The operations of each statement on the same keys, which all differ. No reader sees a table between the
        changes of one event, so only the row before the first of these changes is noted."""
        first = asked[0]
        rest = np.ones(len(first), np.bool_)
        outcomes: list[tuple[Int64s, Outcome]] = []
        for operations in asked:
            outcome = operations.statement.apply(operations, np.arange(len(first)))
            if len(asked) > 1:
                outcome.changed &= rest[outcome.places]
                rest[outcome.places[outcome.changed]] = False
            outcomes.append((outcome.places, outcome))
        return self._entries(first.stamps, first.words, outcomes, differ=True)

    def _entries(
        self, stamps: Stamps, words: Int64s, outcomes: list[tuple[Int64s, Outcome]], *, differ: bool = False
    ) -> list[Entries]:
        """The rows before the operations, in the order of the operations, if the table has readers."""
        if not self._table.keeps_history:
            return []
        parts = [_changed(own, outcome) for own, outcome in outcomes if outcome.changed.any()]
        if not parts:
            return []
        if len(parts) == 1 and len(parts[0][0]) == len(words):
            outcome = parts[0][1]
            return [Entries(stamps, words, outcome.existed, outcome.before, differ)]
        at = np.concatenate([own for own, _ in parts])
        existed = np.concatenate([outcome.existed for _, outcome in parts])
        columns = [
            _one_after_the_other([outcome.before[i] for _, outcome in parts]) for i in range(len(self._table.others))
        ]
        if len(parts) > 1:
            order = np.argsort(at, kind="stable")
            at, existed, columns = at[order], existed[order], [column.at(order) for column in columns]
        return [Entries(Stamps(*(part[at] for part in stamps)), words[at], existed, columns, differ)]

    def snapshot(self) -> dict[str, Any]:
        heard = {stream: self._table.heard[self._positions[stream]] for stream in self.streams}
        return {"ports": self._ports.snapshot(), "passed": dict(self._passed), "heard": heard}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._ports.restore(snapshot["ports"])
        self._passed = dict(snapshot["passed"])
        self._table.heard = {self._positions[stream]: reached for stream, reached in snapshot["heard"].items()}


def _of_the_same_keys(asked: list[Operations]) -> bool:
    """Whether all statements were asked by the same events, each of which concerns one key."""
    words = asked[0].words
    return _of_the_same_events(asked) and all(
        not ops.statement.is_alone and np.array_equal(ops.words, words) for ops in asked
    )


def _of_the_same_events(asked: list[Operations]) -> bool:
    first = asked[0].stamps
    return all(
        ops.stamps.times is first.times and np.array_equal(ops.stamps.sequences, first.sequences) for ops in asked
    )


def _order(asked: list[Operations], which: Int64s) -> Int64s:
    """Where operations, of one statement after the other, stand in the total order."""
    if _of_the_same_events(asked):
        # The same events, for each statement: they take turns.
        return np.arange(len(which)).reshape(len(asked), -1).T.ravel()
    stamps = [np.concatenate([ops.stamps[i] for ops in asked]) for i in range(3)]
    numbers = np.array([ops.statement.number for ops in asked])[which]
    return np.lexsort((numbers, stamps[2], stamps[1], stamps[0]))


def _changed(own: Int64s, outcome: Outcome) -> tuple[Int64s, Outcome]:
    """Those operations that changed something."""
    if outcome.changed.all():
        return own, outcome
    at = np.flatnonzero(outcome.changed)
    before = [column.at(at) for column in outcome.before]
    return own[at], Outcome(outcome.places[at], outcome.changed[at], outcome.existed[at], before)


def _one_after_the_other(parts: list[Argument]) -> Argument:
    if len(parts) == 1:
        return parts[0]
    values = np.concatenate([part.values for part in parts])
    if all(part.valid is None for part in parts):
        return Argument(values, None)
    masks = [np.ones(len(part.values), np.bool_) if part.valid is None else part.valid for part in parts]
    return Argument(values, np.concatenate(masks))


def _together(entries: list[Entries]) -> Entries | None:
    entries = [e for e in entries if len(e.existed)]
    if len(entries) < 2:
        return entries[0] if entries else None
    stamps = Stamps(*(np.concatenate([e.stamps[i] for e in entries]) for i in range(3)))
    columns = [_one_after_the_other([e.columns[i] for e in entries]) for i in range(len(entries[0].columns))]
    return Entries(
        stamps,
        np.concatenate([e.keys for e in entries]),
        np.concatenate([e.existed for e in entries]),
        columns,
    )
