"""Event time: arriving batches in any order become one run in (time, sequence) order, and the watermark moves on.

Before an event arrives, the watermark is the largest time seen minus LATENESS. An event with a time below it is
late: it is set aside, and the results are the contract over the input without it. The watermark decides, and not the
last event released, so that lateness depends on the stream alone and not on the queries. `advance` moves the watermark
without an event.

Invariants:
1. Everything released has a time <= watermark; everything held has a time above it.
2. What is released never precedes what was released before, in (time, sequence) order; ties without a SEQUENCE keep
   the order of arrival or, where that is not known, go by the values of the columns.
3. Held rows are sorted runs in a store within the memory budget; the rows that came last wait unsorted until there
   are enough of them for a run. They are on the store's account before they are kept.
4. Released rows leave the store in parts, each part after the one before has been taken. So only one part is in memory
   besides the store, for any number of rows that a watermark releases.

Why: docs/decisions/lateness-by-watermark.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock import compute as pc
from penstock.arrays import Bools, Int64s
from penstock.components import component
from penstock.expressions.batch import Rows, arrow_of
from penstock.jit import kernel
from penstock.operators.chunk import NO_ROWS, Chunk, joined
from penstock.operators.resources import Resources
from penstock.store.batches import compact, decoded, kept_bytes

TIME = "$time"
"""The hidden column of event times in microseconds."""

START = -(1 << 62)
"""The watermark before the first event."""

_RUN_ROWS = 4096
_NO_TIMES = np.empty(0, np.int64)

_PART_BYTES = 1 << 20
"""About what a part of the rows released takes."""

_LOOSE = 256
"""So many small batches are put together: an Arrow batch takes memory besides its rows."""


class Released(NamedTuple):
    """`chunk` are the first rows in order, and `more` those after them, of which each chunk is made when it is asked
    for. All are taken before the next call. `watermark` holds when they are."""

    chunk: Chunk
    watermark: int
    late: pa.RecordBatch | None
    more: Iterator[Chunk] = iter(())

    def parts(self) -> Iterator[tuple[Chunk, int]]:
        """The rows in order, each part with the watermark that holds once it is in."""
        chunk = self.chunk
        for following in self.more:
            if chunk.rows:
                reached = following.times[0] if following.rows else chunk.times[-1]
                yield chunk, min(self.watermark, int(reached))
            chunk = following
        yield chunk, self.watermark


@kernel
def _find_late(times: Int64s, sequence: Int64s, largest: int, lateness: int, tie: int) -> tuple[Bools, int, int]:
    """Which rows are late, the largest time, and the largest sequence seen at the watermark without lateness."""
    late = np.zeros(len(times), np.bool_)
    ordered = len(sequence) > 0
    for row in range(len(times)):
        time = times[row]
        if time < largest - lateness:
            late[row] = True
            continue
        if ordered and lateness == 0:
            if time > largest:
                tie = sequence[row]
            elif sequence[row] < tie:
                late[row] = True
            else:
                tie = sequence[row]
        if time > largest:
            largest = time
    return late, largest, tie


@kernel
def rises(times: Int64s) -> bool:
    """Whether no time is below the one before it. All are looked at: the loop is vectorised only without a way out."""
    falls = False
    for row in range(1, len(times)):
        falls |= times[row] < times[row - 1]
    return not falls


@kernel
def _first_tie(times: Int64s, largest: int, lateness: int) -> int:
    """The first row that comes exactly when the watermark has reached its time; the number of rows if there is none.

    Only there does it matter for lateness what else was released at that time."""
    for row in range(len(times)):
        if times[row] == largest - lateness:
            return row
        if times[row] > largest:
            largest = times[row]
    return len(times)


@component("Reorder")
class Reorder:
    """`sequence` is the name of the SEQUENCE column, if there is one; `ties_by_value` if equal times go by the values
    of the columns then."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        lateness: int,
        sequence: str | None,
        resources: Resources,
        *,
        ties_by_value: bool = False,
    ) -> None:
        self.schema = schema
        self._lateness = lateness
        self._sequence = sequence
        self._ties_by_value = ties_by_value
        self._passes_through = lateness == 0 and sequence is None
        """Whether an event that is not late is released at once, so that nothing is ever held."""
        self._largest = START + lateness
        self._tie = START
        self._runs = resources.runs(f"{name}-reorder", TIME)
        self._runs.take_held = self._add_fresh
        self._fresh: list[pa.RecordBatch] = []
        self._loose = 0
        self._fresh_bytes = 0
        self._fresh_rows = 0
        self._fresh_first = -START
        self._held_first = -START
        self.watermark = START

    def process(self, times: Int64s, batch: Rows, watermark: int | None = None) -> Released:
        """Takes a batch in. A `watermark` that is given stands in for the stream's own: everything up to it is
        released, and what comes up to it later is late. The batch itself may be in any order."""
        if (
            watermark is None
            and self._passes_through
            and len(times)
            and times.item(0) >= self._largest
            and (len(times) == 1 or rises(times))
        ):
            self._largest = self.watermark = times.item(-1)
            return Released(Chunk(times, batch), self.watermark, None)
        if watermark is not None:
            released = self._set_aside(times, batch, times <= self.watermark, max(self.watermark, watermark))
        elif self._sequence is None or self._lateness == 0:
            sequence = self._sequences(batch)
            is_late, largest, tie = _find_late(times, sequence, self._largest, self._lateness, self._tie)
            self._largest, self._tie = int(largest), int(tie)
            released = self._set_aside(times, batch, is_late, max(self.watermark, self._largest - self._lateness))
        else:
            released = self._process_ties(times, arrow_of(batch))
        return released

    def pass_rows(self, last: int) -> None:
        """Rows in order, none before the watermark, have passed through; the last one has this time."""
        assert self._passes_through
        self._largest = self.watermark = last

    def _process_ties(self, times: Int64s, batch: pa.RecordBatch) -> Released:
        """With SEQUENCE and LATENESS: the batch is cut before each row that comes when the watermark has reached its
        time, for that row is late if one with a greater sequence was released."""
        chunks: list[Chunk] = []
        late: list[pa.RecordBatch] = []
        at = 0
        while True:
            upto = max(1, int(_first_tie(times[at:], self._largest, self._lateness)))
            part, rows = times[at : at + upto], batch.slice(at, upto)
            is_late, largest, _ = _find_late(part, self._sequences(rows)[:0], self._largest, self._lateness, 0)
            if len(part) and part[0] == self.watermark and self._sequences(rows)[0] < self._tie:
                is_late[0] = True
            self._largest = int(largest)
            before = self.watermark
            released = self._set_aside(part, rows, is_late, max(self.watermark, self._largest - self._lateness))
            if self.watermark > before:
                self._tie = START
            own = [chunk for chunk in (released.chunk, *released.more) if chunk.rows]
            if own:
                chunks += own
                last = int(self._sequences(own[-1].arrow.slice(own[-1].rows - 1))[0])
                self._tie = last if own[-1].times[-1] == self.watermark else START
            if released.late is not None:
                late.append(released.late)
            at += upto
            if at >= len(times):
                break
        aside = joined(late) if late else None
        first, *more = chunks or [Chunk(times[:0], NO_ROWS)]
        return Released(first, self.watermark, aside, iter(more))

    def _set_aside(self, times: Int64s, batch: Rows, is_late: Bools, watermark: int) -> Released:
        """Takes the late rows out and lets the watermark move on."""
        late: pa.RecordBatch | None = None
        if is_late.any():
            batch = arrow_of(batch)
            late = batch.filter(pa.array(is_late))
            times, batch = times[~is_late], batch.filter(pa.array(~is_late))
        self.watermark = watermark
        chunks = self._release(times, batch)
        return Released(next(chunks), watermark, late, chunks)

    def _sequences(self, batch: Rows) -> Int64s:
        if self._sequence is None:
            return np.empty(0, np.int64)
        column = batch.column(self._sequence)
        found: Int64s = column.cast(pa.int64()).fill_null(START).to_numpy(zero_copy_only=False)
        return found

    def _release(self, times: Int64s, batch: Rows) -> Iterator[Chunk]:
        """Takes rows in and gives those that are due, in order: one chunk at least. The rows are in when the first is
        there."""
        nothing_held = self._fresh_rows == 0 and self._held_first == -START
        if nothing_held and (len(times) == 0 or (times[-1] <= self.watermark and self._is_sorted(times))):
            yield Chunk(times, batch)
            return
        if len(times):
            self._keep(times, arrow_of(batch))
        fresh: list[pa.RecordBatch] = []
        if self._fresh_first <= self.watermark or self._fresh_rows >= _RUN_ROWS:
            fresh = self._sort_fresh()
        cuts = self._runs.cuts(self.watermark, _PART_BYTES) if self._held_first <= self.watermark else []
        if len(cuts) > 1 and fresh:
            self._runs.add(*fresh)
            cuts, fresh = self._runs.cuts(self.watermark, _PART_BYTES), []
        given = False
        for cut in cuts or [self.watermark]:
            pieces = [self._narrowed(piece) for piece in self._runs.take_upto(cut)] if cuts else []
            self._note_held()
            if pieces or fresh:
                yield _without_time(self._sorted([*pieces, *fresh]))
                given = True
        if not given:
            yield Chunk(times[:0], NO_ROWS)

    def _keep(self, times: Int64s, batch: pa.RecordBatch) -> None:
        """Fresh rows, on the account first: where there is no room, those that are there become a run."""
        batch = batch.append_column(TIME, pa.array(times))
        nbytes = kept_bytes(batch)
        room = self._runs.hold(self._fresh_bytes + nbytes)
        if not room and self._fresh:
            self._add_fresh()
            room = self._runs.hold(nbytes)
        self._fresh.append(batch)
        if not room:
            self._add_fresh()
            return
        self._fresh_bytes += nbytes
        self._fresh_rows += len(times)
        self._fresh_first = min(self._fresh_first, int(times.min()))
        self._loose += 1
        if self._loose == _LOOSE:
            small = self._fresh[-_LOOSE:]
            self._fresh[-_LOOSE:] = [joined(small)]
            self._fresh_bytes += kept_bytes(self._fresh[-1]) - sum(map(kept_bytes, small))
            self._loose = 0

    def _narrowed(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        """Without the columns that were read when the rows came and are no longer; NULL in those that the stream has
        got since."""
        wanted = [*self.schema.names, TIME]
        if piece.schema.names == wanted:
            return piece
        there = set(piece.schema.names)
        columns = [piece.column(n) if n in there else pa.nulls(len(piece), self.schema.field(n).type) for n in wanted]
        return pa.RecordBatch.from_arrays(columns, names=wanted)

    def _sort_fresh(self) -> list[pa.RecordBatch]:
        """The fresh rows that are due; the others become a run."""
        rows = self._sorted(self._fresh)
        due = int(np.searchsorted(_times(rows), self.watermark, "right"))
        self._forget_fresh()
        rest = rows.slice(due)
        if 0 < rest.num_rows < _RUN_ROWS:
            rest = compact(rest)
            nbytes = kept_bytes(rest)
            if self._runs.hold(nbytes):
                self._fresh, self._fresh_rows, self._fresh_bytes = [rest], rest.num_rows, nbytes
                self._fresh_first = int(_times(rest)[0])
                rest = rest.slice(0, 0)
        if rest.num_rows:
            self._runs.add(rest)
            self._note_held()
        return [rows.slice(0, due)] if due else []

    def _add_fresh(self) -> None:
        """The fresh rows become a run."""
        rows = self._sorted(self._fresh)
        self._forget_fresh()
        self._runs.add(rows)
        self._note_held()

    def _forget_fresh(self) -> None:
        self._fresh, self._fresh_rows, self._fresh_first, self._fresh_bytes, self._loose = [], 0, -START, 0, 0
        self._runs.hold(0)

    def _sorted(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        rows = joined(batches)
        times = _times(rows)
        if self._is_sorted(times):
            return rows
        if self._ties_by_value:
            first = [TIME] if self._sequence is None else [TIME, self._sequence]
            keys = [(key, "ascending", "at_start") for key in dict.fromkeys([*first, *self.schema.names])]
            return rows.take(pc.sort_indices(decoded(rows), sort_keys=keys))
        if self._sequence is not None:
            order = np.lexsort([self._sequences(rows), times])
        else:
            order = np.argsort(times, kind="stable")
        return rows.take(pa.array(order))

    def _is_sorted(self, times: Int64s) -> bool:
        if len(times) < 2:
            return True
        if self._ties_by_value:
            return bool((times[1:] > times[:-1]).all())
        return self._sequence is None and rises(times)

    def _note_held(self) -> None:
        first = self._runs.first_time
        self._held_first = -START if first is None else first

    def advance(self, watermark: int) -> Released:
        """From now on events with a time below `watermark` are late. Returns the rows that are released."""
        if watermark <= self.watermark:
            return Released(Chunk(_NO_TIMES, NO_ROWS), self.watermark, None)
        before, self.watermark = self.watermark, watermark
        return self._moved(before)

    def finish(self, past: int = 0) -> Released:
        """Everything held, in order; the watermark is at least the time of the last row then, plus `past`."""
        before = self.watermark
        last = max((int(_times(batch).max()) for batch in self._fresh), default=before)
        self.watermark = max(before, last, self._runs.last_time(START)) + past
        return self._moved(before)

    def _moved(self, before: int) -> Released:
        """What is released by a watermark that was moved on without a row."""
        chunks = self._release(_NO_TIMES, NO_ROWS)
        if self.watermark > before:
            self._largest = max(self._largest, self.watermark + self._lateness)
            self._tie = START
        if self._sequence is None:
            return Released(next(chunks), self.watermark, None, chunks)
        first, *more = chunks
        last = more[-1] if more else first
        if self.watermark > before and last.rows and last.times[-1] == self.watermark:
            self._tie = int(self._sequences(last.arrow.slice(last.rows - 1))[0])
        return Released(first, self.watermark, None, iter(more))

    @property
    def holds(self) -> bool:
        """Whether rows wait in it for others."""
        return not self._passes_through

    @property
    def rows_held(self) -> int:
        return self._fresh_rows + self._runs.rows

    def snapshot(self) -> dict[str, Any]:
        if self._fresh:
            self._add_fresh()
        return {"largest": self._largest, "tie": self._tie, "watermark": self.watermark}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The runs themselves are restored by the store manager, before this."""
        self._largest, self._tie, self.watermark = snapshot["largest"], snapshot["tie"], snapshot["watermark"]
        self._note_held()


def _times(rows: pa.RecordBatch) -> Int64s:
    times: Int64s = rows.column(TIME).to_numpy()
    return times


def _without_time(rows: pa.RecordBatch) -> Chunk:
    return Chunk(_times(rows), rows.drop_columns([TIME]))
