"""Windows made of panes in buckets: restored between micro-batches, with the rows of the embedded engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from penstock import App
from spark.runs import Collected, bounded_streams, in_order

STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k INT NOT NULL, x DOUBLE, EVENT TIME t);"
QUERIES = [
    f"CREATE QUERY w{extent} WITH ('strategy' = 'panes') AS SELECT k, AVG(x) AS a, MAX(x) AS b "
    f"FROM s [RANGE {extent} SECONDS SLIDE 2 SECONDS] GROUP BY k;"
    for extent in (4, 10, 31)
]


def test_panes_in_buckets(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    times = np.sort(rng.integers(0, 60_000_000, 600)).tolist()
    events = [{"t": t, "k": t % 5, "x": [1e16, 0.1, -1e16, float("nan")][t % 4]} for t in times]
    program = "\n".join([STREAM, *QUERIES])
    sink = Collected()
    bounded_streams(spark, program, {"s": events}, sink, tmp_path, 3, buckets=2, tagged=True)
    tables = sink.tables()
    with App(program.replace("WITH ('strategy' = 'panes') ", ""), strategy="window") as app:
        app.push("s", events)
        app.finish()
        for name in app.queries:
            assert list(map(repr, in_order(tables[name]))) == list(map(repr, in_order(app.results(name)))), name
