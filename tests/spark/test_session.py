"""The session: our settings, and a standard error that is kept out of the way only while Spark starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.session import REQUIRED, _local_cores, _standard_error_to


def test_settings_that_queries_need(spark: SparkSession) -> None:
    for name, value in REQUIRED.items():
        assert spark.conf.get(name) == value
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_workers_run_this_python(spark: SparkSession) -> None:
    ran = spark.sparkContext.parallelize([0]).map(lambda _: sys.executable).collect()
    assert ran == [sys.executable]


def test_a_short_run_has_room_for_compiled_code(spark: SparkSession) -> None:
    """Compiling quickly has Java keep a fifth of the usual room, unless it is told; Spark fills that in minutes."""
    pools = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    code = [pool.getUsage().getMax() for pool in pools if pool.getName().startswith("Code")]
    assert sum(code) >= 240 << 20


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[4, 2]", 4), ("local[*]", os.cpu_count()), ("spark://host:7077", 8)],
)
def test_tasks_at_once(master: str, cores: int) -> None:
    assert _local_cores(master) == cores


def test_standard_error_is_ours_again_afterwards(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    with _standard_error_to(str(log)):
        os.write(2, b"of a child\n")
    os.write(2, b"of our own\n")
    assert log.read_text() == "of a child\n"
    assert capfd.readouterr().err == "of our own\n"
