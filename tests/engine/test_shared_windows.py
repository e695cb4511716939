"""Queries over one stream share one stored window: the space of the largest, blocks written once, no ties between them.

stored      |=====================================|   the largest window
q4          |-------------------------------------|
q2                            |-------------------|
q1                                      |---------|
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

SECOND = 1_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING NOT NULL, v BIGINT NOT NULL, EVENT TIME t);"
MEANS = "CREATE QUERY mean{0} AS SELECT k, AVG(v) AS mean FROM s [RANGE {0} SECONDS SLIDE 1 SECOND] GROUP BY k;"
ROWS = 4_000
MANY_ROWS = 20_000


def batch(first: int, rows: int = ROWS) -> pa.RecordBatch:
    """Twenty seconds of events, each key every tenth. Little memory cuts a push into many pieces: rows are few."""
    number = np.arange(first, first + rows)
    return pa.record_batch(
        {
            "t": pa.array(number * (20 * SECOND // rows)).cast(pa.timestamp("us")),
            "k": pa.array([f"k{n % 10}" for n in number.tolist()]),
            "v": pa.array(number % 101),
        }
    )


def program(*seconds: int) -> str:
    return STREAM + "".join(MEANS.format(s) for s in seconds)


def filled(*seconds: int, memory: int = 100_000, rows: int = ROWS, came: list[Any] | None = None) -> ps.App:
    """An app whose windows are full and on disk, but for a pool of a few blocks. With `came` no results wait: those of
    the longest window are put there."""
    app = ps.App(program(*seconds), memory=memory, block_size="1KiB" if rows == ROWS else "4KiB")
    for own in () if came is None else seconds:
        app.subscribe(f"mean{own}", came.append if came is not None and own == max(seconds) else lambda batch: None)
    for first in range(0, 5 * rows, rows):
        app.push("s", batch(first, rows))
    return app


@pytest.mark.parametrize(("rows", "most"), [(ROWS, 1.3), pytest.param(MANY_ROWS, 1.1, marks=pytest.mark.slow)])
def test_many_windows_take_the_space_of_the_largest(rows: int, most: float) -> None:
    """The states of six queries leave fewer blocks in memory, which shows where there are few rows. Windows apart would
    write four times as many blocks as the largest."""
    mean: list[Any] = []
    same: list[Any] = []
    six = (10, 20, 30, 40, 45, 50)
    with filled(50, rows=rows, came=mean) as largest, filled(*six, rows=rows, came=same) as shared:
        alone, together = largest.metrics, shared.metrics
        assert together.blocks_written <= most * alone.blocks_written
        assert together.stored_bytes <= 1.1 * alone.stored_bytes
        assert [row for batch in same for row in batch.to_pylist()] == [r for batch in mean for r in batch.to_pylist()]
    with filled(10, rows=rows, came=[]) as smallest:
        assert 4 * smallest.metrics.stored_bytes < together.stored_bytes


@pytest.mark.slow
def test_no_block_is_read_oftener_than_by_windows_apart() -> None:
    """Formula 4.1: a shared window reads and writes at most what its members would, each with its own store."""
    seconds = (10, 14, 40)
    apart_read = apart_written = 0
    for own in seconds:
        with filled(own, memory=100_000 // len(seconds), came=[]) as app:
            apart_read += app.metrics.blocks_read
            apart_written += app.metrics.blocks_written
    with filled(*seconds, came=[]) as shared:
        assert 0 < shared.metrics.blocks_read <= apart_read
        assert 0 < shared.metrics.blocks_written < apart_written / 2


def test_the_largest_window_leaves_and_its_rows_with_it() -> None:
    with filled(10, 50) as app:
        before = app.metrics.stored_bytes
        app.drop_query("mean50")
        assert app.metrics.stored_bytes < before / 3
        app.push("s", batch(5 * ROWS))
        app.finish()
        with ps.App(program(10)) as alone:
            for first in range(0, 6 * ROWS, ROWS):
                alone.push("s", batch(first))
            alone.finish()
            mean = app.results("mean10")
            assert mean.equals(alone.results("mean10").replace_schema_metadata(mean.schema.metadata))


def test_what_the_last_member_leaves_is_nothing(tmp_path: Path) -> None:
    with ps.App(STREAM + "SELECT v FROM s", checkpoint=tmp_path) as app:
        app.subscribe("q1", lambda batch: None)
        held = app.metrics.memory_bytes
        app.add_query(MEANS.format(5) + MEANS.format(50))
        app.push("s", batch(0))
        assert list(tmp_path.rglob("window-*"))
        app.drop_query("mean5")
        app.drop_query("mean50")
        assert app.metrics.memory_bytes == held
        assert not list(tmp_path.rglob("window-*"))


TEXTS = """
    CREATE QUERY short AS SELECT MAX(k) AS top FROM s [RANGE 2 SECONDS SLIDE 1 SECOND];
    CREATE QUERY long AS SELECT COUNT(DISTINCT k) AS n, LAST(k) AS last FROM s [RANGE 20 SECONDS SLIDE 1 SECOND];
