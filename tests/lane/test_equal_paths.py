"""The lane and the ordinary path give the same: results, rejects and what a checkpoint holds, however events come."""

from __future__ import annotations

import errno
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App
from penstock.engine import push_lane, push_lanes
from penstock.errors import StorageError
from penstock.lane import sheet_program
from penstock.operators import column_lane, results, row_lane, window_lane
from penstock.store import file_device

STREAM = """
    CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING NOT NULL, g BIGINT NOT NULL, x DOUBLE{null}, y DOUBLE NOT NULL,
                     n INT NOT NULL, b BIGINT NOT NULL, EVENT TIME t);
"""

SELECTS = (
    "SELECT k, SUM(x * n) / SUM(n) AS a FROM s [{w}] GROUP BY k",
    "SELECT SUM(x) AS a, AVG(x) AS m, COUNT(*) AS c FROM s [{w}]",
    "SELECT k, COUNT(x) AS c, MAX(x) AS h, MIN(y) AS l FROM s [{w}] GROUP BY k",
    "SELECT g, SUM(b) AS a, AVG(n) AS m, MAX(n) AS h FROM s [{w}] GROUP BY g",
    "SELECT g, SUM(x + y) AS a, SUM(x / y) AS d, COUNT(*) AS c FROM s [{w}] GROUP BY g",
    "SELECT SUM(x) - SUM(y) AS a, -AVG(y) AS m, SUM(b) AS b FROM s [{w}]",
    "SELECT k, SUM(x) AS a FROM s [{w}] WHERE y > 0 GROUP BY k",
    "SELECT k, g, SUM(x) AS a, MAX(b) AS h FROM s [{w}] WHERE n <> 3 GROUP BY k, g",
    "SELECT MAX(x) AS h, SUM(n) AS a FROM s [{w}] HAVING SUM(n) > 2",
    "SELECT MAX(x) AS h, MIN(b) AS l, COUNT(*) AS c FROM s [{w}]",
)
WINDOWS = (
    *("RANGE 1 MICROSECOND", "RANGE 7 MICROSECONDS", "RANGE 60 MICROSECONDS", "RANGE 1 HOUR"),
    *("ROWS 1", "ROWS 5", "ROWS 70"),
)

usual = st.floats(-1000, 1000).map(lambda value: round(value, 2))
floats = st.one_of(
    usual,
    usual,
    usual,
    st.sampled_from((0.0, -0.0, 1e300, -1e300, 5e-324, 1e-200, math.inf, -math.inf, math.nan, 2.0**60, 2.0**-60)),
)
events = st.lists(
    st.tuples(
        st.sampled_from((0, 0, 0, 0, 0, 0, 1, 2, 3, 25, 70)),
        st.sampled_from("abcdefgh"),
        st.integers(-3, 12),
        floats,
        floats,
        st.one_of(st.integers(-5, 5), st.sampled_from((2**31 - 1, -(2**31)))),
        st.one_of(st.integers(-5, 5), st.sampled_from((2**63 - 1, -(2**63)))),
        st.integers(0, 40),
    ),
    min_size=1,
    max_size=120,
)
forms = st.tuples(st.sampled_from(("dict", "list", "batch", "encoded")), st.integers(1, 40))
cuts = st.lists(forms, min_size=1, max_size=12)


@dataclass(frozen=True)
class How:
    program: str
    memory: str
    block_size: int
    restart_at: int | None
    is_heard: bool = False


@contextmanager
def paths(*, lane: bool) -> Iterator[None]:
    """Everything that may goes through the lane, or nothing does."""
    with (
        patch.object(push_lanes, "LEAST_PUSHES", 0),
        patch.object(push_lane, "MOST_ROWS", 24),
        patch.object(sheet_program, "SHEET_ROWS", 24),
        patch.object(window_lane, "LEAST_ROWS", 1),
        patch.object(column_lane, "LEAST_ROWS", 1),
        patch.object(results, "why_not", results.why_not if lane else lambda node: "not here"),
    ):
        yield


def as_rows(drawn: list[Any], nulls: bool) -> list[dict[str, Any]]:
    rows, time = [], 1_000_000
    for step, k, g, x, y, n, b, odd in drawn:
        time += step
        rows.append({"t": time, "k": k, "g": g, "x": None if nulls and odd == 0 else x, "y": y, "n": n, "b": b})
        if odd == 1:
            rows[-1]["t"] -= 3  # late, if not the first
    return rows


