"""The programs whose checkpoints are kept: together they have every kind of state.

Once a program is written into an archive of `checkpoints/`, it stays as it is: the archive has its state and not its
text. What is new gets a program of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import penstock as ps

SECOND = 1_000_000
START = 1_000_000 * SECOND
"""The time of the first event."""
_COLUMNS = "t TIMESTAMP, k STRING, id BIGINT, v DOUBLE, n BIGINT"
_STREAMS = "".join(
    f"CREATE STREAM {name} ({_COLUMNS}, EVENT TIME t LATENESS 5 SECONDS SEQUENCE id) LATE INTO late_{name};"
    for name in ("a", "b")
)
_ARRIVALS = "".join(
    f"CREATE STREAM {name} ({_COLUMNS}, came TIMESTAMP, ARRIVAL ORDER t ARRIVED came);" for name in ("a", "b")
)


@dataclass(frozen=True)
class Program:
    """Results of every second query are read before the checkpoint; those of the others wait in it."""

    name: str
    queries: str
    streams: str = _STREAMS
    memory: str = "2MB"
    strategy: str = "auto"
    dispatch: str | None = None
    before: int = 600
    """Events of each stream before the checkpoint."""
    after: int = 300
    on_spark: bool = True

    @property
    def text(self) -> str:
        return self.streams + self.queries


def events(stream: str, start: int, stop: int) -> list[dict[str, Any]]:
    """One every second, out of order by up to three seconds; every 97th is late."""
    return [_event(stream, i) for i in range(start, stop)]


def _event(stream: str, i: int) -> dict[str, Any]:
    drawn = (i * 2_654_435_761 + (stream == "b") * 40_503) % (1 << 32) >> 8
    behind = 60 if i % 97 == 96 else drawn % 4
    return {
        "t": START + (i - behind) * SECOND,
        "k": None if drawn % 19 == 0 else f"key {drawn % 7}" if i % 5 else f"rare key {i // 100}",
        "id": i,
        "v": None if drawn % 23 == 0 else 1e300 if drawn % 101 == 0 else (drawn % 199 - 99) / 7,
        "n": None if drawn % 29 == 0 else drawn % 13,
    }


def pushes(start: int, stop: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The streams in turns."""
    for at in range(start, stop, 50):
        for stream in ("a", "b"):
            yield stream, events(stream, at, min(at + 50, stop))


class Spread(ps.UserAggregate):
    """Largest minus smallest, from a sorted list."""

    name = "SPREAD"
    argument_types = (ps.SqlType.BIGINT,)
    result_type = ps.SqlType.BIGINT
    state_schema = pa.schema([("values", pa.list_(pa.int64()))])

    def create(self) -> dict[str, Any]:
        return {"values": []}

    def add(self, state: dict[str, Any], *values: Any) -> None:
        state["values"] = sorted([*state["values"], values[0]])

    def remove(self, state: dict[str, Any], *values: Any) -> None:
        state["values"].remove(values[0])

    def result(self, state: dict[str, Any]) -> Any:
        return state["values"][-1] - state["values"][0]


class SpreadAnew(Spread):
    """The same, added up anew at every evaluation."""

    name = "SPREAD_ANEW"
    remove = ps.UserAggregate.remove


AGGREGATES = (Spread(), SpreadAnew())

_EVERY_AGGREGATE = """
    COUNT(*) AS c, COUNT(v) AS cv, SUM(v) AS s, SUM(n) AS sn, AVG(v) AS a, VAR_POP(n) AS vp, STDDEV(v) AS sd,
    COVAR_SAMP(v, n) AS co, CORR(n, id) AS cr, MIN(v) AS mi, MAX(n) AS ma, MIN(k) AS mk, FIRST(k) AS f, LAST(v) AS l,
    ARG_MIN(k, v) AS am, ARG_MAX(id, n) AS ax, MEDIAN(v) AS me, PERCENTILE_CONT(n, 0.9) AS pc,
    PERCENTILE_DISC(v, 0.25) AS pd, COUNT(DISTINCT n) AS cd, COUNT(DISTINCT k) AS ck, MODE(n) AS mo, MODE(k) AS mdk,
    SUM(n) FILTER (WHERE v > 0) AS fs"""
