"""Both engines on Spark, in the session of all tests: the answers of the embedded engine, pushed as drivers push."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from measure.adapters.small import SETUP, embedded_answers, events, rows, setup, wait_until
from penstock.errors import InputError, PenstockError
from penstock_bench.measure.setup.model import Setup
from penstock_bench.measure.setup.read import parse_setup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_BATCHES = [events(100, first) for first in range(0, 2000, 100)]


def _answers(
    engine: Any, given: Setup, batches: list[pa.RecordBatch], tables: Mapping[str, Path] | None = None
) -> dict[str, Any]:
    found: dict[str, list[pa.RecordBatch]] = {query: [] for query in given.queries}
    try:
        engine.start(given, tables or {}, lambda query, batch: found[query].append(batch))
        for batch in batches:
            engine.push("trades", batch)
        engine.finish()
        assert engine.status()["waiting_events"] == 0
    finally:
        engine.close()
    return {query: rows(parts) for query, parts in found.items()}


def test_penstock_on_spark_answers_as_embedded(spark: SparkSession) -> None:
    from penstock_bench.measure.adapters.spark_engines import PenstockEngine

    # So few may wait that pushes do.
    given = setup("spark", micro_batch=700, memory="32MB", warm_up=False)
    assert _answers(PenstockEngine(), given, _BATCHES) == embedded_answers(given, _BATCHES)


def _own(text: str, **options: Any) -> Setup:
    system = {"adapter": "spark-streaming", "options": options}
    return parse_setup({**SETUP, "queries": {"asked": {"text": {"spark": text}}}, "system": system})


def test_a_session_that_runs_already_is_left_as_it_was(spark: SparkSession) -> None:
    from penstock_bench.measure.adapters.spark_engines import PenstockEngine, StreamingEngine

    before = dict(spark.conf.getAll)
    for engine, text in ((StreamingEngine(), {"spark": "SELECT ts FROM trades"}), (PenstockEngine(), None)):
        queries = SETUP["queries"] if text is None else {"all": {"text": text}}
        given = parse_setup({**SETUP, "queries": queries, "system": {"options": {"warm_up": False}}})
        engine.start(given, {}, lambda query, batch: None)
        engine.close()
        assert dict(spark.conf.getAll) == before


def test_sparks_own_streaming_emits_every_window_and_no_end_mark(spark: SparkSession) -> None:
    from penstock_bench.measure.adapters.spark_engines import StreamingEngine

    tumbling = (
        "SELECT window.end AS window_end, symbol, COUNT(*) AS n, SUM(size) AS total FROM trades"
        " GROUP BY window(ts, '100 milliseconds'), symbol"
    )
    given = parse_setup(
        {
            **SETUP,
            "queries": {
                "sums": {"text": {"spark": tumbling}},
                "all": {"text": {"spark": "SELECT ts, size FROM trades"}},
            },
            "system": {"adapter": "spark-streaming"},
        }
    )
    found = _answers(StreamingEngine(), given, _BATCHES)
    everything = pa.Table.from_batches(_BATCHES)
    assert found["all"] == rows(everything.select(["ts", "size"]).to_batches())
    expected: dict[tuple[Any, str], list[int]] = {}
    for row in everything.to_pylist():
        end = row["ts"] - timedelta(microseconds=row["ts"].microsecond % 100_000) + timedelta(milliseconds=100)
        sums = expected.setdefault((end, row["symbol"]), [0, 0])
        sums[0] += 1
        sums[1] += row["size"]
    assert {(row["window_end"], row["symbol"]): [row["n"], row["total"]] for row in found["sums"]} == expected


def test_a_batch_may_be_larger_than_a_micro_batch(spark: SparkSession) -> None:
    from penstock_bench.measure.adapters.spark_feeding import Feeding

    handed_over: list[list[int]] = []

    class Watched(Feeding):
        def hand_over(self, waiting: Mapping[str, Sequence[pa.RecordBatch]]) -> None:
            handed_over.append([size for batch in waiting["trades"] for size in batch.column("size").to_pylist()])
            super().hand_over(waiting)

    feeding = Watched(setup("spark"), spark, 70)
    try:
        feeding.begin([])
        feeding.push("trades", events(200))
        feeding.finish()
        assert all(0 < len(rows) <= 70 for rows in handed_over)
        assert [size for rows in handed_over for size in rows] == events(200).column("size").to_pylist()
        with pytest.raises(PenstockError, match="takes no more events"):
            feeding.push("trades", events(1))
    finally:
        feeding.close()


@pytest.mark.parametrize(("option", "value"), [("state", "disk"), ("output_mode", "complete"), ("micro_batch", 0)])
def test_a_choice_that_does_not_exist(option: str, value: str | int) -> None:
    from penstock_bench.measure.adapters.spark_streaming import SparkStreaming

    with pytest.raises(InputError, match=f"system.options.{option} = '{value}': "):
        SparkStreaming(_own("SELECT 1", **{option: value})).check()


def test_a_query_that_spark_does_not_know(spark: SparkSession) -> None:
    from penstock_bench.measure.adapters.spark_engines import StreamingEngine

    engine = StreamingEngine()
    with pytest.raises(InputError, match=r"queries.asked.text.spark: .*nothing"):
        engine.start(_own("SELECT nothing FROM trades"), {}, lambda query, batch: None)
    engine.close()


def test_a_text_that_is_missing(spark: SparkSession) -> None:
    from penstock_bench.measure.adapters.spark_engines import StreamingEngine

    engine = StreamingEngine()
    with pytest.raises(InputError, match=r"queries.totals.text.spark: is missing"):
        engine.start(setup("spark-streaming"), {}, lambda query, batch: None)
    engine.close()


def test_a_query_that_fails_is_told_by_the_next_push(spark: SparkSession) -> None:
    from penstock_bench.measure.adapters.spark_engines import StreamingEngine

    engine = StreamingEngine()
    try:
        engine.start(
            _own("SELECT ts, 1 / (size - size) AS x FROM trades", micro_batch=1, warm_up=False),
            {},
            lambda query, batch: None,
        )
        with pytest.raises(PenstockError, match=r"^Spark: \[DIVIDE_BY_ZERO\] Division by zero"):
            wait_until(lambda: engine.push("trades", _BATCHES[0]), 60)
    finally:
        engine.close()


@pytest.mark.slow
def test_tables_are_joined_by_both(spark: SparkSession, tmp_path: Path) -> None:
    from penstock_bench.measure.adapters.spark_engines import PenstockEngine, StreamingEngine

    known = pa.table({"symbol": ["a", "b"], "lot": pa.array([10, 100], pa.int32())})
    pa.parquet.write_table(known, tmp_path / "symbols.parquet")
    text = "SELECT t.ts, t.size * s.lot AS pieces FROM trades AS t, symbols AS s WHERE t.symbol = s.symbol"
    table = {
        "columns": {"symbol": "STRING", "lot": "INT"},
        "key": "symbol",
        "rows": 2,
        "fields": {
            "symbol": {"generator": "list", "values": ["a", "b"]},
            "lot": {"generator": "constant", "value": 10},
        },
    }
    raw = {
        **SETUP,
        "system": {"adapter": "spark", "options": {"warm_up": False}},
        "tables": {"symbols": table},
        "queries": {"asked": {"text": {"penstock": text, "spark": text}}},
    }
    lots = {"a": 10, "b": 100}
    wanted = [
        {"ts": row["ts"], "pieces": row["size"] * lots[row["symbol"]]}
        for row in _BATCHES[0].to_pylist()
        if row["symbol"] in lots
    ]
    for engine in (PenstockEngine(), StreamingEngine()):
        found = _answers(engine, parse_setup(raw), _BATCHES[:1], {"symbols": tmp_path / "symbols.parquet"})
        assert [{"ts": row["ts"], "pieces": row["pieces"]} for row in found["asked"]] == wanted


@pytest.mark.parametrize("adapter", ["spark", "spark-streaming"])
def test_a_heap_that_is_no_size_is_refused(adapter: str) -> None:
    from penstock_bench.measure.adapters.adapter import adapter_class

    with pytest.raises(InputError, match=r"system\.options\.heap = 'much': write a size"):
        adapter_class(adapter)(setup(adapter, heap="much")).check()
