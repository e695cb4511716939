"""Looking into a checkpoint of Spark: figures against a count of the events, and nothing is changed by looking."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import spark as on_spark
from penstock.engine.inspect import Files
from penstock.errors import CheckpointError, StorageError
from penstock.spark import bucket_state
from penstock.spark.inspect import inspect_checkpoint
from penstock.store.state import VERSION

from .runs import Collected, read_batches, write_batches

SECOND = 1_000_000
PROGRAM = """
    CREATE STREAM s (t TIMESTAMP, k STRING, v DOUBLE, EVENT TIME t LATENESS 1 SECOND);
    CREATE QUERY long AS SELECT k, SUM(v) AS x FROM s [RANGE 100 SECONDS SLIDE 10 SECONDS] GROUP BY k;
    CREATE QUERY median AS SELECT k, MEDIAN(v) AS x FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k;
    CREATE QUERY latest AS SELECT SUM(v) AS x FROM s [ROWS 7];
"""
EVENTS = [{"t": 1000 * SECOND + i * 10_000, "k": "abcde"[i % 5], "v": i / 7} for i in range(12_000)]
WATERMARK = EVENTS[-1]["t"] - SECOND - 1


@pytest.fixture(scope="module")
def checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("inspected")
    write_batches(directory / "in", PROGRAM, [EVENTS[:9000], EVENTS[9000:]])
    place = str(directory / "checkpoint")
    with pytest.warns(UserWarning, match="latest runs in one bucket"):
        results = on_spark.query(
            spark, {"s": read_batches(spark, directory / "in", PROGRAM)}, PROGRAM, checkpoint=place, buckets=2
        )
    writer = Collected().write(results).option("checkpointLocation", place).trigger(availableNow=True)
    writer.start().awaitTermination()
    return directory / "checkpoint"


def everything(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in directory.rglob("*") if path.is_file()
    }


def test_the_figures_are_those_of_the_events(spark: SparkSession, checkpoint: Path) -> None:
    before = everything(checkpoint)
    state = inspect_checkpoint(spark, str(checkpoint))
    assert everything(checkpoint) == before
    assert (state.engine, state.number, state.ended, state.format_version) == ("Spark", 1, False, VERSION)
    stream = state.saved.streams["s"]
    assert (stream.events, stream.last_time, stream.watermark) == (12_000, EVENTS[-1]["t"], WATERMARK)
    in_order = [event for event in EVENTS if event["t"] <= WATERMARK]
    assert stream.waiting == 2 * (12_000 - len(in_order)), "they wait in each of two shares"
    closed = WATERMARK // (10 * SECOND) * 10 * SECOND
    queries = state.saved.queries
    assert queries["long"].rows == sum(event["t"] >= closed - 100 * SECOND for event in in_order)
    assert (queries["median"].rows, queries["latest"].rows) == (0, 7)
    assert {name: query.groups for name, query in queries.items()} == {"long": 5, "median": 5, "latest": 1}
    assert queries["latest"].results == len(in_order)
    assert {(share.spread, share.buckets, share.queries) for share in state.shares} == {
        ("by key", 2, ("long", "median")),
        ("one place", 1, ("latest",)),
    }
    assert state.texts is not None
    assert "RANGE 100 SECONDS" in state.texts["long"]


def test_segments_are_told_apart(spark: SparkSession, checkpoint: Path, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, place)
    files = sorted(place.rglob("*.segment"))
    states = {file.name: file.stat().st_size for file in place.rglob("*.state")}
    state = inspect_checkpoint(spark, str(place))
    size = sum(file.stat().st_size for file in files) + sum(states.values())
    assert state.in_use.number + state.retired.number == len(files) + len(states)
    assert state.in_use.nbytes + state.retired.nbytes == size
    shown = {Path(path).name: nbytes for bucket in state.buckets for path, nbytes in bucket.files.items()}
    assert shown
    assert shown.items() <= states.items()
    assert {bucket.name.rpartition(".")[0] for bucket in state.buckets} == {share.name for share in state.shares}
    assert all(bucket.committed_bytes < 16_000 + bucket_state.INSIDE for bucket in state.buckets)
    live = sum(store.nbytes for store in state.saved.stores.values())
    assert live + sum(shown.values()) == state.in_use.nbytes
    assert (state.orphans, state.gone, state.missing) == (Files(), Files(), ())

    (files[0].parent / "1-of-a-failed-attempt.segment").write_bytes(b"orphan")
    (files[0].parents[2] / "f00d-0.0" / "window").mkdir(parents=True)
    (files[0].parents[2] / "f00d-0.0" / "window" / "0-old.segment").write_bytes(b"gone")
    used = {file for store in state.saved.stores.values() for file in store.files}
    lost = next(file for file in files if file.name in used)
    lost.unlink()
    state = inspect_checkpoint(spark, str(place))
    assert (state.orphans, state.gone) == (Files(1, 6), Files(1, 4))
    assert [Path(path).name for path in state.missing] == [lost.name]


def test_a_file_of_state_that_is_gone_is_told(spark: SparkSession, checkpoint: Path, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, place)
    for file in place.rglob("*.state"):
        file.unlink()
    with pytest.raises(StorageError, match=r"the state of bucket .* cannot be read: the file .* is missing"):
        inspect_checkpoint(spark, str(place))


def test_what_is_no_checkpoint_of_ours_is_told(spark: SparkSession, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(CheckpointError, match="no committed micro-batch yet"):
        inspect_checkpoint(spark, str(tmp_path))
    for part in ("offsets", "commits", "metadata"):
        source = checkpoint / part
        if source.is_dir():
            shutil.copytree(source, tmp_path / part, dirs_exist_ok=True)
        else:
            shutil.copy(source, tmp_path / part)
    with pytest.raises(CheckpointError, match="no state of Penstock that Spark can read: ") as told:
        inspect_checkpoint(spark, str(tmp_path))
    assert "\n" not in str(told.value)