_FOR_PANES = """
    COUNT(*) AS c, SUM(v) AS s, SUM(n) AS sn, AVG(v) AS a, STDDEV(v) AS sd, CORR(n, id) AS cr, MIN(v) AS mi,
    MAX(n) AS ma, FIRST(n) AS f, LAST(v) AS l, ARG_MIN(id, v) AS am"""
_USERS = (
    "SPREAD(n) FILTER (WHERE n IS NOT NULL) AS sp, SPREAD_ANEW(n) FILTER (WHERE n IS NOT NULL) AS sa, COUNT(*) AS c"
)

PROGRAMS = (
    Program(
        "slides_by_time",
        f"""
        CREATE QUERY groups AS SELECT k, {_EVERY_AGGREGATE} FROM a [RANGE 100 SECONDS SLIDE 30 SECONDS] GROUP BY k;
        CREATE QUERY all_in_one AS SELECT {_EVERY_AGGREGATE}
            FROM a [RANGE 200 SECONDS SLIDE 70 SECONDS OFFSET 3 SECONDS];
        CREATE QUERY filtered AS SELECT n, MAX(v) AS m
            FROM a [RANGE 90 SECONDS SLIDE 30 SECONDS] WHERE v > 0 GROUP BY n;
        CREATE QUERY landmark AS SELECT k, SUM(v) AS s FROM a [SINCE '1970-01-12 13:48:00' SLIDE 1 MINUTE] GROUP BY k;
        CREATE QUERY lengths AS SELECT k, SUM(n) OVER [RANGE 60 SECONDS] AS x, MAX(v) OVER [RANGE 2 MINUTES] AS y,
            COUNT(*) AS z FROM a [RANGE 5 MINUTES SLIDE 20 SECONDS] GROUP BY k;
        CREATE QUERY when_full AS SELECT SUM(n) AS s FROM a [RANGE 700 SECONDS SLIDE 20 SECONDS WHEN FULL];
        CREATE QUERY top AS SELECT k, SUM(n) AS s FROM b [RANGE 1 MINUTE SLIDE 10 SECONDS] GROUP BY k
            HAVING COUNT(*) > 1 ORDER BY s DESC, k LIMIT 3;
        CREATE QUERY distinct_rows AS SELECT DISTINCT k, n FROM b [RANGE 40 SECONDS SLIDE 20 SECONDS];
        CREATE QUERY plain AS SELECT id, k FROM b [RANGE 30 SECONDS SLIDE 15 SECONDS] WHERE n > 9""",
    ),
    Program(
        "windows_at_every_event",
        f"""
        CREATE QUERY in_range AS SELECT k, {_EVERY_AGGREGATE} FROM a [RANGE 100 SECONDS] GROUP BY k;
        CREATE QUERY in_rows AS SELECT {_EVERY_AGGREGATE} FROM a [ROWS 50];
        CREATE QUERY vwap AS SELECT k, SUM(v) AS s, COUNT(*) AS c FROM a [RANGE 80 SECONDS] WHERE n > 3 GROUP BY k;
        CREATE QUERY now AS SELECT COUNT(*) AS c, SUM(v) AS s FROM a [NOW];
        CREATE QUERY some_events AS SELECT k, SUM(n) AS s FROM a [RANGE 90 SECONDS SLIDE 7 ROWS] GROUP BY k;
        CREATE QUERY some_rows AS SELECT MIN(n) AS s FROM a [ROWS 40 SLIDE 9];
        CREATE QUERY rows_by_time AS SELECT k, MAX(v) AS s FROM a [ROWS 70 SLIDE 20 SECONDS] GROUP BY k;
        CREATE QUERY full_rows AS SELECT SUM(n) AS s FROM a [ROWS 650 WHEN FULL];
        CREATE QUERY whole AS SELECT RSTREAM k, COUNT(*) AS c FROM b [ROWS 9] GROUP BY k;
        CREATE QUERY came AS SELECT ISTREAM k, MAX(n) AS c FROM b [RANGE 60 SECONDS] GROUP BY k HAVING COUNT(*) > 2""",
    ),
    Program(
        "panes",
        f"""
        CREATE QUERY groups AS SELECT k, {_FOR_PANES} FROM a [RANGE 100 SECONDS SLIDE 20 SECONDS] GROUP BY k;
        CREATE QUERY longer AS SELECT k, {_FOR_PANES} FROM a [RANGE 200 SECONDS SLIDE 40 SECONDS] GROUP BY k;
        CREATE QUERY lengths AS SELECT n, SUM(v) OVER [RANGE 60 SECONDS] AS x, MIN(v) OVER [RANGE 40 SECONDS] AS y,
            SUM(v) AS z FROM a [RANGE 5 MINUTES SLIDE 20 SECONDS] GROUP BY n;
        CREATE QUERY changes AS SELECT ISTREAM k, SUM(n) AS s FROM b [RANGE 1 MINUTE SLIDE 10 SECONDS] GROUP BY k;
        CREATE QUERY alone AS SELECT {_FOR_PANES} FROM b [RANGE 150 SECONDS SLIDE 30 SECONDS]""",
        strategy="panes",
    ),
    Program(
        "windows_that_close",
        f"""
        CREATE QUERY tumbling AS SELECT k, {_EVERY_AGGREGATE} FROM a [RANGE 50 SECONDS SLIDE 50 SECONDS] GROUP BY k;
        CREATE QUERY sessions AS SELECT {_EVERY_AGGREGATE} FROM a [SESSION 2 SECONDS];
        CREATE QUERY by_key AS SELECT k, COUNT(*) AS c, MAX(v) AS m
            FROM a [PARTITION BY k SESSION 12 SECONDS] GROUP BY k;
        CREATE QUERY rows_by_key AS SELECT k, id FROM a [PARTITION BY k SESSION 9 SECONDS];
        CREATE QUERY came AS SELECT ISTREAM k, COUNT(*) AS c FROM a [PARTITION BY k SESSION 9 SECONDS] GROUP BY k;
        CREATE QUERY left AS SELECT DSTREAM k, n FROM b [PARTITION BY k SESSION 9 SECONDS];
        CREATE QUERY rows_of AS SELECT id, n FROM b [SESSION 3 SECONDS]""",
    ),
    Program(
        "partitions",
        """
        CREATE QUERY sums AS SELECT k, SUM(v) AS s, MAX(n) AS m FROM a [PARTITION BY k ROWS 20] GROUP BY k;
        CREATE QUERY by_time AS SELECT k, n, COUNT(*) AS c
            FROM a [PARTITION BY k ROWS 30 SLIDE 20 SECONDS] GROUP BY k, n;
        CREATE QUERY by_rows AS SELECT k, MEDIAN(v) AS c FROM a [PARTITION BY k ROWS 15 SLIDE 4] GROUP BY k;
        CREATE QUERY own_limit AS SELECT k, n, SUM(v) AS s FROM a [PARTITION BY k, n ROWS n] GROUP BY k, n;
        CREATE QUERY plain AS SELECT k, id FROM a [PARTITION BY k ROWS 3 SLIDE 20 SECONDS];
        CREATE QUERY whole AS SELECT RSTREAM k, n, SUM(v) AS s FROM b [PARTITION BY k ROWS 5] GROUP BY k, n;
        CREATE QUERY changes AS SELECT DSTREAM k, n, MAX(v) AS s FROM b [PARTITION BY k ROWS 5] GROUP BY k, n;
        CREATE QUERY rows_that_came AS SELECT ISTREAM k, v FROM b [PARTITION BY k ROWS 4];
        CREATE QUERY full AS SELECT k, MIN(v) AS s FROM b [PARTITION BY k ROWS 60 WHEN FULL] GROUP BY k""",
    ),
    Program(
        "relations",
        """
        CREATE QUERY came AS SELECT ISTREAM k, SUM(n) AS s FROM a [RANGE 60 SECONDS SLIDE 10 SECONDS] GROUP BY k;
        CREATE QUERY went AS SELECT DSTREAM k, n FROM a [RANGE 60 SECONDS SLIDE 10 SECONDS] WHERE n > 7;
        CREATE QUERY few_rows AS SELECT ISTREAM id, v FROM a [ROWS 5];
        CREATE QUERY went_rows AS SELECT DSTREAM k, v FROM a [RANGE 20 SECONDS];
        CREATE QUERY distinct_rows AS SELECT ISTREAM DISTINCT k FROM a [RANGE 30 SECONDS SLIDE 10 SECONDS];
        CREATE QUERY zeros AS SELECT DSTREAM v * 0 AS z FROM b [RANGE 10 SECONDS];
        CREATE QUERY best AS SELECT DSTREAM k, MAX(n) AS m FROM b [RANGE 1 MINUTE SLIDE 10 SECONDS] GROUP BY k
            ORDER BY m DESC, k LIMIT 2;
        CREATE QUERY all_rows AS SELECT RSTREAM id FROM b [ROWS 4]""",
    ),
    Program(
        "joins",
        """
        CREATE QUERY at_events AS SELECT x.id AS one, y.id AS other, x.k AS k
            FROM a [RANGE 20 SECONDS] AS x JOIN b [ROWS 12] AS y ON x.k = y.k;
        CREATE QUERY outer_rows AS SELECT x.id AS one, y.n AS other
            FROM a [RANGE 5 SECONDS] AS x FULL JOIN b [RANGE 9 SECONDS] AS y ON x.n = y.n + 1;
        CREATE QUERY relation AS SELECT ISTREAM x.n AS one, y.n AS other
            FROM a [RANGE 5 SECONDS] AS x, b [RANGE 5 SECONDS] AS y WHERE x.n = y.n AND x.v < y.v;
        CREATE QUERY at_slides AS SELECT x.k AS k, COUNT(*) AS c, SUM(y.v) AS s
            FROM a [RANGE 30 SECONDS SLIDE 15 SECONDS] AS x JOIN b [RANGE 30 SECONDS SLIDE 15 SECONDS] AS y ON x.n = y.n
            GROUP BY x.k;
        CREATE QUERY rates AS SELECT x.id AS one, y.id AS other
            FROM a [RATE SIZED 8 SECONDS SAMPLE 20 SECONDS EVERY 10 SECONDS] AS x, b [NOW] AS y WHERE x.n = y.n;
        CREATE QUERY three AS SELECT x.id AS one, y.id AS two, z.id AS three FROM a [RANGE 6 SECONDS] AS x
            LEFT JOIN b [RANGE 6 SECONDS] AS y ON x.k = y.k LEFT JOIN a [ROWS 2] AS z ON z.n > y.n""",
    ),
    Program(
        "patterns",
        """
        CREATE QUERY pairs AS SELECT x.id AS one, y.id AS two FROM PATTERN SEQ(a x, b y)
            WHERE x.k = y.k AND x.v < y.v WITHIN 8 SECONDS;
        CREATE QUERY chosen AS SELECT x.id AS one, y.id AS two FROM PATTERN SEQ(ONE a x, ONE b y)
            WHERE x.n = y.n WITHIN 30 SECONDS;
        CREATE QUERY absent AS SELECT x.id AS one, x.k AS k FROM PATTERN SEQ(a x, !b y)
            WHERE x.k = y.k AND y.n > 3 WITHIN 9 SECONDS;
        CREATE QUERY repeated AS SELECT x.id AS one, COUNT(y.*) AS c, z.id AS two FROM PATTERN SEQ(a x, b+ y, a z)
            WHERE x.k = y.k AND x.k = z.k AND y.n > x.n WITHIN 15 SECONDS;
        CREATE QUERY either AS SELECT x.id AS one, y.id AS two, z.id AS three FROM PATTERN SEQ(a x, OR(b y, a z))
            WHERE x.k = y.k AND x.k = z.k WITHIN 4 SECONDS;
        CREATE QUERY both AS SELECT x.id AS one, y.id AS two
            FROM PATTERN AND(a x, b y) WHERE x.n = y.n WITHIN 3 SECONDS""",
    ),
    Program(
        "tables",
        """
        CREATE TABLE latest AS LAST BY k FROM a;
        CREATE TABLE sums (n BIGINT PRIMARY KEY, total DOUBLE, rides BIGINT, name STRING);
        ON a UPSERT INTO sums (n, total, rides, name)
            VALUES (a.n, COALESCE(total, 0) + COALESCE(v, 0), COALESCE(rides, 0) + 1, a.k);
        ON b WHERE b.n > 10 DELETE FROM sums WHERE sums.n = b.n - 10;
        CREATE QUERY looked_up AS SELECT b.t, b.id, latest.v AS v FROM b LEFT JOIN latest ON b.k = latest.k;
        CREATE QUERY own_change AS SELECT a.t, a.id, total, PREV(sums.total) AS before, rides, name
            FROM a, sums WHERE a.n = sums.n;
        CREATE QUERY around AS SELECT name, COUNT(*) AS c FROM
            (SELECT b.k AS k, name FROM b JOIN sums ON b.n = sums.n) [RANGE 40 SECONDS SLIDE 20 SECONDS] GROUP BY name;
        CREATE QUERY scan AS SELECT sums.n AS n, rides FROM b JOIN sums ON sums.rides < b.n""",
    ),
    Program(
        "times_to_live",
        """
        CREATE TABLE latest AS LAST BY k FROM a WITH ('ttl' = '20 SECONDS');
        CREATE TABLE sums (n BIGINT PRIMARY KEY, total DOUBLE, rides BIGINT) WITH ('ttl' = '30 SECONDS');
        ON a UPSERT INTO sums (n, total, rides)
            VALUES (a.n, COALESCE(total, 0) + COALESCE(v, 0), COALESCE(rides, 0) + 1);
        ON b WHERE (SELECT COUNT(*) FROM sums AS o WHERE o.rides > 3) > 2 DELETE FROM sums WHERE sums.n = b.n;
        CREATE QUERY looked_up AS SELECT b.t, b.id, latest.v AS v FROM b LEFT JOIN latest ON b.k = latest.k;
        CREATE QUERY own_change AS SELECT a.t, a.id, total, rides FROM a, sums WHERE a.n = sums.n;
        CREATE QUERY all_rows AS SELECT k, COUNT(*) AS c, SUM(v) AS s FROM latest [SLIDE 10 SECONDS] GROUP BY k;
        CREATE QUERY scan AS SELECT sums.n AS n, rides FROM b JOIN sums ON sums.rides < b.n""",
    ),
    Program(
        "rules",
        """
        CREATE RULE high WHEN SELECT t, k, v FROM a WHERE v > 10 BY k THEN EMIT INTO alarms SELECT k, v;
        CREATE RULE often WHEN SELECT k, COUNT(*) AS c FROM a [RANGE 20 SECONDS] GROUP BY k HAVING COUNT(*) > 3
            THEN EMIT INTO many SELECT k, c;
        CREATE RULE slides WHEN SELECT k, SUM(n) AS s FROM b [RANGE 20 SECONDS SLIDE 5 SECONDS] GROUP BY k
            HAVING SUM(n) > 20 THEN EMIT INTO sums;
        CREATE QUERY alarm AS SELECT k, COUNT(*) AS c FROM alarms [RANGE 1 MINUTE SLIDE 20 SECONDS] GROUP BY k;
        CREATE QUERY q_many AS SELECT * FROM many;
        CREATE QUERY q_sums AS SELECT * FROM sums""",
    ),
    Program(
        "chains",
        """
        INSERT INTO bars SELECT k, FIRST(v) AS first, MAX(v) AS high
            FROM a [RANGE 20 SECONDS SLIDE 20 SECONDS] GROUP BY k;
        CREATE QUERY highest AS SELECT k, MAX(high) AS h FROM bars [RANGE 2 MINUTES SLIDE 40 SECONDS] GROUP BY k;
        CREATE QUERY both AS SELECT k, COUNT(*) AS c
            FROM (SELECT k FROM a UNION ALL SELECT k FROM b) [RANGE 50 SECONDS SLIDE 10 SECONDS] GROUP BY k;
        CREATE QUERY joined AS SELECT k, id FROM a WHERE n > 6 UNION ALL SELECT k, id FROM b WHERE n < 3;
        CREATE QUERY nested AS SELECT AVG(spread) AS mean FROM
            (SELECT MAX(v) - MIN(v) AS spread FROM a [RANGE 10 SECONDS SLIDE 10 SECONDS])
            [RANGE 1 MINUTE SLIDE 20 SECONDS];
        CREATE QUERY last_of_all AS SELECT COUNT(*) AS c, SUM(v) AS s FROM
            (SELECT v FROM b [PARTITION BY k ROWS 10 SLIDE 10 SECONDS]) [RANGE 10 SECONDS SLIDE 10 SECONDS];
        CREATE QUERY projected AS SELECT t, upper(k) AS u, v + n AS x FROM b WHERE n > 1""",
    ),
    Program(
        "users_aggregates",
        f"""
        CREATE QUERY slides AS SELECT k, {_USERS} FROM a [RANGE 60 SECONDS SLIDE 20 SECONDS] GROUP BY k;
        CREATE QUERY in_rows AS SELECT {_USERS} FROM a [ROWS 12];
        CREATE QUERY tumbling AS SELECT k, {_USERS} FROM b [RANGE 30 SECONDS SLIDE 30 SECONDS] GROUP BY k""",
        on_spark=False,
    ),
    Program(
        "little_memory",
        """
        CREATE QUERY long AS SELECT k, SUM(v) AS s FROM a [RANGE 40 MINUTES SLIDE 1 MINUTE] GROUP BY k;
        CREATE QUERY shorter AS SELECT n, COUNT(*) AS s FROM a [RANGE 20 MINUTES SLIDE 1 MINUTE] GROUP BY n;
        CREATE QUERY most AS SELECT MAX(id) AS s, MIN(id) AS m FROM a [RANGE 40 MINUTES SLIDE 1 MINUTE];
        CREATE QUERY queues AS SELECT n, SUM(v) AS s, COUNT(*) AS c FROM b [PARTITION BY n ROWS 200] GROUP BY n;
        CREATE QUERY rows_that_wait AS SELECT id, v, k FROM b""",
        memory="170KB",
        before=2000,
        after=1000,
    ),
    Program(
        "rows_put_in_order",
        """
        CREATE QUERY sums AS SELECT k, SUM(v) AS s FROM a [RANGE 10 MINUTES SLIDE 1 MINUTE] GROUP BY k;
        CREATE QUERY others AS SELECT b.k AS k, COUNT(*) AS s FROM b [RANGE 10 MINUTES SLIDE 1 MINUTE] GROUP BY b.k""",
        streams=_STREAMS.replace("LATENESS 5 SECONDS", "LATENESS 10 MINUTES"),
        memory="80KB",
        before=1000,
        after=800,
    ),
    Program(
        "joins_in_shards",
        """
        CREATE QUERY pairs AS SELECT x.id AS one, y.id AS other, x.k AS s
            FROM a [RANGE 25 MINUTES] AS x LEFT JOIN b [RANGE 35 MINUTES] AS y ON x.id = y.id""",
        memory="450KB",
        before=2200,
        after=300,
    ),
    Program(
        "wall_clock",
        """
        CREATE QUERY ticks AS SELECT k, SUM(n) AS s FROM a [RANGE 60 SECONDS SLIDE 20 SECONDS ON WALL CLOCK] GROUP BY k;
        CREATE QUERY counted AS SELECT COUNT(*) AS c, MAX(v) AS m FROM a [ROWS 30 SLIDE 10 SECONDS ON WALL CLOCK];
        CREATE QUERY beside AS SELECT SUM(n) AS s FROM a [RANGE 60 SECONDS SLIDE 20 SECONDS]""",
        on_spark=False,
    ),
    Program(
        "arrival_order",
        """
        CREATE QUERY both AS SELECT 'a' AS s, id FROM a UNION ALL SELECT 'b' AS s, id FROM b;
        CREATE QUERY rows_of AS SELECT k, SUM(n) AS x FROM a [ROWS 20] GROUP BY k""",
        streams=_ARRIVALS,
        dispatch="ejf",
        on_spark=False,
    ),
    Program(
        "calls",
        """
        CREATE RULE high WHEN SELECT t, k, n FROM a WHERE n > 9 BY k THEN CALL note(k, n);
        CREATE QUERY sums AS SELECT k, SUM(n) AS s FROM a [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k""",
        on_spark=False,
    ),
    Program(
        "less_common",
        """
        CREATE QUERY counts AS SELECT n, COUNT(k) AS c FROM a [RANGE 60 SECONDS SLIDE 20 SECONDS] GROUP BY n;
        CREATE QUERY zeros AS SELECT DSTREAM k, v * 0 AS z FROM a [PARTITION BY k ROWS 6];
        CREATE QUERY some_pass AS SELECT x.id AS one, y.id AS other FROM a [ROWS 9] AS x, b [ROWS 9] AS y
            WHERE x.n = y.n AND x.v > 0 AND y.n > 2;
        CREATE QUERY times AS SELECT x.id AS one, y.id AS other
            FROM a [RANGE 40 SECONDS] AS x JOIN b [RANGE 40 SECONDS] AS y
            ON x.t > y.t AND x.t < y.t + INTERVAL '3' SECONDS;
        CREATE QUERY three AS SELECT x.id AS one, z.id AS three FROM a [RANGE 5 SECONDS] AS x
            JOIN b [RANGE 5 SECONDS] AS y ON x.n = y.n JOIN a [RANGE 5 SECONDS] AS z ON z.n = y.n WHERE y.v > 0""",
    ),
    Program(
        "groups_beyond_memory",
        """
        CREATE QUERY slides AS SELECT id, SUM(v) AS s, COUNT(*) AS c, MIN(k) AS m
            FROM a [RANGE 2 HOURS SLIDE 10 MINUTES] GROUP BY id;
        CREATE QUERY at_every_event AS SELECT id, SUM(v) AS s, COUNT(*) AS c FROM b [RANGE 2 HOURS] GROUP BY id""",
        memory="1500KB",
        before=6000,
        after=1200,
        on_spark=False,
    ),
    Program(
        "landmarks_beyond_memory",
        """
        CREATE QUERY totals AS SELECT id, SUM(v) AS s, COUNT(*) AS c, LAST(k) AS name, MAX(k) AS m
            FROM a [SINCE TIMESTAMP '1970-01-01 00:00:00' SLIDE 1 HOUR] GROUP BY id""",
        memory="1500KB",
        before=6000,
        after=1200,
        on_spark=False,
    ),
    Program(
        "values_beyond_memory",
        """
        CREATE QUERY slides AS SELECT COUNT(DISTINCT id) AS c FROM a [RANGE 20 HOURS SLIDE 10 HOURS];
        CREATE QUERY of_groups AS SELECT n, COUNT(DISTINCT id) AS c, COUNT(*) AS r
            FROM a [RANGE 20 HOURS SLIDE 10 HOURS] GROUP BY n""",
        memory="2MB",
        before=30000,
        after=1200,
        on_spark=False,
    ),
    Program(
        "order_beyond_memory",
        """
        CREATE QUERY slides AS SELECT MEDIAN(id) AS m, PERCENTILE_DISC(v, 0.9) AS p
            FROM a [RANGE 20 HOURS SLIDE 10 HOURS];
        CREATE QUERY of_groups AS SELECT n, MEDIAN(id) AS m, COUNT(*) AS r
            FROM a [RANGE 20 HOURS SLIDE 10 HOURS] GROUP BY n""",
        memory="2MB",
        before=30000,
        after=1200,
        on_spark=False,
    ),
    Program(
        "texts_beyond_memory",
        """
        CREATE QUERY slides AS SELECT COUNT(DISTINCT 'text ' || CAST(id AS STRING)) AS m, COUNT(DISTINCT k) AS n,
            COUNT(DISTINCT 'text ' || CAST(id AS STRING)) FILTER (WHERE n > 3) AS f, SUM(n) AS s
            FROM a [RANGE 3 HOURS SLIDE 30 MINUTES];
        CREATE QUERY some_events AS SELECT COUNT(DISTINCT 'text ' || CAST(id AS STRING)) AS m
            FROM b [RANGE 3 HOURS SLIDE 500 ROWS]""",
        memory="1500KB",
        before=9000,
        after=1800,
        on_spark=False,
    ),
    Program(
        "tables_beyond_memory",
        f"""
        CREATE TABLE wide (id BIGINT PRIMARY KEY, k STRING, {", ".join(f"c{i} DOUBLE" for i in range(24))});
        ON a UPSERT INTO wide VALUES (a.id, a.k, {", ".join(f"a.v * {i}" for i in range(24))});
        ON b WHERE b.n > 8 DELETE FROM wide WHERE wide.id = b.id - 300;
        CREATE QUERY looked_up AS SELECT b.t, b.id, wide.c3 AS v FROM b LEFT JOIN wide ON b.id - 50 = wide.id""",
        memory="100KB",
        on_spark=False,
    ),
    Program(
        "panes_beyond_memory",
        """
        CREATE QUERY hours AS SELECT id, k, SUM(v) AS s, MIN(v) AS lo, VAR_POP(v) AS var, LAST(n) AS l
            FROM a [RANGE 1 HOUR SLIDE 20 MINUTES] GROUP BY id, k;
        CREATE QUERY longer AS SELECT id, k, SUM(v) AS s, MIN(v) AS lo, VAR_POP(v) AS var, LAST(n) AS l
            FROM a [RANGE 90 MINUTES SLIDE 30 MINUTES] GROUP BY id, k""",
        strategy="panes",
        memory="1500KB",
        before=6000,
        after=1200,
        on_spark=False,
    ),
    Program(
        "tumbling_groups_beyond_memory",
        """
        CREATE QUERY hours AS SELECT id, k, SUM(v) AS s, COUNT(*) AS c, MAX(n) AS m
            FROM a [RANGE 2 HOURS SLIDE 2 HOURS] GROUP BY id, k;
        CREATE QUERY medians AS SELECT k, id, MEDIAN(v) AS s FROM b [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k, id""",
        memory="1500KB",
        before=6000,
        after=1800,
        on_spark=False,
    ),
    Program(
        "sessions_beyond_memory",
        """
        CREATE QUERY visits AS SELECT id, k, SUM(v) AS s, COUNT(*) AS c, MAX(n) AS m
            FROM a [PARTITION BY id SESSION 90 MINUTES] GROUP BY id, k""",
        memory="1500KB",
        before=6000,
        after=1800,
        on_spark=False,
    ),
    Program(
        "partitions_in_shards",
        """
        CREATE QUERY sums AS SELECT id, SUM(v) AS s, COUNT(*) AS c, LAST(k) AS l
            FROM a [PARTITION BY id ROWS 3] GROUP BY id;
        CREATE QUERY seldom AS SELECT id, k, MAX(v) AS m FROM b [PARTITION BY id ROWS 3 SLIDE 2] GROUP BY id, k;
        CREATE QUERY newest AS SELECT id, k, v FROM a [PARTITION BY id ROWS 1 SLIDE 4 HOURS]""",
        memory="1200KB",
        before=3000,
        after=400,
        on_spark=False,
    ),
    Program(
        "patterns_in_shards",
        """
        CREATE QUERY once AS SELECT x.id AS one, y.id AS other, x.k AS s
            FROM PATTERN SEQ(ONE a x, ONE b y) WHERE x.id = y.id WITHIN 40 MINUTES;
        CREATE QUERY absent AS SELECT x.id AS one
            FROM PATTERN SEQ(a x, !b y) WHERE x.id = y.id AND y.n > 3 WITHIN 25 MINUTES""",
        memory="900KB",
        before=2600,
        after=600,
        on_spark=False,
    ),
)
