"""Whole runs, with processes of their own for driver, sink and system: the answers fit the events that were sent."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from measure.adapters.small import SETUP, embedded_answers, hand_on, rows, wait_until
from penstock_bench.measure.adapters.kafka_broker import KafkaBroker
from penstock_bench.measure.adapters.kafka_client import make_topics
from penstock_bench.measure.running.controller import Controller
from penstock_bench.measure.running.logs import read_log
from penstock_bench.measure.setup.read import parse_setup

_LONG = 300.0
_ALL = "SELECT ts, symbol, price, size FROM trades"
_TUMBLING = (
    "SELECT window.end AS window_end, symbol, COUNT(*) AS n FROM trades GROUP BY window(ts, '100 milliseconds'), symbol"
)


def _controller(path: Path, adapter: str, seconds: float = 1, **options: Any) -> Controller:
    queries: Any = SETUP["queries"]
    asked = {
        "all": {"cause": "ts", "text": {"penstock": _ALL, "spark": _ALL}},
        "totals": {"text": {**queries["totals"]["text"], "spark": _TUMBLING}},
    }
    driver = {**SETUP["drivers"][0], "phases": [{"rate": 2000, "duration": seconds}]}  # type: ignore[index]
    raw = {**SETUP, "drivers": [driver], "queries": asked, "measuring": {"answers": True}}
    return Controller(parse_setup({**raw, "system": {"adapter": adapter, "options": options}}), path / "run")


def _answers(controller: Controller) -> dict[str, pa.Table]:
    controller.start()
    try:
        assert controller.wait(_LONG)
        assert controller.snapshot().error is None
    finally:
        controller.stop()
    found = {query: read_log(controller.directory / "answers" / query) for query in ("all", "totals")}
    assert found["all"] is not None
    assert found["totals"] is not None
    assert found["all"].num_rows == 2000
    assert controller.result()["state"] == "done"
    return {query: table for query, table in found.items() if table is not None}


def _totals(controller: Controller, events: pa.Table) -> list[Any]:
    """What the embedded engine makes of the events that the run's own answers show."""
    sent = events.select(["ts", "symbol", "price", "size"]).sort_by("ts").combine_chunks().to_batches()
    return embedded_answers(controller.setup, sent)["totals"]


@pytest.mark.slow
def test_through_a_broker(broker: KafkaBroker, tmp_path: Path) -> None:
    topics = {"stream_topics": "run.in.{name}", "query_topics": "run.out.{name}"}
    controller = _controller(tmp_path, "kafka", bootstrap=broker.bootstrap, engine="penstock", **topics)
    answers = _answers(controller)
    assert rows(answers["totals"].to_batches()) == _totals(controller, answers["all"])
    assert controller.result()["throughput"]["events"] == 2000


@pytest.mark.slow
def test_an_engine_of_somebody_else_behind_a_broker(broker: KafkaBroker, tmp_path: Path) -> None:
    raw = {
        **SETUP,
        "drivers": [{**SETUP["drivers"][0], "phases": [{"rate": 2000, "events": 2000}]}],  # type: ignore[index]
        "queries": {"all": {"cause": "ts", "text": {"other": "everything"}}},
        "system": {"adapter": "kafka", "options": {"bootstrap": broker.bootstrap, "idle": 2}},
    }
    make_topics(broker.bootstrap, {"penstock.events.trades": 1, "penstock.results.all": 1})
    controller = Controller(parse_setup(raw), tmp_path / "run")
    other = threading.Thread(
        target=hand_on, args=(broker.bootstrap, "penstock.events.trades", "penstock.results.all", 2000)
    )
    other.start()
    controller.start()
    assert controller.wait(_LONG)
    other.join()
    summary = controller.result()
    assert summary["throughput"]["events"] == summary["throughput"]["results"] == 2000


@pytest.mark.slow
def test_penstock_on_spark(tmp_path: Path) -> None:
    controller = _controller(tmp_path, "spark", master="local[2]")
    answers = _answers(controller)
    assert rows(answers["totals"].to_batches()) == _totals(controller, answers["all"])


@pytest.mark.slow
def test_sparks_own_streaming(tmp_path: Path) -> None:
    answers = _answers(_controller(tmp_path, "spark-streaming", master="local[2]"))
    assert sum(answers["totals"]["n"].to_pylist()) == 2000


@pytest.mark.slow
def test_a_broker_that_dies_in_the_middle_fails_the_run_and_keeps_what_was_measured(tmp_path: Path) -> None:
    with KafkaBroker(directory=tmp_path / "kafka", heap="512m") as broker:
        controller = _controller(tmp_path, "kafka", 600, bootstrap=broker.bootstrap, engine="penstock")
        controller.start()
        wait_until(lambda: controller.snapshot().queries["all"].results > 0, 120)
        broker.kill()
        assert controller.wait(_LONG)
    assert f"the Kafka broker {broker.bootstrap} is gone" in str(controller.snapshot().error)
    assert json.loads((controller.directory / "summary.json").read_text())["state"] == "failed"
    logged = read_log(controller.directory / "sinks" / "sink-0")
    assert logged is not None
    assert logged.num_rows > 0
