"""Keys of which one has nearly all events: spread in parts on request, with the rows of the embedded engine."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import spark as on_spark
from penstock.errors import InputError

from .runs import Collected, embedded, static_frames

PROGRAM = """CREATE STREAM s (t TIMESTAMP, k STRING, v DOUBLE, EVENT TIME t);
    SELECT k, COUNT(*) AS c, AVG(v) AS mean, MAX(v) AS most FROM s [RANGE 7 SECONDS SLIDE 2 SECONDS] GROUP BY k"""


def test_parts_of_a_key_in_all_buckets(spark: SparkSession) -> None:
    rng = random.Random(3)
    events: list[dict[str, Any]] = [
        {"t": i * 100_000, "k": "hot" if rng.random() < 0.9 else rng.choice("abc"), "v": rng.uniform(-1e16, 1e16)}
        for i in range(400)
    ]
    sink = Collected()
    sink(on_spark.query(spark, static_frames(spark, PROGRAM, {"s": events}), PROGRAM, spread="partials", buckets=3), 0)
    assert sink.rows == embedded(PROGRAM, events)


def test_another_way_of_spreading_is_refused(spark: SparkSession) -> None:
    frames = static_frames(spark, PROGRAM, {})
    with pytest.raises(InputError, match="spread must be one of 'keys', 'partials', not 'rows'"):
        on_spark.query(spark, frames, PROGRAM, spread="rows")  # type: ignore[arg-type]
