"""What does not fit is refused with a reason, and never answered wrongly: damaged and foreign checkpoints, changed
sources, budgets that are too small, two runs at once."""

from __future__ import annotations

import fcntl
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from penstock import App
from penstock import spark as on_spark
from penstock.errors import BudgetError, CheckpointError, InputError, PenstockError, QueryError, StorageError
from penstock.spark import processor
from penstock.spark.checkpoint_files import last_begun
from penstock.spark.failures import as_ours
from penstock.spark.live import LiveObjects
from penstock.spark.merging import Merger
from penstock.spark.write import write
from penstock.store import state as state_format

from .by_hand import Run
from .runs import Collected, in_order, read_batches, stream_of, write_batches

SECOND = 1_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, v DOUBLE, n BIGINT, EVENT TIME t);"
LONG = "CREATE QUERY long AS SELECT k, SUM(v) AS x FROM s [RANGE 2 MINUTES SLIDE 10 SECONDS] GROUP BY k"
MIDDLE = "CREATE QUERY middle AS SELECT k, MEDIAN(v) AS x FROM s [PARTITION BY k ROWS 500 SLIDE 500] GROUP BY k"


def events(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"t": 1000 * SECOND + i * 10_000, "k": "abcdef"[i * 37 % 101 % 6], "v": i * 31 % 1009 / 7, "n": i % 7}
        for i in range(first, first + count)
    ]


