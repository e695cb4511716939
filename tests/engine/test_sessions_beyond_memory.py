"""More open sessions than memory: the budget holds, and answers stay what they are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.operators.closing import ClosingAggregate
from penstock.operators.paged.sessions import PagedSessions

MINUTE = 60_000_000
KEYS = 20_000
ROWS = 3 * KEYS
STEP = 10_000
"""From event to event in microseconds: a key comes again after 200 seconds, or soon."""
MEMORY = 2_000_000
BATCH = 7_000
STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k {key}, x DOUBLE NOT NULL, n INT NOT NULL, EVENT TIME t);"
SUMS = "SUM(x) AS total, COUNT(*) AS c"
SELECTIVE = "MIN(x) AS low, LAST(n) AS last, ARG_MAX(n, x) AS best"
GROWING = "MEDIAN(x) AS middle, COUNT(DISTINCT n) AS d"
WINDOW = "[PARTITION BY k SESSION 3 MINUTES]"


def batches(key: str, keys: int = KEYS, first: int = 0, last: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Each key about once in 200 seconds, in a scattered order; every seventh event is of one of a thousand keys."""
    for start in range(first, last, BATCH):
        numbers = np.arange(start, min(start + BATCH, last))
        owners = np.where(numbers % 7 == 0, numbers % 1000, numbers * 7919 % keys)
        held = pa.array(owners, mask=owners == 3)
        if key == "STRING":
            held = pa.array([None if value is None else f"key {value}" for value in held.to_pylist()])
        times = pa.array(numbers * STEP).view(pa.timestamp("us", "UTC"))
        columns = [times, held, pa.array(numbers % 97 / 8), pa.array((numbers % 11).astype(np.int32))]
        yield pa.RecordBatch.from_arrays(columns, names=["t", "k", "x", "n"])


def program(select: str, key: str, *, window: str = WINDOW, more: str = "", group: str = "k") -> str:
    query = f"CREATE QUERY sessions AS SELECT {group}, {select} FROM s {window} GROUP BY {group} {more};"
    return STREAM.format(key=key) + query


def answers(text: str, key: str, memory: int, query: str = "sessions") -> tuple[pa.Table, Any]:
    found: list[pa.RecordBatch] = []
    with ps.App(text, memory=memory, block_size="8KiB") as app:
        app.subscribe(query, found.append)
        for batch in batches(key):
            app.push("s", batch)
        app.finish()
        metrics = app.metrics
    return pa.Table.from_batches(found), metrics


