"""A small setup for adapters, its events, and what the embedded engine answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock_bench.measure.adapters.embedded import EmbeddedEngine
from penstock_bench.measure.clock import Clock
from penstock_bench.measure.running.directory import RunDirectory
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.measure.setup.model import Setup
from penstock_bench.measure.setup.read import parse_setup

SETUP = {
    "name": "small",
    "streams": {
        "trades": {
            "columns": {"ts": "TIMESTAMP", "symbol": "STRING", "price": "DOUBLE", "size": "INT"},
            "lateness": "1 ms",
        }
    },
    "drivers": [
        {
            "name": "feed",
            "phases": [{"events": 2000, "rate": 2000}],
            "fields": {
                "trades": {
                    "symbol": {"generator": "list", "values": ["a", "b", "c"]},
                    "price": {"generator": "random walk"},
                    "size": {"generator": "uniform", "min": 1, "max": 9},
                }
            },
        }
    ],
    "queries": {
        "totals": {
            "text": {
                "penstock": "SELECT symbol, SUM(price * size) AS turnover, COUNT(*) AS n, STDDEV(price) AS spread"
                " FROM trades [RANGE 1 SECOND SLIDE 100 MILLISECONDS] GROUP BY symbol"
            }
        },
        "large": {"text": {"penstock": "SELECT ts, symbol, size FROM trades WHERE size > 7"}},
    },
}


def setup(adapter: str, **options: Scalar) -> Setup:
    return parse_setup({**SETUP, "system": {"adapter": adapter, "options": options}})


def events(count: int = 2000, first: int = 0) -> pa.RecordBatch:
    """Of two a millisecond, the same in every run."""
    random = np.random.default_rng(first)
    begin = 1_800_000_000_000_000
    times = begin + (first + np.arange(count)) * 500
    return pa.record_batch(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "symbol": pa.array(random.choice(["a", "b", "c"], count)),
            "price": pa.array(random.normal(100, 10, count)),
            "size": pa.array(random.integers(1, 10, count), pa.int32()),
        }
    )


def directory(path: Path, given: Setup) -> RunDirectory:
    """As the controller makes it before it starts processes."""
    run = RunDirectory.create(path, given, "")
    run.write_facts({"clock_offset_ns": Clock.now_set().offset_ns})
    return run


Answers = dict[str, list[pa.RecordBatch]]


def embedded_answers(given: Setup, batches: list[pa.RecordBatch]) -> dict[str, list[Mapping[str, object]]]:
    found: Answers = {query: [] for query in given.queries}
    engine = EmbeddedEngine()
    plain = given.model_copy(update={"system": setup("embedded").system})
    engine.start(plain, {}, lambda query, batch: found[query].append(batch))
    for batch in batches:
        engine.push("trades", batch)
    engine.finish()
    engine.close()
    return {query: rows(parts) for query, parts in found.items()}


def rows(batches: list[pa.RecordBatch]) -> list[Mapping[str, object]]:
    """In an order that does not depend on who brought them."""
    found = [row for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=lambda row: [str(value) for value in row.values()])


def wait_until(condition: object, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    assert callable(condition)
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)


def hand_on(bootstrap: str, source: str, target: str, count: int) -> None:
    """An engine behind a broker that is none of ours: it publishes again what it reads."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "other", "enable.auto.commit": False})
    consumer.assign([TopicPartition(source, 0, 0)])
    producer = Producer({"bootstrap.servers": bootstrap})
    while count:
        for message in consumer.consume(count, 0.2):
            producer.produce(target, message.value())
            count -= 1
    producer.flush()
    consumer.close()
