"""A query that is added late with `backfill` answers from then on as if it had been there from the beginning.

stored     |===================================|      by a query with a longer window
                                     |---------|      the late query's window at its first boundary
                                         ^ added
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.running import plan_at_work
from penstock.errors import QueryError
from penstock.plan.physical.readers import aggregations

STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING, v BIGINT, x DOUBLE, EVENT TIME t LATENESS 2 SECONDS);"
OUTPUTS = "k, COUNT(*) AS n, SUM(v) AS a, AVG(x) AS b, MAX(v) AS c"
STORING = f"CREATE QUERY storing AS SELECT {OUTPUTS} FROM s [RANGE 40 SECONDS SLIDE 4 SECONDS] WHERE v > 1 GROUP BY k;"
Events = list[dict[str, Any]]


def events(first: int, last: int) -> Events:
    return [
        {"t": n * 700_000 - n % 3 * 600_000, "k": "abc"[n * n % 3], "v": n * 31 % 17, "x": n % 7 / 4}
        for n in range(first, last)
    ]


def late(emit: str, window: str, having: str = "", outputs: str = OUTPUTS) -> str:
    return f"CREATE QUERY late AS SELECT {emit} {outputs} FROM s [{window}] WHERE v > 1 GROUP BY k {having}"


def from_the_beginning(query: str, before: Events, after: Events) -> list[dict[str, Any]]:
    """What the query says after the first events, if it has seen them."""
    with ps.App(STREAM + query, strategy="window") as app:
        app.push("s", before)
        app.results("late")
        app.push("s", after)
        app.finish()
        return app.results("late").to_pylist()


@settings(max_examples=60, deadline=None)
@given(
    emit=st.sampled_from(("", "RSTREAM", "ISTREAM", "DSTREAM")),
    extent=st.integers(2, 30),
    slide=st.one_of(st.none(), st.integers(1, 9)),
    having=st.sampled_from(("", "HAVING COUNT(*) > 2")),
    outputs=st.sampled_from((OUTPUTS, "SUM(v) AS a", "k, MAX(v) AS m")),
    added=st.integers(0, 150),
    restarted=st.booleans(),
    full=st.sampled_from(("", " WHEN FULL")),
    options=st.sampled_from(({}, {"memory": "1MB", "block_size": "4KiB"})),
)
def test_answers_are_those_of_a_query_that_was_there(
    tmp_path_factory: pytest.TempPathFactory,
    emit: str,
    extent: int,
    slide: int | None,
    having: str,
    outputs: str,
    added: int,
    restarted: bool,
    full: str,
    options: dict[str, Any],
) -> None:
    query = late(emit, f"RANGE {extent} SECONDS SLIDE {min(slide or 0, extent - 1)} SECONDS{full}", having, outputs)
    if slide is None:
        query = late(emit, f"RANGE {extent} SECONDS{full}", having, outputs)
    before, after = events(0, added), events(added, 260)
    directory = tmp_path_factory.mktemp("checkpoint")
    app = ps.App(STREAM + STORING, strategy="window", checkpoint=directory, **options)
    try:
        app.push("s", before)
        if restarted:
            app.checkpoint()
            app.close()
            app = ps.App(STREAM + STORING, strategy="window", checkpoint=directory, **options)
        app.add_query(query, backfill=True)
        app.push("s", after)
        app.finish()
        assert app.results("late").to_pylist() == from_the_beginning(query, before, after)
    finally:
        app.close()


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT SUM(v) AS n FROM s [ROWS 5] WHERE v > 1 GROUP BY k", "counts rows from its own beginning"),
        ("SELECT SUM(v) AS n FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k", "only aggregates over a sliding"),
        ("SELECT v FROM s", "only aggregates over a sliding"),
        ("SELECT k, SUM(v) AS n FROM s [RANGE 50 SECONDS SLIDE 4 SECONDS] WHERE v > 1 GROUP BY k", "no query at work"),
        ("SELECT k, SUM(v) AS n FROM s [RANGE 20 SECONDS SLIDE 4 SECONDS] GROUP BY k", "no query at work"),
        ("SELECT SUM(v) AS n FROM s [RANGE 20 SECONDS SLIDE 4 SECONDS] WHERE v > 1", "no query at work"),
        ("SELECT k, SUM(x + 1) AS n FROM s [RANGE 20 SECONDS SLIDE 4 SECONDS] WHERE v > 1 GROUP BY k", "no query at"),
    ],
)
def test_what_is_not_stored_is_refused(query: str, why: str) -> None:
    with ps.App(STREAM + STORING, strategy="window") as app:
        app.push("s", events(0, 150))
        held = app.metrics.memory_bytes
        with pytest.raises(QueryError, match=why):
            app.add_query(query, backfill=True)
        assert app.queries == ("storing",)
        assert app.metrics.memory_bytes == held
        app.add_query(query)


def test_queries_that_are_added_together_share_what_they_take_over() -> None:
    """One of them compares whole evaluations, since it chooses among all rows; the first one does not compare."""
    queries = {
        "all_rows": late("", "RANGE 20 SECONDS SLIDE 4 SECONDS").replace("late AS", "all_rows AS"),
        "news": late("ISTREAM", "RANGE 20 SECONDS SLIDE 4 SECONDS", "ORDER BY a LIMIT 2").replace("late AS", "news AS"),
    }
    before, after = events(0, 100), events(100, 200)
    with ps.App(STREAM + STORING, strategy="window") as app:
        app.push("s", before)
        app.add_query(";".join(queries.values()), backfill=True)
        assert [[name for name, _ in group] for group in aggregations(plan_at_work(app._flow.running))] == [
            ["storing"],
            list(queries),
        ]
        app.push("s", after)
        app.finish()
        for name, query in queries.items():
            expected = from_the_beginning(query.replace(f"{name} AS", "late AS"), before, after)
            assert app.results(name).to_pylist() == expected, name


@pytest.mark.parametrize("order", ["", "ORDER BY k"])
def test_what_failed_before_a_query_came_is_not_said_again(order: str) -> None:
    """The evaluation before is looked at once more, silently."""
    large = [{"t": n * 1_000_000, "k": "a", "v": 2**62, "x": 0.5} for n in range(8)]
    with ps.App(STREAM + STORING.replace("SUM(v) AS a, ", ""), strategy="window") as app:
        app.push("s", large[:6])
        app.add_query(late("ISTREAM", "RANGE 20 SECONDS SLIDE 1 SECOND", order, "k, SUM(v) AS a"), backfill=True)
        assert app.metrics.rejected == 0
        app.push("s", large[6:])
        assert app.metrics.rejected == 2


def test_backfill_in_the_text() -> None:
    query = late("", "RANGE 20 SECONDS SLIDE 4 SECONDS")
    written = query.replace("late AS", "late BACKFILL AS")
    before, after = events(0, 100), events(100, 200)
    with ps.App(STREAM + STORING, strategy="window") as app:
        app.push("s", before)
        with pytest.raises(QueryError, match="of the queries that are added together late would begin with rows"):
            app.add_query(f"{written}; SELECT v FROM s")
        app.add_query(written)
        app.push("s", after)
        app.finish()
        assert app.results("late").to_pylist() == from_the_beginning(query, before, after)


def test_at_the_beginning_there_is_nothing_to_take_over_and_at_a_restart_it_is_refused(tmp_path: Path) -> None:
    written = late("", "RANGE 20 SECONDS SLIDE 4 SECONDS").replace("late AS", "late BACKFILL AS")
    with ps.App(STREAM + STORING + written, checkpoint=tmp_path) as app:
        app.push("s", events(0, 100))
        app.checkpoint()
    with ps.App(STREAM + STORING + written, checkpoint=tmp_path) as app:
        app.push("s", events(100, 200))
        assert app.results("late").num_rows > 10
    with pytest.raises(QueryError, match="query new is new and cannot begin with rows of the past at a restart"):
        ps.App(STREAM + STORING + written.replace("late BACKFILL", "new BACKFILL"), checkpoint=tmp_path)


def test_a_column_that_nobody_read_for_a_while_cannot_be_taken_over(tmp_path: Path) -> None:
    """`means` leaves and something that reads the same column comes again: rows in between have none of it."""
    means = "CREATE QUERY {} AS SELECT k, AVG(x) AS b FROM s [RANGE 20 SECONDS SLIDE 4 SECONDS] WHERE v > 1 GROUP BY k;"
    storing = STORING.replace(", AVG(x) AS b", "")
    with ps.App(STREAM + storing + means.format("means"), strategy="window", checkpoint=tmp_path) as app:
        app.push("s", events(0, 100))
        app.add_query(means.format("early"), backfill=True)
        app.drop_query("early")
        app.drop_query("means")
        app.push("s", events(100, 150))
        app.add_query(means.format("again"))
        with pytest.raises(QueryError, match="no query at work"):
            app.add_query(means.format("late"), backfill=True)
        app.checkpoint()
    again = ps.App(STREAM + storing + means.format("again"), strategy="window", checkpoint=tmp_path)
    with again, pytest.raises(QueryError, match="no query at work"):
        again.add_query(means.format("late"), backfill=True)