def operator_of(app: ps.App) -> ClosingAggregate:
    parts = app._flow.running["sessions"].pipeline._parts
    return next(part.operator for part in parts if isinstance(part.operator, ClosingAggregate))


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The watermarks of sweeps."""
    found: list[int] = []
    sweep = PagedSessions.sweep

    def noted(sessions: PagedSessions, watermark: int, position: int) -> int:
        found.append(watermark)
        return sweep(sessions, watermark, position)

    monkeypatch.setattr(PagedSessions, "sweep", noted)
    return found


@pytest.mark.parametrize(
    ("select", "key", "more"),
    [
        (SUMS, "STRING", "HAVING COUNT(*) > 1"),
        (SELECTIVE, "STRING", ""),
        (GROWING, "BIGINT", ""),
        ("SUM(x) AS total", "BIGINT", "ORDER BY total DESC"),
    ],
)
def test_sessions_in_shards_give_the_answers_of_those_in_memory(
    select: str, key: str, more: str, sweeps: list[int]
) -> None:
    text = program(select, key, more=more)
    whole, _ = answers(text, key, 100 * MEMORY)
    assert not sweeps
    paged, metrics = answers(text, key, MEMORY)
    assert len(sweeps) > 2
    assert whole.num_rows > 0
    assert paged.equals(whole)
    assert metrics.memory_peak <= MEMORY


def test_groups_of_sessions_that_come_later(sweeps: list[int]) -> None:
    """Those of a session in memory whose rows go to the log, and those of sessions of the whole stream."""
    for window, group in ((WINDOW, "n, k"), ("[SESSION 20 SECONDS]", "k, n")):
        text = program("SUM(x) AS total, COUNT(*) AS c", "BIGINT", window=window, group=group)
        whole, _ = answers(text, "BIGINT", 100 * MEMORY)
        paged, metrics = answers(text, "BIGINT", MEMORY)
        assert paged.equals(whole)
        assert metrics.memory_peak <= MEMORY
    assert sweeps


def test_the_sessions_of_some_keys_counted_by_hand() -> None:
    paged, _ = answers(program(SUMS, "BIGINT"), "BIGINT", MEMORY)
    rows = pa.Table.from_batches(list(batches("BIGINT")))
    times, keys = rows["t"].cast(pa.int64()).to_numpy(), rows["k"].to_pylist()
    shown: dict[Any, list[tuple[int, int, int]]] = {}
    columns = [paged[name].cast(pa.int64()).to_pylist() for name in ("window_start", "window_end", "c")]
    for key, *own in zip(paged["k"].to_pylist(), *columns, strict=True):
        shown.setdefault(key, []).append(tuple(own))
    asked = {None, *range(0, KEYS, 37)}
    expected: dict[Any, list[list[int]]] = {}
    for time, key in zip(times.tolist(), keys, strict=True):
        if key in asked:
            own = expected.setdefault(key, [])
            if not own or time >= own[-1][1]:
                own.append([time, 0, 0])
            own[-1][1:] = [time + 3 * MINUTE, own[-1][2] + 1]
    for key, own in expected.items():
        assert shown[key] == [tuple(session) for session in own]


def test_a_stream_of_the_results_loses_none(sweeps: list[int]) -> None:
    """Its windows close after the results that come later."""
    count = """CREATE QUERY many AS SELECT COUNT(*) AS n, SUM(c) AS events, MAX(window_start) AS last
        FROM sessions [RANGE 20 SECONDS SLIDE 5 SECONDS];"""
    first = program(SUMS, "BIGINT").replace("CREATE QUERY sessions AS", "INSERT INTO sessions")
    whole, _ = answers(first + count, "BIGINT", 100 * MEMORY, "many")
    paged, _ = answers(first + count, "BIGINT", 2 * MEMORY, "many")
    assert sweeps
    assert whole.num_rows > 10
    assert paged.equals(whole)


def test_a_quiet_stream_gets_its_results_and_sessions_are_in_memory_again(sweeps: list[int]) -> None:
    found: list[pa.RecordBatch] = []
    with ps.App(program(SUMS, "BIGINT"), memory=MEMORY, block_size="8KiB") as app:
        app.subscribe("sessions", found.append)
        for batch in batches("BIGINT"):
            app.push("s", batch)
        before = sum(batch.num_rows for batch in found)
        last = (ROWS - 1) * STEP
        app.advance("s", last + 3 * MINUTE)
        app.advance("s", last + 5 * MINUTE)
        assert sum(batch["c"].to_numpy().sum() for batch in found) == ROWS
        assert sum(batch.num_rows for batch in found) > before
        assert not operator_of(app)._is_paging
        count = len(sweeps)
        for batch in batches("BIGINT", 100, first=3 * ROWS, last=3 * ROWS + BATCH):
            app.push("s", batch)
        app.finish()
        assert len(sweeps) == count
    assert sum(batch["c"].to_numpy().sum() for batch in found) == ROWS + BATCH


@pytest.mark.parametrize("memory", [MEMORY * 3 // 4, 100 * MEMORY])
@pytest.mark.parametrize("select", [SUMS, GROWING])
def test_a_checkpoint_goes_on_in_any_budget(select: str, memory: int, tmp_path: Path) -> None:
    """Some sessions are in memory then, others in shards, and some are over and not shown."""
    text = program(select, "STRING")
    whole, _ = answers(text, "STRING", 100 * MEMORY)
    found: list[pa.RecordBatch] = []
    for number, (first, last) in enumerate(pairwise((0, 14_000, 35_000, ROWS))):
        own = MEMORY if number == 0 else memory
        with ps.App(text, memory=own, block_size="8KiB", checkpoint=tmp_path / "state") as app:
            app.subscribe("sessions", found.append)
            for batch in batches("STRING", first=first, last=last):
                app.push("s", batch)
                app.checkpoint()
            if last == ROWS:
                app.finish()
    assert pa.Table.from_batches(found).equals(whole)
