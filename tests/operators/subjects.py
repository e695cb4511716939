"""What the check suite runs on: at least one subject for every operator class, with events that fit it.

Times are often equal, keys come and go, values are NULL or NaN now and then.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .subject import SECOND, Event, Subject

S = "CREATE STREAM s (t TIMESTAMP, k STRING, n BIGINT, x DOUBLE, EVENT TIME t);"
R = "CREATE STREAM r (t TIMESTAMP, k STRING, n BIGINT, x DOUBLE, EVENT TIME t);"
TABLE = "CREATE TABLE p (k STRING PRIMARY KEY, n BIGINT, x DOUBLE); ON r UPSERT INTO p VALUES (r.k, r.n, r.x);"


def events(chance: np.random.Generator, count: int = 60, keys: int = 5) -> list[Event]:
    """Key names move on with time, so that groups come and go."""
    times = np.cumsum(chance.choice([0, 0, 1, 1, 2, 9], count)) * SECOND
    return [
        {
            "t": int(time),
            "k": None if chance.random() < 0.05 else f"key {(index // 12) * 2 + int(chance.integers(keys))}",
            "n": None if chance.random() < 0.1 else int(chance.integers(-5, 6)),
            "x": float(chance.choice([0.1, 1e16, -1e16, 2.5, np.nan, 7.0])),
        }
        for index, time in enumerate(times)
    ]


def one(chance: np.random.Generator) -> dict[str, list[Event]]:
    return {"s": events(chance)}


def many_keys(chance: np.random.Generator) -> dict[str, list[Event]]:
    """Nearly every slot of a group is used again."""
    return {"s": events(chance, 100, keys=12)}


def two(chance: np.random.Generator) -> dict[str, list[Event]]:
    return {"s": events(chance, 40), "r": events(chance, 40)}


def _over(name: str, select: str, draw: Callable[..., dict[str, list[Event]]] = one, form: str = "window") -> Subject:
    return Subject(name, f"{S} {R} {select}", draw, form)


_ALL = "COUNT(*) AS c, SUM(n) AS a, AVG(x) AS b, MAX(x) AS d, MEDIAN(n) AS e, COUNT(DISTINCT n) AS f, LAST(k) AS g"
_FEW = "COUNT(*) AS c, SUM(n) AS a, AVG(x) AS b, MAX(x) AS d"
_PER_KEY = "GROUP BY k"

SUBJECTS = (
    _over("selection", "SELECT k, 10 / n AS tenth FROM s WHERE x > 1"),
    _over("tumbling", f"SELECT k, {_ALL} FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] {_PER_KEY}", many_keys),
    _over("tumbling, changes", f"SELECT ISTREAM k, COUNT(*) AS c FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] {_PER_KEY}"),
    _over("session", f"SELECT {_ALL} FROM s [SESSION 3 SECONDS]"),
    _over("session per key", f"SELECT k, {_FEW} FROM s [PARTITION BY k SESSION 4 SECONDS] {_PER_KEY}", many_keys),
    _over("sliding", f"SELECT k, {_ALL} FROM s [RANGE 20 SECONDS SLIDE 3 SECONDS] {_PER_KEY}", many_keys),
    _over("sliding, changes", f"SELECT ISTREAM k, {_FEW} FROM s [RANGE 9 SECONDS SLIDE 2 SECONDS] {_PER_KEY}"),
    _over("sliding, gone", "SELECT DSTREAM DISTINCT COUNT(*) AS c FROM s [RANGE 9 SECONDS SLIDE 2 SECONDS] GROUP BY k"),
    _over("at every event", f"SELECT k, {_ALL} FROM s [RANGE 20 SECONDS] {_PER_KEY}", many_keys),
    _over("rows", f"SELECT k, {_ALL} FROM s [ROWS 13 SLIDE 4] WHERE n > -4 {_PER_KEY}"),
    _over("rows by time", f"SELECT {_FEW} FROM s [ROWS 13 SLIDE 5 SECONDS]"),
    _over("landmark", f"SELECT k, {_FEW} FROM s [SINCE TIMESTAMP '1970-01-01 00:00:05' SLIDE 7 SECONDS] {_PER_KEY}"),
    _over("panes", f"SELECT k, {_FEW} FROM s [RANGE 20 SECONDS SLIDE 5 SECONDS] {_PER_KEY}", many_keys, "panes"),
    _over("parts, sliding", f"SELECT k, {_FEW} FROM s [RANGE 20 SECONDS SLIDE 5 SECONDS] {_PER_KEY}", one, "parts"),
    _over("parts, tumbling", f"SELECT k, {_FEW} FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] {_PER_KEY}", one, "parts"),
    _over("partitions", f"SELECT k, {_ALL} FROM s [PARTITION BY k ROWS 4 SLIDE 2] {_PER_KEY}", many_keys),
    _over("partitions, news", f"SELECT ISTREAM k, {_FEW} FROM s [PARTITION BY k ROWS 3] {_PER_KEY}", many_keys),
    _over(
        "partitions, gone",
        "SELECT DSTREAM k, n, COUNT(*) AS c FROM s [PARTITION BY k ROWS 4 SLIDE 2 WHEN FULL] GROUP BY k, n",
        many_keys,
    ),
    _over(
        "partitions by time, changes",
        "SELECT ISTREAM k, n, COUNT(*) AS c FROM s [PARTITION BY k ROWS 4 SLIDE 5 SECONDS] GROUP BY k, n",
        many_keys,
    ),
    _over("changes at every event", f"SELECT DSTREAM k, {_FEW} FROM s [RANGE 9 SECONDS] {_PER_KEY}", many_keys),
    _over(
        "two lengths",
        f"SELECT k, AVG(x) OVER [RANGE 6 SECONDS] AS a, AVG(x) AS b FROM s [RANGE 30 SECONDS SLIDE 3 SECONDS] "
        f"{_PER_KEY}",
    ),
    _over("relation", "SELECT k, n FROM s [RANGE 7 SECONDS SLIDE 3 SECONDS] WHERE n IS NOT NULL"),
    _over("relation, gone", "SELECT DSTREAM k, n FROM s [ROWS 5 SLIDE 2]"),
    _over("relation of partitions", "SELECT ISTREAM k, n FROM s [PARTITION BY k ROWS 3 SLIDE 2]", many_keys),
    _over("news of partitions", "SELECT ISTREAM k, x FROM s [PARTITION BY k ROWS 2] WHERE n <> 1", many_keys),
    _over("rows gone from partitions", "SELECT DSTREAM n, x FROM s [PARTITION BY k ROWS 2]", many_keys),
    _over("news of rows", "SELECT ISTREAM k, x FROM s [RANGE 5 SECONDS] WHERE n <> 1"),
    _over("relation of sessions", "SELECT k, n FROM s [PARTITION BY k SESSION 3 SECONDS]", many_keys),
    _over("union", "SELECT k, n FROM s WHERE n > 0 UNION ALL SELECT k, n FROM r", two),
    _over(
        "window over a union",
        f"SELECT k, {_FEW} FROM (SELECT k, n, x FROM s UNION ALL SELECT k, n, x FROM r) [ROWS 9] {_PER_KEY}",
        two,
    ),
    _over(
        "chain",
        "SELECT SUM(c) AS total FROM (SELECT k, COUNT(*) AS c FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k) "
        "[RANGE 10 SECONDS SLIDE 5 SECONDS]",
    ),
    _over("join", "SELECT s.k, s.n, r.x FROM s [RANGE 9 SECONDS], r [RANGE 9 SECONDS] WHERE s.k = r.k", two),
    _over(
        "join, one side outer",
        "SELECT s.k, s.n, r.x FROM s [RANGE 9 SECONDS] LEFT JOIN r [ROWS 7] ON s.k = r.k AND s.n < r.n",
        two,
    ),
    _over(
        "join, both sides outer",
        "SELECT ISTREAM s.k, r.x FROM s [ROWS 5] FULL JOIN r [RANGE 4 SECONDS] ON s.k = r.k",
        two,
    ),
    _over(
        "aggregates over a join",
        "SELECT s.k, COUNT(*) AS c FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS], r [RANGE 9 SECONDS SLIDE 3 SECONDS] "
        "WHERE s.k = r.k GROUP BY s.k",
        two,
    ),
    _over(
        "pattern", "SELECT a.k, a.n, b.x FROM PATTERN SEQ(s a, r b) WHERE a.k = b.k AND a.n < b.n WITHIN 8 SECONDS", two
    ),
    _over(
        "pattern with an absence", "SELECT a.k, a.n FROM PATTERN SEQ(s a, !r b) WHERE a.k = b.k WITHIN 5 SECONDS", two
    ),
    _over("look-up", f"{TABLE} SELECT s.k, s.n, p.n AS last FROM s LEFT JOIN p ON s.k = p.k", two),
    _over("look-up by value", f"{TABLE} SELECT s.k, p.k AS other FROM s, p WHERE s.n = p.n", two),
    _over("table", f"{TABLE} SELECT RSTREAM k, n FROM p [SLIDE 5 SECONDS]", two),
    _over("edge", "CREATE RULE f WHEN SELECT k, n FROM s WHERE n > 0 BY k THEN EMIT INTO alarms"),
    _over(
        "edge of groups",
        "CREATE RULE f WHEN SELECT k, SUM(n) AS a FROM s [RANGE 9 SECONDS] GROUP BY k HAVING SUM(n) > 2 "
        "THEN EMIT INTO alarms",
    ),
)
