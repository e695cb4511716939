"""More different texts than memory: they go to shards on the disk, the budget holds, and answers stay what they are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import BudgetError
from penstock.operators.shared_window import SharedWindow

MINUTE = 60_000_000
TEXTS = 30_000
MEMORY = 2_000_000
STREAM = (
    "CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING NOT NULL, u STRING, v STRING NOT NULL, x BIGINT, EVENT TIME t);"
)
COUNT = "COUNT(DISTINCT u) AS n"
BESIDE = "COUNT(*) AS c, COUNT(u) AS cu, SUM(x) AS s, AVG(x) AS a, MIN(x) AS lo, MAX(x) AS hi, MEDIAN(x) AS me"
SEVERAL = f"{COUNT}, COUNT(DISTINCT v) AS m, COUNT(DISTINCT u) FILTER (WHERE x = 1) AS one, {BESIDE}"
SLIDES, TUMBLES = "[RANGE 1 HOUR SLIDE 10 MINUTES]", "[RANGE 1 HOUR SLIDE 1 HOUR]"
LATER = "CASE WHEN t < TIMESTAMP '1970-01-01 00:50:00Z' THEN '' ELSE v END"
QUERIES = {
    "slides": f"SELECT {COUNT} FROM s {SLIDES}",
    "tumbling": f"SELECT {COUNT} FROM s {TUMBLES}",
    "several": f"SELECT {SEVERAL} FROM s {SLIDES} WHERE x < 5",
    "several, tumbling": f"SELECT {SEVERAL} FROM s {TUMBLES}",
    "lengths": f"SELECT {COUNT}, COUNT(DISTINCT u) OVER [RANGE 20 MINUTES] AS short, SUM(x) AS s FROM s {SLIDES}",
    "expressions": f"SELECT COUNT(DISTINCT u || k) AS n, COUNT(DISTINCT u) - 9 AS m FROM s {SLIDES} HAVING SUM(x) > 5",
    "every event": f"SELECT {COUNT}, SUM(x) AS s FROM s [RANGE 40 MINUTES] WHERE x > 0",
    "every 1000th event": f"SELECT {COUNT} FROM s [RANGE 1 HOUR SLIDE 1000 ROWS]",
    "counts alone": f"SELECT COUNT(u) AS n FROM s [ROWS {TEXTS} SLIDE 1000]",
    "changes of counts": f"SELECT ISTREAM k, COUNT(u) AS n FROM s {SLIDES} GROUP BY k",
    "groups that come later": f"SELECT {LATER} AS w, COUNT(u) AS n FROM s {SLIDES} GROUP BY {LATER}",
    "groups": f"SELECT k, {SEVERAL} FROM s {SLIDES} GROUP BY k",
    "groups at every event": f"SELECT k, {COUNT}, MAX(u) AS last FROM s [RANGE 1 HOUR] GROUP BY k",
}
ROWS = 3 * TEXTS
FEW_ROWS = 28_000
"""For a query that is looked at with every event: all shards are played for each few of them."""
BATCH = 6_000


def numbers_of(rows: np.ndarray) -> np.ndarray:
    """Nearly all are different within an hour, in a scattered order; every seventh event has one of ten texts."""
    return np.where(rows % 7 == 0, rows % 10, rows * 7919 % (TEXTS + 1))


def batches(first: int = 0, last: int = ROWS) -> Iterator[pa.RecordBatch]:
    for start in range(first, last, BATCH):
        rows = np.arange(start, min(start + BATCH, last))
        times = pa.array(rows * (60 * MINUTE) // TEXTS + rows // 50_000 * (65 * MINUTE)).view(pa.timestamp("us"))
        numbers = numbers_of(rows)
        texts = pa.array([f"6ba7b810-9dad-11d1-80b4-{number:012}" for number in numbers.tolist()])
        users = pa.compute.if_else(pa.array(rows % 13 == 0), None, texts)
        others = pa.array([f"é{number % 9000}" for number in numbers.tolist()])
        keys = pa.array([f"key {number % 40}" for number in numbers.tolist()])
        columns = [times, keys, users, others, pa.array(rows % 6)]
        yield pa.RecordBatch.from_arrays(columns, names=["t", "k", "u", "v", "x"])


def program(*queries: str) -> str:
    return STREAM + "".join(f"CREATE QUERY q{i} AS {QUERIES[query]};" for i, query in enumerate(queries))


def rows_for(query: str) -> int:
    return FEW_ROWS if query == "every event" else ROWS


def push_all(app: ps.App, rows: int = ROWS) -> None:
    for batch in batches(0, rows):
        app.push("s", batch)


def answers(memory: int, *queries: str) -> tuple[list[pa.Table], ps.Metrics]:
    with ps.App(program(*queries), memory=memory, block_size="8KiB") as app:
        found: list[list[pa.RecordBatch]] = [[] for _ in queries]
        for i, came in enumerate(found):
            app.subscribe(f"q{i}", came.append)
        push_all(app, min(map(rows_for, queries)))
        app.finish()
        return [pa.Table.from_batches(came) for came in found], app.metrics


@pytest.mark.parametrize("query", QUERIES)
def test_answers_are_those_of_enough_memory(query: str) -> None:
    [whole], in_memory = answers(100 * MEMORY, query)
    [paged], metrics = answers(MEMORY, query)
    assert whole.num_rows > 0
    assert paged.equals(whole)
    assert metrics.memory_peak <= MEMORY
    assert in_memory.memory_peak > MEMORY


def test_windows_counted_by_hand() -> None:
    [paged], _ = answers(MEMORY, "several, tumbling")
    table = pa.Table.from_batches(batches())
    hours = table["t"].cast(pa.int64()).to_numpy() // (60 * MINUTE)
    shown = list(zip(*(paged[name].to_pylist() for name in ("n", "m", "one", "cu", "s")), strict=True))
    expected = []
    for hour in sorted(set(hours.tolist())):
        own = table.filter(pa.array(hours == hour))
        ones = own.filter(pa.array(own["x"].to_numpy() == 1))
        distinct = [len(set(column.to_pylist()) - {None}) for column in (own["u"], own["v"], ones["u"])]
        expected.append((*distinct, len(own) - own["u"].null_count, sum(own["x"].to_pylist())))
    assert shown == expected


def test_queries_that_share_a_window() -> None:
    """All readers of a column let go of it together."""
    names = ("slides", "several", "lengths", "groups")
    whole, _ = answers(200 * MEMORY, *names)
    paged, metrics = answers(3 * MEMORY, *names)
    assert all(one.equals(other) for one, other in zip(paged, whole, strict=True))
    assert metrics.memory_peak <= 3 * MEMORY


def test_groups_go_to_shards_after_texts_that_they_count() -> None:
    """Of the texts of their rows only the validity is known then."""
    whole, _ = answers(100 * MEMORY, "slides", "groups that come later")
    begun: list[str] = []
    forget_text, forget_groups = SharedWindow._forget_text, SharedWindow.forget_groups
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedWindow, "_forget_text", lambda *of: begun.append("texts") or forget_text(*of))
        patch.setattr(SharedWindow, "forget_groups", lambda *of: begun.append("groups") or forget_groups(*of))
        paged, metrics = answers(MEMORY, "slides", "groups that come later")
    assert begun == ["texts", "groups"]
    assert all(one.equals(other) for one, other in zip(paged, whole, strict=True))
    assert metrics.memory_peak <= MEMORY


@pytest.mark.parametrize("memory", [MEMORY, 3 * MEMORY, 100 * MEMORY])
@pytest.mark.parametrize("query", ["slides", "several, tumbling", "lengths", "groups", "every event"])
def test_a_checkpoint_goes_on_in_any_budget(query: str, memory: int, tmp_path: Path) -> None:
    [whole], _ = answers(100 * MEMORY, query)
    found: list[pa.RecordBatch] = []
    rows = rows_for(query)
    for first, last in pairwise((0, 0.31, 0.71, 1)):
        own = MEMORY if first == 0 else memory
        with ps.App(program(query), memory=own, block_size="8KiB", checkpoint=tmp_path / "state") as app:
            app.subscribe("q0", found.append)
            for number, batch in enumerate(batches(int(first * rows), int(last * rows))):
                app.push("s", batch)
                if number % 3 == 0:
                    app.checkpoint()
            if last == 1:
                app.finish()
            else:
                app.checkpoint()
    assert pa.Table.from_batches(found).equals(whole)


def test_queries_come_and_go() -> None:
    """One that comes later and reads a column whose texts are in shards has a window of its own."""
    found: dict[str, list[pa.RecordBatch]] = {"one": [], "two": [], "three": []}
    with ps.App(STREAM, memory=2 * MEMORY, block_size="8KiB") as app:
        app.add_query(f"CREATE QUERY one AS {QUERIES['slides']}")
        app.subscribe("one", found["one"].append)
        for number, batch in enumerate(batches()):
            if number == 6:
                app.add_query(f"CREATE QUERY two AS {QUERIES['slides']}")
                app.add_query(f"CREATE QUERY three AS SELECT COUNT(*) AS n FROM s {SLIDES}")
                app.subscribe("two", found["two"].append)
                app.subscribe("three", found["three"].append)
            if number == 12:
                app.drop_query("one")
            app.push("s", batch)
        app.finish()
        assert app.metrics.memory_peak <= 2 * MEMORY
    [whole], _ = answers(100 * MEMORY, "slides")
    one, two = (pa.Table.from_batches(found[name]) for name in ("one", "two"))
    assert one.equals(whole.slice(0, one.num_rows))
    assert 0 < one.num_rows < whole.num_rows
    last = two.slice(two.num_rows - 6)
    assert last.equals(whole.slice(whole.num_rows - 6)), "its window is full by then"
    assert found["three"]


def test_texts_whose_order_is_asked_for_are_in_memory() -> None:
    query = f"CREATE QUERY q AS SELECT {COUNT}, MIN(u) AS m FROM s {SLIDES};"
    with ps.App(STREAM + query, memory=MEMORY) as app, pytest.raises(BudgetError):
        push_all(app)
