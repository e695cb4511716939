"""Queries on Spark: the rows of the embedded engine, whatever the micro-batches, buckets, restarts and silences."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from penstock import App
from penstock import spark as on_spark
from penstock.errors import CheckpointError, InputError, QueryError
from penstock.spark import mark_end
from penstock.spark.schema import ddl

from .runs import Collected, Row, bounded_run, embedded, in_order, read_batches, static_run, stream_of, write_batches

SECOND = 1_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, v DOUBLE, n BIGINT, EVENT TIME t LATENESS 5 SECONDS);"
SUMS = f"""{STREAM}
    SELECT k, COUNT(*) AS events, SUM(v) AS total, SUM(n) AS whole
    FROM s [RANGE 25 SECONDS SLIDE 10 SECONDS] GROUP BY k"""


def random_events(seed: int, count: int, keys: str = "abcdefg", every: int = SECOND // 2) -> list[dict[str, Any]]:
    """In disorder by less than the stream's LATENESS."""
    rng = random.Random(seed)
    return [
        {
            "t": 100 * SECOND + i * every + rng.randrange(4 * SECOND),
            "k": rng.choice(keys),
            "v": rng.choice([rng.random() * 1e9, rng.random(), -1e16, 1e16, None]),
            "n": rng.randrange(-1000, 1000),
        }
        for i in range(count)
    ]


def cut(events: list[dict[str, Any]], pieces: int) -> list[list[dict[str, Any]]]:
    size = math.ceil(len(events) / pieces)
    return [events[i : i + size] for i in range(0, len(events), size)]


