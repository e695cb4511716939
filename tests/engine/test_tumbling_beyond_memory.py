"""Tumbling windows with more groups than memory: the budget holds, and answers stay what they are."""

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
from penstock.operators.paged.windows import PagedWindows

HOUR = 3_600_000_000
KEYS = 30_000
MEMORY = 2_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k {key}, x DOUBLE NOT NULL, n INT NOT NULL, EVENT TIME t);"
SUMS = "SUM(x) AS total, COUNT(*) AS c"
SELECTIVE = "MIN(x) AS low, LAST(n) AS last, ARG_MAX(n, x) AS best"
GROWING = "MEDIAN(x) AS middle, COUNT(DISTINCT n) AS d"
ROWS = 3 * KEYS
"""Two windows and a half of them."""
BATCH = 7_000


class Spread(ps.UserAggregate):
    name = "SPREAD"
    argument_types = (ps.SqlType.DOUBLE,)
    result_type = ps.SqlType.DOUBLE
    state_schema = pa.schema([("low", pa.float64()), ("high", pa.float64())])

    def create(self) -> dict[str, Any]:
        return {"low": np.inf, "high": -np.inf}

    def add(self, state: dict[str, Any], *values: Any) -> None:
        state["low"], state["high"] = min(state["low"], values[0]), max(state["high"], values[0])

    def result(self, state: dict[str, Any]) -> Any:
        return state["high"] - state["low"]


