"""Comparisons that go down to the files: the plans show them, and no answer and no boundary is another for it."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import App
from penstock import spark as on_spark
from penstock.expressions.render import render
from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.placement import place
from penstock.spark.progress import Figures
from penstock.spark.pushdown import common_comparisons, is_one_source, pushed_down, reads_columnar_files
from penstock.spark.schema import ddl
from penstock.spark.shares import share_out

from .runs import Collected, embedded, read_batches, stream_of, write_batches

SECOND = 1_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, v DOUBLE, n BIGINT, EVENT TIME t);"
COUNTS = "SELECT k, COUNT(*) AS c, SUM(v) AS total FROM s [RANGE 25 SECONDS SLIDE 10 SECONDS] WHERE {} GROUP BY k"


def comparisons(text: str) -> list[str]:
    """What would be pushed down, as text."""
    program = parse(text)
    nodes = {query.name: build(query.body) for query in program.queries}
    shares = share_out(program.streams, program.queries, nodes, place(program.queries, nodes))
    return [render(found) for found in common_comparisons(program.streams[0], shares)]


@pytest.mark.parametrize(
    ("where", "pushed"),
    [
        ("n > 5 AND upper(k) = 'A' AND k IN ('a', 'b')", ["n > 5", "in(k, 'a', 'b')"]),
        ("n BETWEEN 3 AND 9", ["n >= 3", "n <= 9"]),
        ("n > 5 OR k = 'a'", []),
        ("n IN (1, NULL)", []),
        ("v < 5", ["v < 5.0"]),
        ("v > 5", []),  # the files' statistics know nothing of NaN, which is greater
        ("v = 0", []),  # nor that -0.0 is equal to 0.0
        ("n > 5 AND 10 / n > 1", []),  # an event with n = 0 fails WHERE only after it was rejected
    ],
)
def test_simple_comparisons_are_told_from_others(where: str, pushed: list[str]) -> None:
    assert comparisons(f"{STREAM} {COUNTS.format(where)}") == pushed


@pytest.mark.parametrize(
    ("queries", "pushed"),
    [
        (
            [COUNTS.format("n > 5 AND k = 'a'"), COUNTS.format("n > 5").replace("GROUP BY k", "GROUP BY k, n")],
            ["n > 5"],
        ),
        ([COUNTS.format("n > 5"), COUNTS.format("n > 6")], []),
        ([COUNTS.format("n > 5"), "SELECT k FROM s"], []),
        (["SELECT COUNT(*) AS c FROM (SELECT k FROM s WHERE n > 5) [ROWS 10]"], ["n > 5"]),
        (["SELECT COUNT(*) AS c FROM s [ROWS 10] WHERE n > 5"], []),  # rows are counted before WHERE
        ([COUNTS.format("n > 5").replace("10 SECONDS]", "10 SECONDS WHEN FULL]")], []),  # since the first event
        (
            ["SELECT MEDIAN(v) AS m FROM s [RANGE 25 SECONDS SLIDE 10 SECONDS] WHERE n > 5"],
            [],
        ),  # one place looks for the last event itself
    ],
)
def test_only_what_every_reader_asks_for_is_pushed_down(queries: list[str], pushed: list[str]) -> None:
    assert comparisons(STREAM + ";".join(queries)) == pushed


def test_streams_whose_late_events_are_asked_for_are_read_whole() -> None:
    assert comparisons(f"{STREAM.replace('TIME t', 'TIME t LATE INTO lost')} {COUNTS.format('n > 5')}") == []


ODD_NAME = "a b`.'ü"
QUOTED = "`a b``.'ü`"
ODD = ["", "a", "it's", "ü\0x", "😀", "%_\\", '"', "Z"]
WIDE = f"""CREATE STREAM s (id BIGINT, t TIMESTAMP, v DOUBLE, f FLOAT, n BIGINT, d DATE, b BOOLEAN,
    {QUOTED} STRING, EVENT TIME t);"""
TIMES = st.sampled_from([f"TIMESTAMP '2024-03-01 09:0{i}:00'" for i in range(6)])
LITERALS = {
    "n": st.integers(-3, 12).map(str),
    "v": st.sampled_from(["0.0", "2.5", "-2.5", "7.0", "1e300"]),
    "d": st.integers(1, 9).map(lambda day: f"DATE '2024-02-0{day}'"),
    "b": st.sampled_from(["true", "false"]),
    "t": TIMES,
    QUOTED: st.sampled_from(["'" + text.replace("\\", "\\\\").replace("'", "''") + "'" for text in ODD]),
}


@st.composite
def conjuncts(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(list(LITERALS)))
    if draw(st.booleans()):
        return f"{column} {draw(st.sampled_from(['=', '<', '<=', '>', '>=', '<>']))} {draw(LITERALS[column])}"
    if draw(st.booleans()):
        return f"{column} IN ({draw(LITERALS[column])}, {draw(LITERALS[column])})"
    return draw(st.sampled_from([f"{column} IS NOT NULL", "length(coalesce(k2, 'xx')) = 2", "n % 2 = 0 OR b"])).replace(
        "k2", QUOTED
    )


def wide_rows() -> list[dict[str, Any]]:
    """In the order of n, so that row groups can be left out; every fifth value is NULL."""
    rng = random.Random(7)
    numbers = [0.0, -0.0, math.nan, math.inf, -math.inf, 2.5, -2.5, 7.0, 1e300]

    def seldom_null(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    return [
        {
            "id": i,
            "t": datetime(2024, 3, 1, 9, i // 20, i % 20, tzinfo=UTC) if i % 17 else None,
            "v": seldom_null(rng.choice(numbers)),
            "f": seldom_null(rng.choice(numbers[:7])),
            "n": seldom_null(i // 10),
            "d": seldom_null(date(2024, 2, 1 + i // 12)),
            "b": seldom_null(rng.random() < 0.5),
            ODD_NAME: seldom_null(ODD[i // 13 % len(ODD)]),
        }
        for i in range(100)
    ]


@pytest.fixture(scope="module")
def wide(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    directory = tmp_path_factory.mktemp("wide")
    table = pa.Table.from_pylist(wide_rows(), stream_of(WIDE).schema.arrow)
    pq.write_table(table, directory / "a.parquet", row_group_size=10)
    return spark.read.parquet(str(directory))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(conjuncts(), min_size=1, max_size=3))
def test_no_row_is_lost_that_where_keeps(wide: DataFrame, where: list[str]) -> None:
    """And none is kept that simple comparisons throw out, but those that are to be rejected."""
    stream = stream_of(WIDE)
    text = f"{WIDE} SELECT id FROM s WHERE ({') AND ('.join(where)})"
    (query,) = parse(text).queries
    node = build(query.body)
    shares = share_out([stream], [query], {query.name: node}, place([query], {query.name: node}))
    pushed = common_comparisons(stream, shares)
    found = {row.id: row.t for row in pushed_down(wide, stream, pushed).select("id", "t").collect()}
    with App(text) as app:
        app.push("s", pa.Table.from_pylist(wide_rows(), stream.schema.arrow))
        app.finish()
        expected = set(app.results("q1")["id"].to_pylist())
    assert expected <= set(found)
    if pushed and all(render(p) in render(node.where) for p in pushed) and len(pushed) == len(where):
        assert {i for i, at in found.items() if at is not None} == expected


@pytest.mark.parametrize(
    "select",
    [
        f"SELECT {QUOTED} AS k, COUNT(*) AS c, MAX(v) AS m FROM s [RANGE 2 MINUTES SLIDE 30 SECONDS] "
        f"WHERE n >= 3 AND n < 6 AND v > 2.0 GROUP BY {QUOTED}",
        f"SELECT COUNT(*) AS c FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] WHERE {QUOTED} = 'it''s' AND "
        "d <= DATE '2024-02-07'",
    ],
)
def test_static_files(spark: SparkSession, wide: DataFrame, select: str) -> None:
    """The answers of the embedded engine, rejects included, of a part of the files."""
    program = f"{WIDE} {select}"
    tagged = on_spark.query(spark, {"s": wide}, program, tagged=True)
    plan = tagged._jdf.queryExecution().executedPlan().toString()
    assert "ReadSchema: struct<t:timestamp>" in plan
    assert "GreaterThanOrEqual(n,3)" in plan or f"EqualTo({QUOTED},it's)" in plan
    assert "f:float" not in plan
    sink = Collected()
    sink(tagged, 0)
    with App(program) as app:
        app.push("s", pa.Table.from_pylist(wide_rows(), stream_of(WIDE).schema.arrow))
        app.finish()
        rows = sorted(map(repr, app.results("q1").to_pylist()))
        assert sorted(map(repr, sink.tables()["q1"].to_pylist())) == rows
        assert sink.tables()["rejects"].num_rows == len(app.rejects) == 6


EVENTS = [{"t": i * SECOND, "k": "abc"[i % 3], "v": i / 7, "n": i if i < 60 else -1} for i in range(100)]
"""The last 40 seconds have no event that n > 5 keeps."""


@pytest.mark.slow
def test_a_stream_of_files(spark: SparkSession, tmp_path: Path) -> None:
    """Time goes on with events that fail WHERE: the windows close that they close embedded, up to the last boundary."""
    program = f"{STREAM} {COUNTS.format('n > 5 AND length(k) = 1')}"
    write_batches(tmp_path / "in", program, [EVENTS[:50], EVENTS[50:90], EVENTS[90:]])
    frame = read_batches(spark, tmp_path / "in", program)
    checkpoint = str(tmp_path / "checkpoint")
    results = on_spark.query(spark, {"s": frame}, program, checkpoint=checkpoint, bounded=True)
    sink = Collected()

    def go_on() -> Any:
        running = sink.write(results).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        running.awaitTermination()
        return running

    running = go_on()
    plan = running._jsq.explainInternal(False)
    assert "PushedFilters: [Or(GreaterThan(n,5),IsNull(t))], ReadSchema: struct<t:timestamp,k:string,v:double" in plan
    assert "PushedFilters: [], ReadSchema: struct<t:timestamp>" in plan
    # The files and the end mark: both readings of the files are one source.
    assert [len(progress.sources) for progress in running.recentProgress] == [2, 2, 2]
    # 5 < n < 60 is in windows that end up to 80 s; all closed before the end was marked.
    assert sink.rows == embedded(program, EVENTS)
    on_spark.mark_end(checkpoint)
    go_on()
    assert sink.rows == embedded(program, EVENTS)


def test_files_that_arrive_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Without LATENESS every event is late of which the clock was read in an earlier micro-batch."""
    program = f"{STREAM} {COUNTS.format('n > 5')}"
    events = [{"t": i * SECOND, "k": "ab"[i % 2], "v": 1.0, "n": i % 50} for i in range(480)]
    incoming, ready = tmp_path / "in", tmp_path / "ready"
    incoming.mkdir()
    write_batches(ready, program, [events[i : i + 40] for i in range(0, 480, 40)])
    checkpoint = str(tmp_path / "checkpoint")
    frame = spark.readStream.schema(ddl(stream_of(program).schema)).parquet(str(incoming))
    results = on_spark.query(spark, {"s": frame}, program, checkpoint=checkpoint, bounded=True)
    sink, figures = Collected(), Figures()

    def deliver() -> None:
        for file in sorted(ready.glob("*.parquet")):
            os.rename(file, incoming / file.name)
            time.sleep(0.1)

    deliverer = threading.Thread(target=deliver)
    running = sink.write(results).option("checkpointLocation", checkpoint).start()
    deliverer.start()
    deliverer.join()
    running.processAllAvailable()
    running.stop()
    figures.read(running)
    on_spark.mark_end(checkpoint)
    sink.write(results).option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    assert figures.batches > 1
    assert figures.late == 0
    assert sink.rows == embedded(program, events)


def test_only_plain_columnar_files_are_read_twice(spark: SparkSession, wide: DataFrame, tmp_path: Path) -> None:
    assert reads_columnar_files(wide.where("n > 1").withColumn("x", F.col("n") + 1))
    assert not reads_columnar_files(wide.withColumn("t", F.expr("timestamp_seconds(rand())")))
    assert not reads_columnar_files(wide.join(wide.select("id"), "id"))
    assert not reads_columnar_files(wide.dropDuplicates(["n"]))
    assert not reads_columnar_files(spark.range(3))
    wide.select("id").write.json(str(tmp_path / "lines"))
    assert not reads_columnar_files(spark.read.json(str(tmp_path / "lines")))


def test_streams_that_are_read_apart_are_told(spark: SparkSession, tmp_path: Path) -> None:
    """Two readers of one directory have offsets of their own."""
    one, other = (spark.readStream.schema("t timestamp").parquet(str(tmp_path)) for _ in range(2))
    assert reads_columnar_files(one)
    assert is_one_source(one.union(one))
    assert not is_one_source(one.union(other))
