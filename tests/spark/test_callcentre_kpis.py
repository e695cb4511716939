"""The call centre's KPIs on Spark are the embedded engine's: by key as they are, and in parts without ISTREAM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.generators import callcentre
from penstock.lang import parse
from penstock_bench.workloads import callcentre_kpis
from spark.runs import Collected, bounded_streams, in_order

EXAMPLE = Path(__file__).parents[2] / "examples" / "callcentre_kpis.sql"
WINDOW = "RANGE 30 SECONDS SLIDE 10 SECONDS"


def program(emit: str) -> str:
    """The application as it is but for its source and a window that fits into the test."""
    text = EXAMPLE.read_text()
    text = text.replace(callcentre_kpis.kpi_queries(), callcentre_kpis.kpi_queries(WINDOW, emit))
    declared, _, queries = text.partition(" FROM 'generate:")
    return f"{declared};{queries.partition(';')[2]}"


def events(rows: int) -> list[dict[str, Any]]:
    """About a minute of them."""
    source = callcentre.generator(rate=rows // 60, seconds=0, seed=7, start=0)
    found: list[dict[str, Any]] = source.batch(
        0, rows, ["timestamp", *callcentre.GROUP_KEYS, *callcentre.FIELDS]
    ).to_pylist()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("emit", ["ISTREAM", "RSTREAM"])
def test_all_kpis_are_those_of_the_embedded_engine(spark: SparkSession, tmp_path: Path, emit: str) -> None:
    text, calls, sink = program(emit), events(600), Collected()
    buckets = 1 if emit == "ISTREAM" else 2
    bounded_streams(spark, text, {callcentre.STREAM: calls}, sink, tmp_path, 2, buckets=buckets, memory="256MB")
    came = sink.tables()
    names = [query.name for query in parse(text).queries]
    assert len(names) == 48
    with ps.App(text) as app:
        app.push(callcentre.STREAM, calls)
        app.finish()
        for name in names:
            expected = in_order(app.results(name))
            assert len(expected) > 10
            assert in_order(came[name]) == expected, name
