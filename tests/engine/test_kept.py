"""What is kept of a checkpoint when the program has changed, and that `penstock explain --checkpoint` says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.kept import explain_kept
from penstock.errors import CheckpointError
from penstock.lang import parse

SECOND = 1_000_000
COLUMNS = "t TIMESTAMP, k STRING, v BIGINT, w BIGINT"
QUERIES = {
    "slides": "SELECT k, SUM(v) AS n FROM s [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY k",
    "in_rows": "SELECT k, MAX(v) AS n FROM s [ROWS 50] GROUP BY k",
    "plain": "SELECT k, v FROM s [ROWS 4 SLIDE 3]",
    "queues": "SELECT k, v FROM s [PARTITION BY k ROWS 3]",
    "joined": "SELECT x.v AS a, y.v AS b FROM s [ROWS 5] AS x JOIN s [ROWS 5] AS y ON x.k = y.k",
    "matches": "SELECT x.v AS a, y.v AS b FROM PATTERN SEQ(s x, s y) WHERE x.k = y.k WITHIN 3 SECONDS",
    "union_of": "SELECT k FROM s WHERE v > 3 UNION ALL SELECT k FROM s WHERE v < 90",
    "lengths": "SELECT k, SUM(v) OVER [RANGE 20 SECONDS] AS x, COUNT(*) AS y FROM s [RANGE 1 MINUTE SLIDE 5 SECONDS] "
    "GROUP BY k",
    "sessions": "SELECT k, COUNT(*) AS c FROM s [PARTITION BY k SESSION 3 SECONDS] GROUP BY k",
}


def stream(columns: str = COLUMNS, more: str = "") -> str:
    return f"CREATE STREAM s ({columns}, EVENT TIME t LATENESS 3 SECONDS){more};"


def program(*names: str, **changed: str) -> str:
    texts = {name: QUERIES[name] for name in names} | changed
    return "".join(f"CREATE QUERY {name} AS {text};" for name, text in texts.items())


def events(start: int, stop: int, *more: str) -> list[dict[str, Any]]:
    return [
        {"t": (i - i % 3) * SECOND, "k": "ab"[i % 2], "v": i, "w": -i, **dict.fromkeys(more, str(i))}
        for i in range(start, stop)
    ]


def saved(text: str, directory: Path) -> None:
    with ps.App(text, checkpoint=directory) as app:
        app.push("s", events(0, 100))
        for name in app.queries:
            app.results(name)
        app.checkpoint()


def further(text: str, directory: Path, *more: str) -> dict[str, list[dict[str, Any]]]:
    with ps.App(text, checkpoint=directory) as app:
        app.push("s", events(100, 200, *more))
        app.finish()
        return {name: app.results(name).to_pylist() for name in app.queries}


@pytest.mark.parametrize(
    "columns",
    [COLUMNS + ", x STRING", "t TIMESTAMP, x STRING, k STRING, v BIGINT, w BIGINT", COLUMNS + ", x STRING NOT NULL"],
    ids=["at the end", "in the middle", "not null"],
)
def test_a_column_that_no_query_reads_keeps_all(tmp_path: Path, columns: str) -> None:
    text = program(*QUERIES)
    saved(stream() + text, tmp_path / "d")
    saved(stream() + text, tmp_path / "same")
    told = explain_kept(parse(stream(columns) + text), tmp_path / "d")
    assert all(f"query {name}: kept whole" in told for name in QUERIES)
    assert "stream s: kept whole; x came" in told
    found = further(stream(columns) + text, tmp_path / "d", "x")
    assert found == further(stream() + text, tmp_path / "same")
    assert all(found.values())
    # And once more, from a checkpoint that has the column.
    with ps.App(stream(columns) + text, checkpoint=tmp_path / "e") as app:
        app.push("s", events(0, 50, "x"))
        app.checkpoint()
    assert "begins anew" not in explain_kept(parse(stream(columns) + text), tmp_path / "e")


@pytest.mark.parametrize("late", ["", " LATE INTO aside"], ids=["no late events", "with all columns"])
def test_a_new_query_may_read_the_new_column(tmp_path: Path, late: str) -> None:
    """It is NULL in events that waited to be put in order."""
    saved(stream(more=late) + program("slides"), tmp_path)
    text = stream(COLUMNS + ", x STRING", late) + program("slides", fresh="SELECT v, x FROM s")
    told = explain_kept(parse(text), tmp_path)
    assert "query slides: kept whole" in told
    assert "query fresh: begins anew, it is not in the checkpoint" in told
    rows = further(text, tmp_path, "x")["fresh"]
    assert [row["x"] for row in rows] == [None if row["v"] < 100 else str(row["v"]) for row in rows]
    assert {row["x"] is None for row in rows} == {False, True}


def test_a_new_column_without_null_cannot_be_filled(tmp_path: Path) -> None:
    saved(stream() + program("slides"), tmp_path)
    text = stream(COLUMNS + ", x STRING NOT NULL") + program("slides", fresh="SELECT v, x FROM s")
    assert "REFUSED, events that wait to be put in order (1) have no x" in explain_kept(parse(text), tmp_path)
    with pytest.raises(CheckpointError, match="without x, which no query read then"):
        ps.App(text, checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("t TIMESTAMP, k STRING, v BIGINT", "column w of stream s is gone"),
        ("t TIMESTAMP, k STRING, v BIGINT, w INT", "column w of stream s has another type"),
        ("t TIMESTAMP, k STRING, v BIGINT, w BIGINT NOT NULL", "column w of stream s has another type"),
    ],
)
def test_what_was_declared_stays(tmp_path: Path, columns: str, says: str) -> None:
    saved(stream() + program("slides"), tmp_path)
    assert f"stream s: REFUSED, {says}" in explain_kept(parse(stream(columns) + program("slides")), tmp_path)
    with pytest.raises(CheckpointError, match=says):
        ps.App(stream(columns) + program("slides"), checkpoint=tmp_path)


def test_queries_that_change_begin_anew_and_others_are_kept(tmp_path: Path) -> None:
    saved(stream() + program("slides", "in_rows", "sessions"), tmp_path)
    changed = QUERIES["slides"].replace("AS n", "AS n, MAX(v) AS m")
    text = stream() + program("in_rows", slides=changed, fresh="SELECT COUNT(*) AS c FROM s [ROWS 9]")
    told = explain_kept(parse(text), tmp_path).splitlines()[1:]
    assert told == [
        "  stream s: kept whole",
        "  query in_rows: kept whole, 50 rows and 2 groups",
        "  query slides: begins anew, it computes something else than the saved one; 99 rows and 2 groups are not "
        "taken over",
        "  query fresh: begins anew, it is not in the checkpoint",
        "  query sessions: forgotten, it is not in the program; 0 rows and 2 groups go",
    ]
    with ps.App(text, checkpoint=tmp_path) as app:
        assert {name: running.outlet.count > 0 for name, running in app._flow.running.items()} == {
            "slides": False,
            "in_rows": True,
            "fresh": False,
        }


def test_tables(tmp_path: Path) -> None:
    tables = "CREATE TABLE latest AS LAST BY k FROM s; CREATE TABLE sums (k STRING PRIMARY KEY, n BIGINT);"
    tables += "ON s UPSERT INTO sums (k, n) VALUES (s.k, COALESCE(n, 0) + v);"
    saved(stream() + tables + program("slides"), tmp_path)
    told = explain_kept(parse(stream() + tables), tmp_path)
    assert "table latest: kept whole" in told
    assert "table sums: kept whole" in told
    assert "query slides: forgotten" in told
    told = explain_kept(parse(stream(COLUMNS + ", x STRING") + tables), tmp_path)
    assert "table latest: REFUSED, its columns or its key have changed" in told
    assert "table sums: kept whole" in told


def test_the_command(penstock: Any, tmp_path: Path) -> None:
    text = stream() + program("slides")
    saved(text, tmp_path / "d")
    (tmp_path / "app.sql").write_text(text)
    code, out, _ = penstock("explain", tmp_path / "app.sql", "--checkpoint", tmp_path / "d")
    assert code == 0
    assert "query slides: kept whole, 99 rows and 2 groups" in out
    code, _, err = penstock("explain", tmp_path / "app.sql", "--checkpoint", tmp_path)
    assert code == 2
    assert "has no checkpoint yet: everything begins anew" in err