def segments(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.segment"))


@pytest.fixture
def on_disk(tmp_path: Path) -> Run:
    """A run whose window has left memory."""
    run = Run(f"{STREAM} {LONG}; {MIDDLE}", random.Random(0), tmp_path)
    for batch in range(2):
        run.settle(run.attempt(batch, [{"s": events(batch * 12_000, 12_000)}]), commit=True)
    assert segments(tmp_path)
    return run


@pytest.fixture
def nothing_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers are new ones, as after a restart."""
    monkeypatch.setattr(processor, "_live", LiveObjects())


def test_a_missing_segment_is_noticed_when_its_state_is_taken_up(
    on_disk: Run, tmp_path: Path, nothing_live: None
) -> None:
    lost = segments(tmp_path)[0]
    lost.unlink()
    with pytest.raises(StorageError) as told:
        on_disk.attempt(2, [{"s": events(24_000, 1)}])
    message = str(told.value)
    assert "query long ([RANGE 2 MINUTES SLIDE 10 SECONDS] over s)" in message
    assert f"{lost.name} is missing" in message
    assert "run without these queries" in message


@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_a_corrupt_segment_is_no_wrong_answer(on_disk: Run, tmp_path: Path, nothing_live: None, damage: str) -> None:
    """Its rows are due when they leave the window, which the next event sees to."""
    for file in segments(tmp_path):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data if damage == "flip" else data[: len(data) // 2])
    with pytest.raises(
        StorageError, match=r"query long \(\[RANGE 2 MINUTES .*(corrupt|truncated)[^.]*\..* would be wrong"
    ):
        on_disk.attempt(2, [{"s": events(24_000, 6_000)}])


def test_without_the_damaged_query_the_others_go_on(on_disk: Run, tmp_path: Path, nothing_live: None) -> None:
    for file in segments(tmp_path):
        file.unlink()
    rest = Run(f"{STREAM} {MIDDLE}", random.Random(0), tmp_path)
    for bucket in rest.buckets:
        bucket.states = next(other for other in on_disk.buckets if other.label == bucket.label).states
    rest.settle(rest.attempt(2, [{"s": events(24_000, 12_000)}]), commit=True)
    with App(f"{STREAM} {MIDDLE}") as app:
        app.push("s", pa.RecordBatch.from_pylist(events(0, 24_000), stream_of(STREAM).schema.arrow))
        app.results("middle")
        app.push("s", pa.RecordBatch.from_pylist(events(24_000, 12_000), stream_of(STREAM).schema.arrow))
        expected = in_order(app.results("middle"))
    assert len(expected) > 5
    assert in_order(rest.table("middle")) == expected


def test_state_of_a_newer_version_is_refused(on_disk: Run, nothing_live: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_format, "VERSION", state_format.VERSION - 1)
    with pytest.raises(CheckpointError, match=r"format version \d+, this Penstock reads up to \d+; use the version"):
        on_disk.attempt(2, [{"s": events(24_000, 10)}])


def test_a_budget_that_is_outgrown_says_what_all_buckets_together_need() -> None:
    text = f"{STREAM} SELECT k, MODE(v) AS x FROM s [PARTITION BY k ROWS 20000 SLIDE 500] GROUP BY k"
    run = Run(text, random.Random(0), memory=900_000)
    with pytest.raises(
        BudgetError, match=r"memory budget of at least [\d,]+ bytes, [\d,]+ for each of 3 buckets: a lower bound"
    ):
        run.attempt(0, [{"s": events(0, 60_000)}])


def test_tasks_that_merge_have_equal_parts_of_the_memory() -> None:
    recipe = Run(
        f"{STREAM} SELECT SUM(v) AS x FROM s [RANGE 1 DAY SLIDE 1 HOUR]", random.Random(0), memory=800_000
    ).recipe
    budget = Merger(recipe, 4).budget()
    assert budget.total == 200_000
    with pytest.raises(BudgetError, match=r"at least 840,000 bytes, 210,000 for each of 4 tasks that merge"):
        budget.account("partial rows").resize(210_000)


# With Spark. One small run makes the checkpoint that the tests copy and spoil.

SUMS = f"{STREAM} CREATE QUERY sums AS SELECT k, SUM(n) AS x FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY k"


def go(
    spark: SparkSession, directory: Path, text: str = SUMS, frame: DataFrame | None = None, **options: Any
) -> Collected:
    """Takes what is there, and leaves the windows open."""
    checkpoint = str(directory / "checkpoint")
    streams = {"s": frame or read_batches(spark, directory / "in", STREAM)}
    results = on_spark.query(spark, streams, text, checkpoint=checkpoint, **{"buckets": 2, **options})
    sink = Collected()
    writer = sink.write(results).option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()
    return sink


@pytest.fixture(scope="module")
def made_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("made")
    write_batches(directory / "in", STREAM, [events(0, 3000)])
    go(spark, directory)
    return directory


@pytest.fixture
def made(made_once: Path, tmp_path: Path) -> Path:
    """A directory with a checkpoint and the files it was made of."""
    shutil.copytree(made_once, tmp_path / "made")
    return tmp_path / "made"


@pytest.mark.parametrize(
    ("text", "options", "error", "says"),
    [
        (SUMS.replace("STREAM s", "STREAM r").replace("FROM s", "FROM r"), {}, CheckpointError, "another application"),
        (
            f"CREATE STREAM r (t TIMESTAMP, EVENT TIME t); {SUMS}; SELECT t FROM r",
            {},
            CheckpointError,
            "cannot add or drop streams",
        ),
        (SUMS.replace("TIME t)", "TIME t LATENESS 1 SECOND)"), {}, CheckpointError, "lateness was 0 and is 1000000"),
        (SUMS.replace("n BIGINT", "n INT"), {}, CheckpointError, "column n was BIGINT and is INT"),
        (SUMS, {"bounded": True}, CheckpointError, "bounded=False"),
        (SUMS, {"buckets": 3}, InputError, "made with 2 buckets and cannot go on with 3"),
        (SUMS, {"memory": 2000}, BudgetError, "too few for 2 buckets: each needs at least"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(
    spark: SparkSession, made: Path, text: str, options: dict[str, Any], error: type[PenstockError], says: str
) -> None:
    before = (made / "checkpoint" / "penstock" / "plan.json").read_text()
    frame = spark.readStream.schema("t timestamp, k string, v double, n int").parquet(str(made / "in"))
    if "INT" not in says:
        frame = read_batches(spark, made / "in", STREAM)
    checkpoint = str(made / "checkpoint")
    with pytest.raises(error, match=says):
        on_spark.query(spark, {"s": frame, "r": frame}, text, checkpoint=checkpoint, **{"buckets": 2, **options})
    assert (made / "checkpoint" / "penstock" / "plan.json").read_text() == before


def test_queries_of_other_names_begin_afresh_with_a_warning(spark: SparkSession, made: Path) -> None:
    frame = read_batches(spark, made / "in", STREAM)
    with pytest.warns(UserWarning, match="query") as told:
        on_spark.query(
            spark, {"s": frame}, SUMS.replace("QUERY sums", "QUERY totals"), checkpoint=str(made / "checkpoint")
        )
    assert [str(w.message) for w in told] == [
        "query totals is new and begins from now on",
        "query sums is gone and its state is forgotten",
    ]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda plan: json.dumps({**json.loads(plan), "version": 99}), "newer Penstock .plan version 99"),
        (lambda plan: plan[:50], "plan.json is damaged"),
        (lambda plan: '{"version": 1}', "plan.json is damaged"),
    ],
)
def test_a_plan_file_that_cannot_be_read_is_refused(
    spark: SparkSession, made: Path, spoil: Callable[[str], str], says: str
) -> None:
    file = made / "checkpoint" / "penstock" / "plan.json"
    file.write_text(spoil(file.read_text()))
    with pytest.raises(CheckpointError, match=says):
        go(spark, made)


@pytest.mark.parametrize(
    ("columns", "text", "error", "says"),
    [
        ("k string, v double, n bigint", SUMS, InputError, "'s' needs the column 't' .TIMESTAMP., .* it has k, v, n"),
        ("t timestamp, k string, v double", SUMS, InputError, "needs the column 'n'"),
        ("t timestamp, k string, v double, n string", SUMS, InputError, "declared as BIGINT, but .* string; cast it"),
        ("t timestamp, k string, v double", SUMS.removeprefix(STREAM), QueryError, "unknown column 'n'"),
        ("k string, v double, n bigint", SUMS.removeprefix(STREAM), InputError, "'s' needs its event time"),
        ("t timestamp, k string, v double, n double", SUMS.removeprefix(STREAM), CheckpointError, "n was BIGINT"),
    ],
)
def test_a_source_that_has_lost_or_changed_columns_is_refused(
    spark: SparkSession, made: Path, columns: str, text: str, error: type[PenstockError], says: str
) -> None:
    frame = spark.readStream.schema(columns).parquet(str(made / "in"))
    with pytest.raises(error, match=says):
        go(spark, made, text, frame)


@pytest.mark.slow
def test_a_column_more_and_other_shuffle_partitions_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", STREAM, [events(0, 3000)])
    go(spark, tmp_path)
    write_batches(tmp_path / "in", STREAM, [events(3000, 3000)], first=1)
    wider = spark.readStream.schema("more int, t timestamp, k string, v double, n bigint").parquet(str(tmp_path / "in"))
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        found = go(spark, tmp_path, frame=wider, buckets=None).rows
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    with App(SUMS) as app:
        app.push("s", pa.RecordBatch.from_pylist(events(0, 3000), stream_of(STREAM).schema.arrow))
        app.results("sums")
        app.push("s", pa.RecordBatch.from_pylist(events(3000, 3000), stream_of(STREAM).schema.arrow))
        assert found == in_order(app.results("sums"))
    assert found


def test_streaming_and_static_frames_are_told_apart(spark: SparkSession, made: Path) -> None:
    streaming = read_batches(spark, made / "in", STREAM)
    static = spark.read.parquet(str(made / "in"))
    both = f"{SUMS}; {STREAM.replace(' s ', ' r ')} SELECT t FROM r"
    with pytest.raises(InputError, match=r"r is streaming and s is not; read all streams with spark\.readStream"):
        on_spark.query(spark, {"s": static, "r": streaming}, both)
    with pytest.raises(InputError, match=r"s is static, .* read it with spark\.readStream"):
        on_spark.run(spark, {"s": static}, SUMS, lambda frame: frame.writeStream, str(made / "new"))
    with pytest.raises(InputError, match="results over static DataFrames"):
        write(on_spark.query(spark, {"s": static}, SUMS, tagged=True), {})
    assert not (made / "new").exists()


def test_the_least_memory_that_is_named_is_enough(spark: SparkSession, made: Path) -> None:
    static = spark.read.parquet(str(made / "in"))
    with pytest.raises(BudgetError, match="in all; give more memory or take fewer buckets") as told:
        on_spark.query(spark, {"s": static}, SUMS, memory=2000, buckets=2)
    each, least = (
        int(n.replace(",", "")) for n in re.findall(r"at least ([\d,]+) .* ([\d,]+) in all", str(told.value))[0]
    )
    assert least == 2 * each
    on_spark.query(spark, {"s": static}, SUMS, memory=least, buckets=2)
    with pytest.raises(BudgetError):
        on_spark.query(spark, {"s": static}, SUMS, memory=least - 2, buckets=2)


def test_two_runs_at_once_on_one_checkpoint(spark: SparkSession, made: Path) -> None:
    """The other run holds the lock; where there are no locks, Spark itself notices."""
    streams = {"s": read_batches(spark, made / "in", STREAM)}
    (made / "new" / "penstock").mkdir(parents=True)
    with open(made / "new" / "penstock" / ".lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(CheckpointError, match="in use by another run; stop that one"):
            on_spark.run(spark, streams, SUMS, Collected().write, str(made / "new"))
    assert last_begun(str(made / "new")) is None
    spark_says = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 3."
    assert "another run is using the same checkpoint" in str(as_ours(RuntimeError(spark_says)))


@pytest.mark.parametrize("kind", ["noop", "files"])
def test_what_a_worker_says_is_in_the_first_lines(spark: SparkSession, made: Path, tmp_path: Path, kind: str) -> None:
    text = f"{STREAM} SELECT k, MODE(v) AS x FROM s [PARTITION BY k ROWS 20000 SLIDE 500] GROUP BY k"
    results = on_spark.query(
        spark, {"s": read_batches(spark, made / "in", STREAM)}, text, memory=280_000, buckets=2, tagged=kind == "files"
    )
    writer = results.writeStream.format("noop") if kind == "noop" else write(results, {"q1": str(tmp_path / "out")})
    writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException) as told:
        writer.start().awaitTermination()
    first = str(told.value).splitlines()[:12]
    assert any("BudgetError: " in line and "more bytes, but only" in line for line in first)
    ours = as_ours(told.value)
    assert isinstance(ours, BudgetError)
    assert "for each of 2 buckets" in str(ours)
