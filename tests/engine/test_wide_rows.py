"""Keys and rows of more than 64 columns: a NULL is a NULL in each of them."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps

NAMES = [f"c{i}" for i in range(80)]
STREAM = f"CREATE STREAM s (t BIGINT, {', '.join(f'{name} INT' for name in NAMES)}, EVENT TIME t UNIT SECONDS)"


def event(time: int, **values: int | None) -> dict[str, Any]:
    return {"t": time} | dict.fromkeys(NAMES, 0) | values


def answers(query: str, *events: dict[str, Any]) -> list[dict[str, Any]]:
    with ps.App(f"{STREAM}; CREATE QUERY q AS {query}") as app:
        app.push("s", list(events))
        app.finish()
        rows: list[dict[str, Any]] = app.results("q").to_pylist()
        return rows


@pytest.mark.parametrize("name", ["c0", "c63", "c64", "c69"])
def test_groups_of_seventy_keys(name: str) -> None:
    keys = ", ".join(NAMES[:70])
    query = f"SELECT {keys}, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY {keys}"
    rows = answers(query, event(0), event(1, **{name: None}), event(2, **{name: None}))
    assert [(row[name], row["n"]) for row in rows] == [(None, 2), (0, 1)]


@pytest.mark.parametrize("name", ["c0", "c64", "c79"])
def test_distinct_rows_of_eighty_columns(name: str) -> None:
    query = f"SELECT DISTINCT {', '.join(NAMES)} FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
    rows = answers(query, event(0), event(1, **{name: None}), event(2, **{name: None}))
    assert [row[name] for row in rows] == [0, None]


@pytest.mark.parametrize("emit", ["ISTREAM", "DSTREAM"])
def test_changes_of_rows_of_eighty_columns(emit: str) -> None:
    query = f"SELECT {emit} {', '.join(NAMES)} FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
    rows = answers(query, event(0), event(11, c79=None), event(21, c79=None))
    assert [row["c79"] for row in rows] == ([0, None] if emit == "ISTREAM" else [0])


def test_partitions_and_joins_by_seventy_keys() -> None:
    keys = ", ".join(NAMES[:70])
    query = f"SELECT c69, COUNT(*) AS n FROM s [PARTITION BY {keys} ROWS 2] GROUP BY {keys}"
    rows = answers(query, event(0), event(1, c69=None), event(2), event(3, c69=None))
    assert [(row["c69"], row["n"]) for row in rows] == [(0, 1), (None, 1), (0, 2), (None, 2)]
    equal = " AND ".join(f"a.{name} = b.{name}" for name in NAMES[:70])
    query = f"SELECT a.c69 AS c69 FROM s AS a [RANGE 10 SECONDS] JOIN s AS b [RANGE 10 SECONDS] ON {equal}"
    assert [row["c69"] for row in answers(query, event(0), event(1, c69=None))] == [0]
