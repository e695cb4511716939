"""The embedded engine: an application's streams and queries in one process.

    push -> ingest -> reorder -> pipelines of the queries that read the stream -> results
                                        |
                                        +-> derived streams -> the pipelines that read those

Invariants:
1. What a query emits depends only on the events (contract, rule 1), so pushes may be cut anywhere.
2. `checkpoint` takes everything at one moment between two pushes: streams, pipelines, stores, results not yet read.
3. A result's number counts the results of its query from 0, through restarts.

One thread at a time uses an app.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from penstock.aggregates.user import UserAggregate
from penstock.engine.checkpoint import Checkpoint, CheckpointDirectory
from penstock.engine.metrics import Metrics
from penstock.engine.outlet import Outlet
from penstock.engine.stream_input import StreamInput
from penstock.errors import BudgetError, InputError, PenstockError
from penstock.lang import parse
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import Program, Query
from penstock.operators.chunk import Chunk
from penstock.operators.pipeline import Pipeline
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.plan.build import build
from penstock.plan.columns import needed_columns
from penstock.plan.explain import explain
from penstock.plan.nodes import Node
from penstock.store.budget import Budget, parse_size
from penstock.store.manager import StoreManager
from penstock.types import Schema


class App:
    """Continuous queries over pushed events.

    >>> app = App('''
    ...     CREATE STREAM calls (t TIMESTAMP, agent STRING, seconds DOUBLE, EVENT TIME t);
    ...     SELECT agent, AVG(seconds) AS mean FROM calls [RANGE 1 MINUTE] GROUP BY agent;
    ... ''')
    >>> app.push("calls", {"t": 1_000_000, "agent": "ann", "seconds": 30.0})
    >>> app.push("calls", {"t": 2_000_000, "agent": "ann", "seconds": 50.0})
    >>> app.results("q1").column("mean").to_pylist()
    [30.0, 40.0]
    >>> app.close()

    `memory` is the budget for all state; windows larger than that live on disk, in `checkpoint` if that is given and
    in a temporary directory otherwise. `max_ahead` is how far (in seconds) an event's time may be ahead of the clock
    before it is rejected.
    """

    def __init__(
        self,
        text: str = "",
        *,
        memory: str | int = "64MB",
        checkpoint: str | Path | None = None,
        block_size: str | int = 65536,
        aggregates: Iterable[UserAggregate] = (),
        max_ahead: float | None = None,
    ) -> None:
        self._users = {aggregate.name.upper(): aggregate for aggregate in aggregates}
        self.program = parse(text, user_aggregates=self._users)
        self._max_ahead = max_ahead
        self._rejects: list[dict[str, Any]] = []
        self._rejected = self._late = 0
        self._streams: dict[str, StreamInput] = {}
        self._pipelines: dict[str, Pipeline] = {}
        self._nodes: dict[str, Node] = {}
        self._queries: dict[str, Query] = {}
        self._outlets: dict[str, Outlet] = {}
        self._reject_subscribers: list[Callable[[str, dict[str, Any]], None]] = []
        self._finished = False
        self.restored: dict[str, Any] | None = None
        self._temporary = tempfile.mkdtemp(prefix="penstock-") if checkpoint is None else None
        self._directory = CheckpointDirectory(Path(checkpoint)) if checkpoint is not None else None
        blocks = Path(self._temporary) if self._temporary else Path(str(checkpoint)) / "blocks"
        try:
            self._stores = StoreManager(Budget(parse_size(memory)), blocks, parse_size(block_size))
            try:
                self._declare(self.program)
            except BudgetError as error:
                raise BudgetError(f"{error}\n  {self._least_budget(parse_size(block_size))}") from None
            if self._directory is not None:
                self._resume()
        except PenstockError:
            self.close()
            raise

    # Declaring

    def _declare(self, program: Program) -> None:
        for query in program.queries:
            self._nodes[query.name] = build(query.body)
            self._queries[query.name] = query
        for stream in program.streams:
            self._streams[stream.name] = StreamInput(
                stream, needed_columns(stream, self._nodes.values()), self._stores, self._reject
            )
            if stream.late_into is not None:
                self._outlets[stream.late_into] = Outlet(stream.late_into, buffered=True)
        for query in program.queries:
            self._start(query)

    def _start(self, query: Query) -> None:
        node = self._nodes[query.name]
        name = f"{query.name}-{fingerprint(node)[:12]}"
        self._pipelines[query.name] = Pipeline(name, node, Resources(self._stores, self._reject, self._users))
        read_by_others = any(query.into == s for p in self._pipelines.values() for s in p.streams)
        to_sink = any(sink.name == query.into for sink in self.program.sinks)
        self._outlets[query.name] = Outlet(query.name, buffered=not (read_by_others or to_sink))

    def _least_budget(self, block_size: int) -> str:
        """Builds the plan again without a limit to see what it takes."""
        stores = StoreManager(Budget(1 << 60), None, block_size)
        for stream in self.program.streams:
            StreamInput(stream, needed_columns(stream, self._nodes.values()), stores, self._reject)
        for name, node in self._nodes.items():
            Pipeline(name, node, Resources(stores, self._reject, self._users))
        return f"the least budget that this plan can start with is {stores.budget.peak:,} bytes"

    def add_query(self, text: str) -> str:
        """Starts a query (or several) on the running app, from now on; returns the name of the last one."""
        known: dict[str, Schema] = {s.definition.name: s.definition.schema for s in self._streams.values()}
        known |= {
            q.into: self._nodes[q.name].schema for q in self._queries.values() if q.into and not self._is_sink(q.into)
        }
        program = parse(
            text,
            streams=known,
            sinks=[s.name for s in self.program.sinks],
            queries=list(self._queries),
            user_aggregates=self._users,
        )
        for query in program.queries:
            node = build(query.body)
            for stream in self._streams.values():
                stream.also_needs(needed_columns(stream.definition, [node]))
            self._nodes[query.name], self._queries[query.name] = node, query
            self._start(query)
        return program.queries[-1].name

    def drop_query(self, name: str) -> None:
        """Ends a query; nothing else is touched."""
        query = self._query(name)
        readers = [n for n, p in self._pipelines.items() if query.into is not None and query.into in p.streams]
        if readers:
            raise InputError(f"query {name} feeds {', '.join(readers)}; drop those first")
        self._pipelines.pop(query.name).close()
        for kept in (self._nodes, self._queries, self._outlets):
            del kept[query.name]

    def _is_sink(self, name: str) -> bool:
        return any(sink.name == name for sink in self.program.sinks)

    # Events in

    def push(self, stream: str, data: Any) -> None:
        """Events of one stream: a dict, a list of dicts, an Arrow batch or table, a pandas or polars frame."""
        source = self._stream(stream)
        if self._finished:
            raise InputError("the app was finished; make a new one to push more events")
        latest = None if self._max_ahead is None else int((time.time() + self._max_ahead) * 1e6)
        for batch in source.ingest.batches(data):
            released, late = source.take(batch, latest)
            if late is not None:
                self._set_aside(source, late)
            if released.chunk.rows or released.watermark > source.dispatched:
                source.dispatched = released.watermark
                self._dispatch(source.definition.name, [released.chunk], released.watermark)
        if any(s.definition.idle_after is not None for s in self._streams.values()):
            self._pass_idle_streams()

    def _set_aside(self, source: StreamInput, late: pa.RecordBatch) -> None:
        self._late += late.num_rows
        source.keep_late(late)
        if source.definition.late_into is not None:
            self._outlets[source.definition.late_into].put(late)

    def _pass_idle_streams(self) -> None:
        """Streams that have been silent for their IDLE AFTER no longer hold the others back."""
        awake = [s.reorder.watermark for s in self._streams.values() if not s.is_idle(time.monotonic())]
        for source in self._streams.values():
            if awake and source.is_idle(time.monotonic()) and source.dispatched < min(awake):
                source.reorder.advance_to(min(awake))
                released, _ = source.take(source.ingest.schema.empty_table().to_batches()[0], None, idle=True)
                source.dispatched = released.watermark
                self._dispatch(source.definition.name, [released.chunk], released.watermark)

    def _dispatch(self, stream: str, chunks: list[Chunk], watermark: int) -> None:
        """Hands a stream's rows to the queries that read it, and their results to those that read these."""
        for name, pipeline in self._pipelines.items():
            if stream in pipeline.streams:
                progress = pipeline.push(stream, chunks, watermark)
                self._deliver(name, progress.chunks, progress.watermark)

    def _deliver(self, name: str, chunks: list[Chunk], watermark: int) -> None:
        for chunk in chunks:
            if chunk.rows:
                self._outlets[name].put(chunk.arrow)
        into = self._queries[name].into
        if into is not None and not self._is_sink(into):
            self._dispatch(into, chunks, watermark)

    def finish(self) -> None:
        """Ends a bounded run: emits up to the first boundary after the last event (all of it with DRAIN)."""
        if self._finished:
            return
        for source in self._streams.values():
            self._dispatch(source.definition.name, [source.reorder.finish()], source.reorder.watermark)
        for name, pipeline in list(self._pipelines.items()):
            last = [chunk for chunk in pipeline.finish() if chunk.rows]
            # What derives from these results ends later in the same loop: queries read only streams before them.
            if last:
                self._deliver(name, last, int(last[-1].times[-1]))
        self._finished = True

    # Results out

    def results(self, query: str) -> pa.Table:
        """Everything the query emitted since the last call."""
        return self._outlet(query).take(self._schema_of(query))

    def subscribe(self, query: str, callback: Callable[[pa.RecordBatch], None]) -> None:
        """Calls back with each batch of results; its schema's metadata has the query and the first row's number."""
        self._outlet(query).subscribe(callback)

    def late(self, stream: str) -> pa.Table:
        """The late events of a stream since the last call (the last 65,536 of them)."""
        return self._stream(stream).take_late()

    @property
    def rejects(self) -> list[dict[str, Any]]:
        """Rows that could not be computed, the last 10,000 of them, each with its reason."""
        return list(self._rejects)

    def subscribe_rejects(self, callback: Callable[[str, dict[str, Any]], None]) -> None:
        """Calls back with the reason and the row of everything rejected from now on."""
        self._reject_subscribers.append(callback)

    def _reject(self, reason: str, row: dict[str, Any]) -> None:
        self._rejected += 1
        for callback in self._reject_subscribers:
            callback(reason, row)
        if len(self._rejects) >= 10_000:
            del self._rejects[:5_000]
        self._rejects.append({"reason": reason, "row": row})

    # Durability

    def checkpoint(self, extra: dict[str, Any] | None = None) -> Checkpoint:
        """Makes everything durable; returns the number of events taken per stream, where a source goes on after a
        restart. `extra` comes back as `restored` then."""
        if self._directory is None:
            raise InputError("this app has no checkpoint directory; write App(..., checkpoint='some/directory')")
        state = {
            "fingerprint": self._fingerprint(),
            "streams": {name: s.snapshot() for name, s in self._streams.items()},
            "pipelines": {p.name: p.snapshot() for p in self._pipelines.values()},
            "outlets": {name: o.snapshot() for name, o in self._outlets.items()},
            "rejected": self._rejected,
            "late": self._late,
            "stores": self._stores.snapshot(),
        }
        self._stores.sync()
        epoch = self._directory.write(state, extra)
        self._stores.commit()
        return Checkpoint(epoch, {name: s.events for name, s in self._streams.items()})

    def _fingerprint(self) -> dict[str, str]:
        return {name: fingerprint(s.definition) for name, s in self._streams.items()}

    def _resume(self) -> None:
        assert self._directory is not None
        saved = self._directory.read()
        if saved is None:
            return
        state, self.restored = saved
        self._directory.check_streams(state["fingerprint"], self._fingerprint())
        self._stores.restore(state["stores"])
        for name, source in self._streams.items():
            source.restore(state["streams"][name])
        for name, pipeline in self._pipelines.items():
            if pipeline.name in state["pipelines"]:
                pipeline.restore(state["pipelines"][pipeline.name])
                self._outlets[name].restore(state["outlets"][name])
        self._rejected, self._late = state["rejected"], state["late"]

    # Looking in

    @property
    def metrics(self) -> Metrics:
        stores, budget = self._stores.metrics, self._stores.budget
        reached = [s.reorder.watermark for s in self._streams.values() if s.reorder.watermark > START]
        return Metrics(
            events=sum(s.events for s in self._streams.values()),
            late=self._late,
            rejected=self._rejected,
            results=sum(o.count for name, o in self._outlets.items() if name in self._queries),
            blocks_written=stores.blocks_written,
            blocks_read=stores.blocks_read,
            pool_hits=stores.pool_hits,
            memory_bytes=budget.used,
            memory_peak=budget.peak,
            memory_budget=budget.total,
            stored_bytes=self._stores.nbytes_total,
            watermark=min(reached, default=None),
        )

    def explain(self) -> str:
        """The plan of every query as a tree, with estimates of space and I/O."""
        return explain(self._queries.values(), self._nodes)

    def needed_columns(self, stream: str) -> tuple[str, ...]:
        """The columns of a stream that are worth reading."""
        return tuple(self._stream(stream).ingest.schema.names)

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(self._queries)

    def __repr__(self) -> str:
        return f"<penstock.App {', '.join(self._streams)} -> {', '.join(self._queries)}: {self.metrics}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><b>{name}</b></td><td><code>{query.text}</code></td><td>{self._outlets[name].count:,}</td></tr>"
            for name, query in self._queries.items()
        )
        head = "<tr><th>query</th><th>text</th><th>results</th></tr>"
        return f"<table>{head}{rows}</table><p>{self.metrics}</p>"

    def _stream(self, name: str) -> StreamInput:
        found = next((s for n, s in self._streams.items() if n.lower() == name.lower()), None)
        if found is None:
            raise InputError(f"there is no stream {name}; there are: {', '.join(self._streams) or 'none'}")
        return found

    def _query(self, name: str) -> Query:
        found = next((q for n, q in self._queries.items() if n.lower() == name.lower()), None)
        if found is None:
            raise InputError(f"there is no query {name}; there are: {', '.join(self._queries) or 'none'}")
        return found

    def _outlet(self, name: str) -> Outlet:
        if name in self._outlets:
            return self._outlets[name]
        return self._outlets[self._query(name).name]

    def _schema_of(self, name: str) -> pa.Schema:
        if name in self._nodes:
            return self._nodes[name].schema.arrow
        source = next((s for s in self._streams.values() if s.definition.late_into == name), None)
        return source.ingest.schema if source is not None else self._nodes[self._query(name).name].schema.arrow

    # Ending

    def close(self) -> None:
        """Gives memory and files back; a checkpoint stays."""
        if hasattr(self, "_stores"):
            self._stores.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> App:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
