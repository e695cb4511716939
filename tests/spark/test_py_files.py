"""The package as a wheel of `--py-files`, where the workers' Python has what it needs but not the package itself."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from penstock.java import java_home
from penstock.spark.standalone import SPARK_HOME

ROOT = Path(__file__).parents[2]
JOB = """
from datetime import datetime, timedelta

import pyarrow as pa

import penstock.spark

spark = penstock.spark.session("by wheel", None)
calls = spark.createDataFrame(
    [(datetime(2024, 3, 1, 9) + timedelta(seconds=i), i) for i in range(60)], "at timestamp, seconds bigint"
)
sums = penstock.spark.query(
    spark, {"calls": calls}, "SELECT SUM(seconds) AS total FROM calls [RANGE 30 SECONDS SLIDE 30 SECONDS]"
)


def where(batches):
    import penstock

    for _ in batches:
        yield pa.record_batch({"file": [penstock.__file__]})


places = spark.range(2).mapInArrow(where, "file string").distinct().collect()
print("FOUND", sorted(row.total for row in sums.collect()), [row.file for row in places])
"""
pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_a_wheel_of_py_files_runs_and_keeps_its_kernels(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(pip, check=True)
    (wheel,) = tmp_path.glob("penstock-*.whl")
    python = python_without_penstock(tmp_path / "clean")
    (tmp_path / "job.py").write_text(JOB)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
    environment |= {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "JAVA_HOME": str(java_home())}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "SPARK_LOCAL_IP": "127.0.0.1"}
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]", "--py-files", str(wheel), "job.py"]
    kept: list[set[str]] = []
    for _ in range(2):
        done = subprocess.run(submit, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        (found,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND")] or [done.stderr[-2000:]]
        assert found.startswith("FOUND [435, 1335] ["), found
        assert f"{wheel.stem}.zip/penstock/__init__.py" in found
        kept.append({file.name for file in (tmp_path / "cache").rglob("*.code")})
    assert kept[0], "the workers keep their kernels"
    assert kept[1] == kept[0], "and the next application compiles none"


def python_without_penstock(directory: Path) -> str:
    """An interpreter that sees the packages of this one. Its .pth names a directory, whose own .pth files, such as that
    of an editable installation, are not read."""
    venv.create(directory, with_pip=False)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "packages.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return str(directory / "bin" / "python")
