"""Queries over Spark Connect: static and streaming, with the rows of the embedded engine; what cannot be is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import App

from .connected import PROGRAM, ROWS


@pytest.mark.slow
def test_spark_connect_gives_the_embedded_rows(tmp_path: Path) -> None:
    script = Path(__file__).with_name("connected.py")
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (printed,) = [line for line in done.stdout.splitlines() if line.startswith("RESULTS")]
    found = json.loads(printed.removeprefix("RESULTS"))
    with App(PROGRAM) as app:
        app.push("s", pa.Table.from_pylist([dict(zip("tkv", row, strict=True)) for row in ROWS]))
        app.finish()
        expected = {name: rows_of(app.results(name)) for name in ("sums", "counts")}
    assert {name: sorted(map(tuple, rows)) for name, rows in found["static"].items()} == expected
    assert sorted(map(tuple, found["streaming"]["sums"])) == expected["sums"]
    assert "cannot be handed on to several sinks" in found["refused"]


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    columns = [
        [value.replace(tzinfo=None).isoformat() for value in column.to_pylist()]
        if pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for column in table.columns
    ]
    return sorted(zip(*columns, strict=True))
