"""Flink: its SQL, run by PyFlink in an environment of its own, with events and results over sockets of the loopback.

The host starts `flink_child.py` there. That plans the queries and starts the job; the job's source and sink are a
connector of ours inside Flink's Java machine (`java/FlinkConnector.java`), which speak to this engine directly, in
whole columns. So there is no Python between Flink and the sockets, and no broker or files either.

A stream is a table of its columns (`ts` as TIMESTAMP(6)) with two more: `rowtime`, the event time to the millisecond,
which is as fine as Flink knows it, with the watermark; and `proctime`, for lookups. A table of the setup is
looked up with `JOIN t FOR SYSTEM_TIME AS OF s.proctime`.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InputError, PenstockError
from penstock.instruments import java_home
from penstock.types import SqlType
from penstock_bench.measure.adapters import flink_environment
from penstock_bench.measure.adapters.engine import Emit, Engine
from penstock_bench.measure.adapters.flink_frames import HEAD, decoded, encoded, type_of
from penstock_bench.measure.adapters.heap import heap_size
from penstock_bench.measure.adapters.hosted import Hosted
from penstock_bench.measure.guard import Guard
from penstock_bench.measure.setup.model import Setup, Stream

_START_SECONDS = 300
_END_SECONDS = 600
_OWN = ("rowtime", "proctime")


class Flink(Hosted):
    dialect = "flink"
    options: ClassVar[Mapping[str, str]] = {
        "python": "a Python that has PyFlink; by default that of the environment which the project's script makes",
        "parallelism": "how many copies of each operator; 1 by default",
        "heap": "memory of Flink's Java machine, such as 512m or 4g (the default)",
        "watermarks": "milliseconds between two watermarks; 10 by default",
    }

    def check(self) -> None:
        self.engine()
        java_home()

    def engine(self) -> Engine:
        settings = {
            "parallelism.default": str(self.whole_option("parallelism", 1)),
            "pipeline.auto-watermark-interval": f"{self.whole_option('watermarks', 10)} ms",
            "pipeline.object-reuse": "true",
            "table.local-time-zone": "UTC",
        }
        heap = heap_size(self.option("heap", "4g"))
        python = self.setup.system.options.get("python")
        return FlinkEngine(flink_environment.found(None if python is None else str(python)), settings, heap)


class FlinkEngine:
    """Invariants: a connection is one line of the connector's, told by its number: streams first, then tables, then
    queries. What ends the child before its time is an error of whatever is called next."""

    def __init__(self, python: Path, settings: Mapping[str, str], heap: str) -> None:
        self._python, self._settings, self._heap = python, settings, heap
        self._child: subprocess.Popen[str] | None = None
        self._state = threading.Condition()
        self._failed: PenstockError | None = None
        self._done = False
        self._planned: dict[str, Any] | None = None
        self._lines: dict[str, list[socket.socket]] = {}
        self._readers: list[threading.Thread] = []
        self._schemas: dict[str, tuple[pa.Schema, list[SqlType]]] = {}
        self._events = 0

    def start(self, setup: Setup, tables: Mapping[str, Path], emit: Emit) -> None:
        self._setup, self._tables, self._emit = setup, tables, emit
        self._token = secrets.token_hex(16)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._names = [*setup.streams, *setup.tables, *setup.queries]
        job = self._job(setup)
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
        self._child = subprocess.Popen(
            [str(self._python), str(files("penstock_bench.measure.adapters").joinpath("flink_child.py"))],
            env={**environment, "JAVA_HOME": str(java_home()), "JVM_ARGS": f"-Xmx{self._heap}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._guard = Guard(self._child.pid)
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(job) + "\n")
        self._child.stdin.flush()
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._accept, daemon=True).start()
        self._wait(self._ready, _START_SECONDS, "Flink was not ready")

    def push(self, stream: str, batch: pa.RecordBatch) -> None:
        declared = self._setup.streams[stream]
        frame = encoded(batch.select(list(declared.columns)), list(declared.columns.values()))
        self._events += batch.num_rows
        try:
            for line in self._lines.get(stream, ()):
                _send(line, frame)
        except OSError:
            self._wait(lambda: self._done, 10, "Flink broke a connection and did not say why")

    def finish(self) -> None:
        for stream in self._setup.streams:
            for line in self._lines.get(stream, ()):
                line.close()
        self._wait(lambda: self._done, _END_SECONDS, "Flink did not come to an end")
        for reader in self._readers:
            reader.join(_END_SECONDS)
        if self._failed:
            raise self._failed

    def status(self) -> dict[str, Any]:
        return {"events": self._events}

    def close(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        self._server.close()
        with suppress(ProcessLookupError):
            # The child and the Java machine that it started are a session of their own.
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        self._guard.release()
        for pipe in (child.stdin, child.stdout):
            assert pipe is not None
            pipe.close()

    def _job(self, setup: Setup) -> dict[str, Any]:
        statements = [_stream(name, stream, self._line(name)) for name, stream in setup.streams.items()]
        for name, table in setup.tables.items():
            if table.where != "memory":
                raise InputError(f"tables.{name}.where = '{table.where}': adapter 'flink' has tables in memory alone")
            statements.append(_create(name, _columns(table.columns), self._line(name)))
        queries = {}
        for name, query in setup.queries.items():
            if Flink.dialect not in query.text:
                raise InputError(f"queries.{name}.text.{Flink.dialect}: is missing; the adapter 'flink' runs this one")
            queries[name] = {"text": query.text[Flink.dialect].strip().rstrip(";"), "line": self._line(name)}
        source = (
            files("penstock_bench.measure.adapters").joinpath("java", "FlinkConnector.java").read_text(encoding="utf-8")
        )
        return {
            "connector": source,
            "settings": dict(self._settings),
            "tables": statements,
            "streams": list(setup.streams),
            "queries": queries,
        }

    def _line(self, name: str) -> dict[str, str]:
        port = str(self._server.getsockname()[1])
        return {"port": port, "token": self._token, "number": str(self._names.index(name))}

    def _ready(self) -> bool:
        return self._planned is not None and all(
            len(self._lines.get(stream, ())) >= count for stream, count in self._planned["scans"].items()
        )

    def _wait(self, until: Any, seconds: float, otherwise: str) -> None:
        with self._state:
            self._state.wait_for(lambda: self._failed or until(), seconds)
            if self._failed:
                raise self._failed
            if not until():
                raise PenstockError(f"{otherwise} within {seconds:g} s; its log is the host's")

    def _listen(self) -> None:
        """Hears what the child says, until it ends."""
        child = self._child
        assert child is not None
        assert child.stdout is not None
        for text in child.stdout:
            said = json.loads(text)
            with self._state:
                try:
                    self._heard(said)
                except PenstockError as error:
                    self._failed = error
                self._state.notify_all()
        with self._state:
            if not self._done and self._failed is None:
                self._failed = PenstockError("Flink ended before its time; its log is the host's")
            self._state.notify_all()

    def _heard(self, said: dict[str, Any]) -> None:
        if said["is"] == "planned":
            for name, columns in said["columns"].items():
                types = [type_of(text, f"queries.{name}.text.flink: column '{c}'") for c, text in columns]
                schema = pa.schema([(column, kind.arrow) for (column, _), kind in zip(columns, types, strict=True)])
                self._schemas[name] = (schema, types)
            self._planned = said
        elif said["is"] == "done":
            self._done = True
        elif said["query"] is not None:
            self._failed = InputError(f"queries.{said['query']}.text.flink: {said['error']}")
        elif "OutOfMemoryError" in said["error"]:
            self._failed = PenstockError(
                f"Flink is out of memory: the heap has {self._heap}; system.options.heap gives more"
            )
        else:
            self._failed = PenstockError(f"Flink failed: {said['error']}")

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hello = _received(line, len(self._token) + 4)
            if hello is None or not secrets.compare_digest(hello[:-4], self._token.encode()):
                line.close()
                continue
            name = self._names[int.from_bytes(hello[-4:], "little")]
            if name in self._setup.streams:
                with self._state:
                    self._lines.setdefault(name, []).append(line)
                    self._state.notify_all()
                continue
            work = self._fill if name in self._setup.tables else self._read
            thread = threading.Thread(target=work, args=(name, line), daemon=True)
            if name in self._setup.queries:
                self._readers.append(thread)
            thread.start()

    def _fill(self, name: str, line: socket.socket) -> None:
        columns = self._setup.tables[name].columns
        with line:
            for batch in pq.ParquetFile(self._tables[name]).iter_batches(columns=list(columns)):
                _send(line, encoded(batch.select(list(columns)), list(columns.values())))

    def _read(self, name: str, line: socket.socket) -> None:
        schema, types = self._schemas[name]
        with line:
            while (head := _received(line, HEAD.size)) is not None:
                size, rows = HEAD.unpack(head)
                data = _received(line, size)
                if data is not None:
                    self._emit(name, decoded(data, rows, schema, types))


def _send(line: socket.socket, frame: list[bytes | memoryview]) -> None:
    line.sendall(b"".join(frame))


def _received(line: socket.socket, size: int) -> bytes | None:
    """So many bytes, or None where the connection ended before."""
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        try:
            count = line.recv_into(view[got:])
        except OSError:
            return None
        if count == 0:
            return None
        got += count
    return bytes(data)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _columns(columns: Mapping[str, SqlType]) -> list[str]:
    return [
        f"{_quoted(name)} {'TIMESTAMP(6)' if kind is SqlType.TIMESTAMP else kind.value}"
        for name, kind in columns.items()
    ]


def _create(name: str, columns: list[str], line: Mapping[str, str]) -> str:
    options = ", ".join(f"'{key}' = '{value}'" for key, value in {"connector": "penstock", **line}.items())
    return f"CREATE TABLE {_quoted(name)} ({', '.join(columns)}) WITH ({options})"


def _interval(milliseconds: int) -> str:
    """Flink counts no more than 99 of anything but days."""
    seconds, rest = divmod(milliseconds, 1_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"INTERVAL '{days} {hours}:{minutes}:{seconds}.{rest:03}' DAY TO SECOND"


def _stream(name: str, stream: Stream, line: Mapping[str, str]) -> str:
    taken = next((column for column in stream.columns if column.lower() in _OWN), None)
    if taken is not None:
        raise InputError(f"streams.{name}: adapter 'flink' adds a column '{taken}' of its own; name yours otherwise")
    # Rows of the watermark's own millisecond would be late: it stays one behind.
    behind = stream.lateness // 1_000 + 1
    columns = [
        *_columns(stream.columns),
        f"rowtime AS CAST({_quoted(stream.time)} AS TIMESTAMP(3))",
        "proctime AS PROCTIME()",
        f"WATERMARK FOR rowtime AS rowtime - {_interval(behind)}",
    ]
    return _create(name, columns, line)