"""


@pytest.mark.parametrize("gone", ["short", "long"])
def test_strings_stay_as_long_as_the_last_window_that_reads_them(gone: str, tmp_path: Path) -> None:
    """Ever new strings; one of two windows leaves, once while running and once by a restart without it."""
    texts = dict(zip(("short", "long"), TEXTS.strip().split(";\n"), strict=True))
    stays = next(name for name in texts if name != gone)

    def events(first: int, last: int) -> list[dict[str, object]]:
        return [{"t": n * SECOND // 10, "k": f"key {n:06d}", "v": n} for n in range(first, last)]

    with ps.App(STREAM + texts[stays]) as alone:
        alone.push("s", events(0, 900))
        expected = alone.results(stays).to_pylist()
    with ps.App(STREAM + TEXTS) as app:
        app.push("s", events(0, 400))
        app.drop_query(gone)
        app.push("s", events(400, 900))
        assert app.results(stays).to_pylist() == expected
        (window,) = app._flow._windows.values()
        strings = [len(interner) for interner in window._columns._texts.values()]
        assert strings == [30 if stays == "short" else 210]
    with ps.App(STREAM + TEXTS, checkpoint=tmp_path) as app:
        app.push("s", events(0, 400))
        came = app.results(stays).to_pylist()
        app.checkpoint()
    with ps.App(STREAM + texts[stays], checkpoint=tmp_path) as app:
        app.push("s", events(400, 900))
        assert came + app.results(stays).to_pylist() == expected
        (window,) = app._flow._windows.values()
        assert [len(interner) for interner in window._columns._texts.values()] == strings


def test_a_row_that_fails_is_rejected_for_each_query_that_reads_it() -> None:
    """`divided` and `again` share a grouping; `guarded` reads the argument where it cannot fail; `plain` not at all."""
    with ps.App(
        STREAM
        + """
        CREATE QUERY divided AS SELECT SUM(10 / v) AS n FROM s [RANGE 1 MINUTE];
        CREATE QUERY again AS SELECT MAX(10 / v) AS n FROM s [RANGE 1 HOUR];
        CREATE QUERY guarded AS SELECT SUM(10 / v) FILTER (WHERE v > 0) AS n FROM s [RANGE 1 MINUTE];
        CREATE QUERY plain AS SELECT SUM(v) AS n FROM s [RANGE 1 MINUTE];
        """
    ) as app:
        app.push("s", [{"t": n * SECOND, "k": "a", "v": v} for n, v in enumerate((5, 0, 2))])
        assert app.results("divided").column("n").to_pylist() == [2.0, 7.0]
        assert app.results("again").column("n").to_pylist() == [2.0, 5.0]
        assert app.results("guarded").column("n").to_pylist() == [2.0, 2.0, 7.0]
        assert app.results("plain").column("n").to_pylist() == [5, 5, 7]
        assert [reject["row"]["v"] for reject in app.rejects] == [0, 0]


def test_explain_names_the_sharers() -> None:
    """A query that comes later joins if all that it reads is stored; tumbling windows store nothing."""
    tumbling = "CREATE QUERY hourly AS SELECT SUM(v) AS n FROM s [RANGE 1 HOUR SLIDE 1 HOUR];"
    with ps.App(program(5, 50) + tumbling) as app:
        app.add_query(MEANS.format(7))
        app.add_query("CREATE QUERY other AS SELECT k, SUM(v + 1) AS n FROM s [RANGE 5 SECONDS] GROUP BY k")
        lines = app.explain().splitlines()
    shares = {lines[i - 1]: line for i, line in enumerate(lines) if line.startswith("shares")}
    assert shares == {
        "mean5": "shares its stored rows with mean50, mean7",
        "mean50": "shares its stored rows with mean5, mean7",
        "mean7": "shares its stored rows with mean5, mean50",
    }


def test_a_query_that_comes_later_costs_no_space() -> None:
    with filled(50) as app, filled(50) as without:
        app.add_query(MEANS.format(20))
        for some in (app, without):
            some.push("s", batch(5 * ROWS))
        with ps.App(program(20)) as alone:
            alone.push("s", batch(5 * ROWS))
            mean = app.results("mean20")
            assert mean.num_rows > 0
            assert mean.equals(alone.results("mean20").replace_schema_metadata(mean.schema.metadata))
        assert app.metrics.blocks_written <= 1.05 * without.metrics.blocks_written
        assert app.metrics.stored_bytes <= 1.05 * without.metrics.stored_bytes


TWO_STREAMS = STREAM + STREAM.replace("STREAM s", "STREAM slow")


@pytest.mark.parametrize(
    ("memory", "rows"),
    [
        (45_000, ROWS),
        (70_000, ROWS),
        pytest.param(150_000, MANY_ROWS, marks=pytest.mark.slow),
        pytest.param(400_000, MANY_ROWS, marks=pytest.mark.slow),
    ],
)
def test_windows_of_two_streams_answer_alike_in_any_memory(memory: int, rows: int) -> None:
    """Memory that moves between streams and groups changes no answer, and is never more than there is."""
    seconds = (5, 8, 13, 30)
    queries = "".join(MEANS.format(s) for s in seconds)
    on_slow = queries.replace("QUERY mean", "QUERY slow").replace("FROM s ", "FROM slow ")
    names = [f"{name}{s}" for s in seconds for name in ("mean", "slow")]
    answers = []
    for budget in (memory, 64_000_000):
        with ps.App(TWO_STREAMS + queries + on_slow, memory=budget, block_size="1KiB") as app:
            for first in range(0, 3 * rows, rows):
                app.push("s", batch(first, rows))
                app.push("slow", batch(first, rows).take(pa.array(np.arange(0, rows, 7))))
                assert app.metrics.memory_peak <= budget
            answers.append({name: app.results(name).to_pydict() for name in names})
            assert (app.metrics.blocks_read > 0) == (budget == memory)
    assert answers[0] == answers[1]
