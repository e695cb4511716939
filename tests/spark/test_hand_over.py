"""A task is handed over to the process that keeps its bucket: real processes and sockets, and no Spark."""

from __future__ import annotations

import io
import json
import os
import socket
import struct
import subprocess
import sys
from typing import Any

import pytest
from pyspark.serializers import SpecialLengths

from penstock.spark.keeper import _serve
from penstock.spark.worker_task import Task, read_task

from . import handing_over
from .application import import_path
from .handing_over import wait_for_end


def case(name: str) -> Any:
    command = [sys.executable, handing_over.__file__, name]
    environment = os.environ | {"PYTHONPATH": import_path()}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=30, check=True)
    return json.loads(done.stdout)


def test_a_bucket_finds_what_its_process_has() -> None:
    """A message may be larger than what a socket holds, or empty."""
    first, second, third = case("same_bucket")
    assert [one["code"] for one in (first, second, third)] == [0, 0, 0]
    assert first["pid"] == second["pid"] == third["pid"]
    assert third["seen"] == ["one", "twotwo", ""]
    assert [one["data"] for one in (first, second, third)] == ["1234", "5678", "9012"]


def test_two_buckets_run_at_once_and_stay_where_they_are() -> None:
    found = case("two_at_once")
    for one, again in found.values():
        assert one["pid"] == again["pid"]
        assert again["seen"] == ["wait", "wait"]
    assert found["a"][0]["pid"] != found["b"][0]["pid"]


def test_a_keeper_that_was_killed_is_replaced() -> None:
    before, after = case("an_idle_keeper_is_killed")
    assert before["pid"] != after["pid"]
    assert (after["code"], after["seen"]) == (0, ["two"])


def test_a_worker_ends_with_the_keeper_that_runs_its_task() -> None:
    found = case("a_keeper_dies_in_a_task")
    assert found["worker"] == 1
    assert found["then"]["seen"] == ["two"]


def test_a_keeper_ends_with_the_worker_whose_task_it_runs() -> None:
    found = case("a_worker_is_killed_in_a_task")
    assert found["ended"]
    assert found["then"]["seen"] == ["two"]
    assert found["then"]["pid"] != found["before"]["pid"]


def test_a_failed_task_fails_in_the_worker_and_ends_the_keeper() -> None:
    found = case("a_task_fails")
    assert found["code"] == -1
    assert found["ended"]
    assert found["then"]["seen"] == ["two"]


def test_a_worker_does_the_task_of_a_busy_keeper_itself() -> None:
    """The keeper runs nothing of what it was too late for."""
    found = case("nobody_waits_for_long")
    assert found["code"] is None
    assert found["then"]["pid"] == found["before"]["pid"]
    assert found["then"]["seen"] == ["one", "busy", "three"]


def test_without_a_switchboard_workers_do_it_themselves_at_once() -> None:
    found = case("the_switchboard_is_killed")
    assert found["code"] is None
    assert found["seconds"] < 2
    assert found["ended"], "the keepers, too"


def test_all_ends_with_the_daemon() -> None:
    pids = case("all_ends")
    assert len(pids) == 2
    assert wait_for_end(pids)


def connection(content: bytes) -> io.BufferedReader:
    ours, its = socket.socketpair()
    with ours, its:
        ours.sendall(content)
        return os.fdopen(os.dup(its.fileno()), "rb", 65536)


def message(content: bytes, kind: int = SpecialLengths.START_OF_INIT_MESSAGE) -> bytes:
    return struct.pack("!ii", kind, len(content)) + content


def test_nothing_is_read_behind_the_first_message() -> None:
    with connection(message(b"what to do") + b"data") as infile:
        task = read_task(infile)
        assert task.message == b"what to do"
        assert os.read(infile.fileno(), 10) == b"data"
        assert bytes(task.get_init_message().read(10)) == b"what to do"
        assert task.get_data_stream() is infile


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"", EOFError), (b"abc", EOFError), (message(b"cut")[:-1], EOFError), (message(b"?", kind=3), ValueError)],
)
def test_pyspark_hears_of_what_cannot_be_read(content: bytes, error: type[Exception]) -> None:
    with connection(content) as infile:
        task = read_task(infile)
        assert task.bucket is None
        with pytest.raises(error):
            task.get_init_message()


@pytest.mark.parametrize("content", [b"", b"some UDF", b"penstock.spark.processor BucketProcessor"])
def test_other_tasks_are_of_no_bucket(content: bytes) -> None:
    """The last one names our operator, and is not what a task begins with."""
    assert Task(io.BytesIO(), content).bucket is None


@pytest.mark.parametrize("sent", [b"", struct.pack("!q", 100)[:3], struct.pack("!q", 100) + b"cut"])
def test_a_keeper_closes_the_connection_of_a_worker_that_ended_too_soon(sent: bytes) -> None:
    """Of a worker that was killed before the keeper had all of the message."""
    keeper, worker = socket.socketpair()
    spark, connection = socket.socketpair()
    with worker, spark:
        with connection:
            if sent:
                socket.send_fds(worker, [sent], [connection.fileno()])
            worker.shutdown(socket.SHUT_WR)
        _serve(keeper)
        spark.settimeout(5)
        assert spark.recv(1) == b""
