"""Tables with a time to live: what is freed and when, what the metrics say, what a restart or a late reader finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import App
from penstock.errors import CheckpointError

STREAMS = """
    CREATE STREAM s (t BIGINT, k BIGINT, x BIGINT, EVENT TIME t UNIT SECONDS);
    CREATE STREAM late (t BIGINT, k BIGINT, EVENT TIME t UNIT SECONDS);
"""
TABLE = STREAMS + "CREATE TABLE T AS LAST BY k FROM s WITH ('ttl' = '100 SECONDS');"


def rows(*times: int) -> list[dict[str, Any]]:
    """Events with a key of their own each."""
    return [{"t": t, "k": t, "x": 1} for t in times]


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_rows_that_are_over_are_freed(cut: int) -> None:
    with App(TABLE) as app:
        most = 0
        for start in range(0, 5000, cut):
            app.push("s", rows(*range(start, min(start + cut, 5000))))
            most = max(most, app.metrics.tables["T"].rows)
        held = app.metrics.tables["T"]
        # A sweep every eighth of the time to live; a push is taken as a whole before.
        assert most <= 100 + 13 + cut
        assert held.rows + held.expired == 5000
        assert held.retention is not None
        assert held.retention < 113_000_000
        assert app.table("T").num_rows == 100


def test_texts_of_rows_that_are_over_are_freed() -> None:
    text = """
        CREATE STREAM s (t BIGINT, w STRING, EVENT TIME t UNIT SECONDS);
        CREATE TABLE T AS LAST BY w FROM s WITH ('ttl' = '10 SECONDS');
        SELECT T.w FROM s, T WHERE s.w = T.w
    """
    with App(text, memory="1500KB") as app:
        for start in range(0, 50_000, 500):
            app.push("s", [{"t": t, "w": f"a text of its own, {t:040d}"} for t in range(start, start + 500)])
            assert app.results("q1").num_rows == 500
        assert app.metrics.tables["T"].rows <= 512


def test_a_burst_gives_its_memory_back(tmp_path: Path) -> None:
    with App(TABLE, checkpoint=tmp_path) as app:
        app.push("s", [{"t": 1, "k": k, "x": k} for k in range(100_000)])
        most = app.metrics.memory_bytes
        app.checkpoint()
        app.push("s", rows(*range(100, 250, 5)))
        assert app.metrics.tables["T"].rows == 20
        assert app.metrics.memory_bytes < most / 4
        app.checkpoint()
    with App(TABLE, checkpoint=tmp_path) as app:
        assert [row["k"] for row in app.table("T").to_pylist()] == list(range(150, 250, 5))


def test_a_row_is_written_again_before_it_is_over() -> None:
    with App(TABLE) as app:
        for t in range(0, 1000, 50):
            app.push("s", {"t": t, "k": 1, "x": t})
        assert app.table("T").to_pylist() == [{"t": 950, "k": 1, "x": 950}]
        assert app.metrics.tables["T"].expired == 0


def test_rows_stay_for_a_reader_that_is_behind() -> None:
    text = TABLE + "CREATE QUERY found AS SELECT late.k, x FROM late LEFT JOIN T ON late.k = T.k"
    with App(text) as app:
        app.push("s", rows(*range(1000)))
        assert app.metrics.tables["T"].rows == 1000
        app.push("late", [{"t": 99, "k": 0}, {"t": 100, "k": 0}, {"t": 950, "k": 900}])
        app.push("s", rows(1001))
        assert app.results("found").to_pylist() == [{"k": 0, "x": 1}, {"k": 0, "x": None}, {"k": 900, "x": 1}]
        assert app.metrics.tables["T"].rows < 200


def test_rows_do_not_stay_for_a_derived_stream_without_rows() -> None:
    text = (
        TABLE
        + """
        INSERT INTO rare SELECT k FROM s WHERE x = 7;
        CREATE QUERY found AS SELECT T.k FROM rare AS r, T WHERE r.k = T.k
    """
    )
    with App(text) as app:
        for start in range(0, 2000, 50):
            app.push("s", rows(*range(start, start + 50)))
        assert app.metrics.tables["T"].rows < 200


def test_time_alone_ends_rows() -> None:
    with App(TABLE) as app:
        app.push("s", rows(1, 50))
        assert app.table("T").num_rows == 2
        app.advance("s", 101 * 1_000_000)
        assert [row["k"] for row in app.table("T").to_pylist()] == [50]
        app.finish()
        assert [row["k"] for row in app.table("T").to_pylist()] == [50]


@pytest.mark.parametrize("cut", [1, 10])
def test_a_query_that_comes_later_does_not_see_what_was_over(cut: int) -> None:
    """Whether the rows have been freed by then makes no difference."""
    with App(TABLE) as app:
        events = rows(*range(0, 300, 10))
        for start in range(0, len(events), cut):
            app.push("s", events[start : start + cut])
        app.add_query("CREATE QUERY found AS SELECT late.t, T.k FROM late, T WHERE T.k >= late.k")
        app.push("late", {"t": 250, "k": 0})
        app.push("s", rows(300))
        assert [row["k"] for row in app.results("found").to_pylist()] == list(range(200, 300, 10))


def test_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    text = TABLE + "CREATE QUERY found AS SELECT s.t, T.k FROM s, T WHERE T.k = s.k - 99"
    with App(text, checkpoint=tmp_path) as app:
        app.push("s", rows(*range(500)))
        before = app.metrics.tables["T"]
        app.checkpoint()
    with App(text, checkpoint=tmp_path) as app:
        assert app.metrics.tables["T"] == before
        assert app.table("T").num_rows == 100
        app.push("s", rows(*range(500, 600)))
        app.push("s", rows(*range(600, 603)))
        assert [row["k"] for row in app.results("found").to_pylist()] == list(range(504))


@pytest.mark.parametrize("other", ["", " WITH ('ttl' = '99 SECONDS')"])
def test_another_time_to_live_is_another_table(other: str, tmp_path: Path) -> None:
    with App(TABLE, checkpoint=tmp_path) as app:
        app.push("s", rows(1))
        app.checkpoint()
    with pytest.raises(CheckpointError, match="another table T"):
        App(TABLE.replace(" WITH ('ttl' = '100 SECONDS')", other), checkpoint=tmp_path)


def test_explain_says_for_how_long_rows_are_there() -> None:
    reads = "SELECT x FROM late, T WHERE late.k = T.k; SELECT k FROM T [SLIDE 1 SECOND];"
    kept = "rows are there for less than 1 MINUTE 40 SECONDS after their last change"
    assert App(TABLE + reads).explain().count(kept) == 2
    assert kept not in App(TABLE.replace("WITH ('ttl' = '100 SECONDS')", "") + reads).explain()


def test_metrics_of_a_table_without_a_time_to_live() -> None:
    with App(TABLE.replace("WITH ('ttl' = '100 SECONDS')", "")) as app:
        app.push("s", rows(1, 2, 3))
        found = app.metrics.tables["T"]
        assert (found.rows, found.past, found.expired, found.retention) == (3, 0, 0, None)


def test_a_rule_counts_rows_of_the_table_that_it_changes() -> None:
    text = """
        CREATE STREAM s (t BIGINT, k BIGINT, x BIGINT, EVENT TIME t UNIT SECONDS);
        CREATE TABLE open AS LAST BY k FROM s WHERE x > 0 WITH ('ttl' = '10 SECONDS');
        CREATE RULE close WHEN SELECT t, k, x FROM s WHERE x < 0 EVERY
            THEN DELETE FROM open WHERE (SELECT COUNT(*) FROM open AS o WHERE o.x = open.x) > 1;
        CREATE QUERY found AS SELECT s.t, o.k FROM s, open AS o;
    """
    with App(text) as app:
        events = [(0, 1, 5), (1, 2, 5), (2, 3, 6), (3, 9, -1), (4, 4, 6), (13, 9, -1), (15, 9, 0)]
        app.push("s", [{"t": t, "k": k, "x": x} for t, k, x in events])
        app.finish()
        assert [row["k"] for row in app.table("open").to_pylist()] == []
        found = [(row["t"], row["k"]) for row in app.results("found").to_pylist()]
        assert found == [
            (0, 1),
            (1, 1),
            (1, 2),
            (2, 1),
            (2, 2),
            (2, 3),
            (3, 1),
            (3, 2),
            (3, 3),
            (4, 3),
            (4, 4),
            (13, 4),
        ]
