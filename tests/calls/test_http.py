"""Calls by HTTP, to a real server: what is sent, what is tried again, and what is given up."""

from __future__ import annotations

import json
import math
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from calls.servers import Answer, Server
from penstock.calls.function import CallFailed
from penstock.calls.http import HttpFunction, json_of
from penstock.connect.encode import json_lines
from penstock.errors import QueryError
from penstock.lang.query import FunctionDef


def never(seconds: float) -> bool:
    raise AssertionError("there is nothing to wait for")


class Pauses:
    """Notes how long is waited, and does not wait."""

    def __init__(self, patience: int = 1000) -> None:
        self.lengths: list[float] = []
        self._patience = patience

    def __call__(self, seconds: float) -> bool:
        self.lengths.append(seconds)
        return len(self.lengths) <= self._patience


def test_arguments_are_a_json_object_and_the_key_a_header() -> None:
    with Server() as server:
        definition = FunctionDef("f", f"{server.url}/a/b?c=d", headers=(("X-Who", "me"), ("X-Token", "env:TOKEN")))
        function = HttpFunction(definition, {"TOKEN": "secret"})
        function.call({"k": 'a"\r\nX-Evil: 1', "x": 1.5, "n": None}, "hot:7", never)
        function.call({}, "h\u00f6t\r\n 50%:8", never)
        function.close()
    first, second = server.seen
    assert first["path"] == "/a/b?c=d"
    assert first["body"] == {"k": 'a"\r\nX-Evil: 1', "x": 1.5, "n": None}
    assert (second["body"], second["headers"]["Idempotency-Key"]) == ({}, "h%C3%B6t%0D%0A%2050%25:8")
    wanted = {"Idempotency-Key": "hot:7", "X-Who": "me", "X-Token": "secret", "Content-Type": "application/json"}
    assert wanted.items() <= first["headers"].items()
    assert "X-Evil" not in first["headers"]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503])
def test_what_may_pass_is_tried_again_after_longer_and_longer_pauses(status: int) -> None:
    answers: list[Answer] = [(status, {}), (status, {}), (status, {}), (204, {})]
    with Server(lambda request: answers.pop(0)) as server:
        pauses = Pauses()
        HttpFunction(FunctionDef("f", server.url)).call({"x": 1}, "r:0", pauses)
    assert [request["headers"]["Idempotency-Key"] for request in server.seen] == ["r:0"] * 4
    assert len(pauses.lengths) == 3
    for n, length in enumerate(pauses.lengths):
        assert 0.05 * 2**n <= length <= 0.15 * 2**n


def test_the_other_side_may_ask_for_time() -> None:
    answers: list[Answer] = [(503, {"Retry-After": "7"}), (503, {"Retry-After": "100000"}), (429, {"Retry-After": "?"})]
    with Server(lambda request: answers.pop(0) if answers else (200, {})) as server:
        pauses = Pauses()
        HttpFunction(FunctionDef("f", server.url)).call({}, "r:0", pauses)
    assert pauses.lengths[0] == 7.0
    assert pauses.lengths[1] == 45.0
    assert pauses.lengths[2] < 1.0


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 409])
def test_what_will_not_pass_is_given_up(status: int) -> None:
    with (
        Server() as other,
        Server(lambda request: (status, {"Location": other.url})) as server,
        pytest.raises(CallFailed, match=f"answered {status}"),
    ):
        HttpFunction(FunctionDef("f", server.url)).call({}, "r:0", never)
    assert len(server.seen) == 1
    assert other.seen == []


def test_there_is_an_end_to_trying() -> None:
    with Server(lambda request: (500, {})) as server:
        with pytest.raises(CallFailed, match=r"answered 500 .*; tried 3 times"):
            HttpFunction(FunctionDef("f", server.url, retries=2)).call({}, "r:0", Pauses())
        with pytest.raises(CallFailed, match="tried 2 times"):
            HttpFunction(FunctionDef("f", server.url, retries=9)).call({}, "r:0", Pauses(patience=1))
    assert len(server.seen) == 5


def test_nobody_is_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CallFailed, match="tried 2 times"):
            HttpFunction(FunctionDef("f", url, retries=1)).call({}, "r:0", Pauses())


def test_an_answer_that_does_not_come() -> None:
    def sleep(request: dict[str, Any]) -> Answer:
        time.sleep(0.5)
        return 200, {}

    with Server(sleep) as server, pytest.raises(CallFailed, match="imed out"):
        HttpFunction(FunctionDef("f", server.url, timeout=0.1, retries=0)).call({}, "r:0", never)


def answered(answer: list[bytes], timeout: float = 0.3) -> None:
    """A call to a server that answers with these bytes, some time after each other, and then says no more."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(1 << 16)
                for piece in answer:
                    connection.sendall(piece)
                    time.sleep(0.1)
                connection.recv(1)

        pool.submit(serve)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/a?secret=1"
        function = HttpFunction(FunctionDef("f", url, timeout=timeout, retries=0))
        try:
            function.call({}, "r:0", never)
        finally:
            function.close()


@pytest.mark.parametrize(
    "answer",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", *[b"x"] * 20],
        [b"HTTP/1.1 200 OK\r\n\r\nhello"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n"],
    ],
    ids=["slow", "endless", "broken"],
)
def test_the_body_of_an_answer_means_nothing(answer: list[bytes]) -> None:
    begin = time.monotonic()
    answered(answer)
    assert time.monotonic() - begin < 2


def test_an_answer_that_comes_byte_by_byte_has_no_more_time_than_others() -> None:
    begin = time.monotonic()
    with pytest.raises(CallFailed, match=r"/a: ReadTimeoutError.*tried 1 times"):
        answered([b"%c" % byte for byte in b"HTTP/1.1 200 OK\r\nX-Patience: none"])
    assert time.monotonic() - begin < 2


def test_the_other_side_may_ask_for_nonsense() -> None:
    answers = iter([(503, {"Retry-After": "Fri, 31 Dec 999999 23:59:59 GMT"}), (200, {})])
    with Server(lambda request: next(answers)) as server:
        pauses = Pauses()
        HttpFunction(FunctionDef("f", server.url)).call({}, "r:0", pauses)
    assert len(pauses.lengths) == 1


def test_a_header_that_is_not_in_the_environment() -> None:
    definition = FunctionDef("f", "http://localhost", headers=(("X", "env:NOWHERE"),))
    with pytest.raises(QueryError, match="function f needs the environment variable NOWHERE"):
        HttpFunction(definition, {}).check()
    with pytest.raises(QueryError, match="not printable"):
        HttpFunction(definition, {"NOWHERE": "a\r\nb"}).check()


def test_values_are_written_as_results_are() -> None:
    row = {
        "k": "ä\n\u2028",
        "n": None,
        "i": -(2**63),
        "b": True,
        "x": 0.1,
        "nan": math.nan,
        "up": math.inf,
        "down": -math.inf,
        "t": datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC),
        "d": date(2024, 2, 29),
    }
    batch = pa.RecordBatch.from_pylist([row])
    assert json.loads(json_of(row)) == json.loads(json_lines(batch))
