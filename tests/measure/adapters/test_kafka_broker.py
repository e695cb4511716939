"""The project's own broker is a real one; it ends in order, keeps its data, and says why it cannot start."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.errors import InputError, PenstockError
from penstock_bench.measure.adapters.kafka_broker import KafkaBroker


@pytest.mark.slow
def test_the_script_serves_until_it_is_told_to_end_and_what_was_accepted_is_there_again(tmp_path: Path) -> None:
    script = [sys.executable, "-m", "penstock_bench.measure.adapters.kafka_broker", "--port", "0"]
    arguments = ["--directory", str(tmp_path), "--heap", "512m"]
    with subprocess.Popen([*script, *arguments], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        assert " is ready: 127.0.0.1:" in line
        producer = Producer({"bootstrap.servers": line.split()[4]})
        producer.produce("kept", b"event")
        assert producer.flush(20) == 0
        running.send_signal(signal.SIGTERM)
        assert running.wait(40) == 0
    assert "shut down completed" in (tmp_path / "broker.log").read_text()
    with KafkaBroker(directory=tmp_path) as again:
        settings = {"bootstrap.servers": again.bootstrap, "group.id": "test", "enable.auto.commit": False}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition("kept", 0, 0)])
        found = consumer.poll(20)
        assert found is not None
        assert found.value() == b"event"
        consumer.close()


def test_a_port_in_use_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}: Address already in use; choose another"):
            KafkaBroker(port, tmp_path).start()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="Not a directory"):
        KafkaBroker(directory=tmp_path / "file").start()


def test_what_the_broker_says_when_it_cannot_start_is_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="Invalid maximum heap size"):
        KafkaBroker(directory=tmp_path, heap="nonsense").start()