def batches(key: str, keys: int = KEYS, first: int = 0, last: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Each key about once in a window, in a scattered order; every seventh event is of one of ten keys."""
    for start in range(first, last, BATCH):
        numbers = np.arange(start, min(start + BATCH, last))
        owners = np.where(numbers % 7 == 0, numbers % 10, numbers * 7919 % keys)
        held = pa.array(owners, mask=owners == 3)
        if key == "DOUBLE":
            held = pa.array(np.where(owners == 4, np.nan, owners * 0.5), mask=owners == 3)
        times = pa.array(numbers * HOUR // int(KEYS * 1.2)).view(pa.timestamp("us"))
        columns = [times, held.cast(pa.string()) if key == "STRING" else held, pa.array(numbers % 8 / 4)]
        yield pa.RecordBatch.from_arrays([*columns, pa.array(numbers % 5, pa.int32())], names=["t", "k", "x", "n"])


def program(select: str, key: str, rest: str = "") -> str:
    query = f"SELECT k, {select} FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k {rest}"
    return STREAM.format(key=key) + f"CREATE QUERY groups AS {query};"


def answers(text: str, key: str, memory: int, keys: int = KEYS) -> tuple[pa.Table, ps.Metrics]:
    with ps.App(text, memory=memory, block_size="8KiB", aggregates=[Spread()]) as app:
        found: list[pa.RecordBatch] = []
        app.subscribe("groups", found.append)
        for batch in batches(key, keys):
            app.push("s", batch)
        app.finish()
        return pa.Table.from_batches(found), app.metrics


def operator_of(app: ps.App) -> Any:
    parts: list[Any] = app._flow.running["groups"].pipeline._parts
    return next(part.operator for part in parts if isinstance(part.operator, ClosingAggregate))


def plain(table: pa.Table) -> pa.Table:
    """With keys as texts: NaN is NaN then."""
    return table.set_column(2, "k", table["k"].cast(pa.string()))


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many groups were in memory at the end of each window that had others in shards."""
    held: list[int] = []
    play = PagedWindows.play

    def noted(self: PagedWindows, start: int, end: int, aggregation: Any, slots: Any, position: int) -> Any:
        held.append(len(slots))
        return play(self, start, end, aggregation, slots, position)

    monkeypatch.setattr(PagedWindows, "play", noted)
    return held


@pytest.mark.parametrize("key", ["BIGINT", "STRING", "DOUBLE"])
@pytest.mark.parametrize("select", [SUMS, SELECTIVE, GROWING])
def test_answers_are_those_of_enough_memory(select: str, key: str, windows: list[int]) -> None:
    text = program(select, key)
    whole, _ = answers(text, key, 100 * MEMORY)
    assert windows == []
    paged, metrics = answers(text, key, MEMORY)
    assert plain(paged).equals(plain(whole))
    assert metrics.memory_peak <= MEMORY
    assert len(windows) == 3
    assert windows[0] > 500
    assert windows[1] == 0, "from the second window on, all of its rows are in shards"


@pytest.mark.parametrize(
    ("select", "rest"),
    [
        (SUMS, "HAVING COUNT(*) > 2"),
        ("SUM(x) FILTER (WHERE n > 3) AS total", ""),
        ("10 / (COUNT(*) - 1) AS c", ""),
    ],
)
def test_what_is_shown_of_groups_is_the_same(select: str, rest: str, windows: list[int]) -> None:
    text = program(select, "STRING", rest)
    whole, before = answers(text, "STRING", 100 * MEMORY)
    paged, after = answers(text, "STRING", MEMORY)
    assert windows
    assert paged.equals(whole)
    assert before.rejected == after.rejected


def test_aggregates_of_users_are_the_same(windows: list[int]) -> None:
    text = program("SPREAD(x) AS d", "BIGINT")
    whole, _ = answers(text, "BIGINT", 200 * MEMORY)
    paged, metrics = answers(text, "BIGINT", 3 * MEMORY)
    assert windows
    assert paged.equals(whole)
    assert metrics.memory_peak <= 3 * MEMORY


def test_the_first_windows_counted_by_hand() -> None:
    paged, _ = answers(program(SUMS, "BIGINT"), "BIGINT", MEMORY)
    rows = pa.Table.from_batches(list(batches("BIGINT")))
    hours = rows["t"].cast(pa.int64()).to_numpy() // HOUR
    assert sorted(set(hours)) == [0, 1, 2]
    begin = 0
    for hour in range(3):
        own = rows.filter(pa.array(hours == hour))
        grouped = own.group_by("k").aggregate([("x", "sum"), ("x", "count")])
        keys = grouped["k"].to_pylist()
        order = sorted(range(len(keys)), key=lambda i: -1 if keys[i] is None else keys[i])  # NULL is first
        shown = paged.slice(begin, grouped.num_rows)
        assert shown["k"].to_pylist() == [keys[i] for i in order]
        assert shown["c"].to_pylist() == grouped["x_count"].take(order).to_pylist()
        assert shown["total"].to_pylist() == grouped["x_sum"].take(order).to_pylist()
        begin += grouped.num_rows
    assert begin == paged.num_rows


def test_windows_of_few_groups_are_in_memory_again(windows: list[int]) -> None:
    """After the window in which memory was short."""
    found: list[pa.RecordBatch] = []
    with ps.App(program(SUMS, "BIGINT"), memory=MEMORY, block_size="8KiB") as app:
        app.subscribe("groups", found.append)
        for batch in batches("BIGINT", last=36_000):
            app.push("s", batch)
        for batch in batches("BIGINT", 100, first=36_000):
            app.push("s", batch)
        app.push("s", next(batches("BIGINT", first=ROWS, last=ROWS + 100)))
        operator = operator_of(app)
        assert not operator._is_paging
        app.finish()
    assert len(windows) == 2, "the second one was counted, and the others had no rows in shards"


@pytest.mark.parametrize("memory", [MEMORY, 3 * MEMORY, 100 * MEMORY])
@pytest.mark.parametrize("select", [SUMS, GROWING])
def test_a_checkpoint_goes_on_in_any_budget(select: str, memory: int, tmp_path: Path) -> None:
    """In the middle of the first window, whose groups are in memory and in shards, and of the second."""
    text = program(select, "STRING")
    whole, _ = answers(text, "STRING", 100 * MEMORY)
    found: list[pa.RecordBatch] = []
    places = (0, 28_000, 63_000, ROWS)
    for number, (first, last) in enumerate(pairwise(places)):
        own = MEMORY if number == 0 else memory
        with ps.App(text, memory=own, block_size="8KiB", checkpoint=tmp_path / "state") as app:
            app.subscribe("groups", found.append)
            for batch in batches("STRING", first=first, last=last):
                app.push("s", batch)
                app.checkpoint()
            if last == ROWS:
                app.finish()
    assert pa.Table.from_batches(found).equals(whole)


def test_a_smaller_budget_goes_on_with_what_is_in_shards(tmp_path: Path) -> None:
    text = program(SUMS, "STRING")
    whole, _ = answers(text, "STRING", 100 * MEMORY)
    found: list[pa.RecordBatch] = []
    for first, last, memory in ((0, 63_000, MEMORY), (63_000, ROWS, MEMORY // 2)):
        with ps.App(text, memory=memory, block_size="8KiB", checkpoint=tmp_path / "state") as app:
            app.subscribe("groups", found.append)
            for batch in batches("STRING", first=first, last=last):
                app.push("s", batch)
            app.checkpoint() if last < ROWS else app.finish()
    assert pa.Table.from_batches(found).equals(whole)


def test_four_hundred_thousand_groups_in_four_megabytes(windows: list[int]) -> None:
    stream = "CREATE STREAM s (t TIMESTAMP NOT NULL, k BIGINT NOT NULL, EVENT TIME t);"
    query = "CREATE QUERY groups AS SELECT k, COUNT(*) AS c FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k;"
    count = 400_000
    with ps.App(stream + query, memory=4_000_000) as app:
        shown: list[pa.RecordBatch] = []
        app.subscribe("groups", shown.append)
        for start in range(0, 2 * count, 50_000):
            numbers = np.arange(start, start + 50_000)
            app.push("s", pa.table({"t": numbers, "k": numbers * 7919 % count}))
        app.finish()
        assert app.metrics.memory_peak <= 4_000_000
    came = pa.Table.from_batches(shown)
    assert windows
    assert came["k"].to_numpy().tolist() == list(range(count))
    assert set(came["c"].to_pylist()) == {2}


def test_rows_that_wait_survive_a_checkpoint_for_which_there_is_no_room(tmp_path: Path) -> None:
    """A checkpoint moves no rows, so it needs no room for them. Single rows wait for each other in the window."""
    text = program("COUNT(*) AS c, MEDIAN(x) AS m", "BIGINT")
    found: list[dict[str, Any]] = []

    def push(app: ps.App, numbers: range) -> None:
        for i in numbers:
            app.push("s", {"t": i, "k": i % 50, "x": float(i), "n": 1})

    with ps.App(text, memory="64MB", checkpoint=tmp_path / "state") as app:
        app.subscribe("groups", lambda rows: found.extend(rows.to_pylist()))
        push(app, range(100))
        operator = operator_of(app)
        assert len(operator._waiting) > 50
        budget = app._stores.budget
        rest = budget.account("the rest")
        rest.resize(budget.unused)
        app.checkpoint()
        assert len(operator._waiting) > 50
        rest.close()
        push(app, range(100, 150))
        app.checkpoint()
    with ps.App(text, memory="64MB", checkpoint=tmp_path / "state") as app:
        app.subscribe("groups", lambda rows: found.extend(rows.to_pylist()))
        push(app, range(150, 200))
        app.finish()
    assert [(row["k"], row["c"], row["m"]) for row in found] == [(k, 4, k + 75.0) for k in range(50)]
