"""A Spark session with the settings that the runtime needs; any other session works if it has `REQUIRED` too."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.java import java_home

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

REQUIRED: dict[str, str] = {
    # Spark keeps the state of `transformWithState` nowhere else.
    STATE_STORE: ROCKSDB,
    # Timestamps cross between Spark and Arrow as UTC instants.
    "spark.sql.session.timeZone": "UTC",
}

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_ROOM_FOR_STOPPING = "-Xss16m"
"""A query that is stopped in the middle of `foreachBatch` has Spark match the whole error message with a regular
expression that recurses for every character; with less stack its thread dies of that."""

DEFAULTS: dict[str, str] = {
    **REQUIRED,
    _JAVA_OPTIONS: _ROOM_FOR_STOPPING,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # With any smaller limit Spark adds up the bytes of the Arrow batch after every row, a third of its time in all.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.python.worker.reuse": "true",
    # Spark starts this process before it brings the files of --py-files: a package that comes as one goes without.
    **({"spark.python.daemon.module": "penstock.spark.daemon"} if Path(__file__).is_file() else {}),
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ansi.enabled": "true",
}

SHORT_RUN: dict[str, str] = {
    _JAVA_OPTIONS: f"{_ROOM_FOR_STOPPING} -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
}
"""For runs of a minute: Java compiles quickly instead of well, which saves a third of the time. It would also keep room
for 48 MB of compiled code instead of 240; Spark compiles a class for every stage, and a Java process whose room is full
ends."""


def session(
    app_name: str = "penstock",
    master: str | None = "local[*]",
    conf: Mapping[str, str] | None = None,
    *,
    log_file: str | None = None,
) -> SparkSession:
    """Starts Spark, or returns the session that runs already with our settings applied to it.

    Without a `master` it is the one that spark-submit was given. `conf` is passed on and wins over our defaults. The
    stateful operator runs in `spark.sql.shuffle.partitions` tasks: one for each core in local mode, unless `conf` says
    otherwise. What Spark's processes write to standard error goes to `log_file`, if that is given.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    # Otherwise Spark takes the first python3 on the PATH, which need not have our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master is not None and master.startswith("local"):
        # A laptop's name may resolve to an address of a network that is gone.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {**DEFAULTS, "spark.sql.shuffle.partitions": str(_local_cores(master)), **(conf or {})}
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _standard_error_to(log_file):
        spark = builder.getOrCreate()
    wheel = next((path for path in Path(__file__).parents if path.suffix == ".whl" and path.is_file()), None)
    if wheel is not None:
        spark.sparkContext.addPyFile(_as_zip(wheel))
    return spark


@functools.cache
def _as_zip(wheel: Path) -> str:
    """A copy of a wheel of --py-files that workers can import from: Spark sends every file along and puts those named
    .zip, .egg or .jar on their path."""
    directory = tempfile.mkdtemp(prefix="penstock-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return str(shutil.copyfile(wheel, f"{directory}/{wheel.stem}.zip"))


@contextlib.contextmanager
def _standard_error_to(path: str | None) -> Iterator[None]:
    """Processes that are started inside inherit a standard error that is a file; ours is as before afterwards."""
    if path is None:
        yield
        return
    ours = os.dup(2)
    with open(path, "ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _local_cores(master: str | None) -> int:
    """The tasks that `local`, `local[n]`, `local[*]` or `local[n, failures]` run at once; 8 for a cluster."""
    if master is None or not master.startswith("local"):
        return 8
    inside = master.removeprefix("local").strip("[]").split(",")[0].strip()
    if inside == "*":
        return os.cpu_count() or 1
    return int(inside) if inside.isdigit() else 1
