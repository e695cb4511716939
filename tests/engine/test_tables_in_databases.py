"""Tables that live in a database: loaded, looked up in batches, written behind; a server that goes away and returns."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import App, QueryError, StorageError
from penstock.engine.tables import database as table_database
from penstock.engine.tables.looked_up import LookedUpTable
from penstock.testing import TestClock
from penstock_bench.measure.postgres import PostgresServer

STREAM = "CREATE STREAM s (t TIMESTAMP, id INT, x INT, u STRING, EVENT TIME t);"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


@pytest.fixture(params=["postgres", "sqlite"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'tables.db'}"
    found: str = request.getfixturevalue("server").uri
    with psycopg.connect(found, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS items, pairs, penstock_epochs")
    return found


def sql(uri: str, *statements: str) -> list[Any]:
    rows: list[Any] = []
    if uri.startswith("sqlite:"):
        with sqlite3.connect(uri.removeprefix("sqlite:")) as db:
            for statement in statements:
                rows = db.execute(statement).fetchall()
        return rows
    with psycopg.connect(uri, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
    return rows


def fill(uri: str) -> None:
    sql(
        uri,
        "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price DOUBLE PRECISION)",
        "INSERT INTO items VALUES (1, 'one', 1.5), (2, NULL, 2.5), (3, 'three', NULL)",
    )


def events(*rows: tuple[int, Any]) -> list[dict[str, Any]]:
    return [{"t": t, "id": id_, "x": t, "u": f"k{id_}"} for t, id_ in rows]


TABLE = "CREATE TABLE items (id INT PRIMARY KEY, name STRING, price DOUBLE) FROM '{uri}' {options};"
LOOKED_UP = STREAM + TABLE + "SELECT s.x, name, price FROM s LEFT JOIN items ON s.id = items.id;"


def test_loaded(uri: str) -> None:
    fill(uri)
    with App(LOOKED_UP.format(uri=uri, options="")) as app:
        sql(uri, "DELETE FROM items")
        app.push("s", events((1, 1), (2, 9)))
        assert app.results("q1").column("name").to_pylist() == ["one", None]
        app.refresh("items")
        assert app.table("items").num_rows == 0


def test_looked_up_in_batches_and_kept(uri: str) -> None:
    fill(uri)
    clock = TestClock()
    options = "WITH ('mode' = 'lookup', 'refresh' = '5 SECONDS')"
    with App(LOOKED_UP.format(uri=uri, options=options), clock=clock) as app:
        app.push("s", events((1, 1), (2, 2), (3, 1), (4, 9), (5, None), (6, 3)))
        found = [(r["name"], r["price"]) for r in app.results("q1").to_pylist()]
        assert found == [("one", 1.5), (None, 2.5), ("one", 1.5), (None, None), (None, None), ("three", None)]
        table = app._flow.tables.table("items")
        assert isinstance(table, LookedUpTable)
        assert table.questions == 1
        sql(uri, "UPDATE items SET name = 'uno' WHERE id = 1", "INSERT INTO items VALUES (9, 'nine', 9)")
        app.push("s", events((7, 1), (8, 9)))
        assert table.questions == 1
        assert app.results("q1").column("name").to_pylist() == ["one", None]
        clock.advance(5)
        app.push("s", events((9, 1), (10, 9)))
        assert app.results("q1").column("name").to_pylist() == ["uno", "nine"]


def test_a_small_cache_answers_as_well(uri: str) -> None:
    sql(
        uri,
        "CREATE TABLE pairs (a TEXT, b INTEGER, v DOUBLE PRECISION, PRIMARY KEY (a, b))",
        *(f"INSERT INTO pairs VALUES ('k{i}', {i}, {i}.5)" for i in range(50)),
    )
    text = f"""{STREAM}
        CREATE TABLE p (a STRING, b INT, v DOUBLE, PRIMARY KEY (a, b))
            FROM '{uri}' WITH ('mode' = 'lookup', 'table' = 'pairs', 'cache' = '7');
        SELECT s.id, v FROM s LEFT JOIN p ON p.a = s.u AND p.b = s.id;"""
    with App(text) as app:
        for turn in range(6):
            app.push("s", events(*((10 * turn + i, (turn * 13 + i * 7) % 60) for i in range(10))))
        found = {(r["id"], r["v"]) for r in app.results("q1").to_pylist()}
    assert found == {(id_, id_ + 0.5 if id_ < 50 else None) for id_, _ in found}


def test_only_by_the_key(uri: str) -> None:
    fill(uri)
    text = STREAM + TABLE.format(uri=uri, options="WITH ('mode' = 'lookup')")
    with pytest.raises(QueryError, match="looked up by its key"):
        App(text + "SELECT s.x FROM s, items WHERE s.u = items.name;")


WRITTEN = """
ON s WHERE s.x > 0 UPSERT INTO items (id, name, price) VALUES (s.id, s.u, COALESCE(price, 0.0) + 1.0);
ON s WHERE s.x < 0 DELETE FROM items WHERE items.id = s.id;
"""


def stored(uri: str) -> list[Any]:
    return sql(uri, "SELECT id, name, price FROM items ORDER BY id")


def test_written_behind_with_each_checkpoint(uri: str, tmp_path: Path) -> None:
    fill(uri)
    text = STREAM + TABLE.format(uri=uri, options="") + WRITTEN
    before = stored(uri)
    with App(text, checkpoint=tmp_path / "c") as app:
        app.push("s", events((1, 1), (2, 7), (3, 7)))
        assert stored(uri) == before
        app.checkpoint()
        assert stored(uri) == [(1, "k1", 2.5), (2, None, 2.5), (3, "three", None), (7, "k7", 2.0)]
        app.push("s", [{"t": 4, "id": 2, "x": -1, "u": ""}])
        app.checkpoint()
        assert [row[0] for row in stored(uri)] == [1, 3, 7]
        assert sql(uri, "SELECT epoch FROM penstock_epochs") == [(2,)]
        app.push("s", events((5, 8)))  # after the last checkpoint: to be pushed again
    with App(text, checkpoint=tmp_path / "c") as app:
        app.push("s", events((5, 8)))
        app.checkpoint()
    assert [row[0] for row in stored(uri)] == [1, 3, 7, 8]


def test_a_crash_between_checkpoint_and_database_loses_nothing(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(uri)
    text = STREAM + TABLE.format(uri=uri, options="") + WRITTEN
    app = App(text, checkpoint=tmp_path / "c")
    app.push("s", events((1, 7)))
    monkeypatch.setattr("penstock.engine.tables.write_behind.WriteBehind.write", lambda self, epoch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        app.checkpoint()
    app.close()
    monkeypatch.undo()
    assert [row[0] for row in stored(uri)] == [1, 2, 3]
    with App(text, checkpoint=tmp_path / "c"):
        assert [row[0] for row in stored(uri)] == [1, 2, 3, 7]


def test_without_checkpoints_it_is_written_at_the_end(uri: str) -> None:
    with App(STREAM + TABLE.format(uri=uri, options="") + WRITTEN) as app:  # the table is made
        app.push("s", events((1, 7)))
        app.finish()
    assert stored(uri) == [(7, "k7", 1.0)]


def test_a_server_that_comes_back(server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS items, penstock_epochs")
    fill(server.uri)
    text = STREAM + TABLE.format(uri=server.uri, options="") + WRITTEN
    with App(text, checkpoint=tmp_path / "c") as app:
        app.push("s", events((1, 7)))
        app.checkpoint()
        server.stop()
        monkeypatch.setattr(app._flow.tables._copies["items"]._database, "_patience", 0.2)
        app.push("s", events((2, 8)))
        with pytest.raises(StorageError, match="has not answered"):
            app.checkpoint()
        app.push("s", events((3, 9)))  # the app goes on meanwhile
        monkeypatch.setattr(app._flow.tables._copies["items"]._database, "_patience", 30.0)
        back = threading.Thread(target=lambda: (time.sleep(0.3), server.start()))
        back.start()
        app.checkpoint()  # waits for it
        back.join()
    assert [row[0] for row in stored(server.uri)] == [1, 2, 3, 7, 8, 9]


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_database, "PATIENCE", 0.1)
    monkeypatch.setattr(table_database.TableDatabase.__init__, "__defaults__", (0.1,))
    with pytest.raises(StorageError, match="table items: its database has not answered"):
        App(STREAM + TABLE.format(uri="postgresql://nobody@/none?host=/nowhere", options=""))


def test_names_with_signs_of_sql(uri: str) -> None:
    name, column = 'a%s "b', "x'%\"y"
    quoted = [text.replace('"', '""') for text in (name, column)]
    sql(uri, f'DROP TABLE IF EXISTS "{quoted[0]}"')
    text = (
        f"{STREAM} CREATE TABLE odd (id INT PRIMARY KEY, `{column}` STRING) FROM '{uri}' WITH ('table' = '{name}');"
        " ON s UPSERT INTO odd VALUES (s.id, s.u);"
    )
    for number in (1, 2):
        with App(text) as app:
            app.push("s", [{"t": number, "id": number, "x": 0, "u": "100 %s '"}])
            app.finish()
    assert sql(uri, f'SELECT "{quoted[1]}" FROM "{quoted[0]}"') == [("100 %s '",)] * 2


def test_what_the_database_cannot_keep_is_rejected_alone(server: PostgresServer, tmp_path: Path) -> None:
    sql(server.uri, "DROP TABLE IF EXISTS kept")
    text = (
        "CREATE STREAM s (t TIMESTAMP, k STRING, u STRING, seconds BIGINT, EVENT TIME t);"
        f"CREATE TABLE kept (k STRING PRIMARY KEY, u STRING, at TIMESTAMP) FROM '{server.uri}';"
        "ON s UPSERT INTO kept VALUES (s.k, s.u, CAST(s.seconds AS TIMESTAMP));"
        "ON s UPSERT INTO kept (k, u) VALUES (s.k, s.u);"
    )
    with App(text, checkpoint=tmp_path / "c") as app:
        for number, (k, u, seconds) in enumerate([("a", "b", 1), ("\0", "b", 1), ("b", "b\0", 1), ("c", "b", 10**12)]):
            app.push("s", [{"t": number, "k": k, "u": u, "seconds": seconds}])
        app.checkpoint()
        assert [reject["reason"][:5] for reject in app.rejects] == ["UNFIT"] * 5
    assert sql(server.uri, "SELECT k, u FROM kept ORDER BY k") == [("a", "b"), ("c", "b")]
    asked = text.partition("ON s")[0].replace(f"'{server.uri}'", f"'{server.uri}' WITH ('mode' = 'lookup')")
    with App(asked + "CREATE QUERY q AS SELECT s.k, kept.u FROM s LEFT JOIN kept ON s.k = kept.k;") as app:
        app.push("s", [{"t": 1, "k": "a", "u": "", "seconds": 0}, {"t": 2, "k": "a\0", "u": "", "seconds": 0}])
        app.finish()
        assert [r["u"] for r in app.results("q").to_pylist()] == ["b", None]


def test_not_a_number_is_none_in_the_database(uri: str) -> None:
    text = (
        "CREATE STREAM s (t TIMESTAMP, id INT, d DOUBLE, EVENT TIME t);"
        f"CREATE TABLE pairs (id INT PRIMARY KEY, d DOUBLE NOT NULL) FROM '{uri}';"
        "ON s UPSERT INTO pairs VALUES (s.id, s.d);"
    )
    numbers = [float("nan"), float("-inf"), -0.0, 5e-324]
    with App(text) as app:
        app.push("s", [{"t": i, "id": i, "d": d} for i, d in enumerate(numbers)])
        app.finish()
    with App(text) as app:
        assert list(map(repr, app.table("pairs")["d"].to_pylist())) == list(map(repr, numbers))


def test_a_missing_table_is_said_at_once(uri: str) -> None:
    with pytest.raises(StorageError, match=r"table items: .*(no such table|does not exist)"):
        App(STREAM + TABLE.format(uri=uri, options="") + "SELECT name FROM s, items WHERE s.id = items.id")


@pytest.mark.parametrize(
    "uri", ["postgresql://me:S3CRET%zz@host/x", "postgres:me:S3CRET@host/x", "postgresql://me:S3CRET@h i/x"]
)
def test_no_error_shows_the_password(uri: str) -> None:
    with pytest.raises(StorageError, match="cannot be read") as found:
        App(STREAM + TABLE.format(uri=uri, options=""))
    assert "S3CRET" not in str(found.value)
    assert "S3CRET" not in str(found.value.__cause__)


def test_the_password_is_not_shown_and_may_change(tmp_path: Path) -> None:
    text = STREAM + TABLE.format(uri="postgresql://me:S3CRET@host/x", options="WITH ('mode' = 'lookup')")
    text += "CREATE QUERY q AS SELECT name FROM s, items WHERE s.id = items.id;"
    with pytest.raises(QueryError) as refused:
        App(text + " SELECT nothing FROM s")
    assert "S3CRET" not in str(refused.value)
    with App(text, checkpoint=tmp_path / "c") as app:
        assert "S3CRET" not in repr(app.program) + app.explain()
        app.checkpoint()
    with App(text.replace("S3CRET", "OTHER"), checkpoint=tmp_path / "c"):
        pass
