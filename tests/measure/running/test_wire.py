"""Frames over sockets: what goes in comes out, a break is no end, strangers are turned away."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock_bench.measure.running.wire import WELCOME, FrameReader, FrameWriter, WireError, accept, connect, listen


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


def batch(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + count)), "s": pa.array([f"x{i}" for i in range(count)])})


def test_batches_come_as_they_went(pair: tuple[socket.socket, socket.socket]) -> None:
    writer = FrameWriter(pair[0])
    other = pa.record_batch({"d": pa.array(["a", "b", "a", None]).dictionary_encode()})
    large = batch(0, 100_000)

    def write() -> None:
        writer.write(0, batch(5, 3), 11)
        writer.write(1, other, 12)
        writer.write(0, batch(8, 10).slice(2, 4), 13)
        writer.write(0, large, 14)
        writer.write(1, large, 15)
        writer.end()

    writing = threading.Thread(target=write)
    writing.start()
    got = list(FrameReader(pair[1]).frames())
    writing.join()
    assert [(frame.number, frame.stamp_ns) for frame in got if frame] == [(0, 11), (1, 12), (0, 13), (0, 14), (1, 15)]
    plain = pa.record_batch({"d": pa.array(["a", "b", "a", None])})
    wanted = [batch(5, 3), plain, batch(8, 10).slice(2, 4), large, large]
    assert all(frame is not None and frame.batch.equals(one) for frame, one in zip(got, wanted, strict=True))


def test_quiet_is_told_and_nothing_lost(pair: tuple[socket.socket, socket.socket]) -> None:
    writer = FrameWriter(pair[0])
    frames = FrameReader(pair[1]).frames(0.01)
    assert next(frames) is None
    writer.write(3, batch(0, 2))
    assert next(frames).batch.equals(batch(0, 2))  # type: ignore[union-attr]
    assert next(frames) is None
    writer.end()
    assert [frame for frame in frames if frame is not None] == []


def test_a_connection_that_breaks_is_no_end(pair: tuple[socket.socket, socket.socket]) -> None:
    FrameWriter(pair[0]).write(0, batch(0, 2))
    pair[0].close()
    frames = FrameReader(pair[1]).frames()
    next(frames)
    with pytest.raises(WireError, match="before its end"):
        next(frames)


def test_who_does_not_know_the_token_is_turned_away() -> None:
    server = listen()
    told: list[object] = []

    def serve() -> None:
        for _ in range(2):
            connected, _ = server.accept()
            with connected:
                try:
                    told.append(accept(connected, "right"))
                    connected.sendall(WELCOME)
                except WireError as error:
                    told.append(str(error))

    serving = threading.Thread(target=serve)
    serving.start()
    port = server.getsockname()[1]
    with pytest.raises(WireError, match="does not take part"):
        connect(port, {"driver": "d-0", "token": "wrong"})
    connect(port, {"driver": "d-0", "token": "right"}).close()
    serving.join()
    server.close()
    assert told == ["a connection does not belong to this run", {"driver": "d-0", "token": "right"}]
    with pytest.raises(WireError, match="cannot be reached"):
        connect(port, {})
