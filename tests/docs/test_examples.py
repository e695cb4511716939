"""The scripts under examples/ run, in the session that is there, and give what the embedded engine gives."""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.csv
import pytest

import penstock as ps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_plain_script(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "spark_stream.py"), run_name="__main__")
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if "2024-03-01" in line]
    assert len(rows) == 18  # two symbols at 9:10, 9:20, ... 10:30
    assert [cell.strip() for cell in rows[-1][2:6:3]] == ["2024-03-01 10:30:00", "189.0"]


def test_an_application_for_spark_submit(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    shutil.copy(EXAMPLES / "orders.csv", tmp_path / "in")
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["spark_orders.py", *map(str, (tmp_path / "in", out, tmp_path / "checkpoint"))])
    script = runpy.run_path(str(EXAMPLES / "spark_orders.py"), run_name="__main__")
    with ps.App(script["PROGRAM"]) as app:
        convert = pyarrow.csv.ConvertOptions(null_values=["free"])
        # One by one in their order: Spark takes the file as one micro-batch, in which nothing is late.
        orders = pyarrow.csv.read_csv(EXAMPLES / "orders.csv", convert_options=convert).sort_by("at")
        app.push("orders", orders)
        expected = app.results("sales").to_pylist()
    found = [row.asDict() for row in spark.read.parquet(str(out / "sales")).orderBy("window_end", "shop").collect()]
    assert [(row["shop"], row["orders"], row["amount"]) for row in found] == [
        (row["shop"], row["orders"], row["amount"]) for row in expected
    ]


def test_cells_of_a_notebook(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    names = runpy.run_path(str(EXAMPLES / "spark_notebook.py"))
    assert repr(names["warmth"]) == (
        "DataFrame[window_start: timestamp, window_end: timestamp, room: string, mean: double, middle: double]"
    )
    assert names["jumps"].columns == ["window_start", "window_end", "room", "jump"]
    assert capsys.readouterr().out.count("room ") > 6
