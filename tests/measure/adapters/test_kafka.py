"""Events through a real broker: the answers of the embedded engine, each event once, and what happens without it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from measure.adapters.small import SETUP, directory, embedded_answers, events, hand_on, rows, setup, wait_until
from penstock.errors import InputError, PenstockError
from penstock_bench.measure.adapters import kafka_client
from penstock_bench.measure.adapters.kafka import Kafka
from penstock_bench.measure.adapters.kafka_broker import KafkaBroker
from penstock_bench.measure.running.logs import read_log
from penstock_bench.measure.setup.model import Setup
from penstock_bench.measure.setup.read import parse_setup


def _topics(name: str) -> dict[str, str]:
    return {"stream_topics": f"{name}.in.{{name}}", "query_topics": f"{name}.out.{{name}}"}


def _batches() -> list[pa.RecordBatch]:
    return [events(100, first) for first in range(0, 2000, 100)]


def _run(given: Setup, path: Path, batches: list[pa.RecordBatch], sinks: list[str]) -> dict[str, list[pa.RecordBatch]]:
    """A run in one process, in the order in which the controller does things."""
    run = directory(path, given)
    host = Kafka(given)
    host.check()
    try:
        place = host.begin(run.path)
        found: dict[str, list[pa.RecordBatch]] = {query: [] for query in given.queries}
        receivers = [Kafka(given).receiver(place, sink) for sink in sinks]
        sender = Kafka(given).sender(place, "feed-0")
        for batch in batches:
            sender.send("trades", batch)
        sender.close()
        host.finish()
        for receiver in receivers:
            for results in receiver:
                if results is not None:
                    found[results.query].append(results.rows)
            receiver.close()
        assert host.progress()["accepted"] == {"trades": sum(batch.num_rows for batch in batches)}
        return found
    finally:
        host.end()


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_the_answers_are_those_of_the_embedded_engine(broker: KafkaBroker, tmp_path: Path, form: str) -> None:
    raw = {**SETUP, "sinks": [{"name": "sink", "copies": 2}]}
    options = {"bootstrap": broker.bootstrap, "engine": "penstock", "format": form, **_topics(f"same-{form}")}
    given = parse_setup({**raw, "system": {"adapter": "kafka", "options": options}})
    wanted = embedded_answers(given, _batches())
    # The second run has the same topics, and sees nothing of the first.
    for number in range(2):
        found = _run(given, tmp_path / str(number), _batches(), ["sink-0", "sink-1"])
        assert {query: rows(parts) for query, parts in found.items()} == wanted
    pushed = read_log(tmp_path / "1" / "host")
    assert pushed is not None
    assert sum(pushed.column("events").to_pylist()) == 2000


def test_each_event_is_one_message_with_its_key(broker: KafkaBroker, tmp_path: Path) -> None:
    # Between partitions there is no order.
    trades = {**SETUP["streams"]["trades"], "lateness": "1 minute"}  # type: ignore[index]
    options = {"bootstrap": broker.bootstrap, "engine": "penstock", "partitions": 3, "key": "symbol"}
    system = {"adapter": "kafka", "options": {**options, **_topics("keyed")}}
    given = parse_setup({**SETUP, "streams": {"trades": trades}, "system": system})
    found = _run(given, tmp_path / "run", _batches(), ["sink-0"])
    assert rows(found["large"]) == embedded_answers(given, _batches())["large"]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition("keyed.in.trades", part, 0) for part in range(3)])
    places: dict[bytes, set[int]] = {}
    values = []
    while len(values) < 2003:
        for message in consumer.consume(1000, 0.2):
            values.append(message.value())
            if message.value():
                places.setdefault(message.key(), set()).add(message.partition())
    assert len(set(values)) == 2001, "each once, and three marks of the end"
    assert {key: len(parts) for key, parts in places.items()} == {b"a": 1, b"b": 1, b"c": 1}
    consumer.close()


def test_another_engine_is_done_when_no_result_comes_any_more(broker: KafkaBroker, tmp_path: Path) -> None:
    given = setup("kafka", bootstrap=broker.bootstrap, idle=1.0, **_topics("other"))
    host = Kafka(given)
    place = host.begin(directory(tmp_path / "run", given).path)
    receiver = Kafka(given).receiver(place, "sink-0")
    sender = Kafka(given).sender(place, "feed-0")
    other = threading.Thread(target=hand_on, args=(broker.bootstrap, "other.in.trades", "other.out.large", 500))
    other.start()
    sender.send("trades", events(500))
    sender.close()
    host.finish()
    other.join()
    taken = _until_quiet(iter(receiver))
    assert [batch.schema.field("ts").type for batch in taken] == [pa.timestamp("us", "UTC")] * len(taken)
    assert rows([batch.select(["ts", "symbol"]) for batch in taken]) == rows([events(500).select(["ts", "symbol"])])
    receiver.close()
    host.end()


def _until_quiet(results: Iterator[object]) -> list[pa.RecordBatch]:
    """As a sink does that has been told that the run is over."""
    taken: list[pa.RecordBatch] = []
    for found in results:
        if found is None and taken:
            return taken
        if found is not None:
            taken.append(found.rows)  # type: ignore[attr-defined]
    raise AssertionError("the results of another engine do not end by themselves")


@pytest.mark.slow
def test_a_broker_that_dies_is_told_and_what_was_measured_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "PATIENCE", 1.0)
    given = setup("kafka", bootstrap="own", engine="penstock")
    host = Kafka(given)
    try:
        place = host.begin(directory(tmp_path / "run", given).path)
        receiver = Kafka(given).receiver(place, "sink-0")
        sender = Kafka(given).sender(place, "feed-0")
        sender.send("trades", events(1000))
        wait_until(lambda: host.progress()["accepted"] == {"trades": 1000})
        assert host._broker is not None
        host._broker.kill()
        gone = f"the Kafka broker {place['bootstrap']} is gone"
        with pytest.raises(PenstockError, match=gone):
            wait_until(lambda: host.progress() is None)
        with pytest.raises(PenstockError, match=gone):
            wait_until(lambda: sender.send("trades", events(100)))
        with pytest.raises(PenstockError, match=gone):
            list(receiver)
    finally:
        host.end()
    pushed = read_log(tmp_path / "run" / "host")
    assert pushed is not None
    assert sum(pushed.column("events").to_pylist()) == 1000


def test_without_a_broker_a_run_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "PATIENCE", 0.5)
    with pytest.raises(InputError, match=r"'127.0.0.1:1': no Kafka broker answers there; start one with"):
        Kafka(setup("kafka", bootstrap="127.0.0.1:1")).check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "flink"}, "system.options.engine = 'flink': is none of 'penstock'"),
        ({"format": "xml"}, "system.options.format = 'xml': is none of 'json', 'arrow'"),
        ({"key": "nobody"}, "system.options.key = 'nobody': stream 'trades' has no such column"),
        ({"query_topics": "all"}, "all have the same topic; put {name} into it"),
        ({"query_topics": "no/{name}"}, "'no/totals' is no topic name"),
        ({"stream_topics": "x", "query_topics": "{name}"}, None),
        ({"bootstrap": "own"}, "no other engine could know the run's own broker"),
        ({"lingering": 3}, "system.options.lingering: unknown to adapter 'kafka'; it knows bootstrap, engine"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], message: str | None) -> None:
    if message is None:
        Kafka(setup("kafka", **options))
        return
    with pytest.raises(InputError) as refused:
        Kafka(setup("kafka", **options))
    assert message in str(refused.value)
