"""Segments of buckets that are gone: they stay as long as Spark may go back to them, and no longer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import spark as on_spark
from penstock.spark.left_behind import sweep

A = "CREATE QUERY a AS SELECT k, SUM(v) AS x FROM s [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY k"
B = "CREATE QUERY b AS SELECT j, MEDIAN(v) AS x FROM s [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY j"


def begin(checkpoint: Path, batch: int, query: str = "q") -> None:
    """What Spark writes when a micro-batch begins."""
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text("v1")
    (checkpoint / "metadata").write_text(json.dumps({"id": query}))


def segment(checkpoint: Path, bucket: str, query: str = "q") -> Path:
    file = checkpoint / "penstock" / "segments" / query / bucket / "window" / "3-x.segment"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"blocks")
    return file


def test_a_share_that_is_gone_is_kept_until_spark_cannot_go_back(tmp_path: Path) -> None:
    gone = [segment(tmp_path, "f00d-0.0"), segment(tmp_path, "f00d-0.7")]
    stays = [segment(tmp_path, "f00d-1.0"), segment(tmp_path, "beef-0.0")]
    for batch in (6, 7, 8):
        begin(tmp_path, batch)
        assert sweep(tmp_path.as_posix(), {"f00d-0": 5}, retain=2) == {"f00d-0": 5}
        assert all(file.exists() for file in gone)
    begin(tmp_path, 9)
    assert sweep(tmp_path.as_posix(), {"f00d-0": 5}, retain=2) == {}
    assert not any(file.exists() for file in gone)
    assert all(file.exists() for file in stays)


def test_segments_of_a_query_that_began_anew_go(tmp_path: Path) -> None:
    before, now = segment(tmp_path, "f00d-0.0", "before"), segment(tmp_path, "f00d-0.0", "now")
    begin(tmp_path, 0, "now")
    sweep(tmp_path.as_posix(), {}, retain=100)
    assert not before.exists()
    assert now.exists()


def test_nothing_is_there_at_the_first_start(tmp_path: Path) -> None:
    assert sweep(tmp_path.as_posix(), {}, retain=100) == {}


def test_an_application_that_starts_without_a_query_sees_to_its_segments(spark: SparkSession, tmp_path: Path) -> None:
    """b is dropped, and comes back under another name of its share when its first segments are gone."""
    (tmp_path / "in").mkdir()
    frame = spark.readStream.schema("t timestamp, k string, j int, v double").json(str(tmp_path / "in"))
    checkpoint = tmp_path / "checkpoint"

    def start(text: str) -> dict[str, int]:
        on_spark.query(spark, {"s": frame}, text, checkpoint=str(checkpoint), buckets=2)
        plan = json.loads((checkpoint / "penstock" / "plan.json").read_text())
        gone: dict[str, int] = plan["gone"]
        return gone

    assert start(f"{A}; {B}") == {}
    begin(checkpoint, 4)
    with pytest.warns(UserWarning, match="query b is gone"):
        ((share, since),) = start(A).items()
    assert since == 4
    files = [segment(checkpoint, f"{share}.0"), segment(checkpoint, f"{share}.3")]
    begin(checkpoint, 105)
    assert start(A) == {share: 4}
    assert all(file.exists() for file in files)
    begin(checkpoint, 106)
    assert start(A) == {}
    assert not any(file.exists() for file in files)
    with pytest.warns(UserWarning, match="query b is new"):
        assert start(f"{A}; {B}") == {}
    shares = json.loads((checkpoint / "penstock" / "plan.json").read_text())["shares"]
    assert shares[share.partition("-")[0]]["generation"] == 1
