"""Tables of an app: loaded, refreshed, changed, looked at, saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from penstock import App, BudgetError, InputError, QueryError
from penstock.errors import CheckpointError, PenstockError
from penstock.testing import TestClock

STREAM = "CREATE STREAM s (t TIMESTAMP, id BIGINT, x INT, EVENT TIME t);"
ITEMS = pa.table({"id": [1, 2, 3], "name": ["one", "two", None], "price": [1.5, None, 3.5]})


def events(*rows: tuple[int, Any, Any]) -> list[dict[str, Any]]:
    return [{"t": t, "id": id_, "x": x} for t, id_, x in rows]


@pytest.fixture(params=["parquet", "csv", "jsonl"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"items.{request.param}"
    write(path, ITEMS)
    return path


def write(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    elif path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        import json

        path.write_text("\n".join(json.dumps(row) for row in table.to_pylist()))


def joined(path: Path, options: str = "") -> str:
    return f"""{STREAM}
        CREATE TABLE items (id INT PRIMARY KEY, name STRING, price DOUBLE) FROM '{path}' {options};
        SELECT s.x, name, price FROM s LEFT JOIN items ON s.id = items.id;"""


def test_loaded_from_a_file(file: Path) -> None:
    with App(joined(file)) as app:
        app.push("s", events((1, 2, 10), (2, 3, 20), (3, 9, 30), (4, None, 40)))
        found = app.results("q1").to_pylist()
        assert [(r["x"], r["name"], r["price"]) for r in found] == [
            (10, "two", None),
            (20, None, 3.5),
            (30, None, None),
            (40, None, None),
        ]
        assert app.table("ITEMS").to_pylist() == ITEMS.to_pylist()


def test_loaded_again(file: Path) -> None:
    clock = TestClock()
    with App(joined(file, "WITH ('refresh' = '10 SECONDS')"), clock=clock) as app:
        write(file, pa.table({"id": [1], "name": ["uno"], "price": [2.0]}))
        app.push("s", events((1, 1, 1)))
        clock.advance(10)
        app.push("s", events((2, 1, 2)))
        assert app.results("q1").column("name").to_pylist() == ["one", "uno"]
        file.unlink()
        clock.advance(10)
        app.push("s", events((3, 1, 3)))
        assert app.results("q1").column("name").to_pylist() == ["uno"]
        assert app.rejects[-1]["reason"].startswith("REFRESH")
        with pytest.raises(InputError):
            app.refresh("items")


def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("id,name,price\n1,one,1.5\nx,two,2\n")
    with pytest.raises(InputError, match="table items"):
        App(joined(path))
    with pytest.raises(InputError, match="does not exist"):
        App(joined(tmp_path / "nothing.csv"))


CHANGED = f"""{STREAM}
    CREATE TABLE totals (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, last INT);
    ON s WHERE s.x >= 0 UPSERT INTO totals (id, n, last) VALUES (s.id, COALESCE(n, 0) + 1, s.x);
    ON s WHERE s.x < 0 DELETE FROM totals WHERE totals.id = s.id;
    CREATE QUERY q AS SELECT s.t, s.id, n, PREV(n) AS before FROM s LEFT JOIN totals ON s.id = totals.id;"""


def test_an_event_sees_its_own_change() -> None:
    with App(CHANGED.replace("PREV(n)", "PREV(totals.n)")) as app:
        app.push("s", events((1, 7, 1), (1, 7, 2), (2, 7, -1), (3, 7, 5)))
        assert [(r["n"], r["before"]) for r in app.results("q").to_pylist()] == [
            (1, None),
            (2, 1),
            (None, 2),
            (1, None),
        ]
        assert app.table("totals").to_pylist() == [{"id": 7, "n": 1, "last": 5}]


def test_rejects_say_why() -> None:
    with App(
        f"""{STREAM}
        CREATE TABLE a (id BIGINT PRIMARY KEY, n TINYINT NOT NULL);
        ON s INSERT INTO a VALUES (s.id, s.x);
        ON s UPDATE a SET n = n + 100Y WHERE a.id = s.id AND s.x = 50;"""
    ) as app:
        app.push("s", events((1, 1, 50), (2, 1, 5), (3, None, 5), (4, 2, 300), (5, 3, None)))
        reasons = [reject["reason"].partition(":")[0] for reject in app.rejects]
        assert sorted(reasons) == ["ARITHMETIC_OVERFLOW", "CAST_OVERFLOW", "DUPLICATE_KEY", "NOT_NULL", "NULL_KEY"]
        assert app.table("a").to_pylist() == [{"id": 1, "n": 50}]


def test_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    text = CHANGED.replace("PREV(n)", "PREV(totals.n)")
    with App(text, checkpoint=tmp_path) as app:
        app.push("s", events(*((i, i % 5000, 1) for i in range(20_000))))
        app.checkpoint()
        app.push("s", events((20_000, 1, 1)))
    with App(text, checkpoint=tmp_path) as app:
        app.results("q")
        app.push("s", events((20_000, 3, 1)))
        assert [(r["n"], r["before"]) for r in app.results("q").to_pylist()] == [(5, 4)]
        assert app.table("totals").num_rows == 5000
    with pytest.raises(CheckpointError, match="another table"):
        App(text.replace("last INT", "last BIGINT"), checkpoint=tmp_path)


def test_queries_come_and_go() -> None:
    with App(CHANGED.replace("PREV(n)", "PREV(totals.n)")) as app:
        app.push("s", events((1, 7, 1)))
        name = app.add_query("SELECT s.id, n FROM s, totals WHERE s.id = totals.id")
        app.push("s", events((2, 7, 1), (3, 7, 1)))
        assert app.results(name).column("n").to_pylist() == [2, 3]
        app.drop_query("q")
        app.push("s", events((4, 7, 1)))
        assert app.results(name).column("n").to_pylist() == [4]
        with pytest.raises(QueryError, match="running app"):
            app.add_query("ON s DELETE FROM totals WHERE TRUE")
        with pytest.raises(QueryError, match="when the app starts"):
            app.add_query("CREATE TABLE b (id INT PRIMARY KEY); SELECT id FROM s")
        with pytest.raises(InputError, match="cannot be refreshed"):
            app.refresh("totals")


def test_derived_streams_change_tables() -> None:
    with App(
        f"""{STREAM}
        INSERT INTO hourly SELECT id, COUNT(*) AS n FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS] GROUP BY id;
        CREATE TABLE counts AS LAST BY id FROM hourly;
        CREATE QUERY q AS SELECT s.t, s.id, counts.n FROM s, counts WHERE s.id = counts.id;"""
    ) as app:
        app.push("s", events((1, 7, 1), (5, 7, 1), (11, 7, 1), (12, 8, 1), (25, 7, 1), (40, 8, 1)))
        app.finish()
        # Each event sees the counts of windows that ended before its time.
        assert [(r["id"], r["n"]) for r in app.results("q").to_pylist()] == [(7, 2), (7, 1), (8, 1)]


def test_the_past_is_forgotten() -> None:
    with App(CHANGED.replace("PREV(n)", "PREV(totals.n)")) as app:
        for start in range(0, 5000, 100):
            app.push("s", events(*((start + i, i % 7, 1) for i in range(100))))
        assert len(app._flow.tables.table("totals").history) < 250


def test_memory_is_on_the_budget() -> None:
    with App(CHANGED.replace("PREV(n)", "PREV(totals.n)"), memory="200KB") as app:
        app.push("s", events(*((i, i, 1) for i in range(20_000))))
        assert app.metrics.memory_peak <= 200_000
        assert app.metrics.tables["totals"].on_disk > 10_000


def test_many_changes_of_one_key_are_one_pass() -> None:
    text = f"""{STREAM}
        CREATE TABLE sums (id BIGINT PRIMARY KEY, n BIGINT, small TINYINT, d DOUBLE);
        ON s UPSERT INTO sums (id, n, small, d)
            VALUES (s.id, COALESCE(n, 0) + s.x, CAST(1 AS TINYINT), COALESCE(d, 0.0) - 0.5);"""
    rows = 100_000
    x = np.arange(rows) % 3
    with App(text) as app:
        time = pa.array(np.arange(rows)).view(pa.timestamp("us", tz="UTC"))
        app.push(
            "s", pa.record_batch({"t": time, "id": pa.array(np.zeros(rows, np.int64)), "x": pa.array(x, pa.int32())})
        )
        assert app.table("sums").to_pylist() == [{"id": 0, "n": int(x.sum()), "small": 1, "d": -0.5 * rows}]


def test_explain_says_how_rows_are_found() -> None:
    with App(
        f"""{STREAM} CREATE TABLE a (id INT PRIMARY KEY, zone INT);
        SELECT s.x FROM s, a WHERE s.id = a.id AND a.zone = 3;
        SELECT s.x FROM s, a WHERE s.x = a.zone;
        SELECT s.x FROM s, a WHERE s.x < a.zone;"""
    ) as app:
        shown = app.explain()
    assert "a by its key" in shown
    assert "batch grace" in shown
    assert "a by an index on zone" in shown
    assert "comparing every event with every row" in shown


def test_what_feeds_a_table_stays() -> None:
    with App(
        f"""{STREAM}
        INSERT INTO large SELECT t, id, x FROM s WHERE x > 10;
        CREATE TABLE l AS LAST BY id FROM large;
        CREATE QUERY q AS SELECT s.x, LAG(l.x) AS before FROM s, l WHERE s.id = l.id;"""
    ) as app:
        app.push("s", events((1, 7, 20), (2, 7, 5), (3, 7, 30)))
        app.finish()
        # The changes are those of another stream, behind s: an event sees what came of the events before it.
        assert [(r["x"], r["before"]) for r in app.results("q").to_pylist()] == [(5, 20), (30, 20)]
        app.drop_query("q")
        with pytest.raises(InputError, match="changes a table"):
            app.drop_query("large")


def test_large_pushes_come_in_parts() -> None:
    rows = 100_000
    t = pa.array(np.arange(rows)).view(pa.timestamp("us", tz="UTC"))
    ids, x = np.arange(rows) % 1000, np.ones(rows)
    batch = pa.record_batch({"t": t, "id": pa.array(ids), "x": pa.array(x, pa.int32())})
    with App(CHANGED.replace("PREV(n)", "PREV(totals.n)")) as app:
        app.push("s", batch)
        found = app.results("q")
        assert found.column("n").to_pylist() == (np.arange(rows) // 1000 + 1).tolist()
        assert found.column("before").to_pylist()[1000:] == (np.arange(rows) // 1000).tolist()[1000:]
        assert len(app._flow.tables.table("totals").history) <= 2 * 32768


@pytest.mark.parametrize("cut", [1, 2, 100])
def test_a_table_at_slides_hears_a_stream_after_one_that_derives_from_it(cut: int) -> None:
    rows = events((2, 1, 1), (4, 2, 5), (11, 3, 5), (12, 4, 1), (33, 5, 5))
    with App(
        f"""{STREAM}
        INSERT INTO large SELECT t, id, x FROM s WHERE x > 1;
        CREATE TABLE seen (id INT PRIMARY KEY, x INT);
        ON s UPSERT INTO seen VALUES (s.id, s.x);
        ON large UPDATE seen SET x = 0 WHERE seen.id = large.id;
        CREATE QUERY q AS SELECT window_end, COUNT(*) AS n, SUM(x) AS x FROM seen [SLIDE 5 MICROSECONDS];"""
    ) as app:
        for start in range(0, len(rows), cut):
            app.push("s", rows[start : start + cut])
        app.finish()
        shown = [(r["window_end"].microsecond, r["n"], r["x"]) for r in app.results("q").to_pylist()]
    assert shown == [(5, 2, 1), (10, 2, 1), *((end, 4, 2) for end in (15, 20, 25, 30)), (35, 5, 2)]


def test_a_condition_of_a_left_join_fails_only_where_there_is_a_row() -> None:
    with App(
        f"""{STREAM}
        CREATE TABLE kept (id INT PRIMARY KEY, x INT);
        ON s WHERE id = 1 UPSERT INTO kept VALUES (s.id, 5);
        CREATE QUERY q AS SELECT s.id, kept.x FROM s LEFT JOIN kept ON s.id = kept.id AND 10 / s.x > kept.x;"""
    ) as app:
        app.push("s", events((1, 1, 1), (2, 1, 0), (3, 2, 0)))
        app.finish()
        assert [(r["id"], r["x"]) for r in app.results("q").to_pylist()] == [(1, 5), (1, None), (2, None)]
        assert [reject["row"]["s.id"] for reject in app.rejects] == [1]


@pytest.mark.parametrize(
    ("output", "shown", "rejected"),
    [("kept.x", [7, 7], []), ("kept.x DIV s.x", [7], [{"s.id": 1, "s.x": 0, "kept.x": 7}])],
)
def test_columns_that_are_only_keys_are_left_behind_unless_rows_can_be_rejected(
    output: str, shown: list[int], rejected: list[dict[str, int]]
) -> None:
    with App(
        f"""{STREAM}
        CREATE TABLE kept (id INT PRIMARY KEY, x INT);
        ON s UPSERT INTO kept VALUES (s.id, 7);
        CREATE QUERY q AS SELECT {output} AS y FROM s JOIN kept ON s.id = kept.id;"""
    ) as app:
        app.push("s", events((1, 1, 1), (2, 1, 0)))
        app.finish()
        assert app.results("q").column("y").to_pylist() == shown
        assert [reject["row"] for reject in app.rejects] == rejected


def test_a_table_that_cannot_be_loaded_again_stays_as_it_was(tmp_path: Path) -> None:
    path, clock = tmp_path / "zones.csv", TestClock()
    path.write_text("id,x\n1,10\n")
    table = f"CREATE TABLE zones (id INT PRIMARY KEY, x INT) FROM '{path}' WITH ('refresh' = '1 MINUTE');"
    query = "CREATE QUERY q AS SELECT zones.x FROM s, zones WHERE s.id = zones.id;"
    with App(STREAM + table + query, memory="200KB", clock=clock) as app:
        path.write_text("id,x\n" + "".join(f"{i},{i}\n" for i in range(50_000)))
        clock.advance(61)
        app.push("s", events((1, 1, 0)))  # there is no room for it
        assert [reject["reason"][:7] for reject in app.rejects] == ["REFRESH"]
        with pytest.raises(BudgetError):
            app.refresh("zones")
        path.unlink()
        with pytest.raises(InputError, match="does not exist"):
            app.refresh("zones")
        with pytest.raises(PenstockError, match="nowhere"):
            app.refresh("nowhere")
        app.push("s", events((2, 1, 0)))
        assert app.results("q").column("x").to_pylist() == [10, 10]


@pytest.mark.parametrize(
    ("tail", "rejects"),
    [
        # Each pair of rows with t's first is rejected, also those in which u's differs.
        ("JOIN t ON t.k + 1 = s.k JOIN u ON u.k + 2 = s.k", [(1, 1), (1, 2)]),
        # The event is rejected beside each row of t, whatever that is.
        ("JOIN t ON t.k + 1 = s.k LEFT JOIN u ON u.id = s.n + 1", [(1, None), (2, None)]),
        # An event whose key fails is compared with all rows; the first condition that fails is the one that counts.
        ("JOIN t ON t.id = s.n + 1 JOIN u ON u.id = 2", [(1, 2), (2, 2)]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*compared")
def test_keys_that_fail_reject_the_pairs_of_their_rows(tail: str, rejects: list[tuple[int, int | None]]) -> None:
    most = 2**31 - 1
    program = f"""
        CREATE STREAM w (t TIMESTAMP, id INT, k INT, l INT, EVENT TIME t);
        CREATE STREAM s (t TIMESTAMP, k INT, n INT, EVENT TIME t);
        CREATE TABLE t (id INT PRIMARY KEY, k INT);
        CREATE TABLE u (id INT PRIMARY KEY, k INT);
        ON w UPSERT INTO t (id, k) VALUES (w.id, w.k);
        ON w UPSERT INTO u (id, k) VALUES (w.id, w.l);
        SELECT t.id AS one, u.id AS other FROM s {tail};
    """
    with App(program) as app:
        app.push("w", [{"t": 1, "id": 1, "k": most, "l": 0}, {"t": 2, "id": 2, "k": 7, "l": 3}])
        app.push("s", {"t": 3, "k": 5, "n": most})
        app.finish()
        assert [(r["row"]["t.id"], r["row"].get("u.id")) for r in app.rejects] == rejects
        assert app.results("q1").num_rows == 0
