"""Stores in real databases: SQLite, and a PostgreSQL server that the tests start."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.errors import StorageError
from penstock.store.properties import ReadPattern, Sharing, UpdatePattern
from penstock.types import Field, Schema, SqlType
from penstock_bench.storage_manager.lifecycle import StorageManager
from penstock_bench.storage_manager.properties import (
    Comparison,
    Embedded,
    IndexSchema,
    Persistence,
    Postgres,
    Properties,
)

from .kinds import ALL_READS, BY_SEGMENT, REPORTS, manager, report

Where = Callable[[str], Persistence]


@pytest.fixture(params=["embedded", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    """A place for the table of a given name."""
    if request.param == "embedded":
        return lambda table: Embedded(tmp_path / "stores.db", table)
    conninfo = request.getfixturevalue("postgres")
    return lambda table: Postgres(conninfo, table)


def rows_in(place: Persistence, table: str) -> list[tuple[Any, ...]]:
    """What the database itself says, without our code."""
    quoted = '"' + table.replace('"', '""') + '"'
    if isinstance(place, Embedded):
        with sqlite3.connect(place.path) as connection:
            return connection.execute(f"SELECT * FROM {quoted} ORDER BY 1").fetchall()
    assert isinstance(place, Postgres)
    with psycopg.connect(place.conninfo) as server:
        return server.execute(f"SELECT * FROM {quoted} ORDER BY 1").fetchall()  # type: ignore[call-overload, no-any-return]


def open_tolls(storage: StorageManager, place: Persistence, update: UpdatePattern = UpdatePattern.FIFO) -> Any:
    properties = Properties(schema=REPORTS, persistence=place, update=update, read=ALL_READS, sharing=Sharing.SHARED)
    return storage.create_store(properties, "tolls")


def test_items_are_rows_of_a_table(where: Where) -> None:
    place = where("rows of a table")
    with manager() as storage:
        store = open_tolls(storage, place)
        for number in range(600):
            store.buffer_item(report(number))
        store.sync()
        assert rows_in(place, "rows of a table") == [(number, *report(number)) for number in range(600)]
        storage.remove_store(store)
    with pytest.raises((sqlite3.OperationalError, psycopg.errors.UndefinedTable)):
        rows_in(place, "rows of a table")


def test_a_store_goes_on_where_it_was(where: Where) -> None:
    place = where("goes on")
    with manager() as storage:
        store = open_tolls(storage, place)
        slow, fast = store.reader("slow"), store.reader("fast")
        for number in range(50):
            store.buffer_item(report(number))
        slow.delete_up_to(9)
        fast.delete_up_to(39)
        storage.close_store(store)
        again = open_tolls(storage, place)
        fast = again.reader("fast")
        assert fast.get_next_item() == report(40)
        assert again.buffer_item(report(50)) == 50
        fast.delete_up_to(50)
        assert again.storage.first_id == 10  # the other one, which has not come back, still needs these
        assert again.reader("slow").get_next_item() == report(10)
        storage.remove_store(again)


def test_consumption_never_goes_back(where: Where) -> None:
    place = where("goes back")
    with manager() as storage:
        store = open_tolls(storage, place)
        store.reader("other")
        reader = store.reader("reader")
        for number in range(10):
            store.buffer_item(report(number))
        reader.delete_up_to(7)
        reader.delete_up_to(2)
        storage.close_store(store)
        again = open_tolls(storage, place)
        assert again.reader("reader").get_next_item() == report(8)
        storage.remove_store(again)


def test_ids_are_never_given_twice(where: Where) -> None:
    place = where("ids")
    with manager() as storage:
        store = open_tolls(storage, place, UpdatePattern.RANDOM)
        for number in range(5):
            store.buffer_item(report(number))
        store.delete_items(range(5))
        storage.close_store(store)
        assert rows_in(place, "ids") == []
        again = open_tolls(storage, place, UpdatePattern.RANDOM)
        assert again.buffer_item(report(5)) == 5
        storage.remove_store(again)


HOSTILE = ['x"; DROP TABLE t; --', "{table}", "100% {0} ?", "%s", "order", "Ünï cödé", "a'b", "$1"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_and_values_are_never_sql(where: Where, name: str) -> None:
    fields = tuple(Field(attribute, SqlType.STRING) for attribute in HOSTILE)
    place = where(name)
    with manager() as storage:
        properties = Properties(schema=Schema(fields), persistence=place, update=UpdatePattern.IN_PLACE)
        store = storage.create_store(properties, "store")
        by_name = IndexSchema.equal(name)
        storage.register_index(by_name, store)
        values = tuple(HOSTILE)
        store.buffer_item(values)
        wanted = HOSTILE[HOSTILE.index(name)]
        assert store.update(by_name, tuple(reversed(values)), [wanted]) == 1
        storage.close_store(store)
        again = storage.create_store(properties, "store")
        assert again.reader("reader").get_item(0) == tuple(reversed(values))
        assert rows_in(place, name) == [(0, *reversed(values))]
        storage.remove_store(again)


@pytest.mark.parametrize("name", ["a\0b", "half of a pair: \ud800", "two\nlines"])
def test_names_that_are_no_text_are_refused(where: Where, name: str) -> None:
    with manager() as storage:
        with pytest.raises(StorageError, match="not a name"):
            storage.create_store(Properties(persistence=where(name)), "table")
        schema = Schema((Field(name, SqlType.INT),))
        with pytest.raises(StorageError, match="not a name"):
            storage.create_store(Properties(schema=schema, persistence=where("column")), "column")
        store = storage.create_store(Properties(persistence=where("reader")), "reader")
        with pytest.raises(StorageError, match="printable name for a reader"):
            store.reader(name)
        store.sync()
        storage.remove_store(store)


def test_a_password_is_not_shown() -> None:
    place = Postgres("postgresql://user:secret@host/base", "t")
    assert "secret" not in repr(Properties(persistence=place))
    assert place != Postgres("postgresql://user:other@host/base", "t")


EVERY_TYPE = Schema(
    tuple(Field(kind.value.lower(), kind) for kind in SqlType if kind not in (SqlType.NULL, SqlType.INTERVAL))
)


def test_every_value_comes_back_as_it_was(where: Where) -> None:
    rows: list[tuple[Any, ...]] = [
        (True, 127, -(2**15), 2**31 - 1, -(2**63), 0.5, 1e308, "", 18262, 2**62),
        (False, -128, 0, 0, 2**63 - 1, -0.0, 5e-324, "日本\u2603\n", -1, -1),
        (None,) * 10,
        (True, 0, 0, 0, 0, math.inf, -math.inf, "x" * 5000, 0, 0),
    ]
    with manager() as storage:
        properties = Properties(schema=EVERY_TYPE, persistence=where("types"), update=UpdatePattern.NO_UPDATE)
        store = storage.create_store(properties, "store")
        for row in rows:
            store.buffer_item(row)
        store.buffer_item((None,) * 5 + (math.nan, math.nan) + (None,) * 3)
        store.sync()
        reader = store.reader("reader")
        for item_id, row in enumerate(rows):
            found = reader.get_item(item_id)
            assert found == row
            assert isinstance(found, tuple)
            assert [type(value) for value in found] == [type(value) for value in row]
            signs = [math.copysign(1, value) for value in row if isinstance(value, float)]
            assert [math.copysign(1, value) for value in found if isinstance(value, float)] == signs
        assert math.isnan(reader.get_attribute(len(rows), "double"))  # type: ignore[arg-type]
        storage.remove_store(store)


def test_nan_and_null_equal_nothing(where: Where) -> None:
    schema = Schema((Field("speed", SqlType.DOUBLE),))
    at_least = IndexSchema((("speed", Comparison.GE),))
    with manager() as storage:
        properties = Properties(schema=schema, persistence=where("nan"), update=UpdatePattern.NO_UPDATE)
        store = storage.create_store(properties, "store")
        storage.register_index(at_least, store)
        storage.register_index(IndexSchema.equal("speed"), store)
        for speed in (1.0, math.nan, None, 3.0):
            store.buffer_item((speed,))
        reader = store.reader("reader")
        assert list(reader.retrieve(at_least, [2.0])) == [(3, (3.0,))]
        assert list(reader.retrieve(IndexSchema.equal("speed"), [math.nan])) == []
        assert list(reader.retrieve(IndexSchema.equal("speed"), [None])) == []
        storage.remove_store(store)


def test_strings_are_ordered_by_code_points(where: Where) -> None:
    schema = Schema((Field("name", SqlType.STRING),))
    after = IndexSchema((("name", Comparison.GT),))
    with manager() as storage:
        properties = Properties(schema=schema, persistence=where("names"), update=UpdatePattern.NO_UPDATE)
        store = storage.create_store(properties, "store")
        storage.register_index(after, store)
        for name in ("a", "B", "é", "Z", "z"):
            store.buffer_item((name,))
        found = [item[0] for _, item in store.reader("reader").retrieve(after, ["Z"])]  # type: ignore[index]
        assert found == ["a", "é", "z"]
        storage.remove_store(store)


def test_items_without_a_schema_persist(where: Where) -> None:
    with manager() as storage:
        properties = Properties(persistence=where("free"), read=(ReadPattern.SEQUENTIAL,))
        store = storage.create_store(properties, "free")
        store.buffer_item({"car": 7, "at": [1, 2][0]})
        storage.close_store(store)
        again = storage.create_store(properties, "free")
        assert again.reader("reader").get_next_item() == {"car": 7, "at": 1}
        storage.remove_store(again)


def test_another_table_is_not_taken_over(where: Where) -> None:
    with manager() as storage:
        store = open_tolls(storage, where("taken"))
        storage.register_index(BY_SEGMENT, store)
        storage.close_store(store)
        other = Properties(schema=Schema((Field("a", SqlType.INT),)), persistence=where("taken"))
        with pytest.raises(StorageError, match="belongs to something else"):
            storage.create_store(other, "other")


def test_a_database_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is not a database, but it is long enough to be looked at by one" * 9)
    with manager() as storage:
        for place in (
            Embedded(tmp_path / "text.db", "t"),
            Embedded(tmp_path / "missing" / "a.db", "t"),
            Embedded(tmp_path / "a\0b", "t"),
            Embedded(tmp_path / "half of a pair: \ud800", "t"),
            Postgres(f"host={tmp_path} user=nobody dbname=none", "t"),
            Postgres("this is no connection string", "t"),
        ):
            with pytest.raises(StorageError):
                storage.create_store(Properties(schema=REPORTS, persistence=place), "store")


def test_every_path_is_one_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with manager() as storage:
        store = storage.create_store(Properties(persistence=Embedded(Path(":memory:"), "t")), "store")
        store.buffer_item({"car": 7})
        storage.close_store(store)
    assert rows_in(Embedded(tmp_path / ":memory:", "t"), "t") == [(0, '{"car": 7}')]


def test_all_stores_are_closed_although_one_fails(tmp_path: Path) -> None:
    with manager() as storage:
        places = [Embedded(tmp_path / f"{number}.db", "t") for number in range(3)]
        for number, place in enumerate(places):
            store = storage.create_store(Properties(persistence=place), str(number))
            store.buffer_item({"car": number})
        with sqlite3.connect(places[1].path) as connection:
            connection.execute("DROP TABLE t")
        with pytest.raises(StorageError, match="no such table"):
            storage.close()
        assert [rows_in(place, "t") for place in (places[0], places[2])] == [[(0, '{"car": 0}')], [(0, '{"car": 2}')]]


def test_text_that_a_database_cannot_hold_is_refused(postgres: str) -> None:
    with manager() as storage:
        schema = Schema((Field("name", SqlType.STRING),))
        properties = Properties(schema=schema, persistence=Postgres(postgres, "nul"), update=UpdatePattern.NO_UPDATE)
        store = storage.create_store(properties, "store")
        for text in ("a\0b", "half of a pair: \ud800"):
            with pytest.raises(StorageError, match="character that the database cannot keep"):
                store.buffer_item((text,))
        assert store.buffer_item(("ab",)) == 0
        store.sync()
        assert rows_in(properties.persistence, "nul") == [(0, "ab")]
        with pytest.raises(StorageError, match="63 bytes"):
            storage.create_store(Properties(persistence=Postgres(postgres, "n" * 64)), "long")
        storage.remove_store(store)