def batch_of(rows: list[dict[str, Any]], *, encoded: bool) -> pa.RecordBatch:
    kinds = {"t": pa.timestamp("us", tz="UTC"), "k": pa.string(), "g": pa.int64(), "x": pa.float64()}
    kinds |= {"y": pa.float64(), "n": pa.int32(), "b": pa.int64()}
    schema = pa.schema(list(kinds.items()))
    made = pa.RecordBatch.from_pylist(rows, schema=schema)
    return made.set_column(1, "k", made.column(1).dictionary_encode()) if encoded else made


def bits(table: pa.Table) -> list[Any]:
    """The rows with the bits of their doubles: NaN equals NaN, and -0.0 is not 0.0."""
    columns = []
    for column in table.columns:
        whole = column.combine_chunks()
        if pa.types.is_floating(whole.type):
            nulls, filled = whole.is_null().to_pylist(), whole.fill_null(0.0).to_pylist()
            columns.append([None if null else value.hex() for null, value in zip(nulls, filled, strict=True)])
        else:
            columns.append(whole.cast(pa.string()).to_pylist())
    return list(zip(*columns, strict=True))


def run(how: How, rows: list[dict[str, Any]], cut: list[tuple[str, int]], lanes: tuple[bool, bool]) -> tuple[Any, ...]:
    """`lanes` says whether there is a lane before the restart, and after it. What a subscriber gets is kept to the end:
    it must not change."""
    found: list[Any] = []
    heard: list[pa.RecordBatch] = []
    with tempfile.TemporaryDirectory() as directory:

        def begun(lane: bool) -> App:
            with paths(lane=lane):
                app = App(how.program, memory=how.memory, block_size=how.block_size, checkpoint=Path(directory) / "c")
            if how.is_heard:
                app.subscribe(app.queries[0], heard.append)
            return app

        app, at, turn, restarted = begun(lanes[0]), 0, 0, False
        while at < len(rows):
            if not restarted and how.restart_at is not None and at >= how.restart_at:
                restarted = True
                app.checkpoint()
                app.close()
                app = begun(lanes[1])
            form, count = cut[turn % len(cut)]
            turn += 1
            some = rows[at : at + (1 if form == "dict" else count)]
            at += len(some)
            pushed: Any = some[0] if form == "dict" else some
            with paths(lane=lanes[restarted]):
                app.push("s", pushed if form in ("dict", "list") else batch_of(some, encoded=form == "encoded"))
            if turn % 3 == 0:
                tables = [app.results(q) for q in app.queries]
                found.append([(table.schema, bits(table)) for table in tables])
        app.checkpoint()
        last = [bits(app.results(q)) for q in app.queries]
        rejects = [str(reject) for reject in app.rejects]
        metrics = app.metrics
        app.close()
    numbers = [int(batch.schema.metadata[b"penstock.sequence"]) for batch in heard]
    assert numbers == [sum(batch.num_rows for batch in heard[:at]) for at in range(len(heard))]
    if heard:
        found.append(bits(pa.Table.from_batches([batch.replace_schema_metadata() for batch in heard])))
    return found, last, rejects, metrics.events, metrics.late, metrics.results