def test_many_micro_batches_give_the_embedded_rows(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(1, 400)
    sink = Collected()
    figures = bounded_run(spark, SUMS, cut(events, 5), sink, tmp_path)
    assert sink.rows == embedded(SUMS, events)
    assert (figures.events, figures.late, figures.results) == (400, 0, len(sink.rows))


def test_a_quiet_key_goes_on_giving_results(spark: SparkSession, tmp_path: Path) -> None:
    """
    a  |x.........|..........|..........|         in the window until 25 s after its only event
    b  |..........|x.........|.........x|         moves the time, in another bucket
    """
    quiet = [{"t": 101 * SECOND, "k": "a", "v": 1.0, "n": 1}]
    loud = [{"t": t * SECOND, "k": "b", "v": 1.0, "n": 1} for t in (112, 129, 148)]
    sink = Collected()
    bounded_run(spark, SUMS, [quiet, *([event] for event in loud)], sink, tmp_path, buckets=4)
    assert [row[1] // SECOND for row in sink.rows if row[2] == "a"] == [110, 120]
    assert sink.rows == embedded(SUMS, quiet + loud)


@pytest.mark.slow
def test_a_run_that_stops_midway_and_goes_on_gives_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(2, 300)
    batches = cut(events, 6)
    sink = Collected()
    write_batches(tmp_path / "in", SUMS, batches[:3])

    def go_on() -> None:
        frame = on_spark.query(
            spark,
            {"s": read_batches(spark, tmp_path / "in", SUMS)},
            SUMS,
            checkpoint=str(tmp_path / "checkpoint"),
            bounded=True,
        )
        writer = sink.write(frame).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    go_on()
    first_part = len(sink.rows)
    assert first_part
    write_batches(tmp_path / "in", SUMS, batches[3:], first=3)
    go_on()
    assert len(sink.rows) > first_part
    mark_end(str(tmp_path / "checkpoint"))
    go_on()
    assert sink.rows == embedded(SUMS, events)


@pytest.mark.slow
def test_a_failed_micro_batch_is_run_again_without_a_trace(spark: SparkSession, tmp_path: Path) -> None:
    """The sink fails after the buckets have run: their live objects are ahead of the committed state."""
    events = random_events(3, 200)

    class Failing(Collected):
        failed = False

        def __call__(self, frame: DataFrame, batch: int) -> None:
            super().__call__(frame, batch)
            if batch == 2 and not self.failed:
                self.failed = True
                raise RuntimeError("the sink is full")

    sink = Failing()
    with pytest.raises(Exception, match="the sink is full"):
        bounded_run(spark, SUMS, cut(events, 4), sink, tmp_path)
    bounded_run(spark, SUMS, [], sink, tmp_path)
    assert sink.rows == embedded(SUMS, events)


@pytest.mark.parametrize(
    "select",
    [
        "SELECT upper(k) AS name, AVG(v) AS mean FROM s [RANGE 1 MINUTE SLIDE 7 SECONDS] GROUP BY upper(k)",
        "SELECT k, n % 3 AS m, COUNT(v) AS c FROM s [RANGE 30 SECONDS SLIDE 30 SECONDS] WHERE n > 0 GROUP BY k, n % 3",
        "SELECT k, SUM(n) AS c FROM s [RANGE 20 SECONDS SLIDE 9 SECONDS OFFSET 3 SECONDS] GROUP BY k HAVING SUM(n) > 0",
        "SELECT k, SUM(n) AS c FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY k DRAIN",
    ],
)
def test_a_static_frame_gives_the_rows_of_the_stream(spark: SparkSession, select: str) -> None:
    events = random_events(4, 200)
    program = f"{STREAM} {select}"
    assert backfilled(spark, program, events, buckets=3) == embedded(program, events)


def backfilled(spark: SparkSession, program: str, events: list[dict[str, Any]], **options: Any) -> list[Any]:
    sink = Collected()
    static_run(spark, program, events, sink, **options)
    return sink.rows


@pytest.mark.filterwarnings("ignore:the query runs in one bucket")
@pytest.mark.parametrize(
    "select",
    [
        "SELECT SUM(v) AS total FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS]",
        "SELECT k, SUM(n) AS c FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY k ORDER BY c DESC, k LIMIT 2",
        "SELECT g, SUM(v) AS c FROM (SELECT k AS g, v FROM s WHERE n > 0) [RANGE 1 MINUTE SLIDE 9 SECONDS] GROUP BY g",
        "SELECT ISTREAM k, COUNT(*) AS c FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY k",
        "SELECT k, SUM(n) AS c FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS WHEN FULL] GROUP BY k",
    ],
)
def test_one_bucket_gives_the_embedded_rows(spark: SparkSession, select: str) -> None:
    events = random_events(5, 100)
    program = f"{STREAM} {select}"
    assert backfilled(spark, program, events) == embedded(program, events)


def test_one_bucket_comes_with_a_warning(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "t timestamp, v double")
    with pytest.warns(UserWarning, match="one bucket: there is no GROUP BY"):
        on_spark.query(spark, {"s": frame}, "SELECT MEDIAN(v) AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR]", buckets=2)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 2**32),
    st.integers(20, 60),
    st.integers(1, 20),
    st.integers(1, 3),
    st.sampled_from([SECOND // 10, SECOND, 5 * SECOND]),
)
def test_random_streams_and_windows(
    spark: SparkSession, seed: int, extent: int, slide: int, buckets: int, every: int
) -> None:
    window = f"[RANGE {extent} SECONDS SLIDE {slide} SECONDS]"
    program = f"{STREAM} SELECT k, COUNT(*) AS c, SUM(v) AS a FROM s {window} GROUP BY k"
    events = random_events(seed, 150, every=every)
    assert backfilled(spark, program, events, buckets=buckets) == embedded(program, events)


@pytest.mark.slow
def test_late_and_rejected_events_are_counted_and_leave_no_trace(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(6, 100)
    late = {"t": 100 * SECOND, "k": "a", "v": 1.0, "n": 1}
    nowhen = {"t": None, "k": "a", "v": 1.0, "n": 1}
    sink = Collected()
    figures = bounded_run(spark, SUMS, [events[:50], [nowhen, *events[50:]], [late, late]], sink, tmp_path)
    assert sink.rows == embedded(SUMS, events)
    assert (figures.events, figures.late, figures.rejected) == (103, 2, 1)


def test_a_window_far_larger_than_its_memory(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(7, 40_000, keys="ab", every=SECOND // 200)
    program = SUMS.replace("RANGE 25 SECONDS", "RANGE 150 SECONDS")
    sink = Collected()
    figures = bounded_run(spark, program, cut(events, 4), sink, tmp_path, memory="1200KB")
    segments = sum(file.stat().st_size for file in (tmp_path / "checkpoint").rglob("*.segment"))
    assert sink.rows == embedded(program, events)
    assert segments > 1_000_000
    assert figures.state_bytes < 400_000


def test_the_text_may_be_a_select_over_the_frame_as_it_is(spark: SparkSession) -> None:
    events = random_events(8, 100)
    schema = stream_of(SUMS).schema
    frame = spark.createDataFrame(pa.Table.from_pylist(events, schema.arrow), ddl(schema))
    sink = Collected()
    select = SUMS.removeprefix(STREAM)
    sink(on_spark.query(spark, {"S": frame}, select, lateness="5 SECONDS"), 0)
    assert sink.rows == embedded(SUMS, events)


def test_rows_of_a_derived_stream_that_no_query_reads_come_out_under_its_name(spark: SparkSession) -> None:
    events = random_events(4, 20)
    program = f"{STREAM} INSERT INTO big SELECT t, n FROM s WHERE n > 1"
    with App(program) as app:
        app.push("s", pa.RecordBatch.from_pylist(events, stream_of(program).schema.arrow))
        app.finish()
        expected = in_order(app.results("big"))
    sink = Collected()
    static_run(spark, program, events, sink)
    assert sink.frame is not None
    assert sink.frame.columns == ["t", "n"]
    assert sink.rows == expected
    sink = Collected()
    static_run(spark, f"{program}; SELECT COUNT(*) AS c FROM big [RANGE 1 DAY SLIDE 1 DAY]", events, sink, buckets=1)
    assert [row[-1] for row in sink.rows] == [len(expected)]
    sink = Collected()
    static_run(spark, program, events, sink, tagged=True)
    assert in_order(sink.tables()["big"]) == expected


def test_only_columns_that_are_read_are_asked_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", SUMS, [random_events(9, 10)])
    frame = spark.read.parquet(str(tmp_path / "in"))
    text = "SELECT k, COUNT(*) AS c FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k"
    result = on_spark.query(spark, {"s": frame}, text)
    plan = result._jdf.queryExecution().executedPlan().toString()
    assert "ReadSchema: struct<t:timestamp,k:string>" in plan


def start(spark: SparkSession, directory: Path, text: str, sink: Collected, **options: Any) -> None:
    """Takes what is there, and leaves the windows open."""
    checkpoint = str(directory / "checkpoint")
    frames = {"s": read_batches(spark, directory / "in", SUMS)}
    frame = on_spark.query(spark, frames, text, checkpoint=checkpoint, tagged=True, **options)
    writer = sink.write(frame).option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()


@pytest.mark.slow
def test_a_changed_query_set_resumes_what_is_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """b is dropped and comes back after it missed a batch, c is changed, d is new and has another key."""
    a = "CREATE QUERY a AS SELECT k, SUM(n) AS x FROM s [RANGE 25 SECONDS SLIDE 10 SECONDS] GROUP BY k"
    b = "CREATE QUERY b AS SELECT k, MAX(n) AS x FROM s [RANGE 25 SECONDS SLIDE 10 SECONDS] GROUP BY k"
    c = "CREATE QUERY c AS SELECT k, COUNT(*) AS x FROM s [RANGE {} SECONDS SLIDE 10 SECONDS] GROUP BY k"
    d = "CREATE QUERY d AS SELECT n, MEDIAN(v) AS x FROM s [RANGE 25 SECONDS SLIDE 10 SECONDS] GROUP BY n"
    # Out of order, events that wait at the change would be new to a query that is added embedded, but not on Spark.
    stream = STREAM.replace("LATENESS 5 SECONDS", "")
    batches = cut(sorted(random_events(10, 300), key=lambda event: event["t"]), 3)
    sink = Collected()
    write_batches(tmp_path / "in", SUMS, batches[:1])
    start(spark, tmp_path, f"{stream}; {a}; {b}; {c.format(25)}", sink)
    write_batches(tmp_path / "in", SUMS, batches[1:2], first=1)
    with pytest.warns(UserWarning, match="begins") as told:
        start(spark, tmp_path, f"{stream}; {a}; {c.format(35)}; {d}", sink)
    assert {str(w.message).split(" and ")[0] for w in told} == {
        "query b is gone",
        "query c has changed",
        "query d is new",
    }
    write_batches(tmp_path / "in", SUMS, batches[2:], first=2)
    with pytest.warns(UserWarning, match="query b is new"):
        start(spark, tmp_path, f"{stream}; {a}; {b}; {c.format(35)}; {d}", sink)
    expected: dict[str, list[Row]] = {}
    with App(f"{stream}; {a}; {b}; {c.format(25)}") as app:
        changes = ((), (("b", None), ("c", c.format(35)), ("d", d)), (("b", b),))
        for batch, changed in zip(batches, changes, strict=True):
            for name, text in changed:
                if name in app.queries:
                    app.drop_query(name)
                if text is not None:
                    app.add_query(text)
            app.push("s", pa.RecordBatch.from_pylist(batch, stream_of(SUMS).schema.arrow))
            for name in app.queries:
                expected.setdefault(name, []).extend(in_order(app.results(name)))
    for name in "abcd":
        assert in_order(sink.tables()[name]) == sorted(expected[name], key=repr), name


@pytest.mark.slow
def test_without_a_checkpoint_directory_the_query_set_must_stay(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", SUMS, [random_events(10, 20)])
    frames = {"s": read_batches(spark, tmp_path / "in", SUMS)}

    def go_on(text: str) -> None:
        writer = Collected().write(on_spark.query(spark, frames, text))
        writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()

    go_on(SUMS)
    write_batches(tmp_path / "in", SUMS, [random_events(11, 20)], first=1)
    with pytest.raises(Exception, match="the checkpoint belongs to other"):
        go_on(SUMS.replace("RANGE 25 SECONDS", "RANGE 30 SECONDS"))


@pytest.mark.slow
def test_more_events_after_the_end_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    bounded_run(spark, SUMS, [random_events(12, 20)], Collected(), tmp_path)
    with pytest.raises(CheckpointError, match="these streams were ended"):
        bounded_run(spark, SUMS, [random_events(13, 20)], Collected(), tmp_path)


@pytest.mark.parametrize(
    ("text", "options", "error", "says"),
    [
        ("SELECT nope FROM s [RANGE 1 HOUR SLIDE 1 HOUR]", {}, QueryError, "unknown column 'nope'"),
        ("SELECT k FROM nope [RANGE 1 HOUR SLIDE 1 HOUR]", {}, QueryError, "nope"),
        ("CREATE STREAM s (t TIMESTAMP, EVENT TIME t)", {}, QueryError, "no query"),
        (SUMS.replace("FROM s", "FROM r").replace("STREAM s", "STREAM r"), {}, InputError, "for the stream 'r'"),
        (SUMS.removeprefix(STREAM), {"event_time": "when"}, InputError, "no column 'when'"),
        (SUMS.removeprefix(STREAM), {"event_time": "n"}, InputError, "BIGINT and no TIMESTAMP"),
        (SUMS.removeprefix(STREAM), {"lateness": "soon"}, InputError, "'soon' is no duration"),
        (SUMS, {"buckets": 0}, InputError, "at least 1"),
        (SUMS.replace("SLIDE 10 SECONDS", "SLIDE 10 SECONDS ON WALL CLOCK"), {}, QueryError, "ON WALL CLOCK"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_first_event(
    spark: SparkSession, text: str, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    frame = spark.createDataFrame([], ddl(stream_of(SUMS).schema))
    with pytest.raises(error, match=says):
        on_spark.query(spark, {"s": frame}, text, **options)


def test_streams_may_come_from_the_text_and_from_dataframes(spark: SparkSession) -> None:
    """A comment or a string with the words CREATE STREAM declares nothing."""
    text = """-- CREATE STREAM s would say the same
        CREATE STREAM r (at BIGINT, EVENT TIME at UNIT SECONDS);
        CREATE QUERY a AS SELECT k, COUNT(*) AS events FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k;
        CREATE QUERY b AS SELECT 'CREATE STREAM s' AS words, COUNT(*) AS events FROM r [RANGE 1 HOUR SLIDE 1 HOUR]"""
    frames = {
        "s": spark.createDataFrame([], ddl(stream_of(SUMS).schema)),
        "R": spark.createDataFrame([(1,)], "at bigint"),
        "without a time": spark.range(1),
    }
    found = on_spark.query(spark, frames, text)
    assert on_spark.results(found, "a").columns == ["window_start", "window_end", "k", "events"]
    assert on_spark.results(found, "b").first()["words"] == "CREATE STREAM s"


def test_a_session_without_the_state_store_is_told_what_to_set(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Europe/Lisbon")
    frame = other.createDataFrame([], ddl(stream_of(SUMS).schema))
    with pytest.raises(InputError, match=r"spark\.sql\.session\.timeZone.*UTC is needed"):
        on_spark.query(other, {"s": frame}, SUMS)