@given(
    drawn=events,
    cut=cuts,
    select=st.sampled_from(SELECTS),
    window=st.sampled_from(WINDOWS),
    nulls=st.booleans(),
    room=st.sampled_from((("64MB", 65536), ("64MB", 256), ("200KB", 512), ("1MB", 1024))),
    restart_at=st.one_of(st.none(), st.integers(0, 80)),
    lanes=st.sampled_from(((True, True), (True, True), (True, False), (False, True))),
    is_heard=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_equal(
    drawn: Any,
    cut: Any,
    select: str,
    window: str,
    nulls: bool,
    room: tuple[str, int],
    restart_at: int | None,
    lanes: tuple[bool, bool],
    is_heard: bool,
) -> None:
    program = STREAM.format(null="" if nulls else " NOT NULL") + select.format(w=window) + ";"
    how = How(program, room[0], room[1], restart_at, is_heard)
    rows = as_rows(drawn, nulls)
    assert run(how, rows, cut, lanes) == run(how, rows, cut, (False, False))


@given(
    drawn=events,
    cut=cuts,
    selects=st.lists(st.tuples(st.sampled_from(SELECTS), st.sampled_from(WINDOWS)), min_size=2, max_size=4),
    room=st.sampled_from((("64MB", 65536), ("64MB", 1024), ("1MB", 1024))),
    restart_at=st.one_of(st.none(), st.integers(0, 80)),
    lanes=st.sampled_from(((True, True), (True, True), (True, False), (False, True))),
)
@settings(max_examples=60, deadline=None)
def test_equal_with_shared_windows(
    drawn: Any,
    cut: Any,
    selects: list[tuple[str, str]],
    room: tuple[str, int],
    restart_at: int | None,
    lanes: tuple[bool, bool],
) -> None:
    program = STREAM.format(null="") + "".join(select.format(w=window) + ";" for select, window in selects)
    how = How(program, room[0], room[1], restart_at)
    rows = as_rows(drawn, True)
    assert run(how, rows, cut, lanes) == run(how, rows, cut, (False, False))


def test_the_lanes_are_used() -> None:
    """What is compared above is played by the lane: nearly all rows of a plain stream are."""
    rows = as_rows([(1, "abc"[i % 3], i % 4, i / 4, 1.0, i % 7 + 1, i, 9) for i in range(400)], nulls=False)
    taken = {"rows": 0, "dicts": 0}
    enter, enter_rows = column_lane.ColumnLane.enter, row_lane.RowLane.enter
    enter_shared = window_lane.WindowLane.enter

    def counted_enter(self: Any, chunk: Any) -> int:
        taken["rows"] += (found := enter(self, chunk))
        return found

    def counted_enter_shared(self: Any, *args: Any, **named: Any) -> Any:
        found = enter_shared(self, *args, **named)
        taken["rows"] += found[0]
        return found

    def counted_enter_rows(self: Any, rows: int) -> int:
        taken["dicts"] += (found := enter_rows(self, rows))
        return found

    for select in SELECTS[:6]:
        taken |= {"rows": 0, "dicts": 0}
        how = How(STREAM.format(null=" NOT NULL") + select.format(w="RANGE 60 MICROSECONDS") + ";", "64MB", 65536, None)
        with (
            patch.object(column_lane.ColumnLane, "enter", counted_enter),
            patch.object(window_lane.WindowLane, "enter", counted_enter_shared),
            patch.object(row_lane.RowLane, "enter", counted_enter_rows),
        ):
            run(how, rows, [("batch", 40), ("dict", 1), ("list", 10)], (True, True))
        assert taken["rows"] >= 250, select
        assert taken["dicts"] >= (50 if select not in (SELECTS[2], SELECTS[3]) else 0), select


def test_a_block_that_was_closed_on_the_ordinary_path() -> None:
    """The tail stays in a block while that becomes full, and then rows of several blocks leave with one event."""
    program = STREAM.format(null=" NOT NULL") + "SELECT SUM(y) AS a, COUNT(*) AS c FROM s [RANGE 60 MICROSECONDS];"
    steps = [(0, "a", 1, 1.0, 2.0, 1, 1, 9)] * 40 + [(100, "a", 1, 1.0, 3.0, 1, 1, 9)] * 3
    how, rows = How(program, "64MB", 256, None), as_rows(steps, nulls=False)
    assert run(how, rows, [("dict", 1)], (True, True)) == run(how, rows, [("dict", 1)], (False, False))


def test_a_null_behind_the_tail_in_the_open_block() -> None:
    """Rows enter by the lane before and after a row with a NULL, and that row leaves by the lane's tail."""
    program = STREAM.format(null="") + "SELECT SUM(x) AS a, COUNT(x) AS c FROM s [RANGE 60 MICROSECONDS];"
    steps = [(1, "a", 1, float(i), 2.0, 1, 1, 0 if i == 20 else 9) for i in range(200)]
    how, rows = How(program, "64MB", 65536, None), as_rows(steps, nulls=True)
    assert run(how, rows, [("dict", 1)], (True, True)) == run(how, rows, [("dict", 1)], (False, False))


def test_rows_that_are_in_are_shown_when_a_block_cannot_be_written() -> None:
    program = STREAM.format(null=" NOT NULL") + SELECTS[0].format(w="RANGE 4000 MICROSECONDS")
    rows = [{"t": i, "k": "ab"[i % 2], "g": 0, "x": i / 4, "y": 1.0, "n": 1 + i % 3, "b": 0} for i in range(6000)]
    batch, written = batch_of(rows, encoded=False), 0

    def write(file: int, parts: Any, offset: int) -> int:
        nonlocal written
        written += 1
        if written > 5:
            raise OSError(errno.ENOSPC, "full")
        return os.pwrite(file, b"".join(parts), offset)

    shown: list[list[pa.RecordBatch]] = []
    for fails in (False, True):
        found: list[pa.RecordBatch] = []
        with App(program, memory="40KB", block_size=4096) as app:
            app.subscribe("q1", found.append)
            app.push("s", batch.slice(0, 2000))
            if fails:
                with patch.object(file_device.os, "pwritev", write), pytest.raises(StorageError, match="disk is full"):
                    app.push("s", batch.slice(2000))
            else:
                app.push("s", batch.slice(2000))
        shown.append(found)
    whole, part = (bits(pa.Table.from_batches(found)) for found in shown)
    assert len(whole) == 6000
    assert 2000 < len(part) < 6000
    assert part == whole[: len(part)]
