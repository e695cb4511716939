"""The embedded engine: an application's streams and queries in one process.

    push -> ingest -> reorder -> flow (pipelines, derived streams) -> outlets: results to read or subscribe to

Invariants:
1. What a query emits depends only on the events (contract, rule 1), so pushes may be cut anywhere.
2. `checkpoint` takes everything at one moment between two pushes: streams, pipelines, stores, results not yet read.
3. A result's number counts the results of its query from 0, through restarts.

One thread at a time uses an app; any may `offer` events to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from penstock.aggregates.user import UserAggregate
from penstock.engine.builder import BuiltQuery, render
from penstock.engine.checkpoint import Checkpoint, CheckpointDirectory
from penstock.engine.clock import Clock, SystemClock
from penstock.engine.dispatcher import Dispatcher
from penstock.engine.flow import Flow
from penstock.engine.guard import Guard
from penstock.engine.input_buffers import Round
from penstock.engine.inputs import Inputs
from penstock.engine.least_budget import with_least_budget
from penstock.engine.lingering import LingeringEvents
from penstock.engine.live_view import Look, look, metrics_of
from penstock.engine.metrics import Metrics
from penstock.engine.moments import micros_of
from penstock.engine.push_lanes import ALL_TAKEN, PushLanes
from penstock.engine.registration import Registration, logical_plans
from penstock.engine.rejects import Rejects
from penstock.engine.rule_calls import RuleCalls
from penstock.engine.running import as_html, plan_at_work
from penstock.engine.saved_app import SavedApp
from penstock.engine.sizing_metrics import history
from penstock.engine.stream_input import StreamInput
from penstock.errors import BudgetError, InputError, PenstockError
from penstock.lang import parse
from penstock.lang.query import Program
from penstock.plan.explain import explain
from penstock.store.budget import Budget, parse_size
from penstock.store.manager import StoreManager
from penstock.store.scratch import Scratch


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

    The program is text, parsed or not, or queries built in Python (see `penstock.stream`). `memory` is the budget for
    all state; windows larger than that live on disk, in `checkpoint` if that is given and in a temporary directory
    otherwise, in blocks of `block_size`; with `compression` ("lz4" or "zstd") those that shrink by 30 % are compressed.
    Results leave as they are made; those that wait for `results` are in the budget, and on disk where they are many.
    `max_ahead` is how far (in seconds) an event's time may be ahead of the clock before it is rejected. With `linger`,
    single pushed events wait up to so many seconds for others, since a batch of a few costs hardly more than one event.
    The first push after that time processes them, and so does every other call. Call `flush` if nothing more will be
    pushed. `strategy` is how windows are kept: "auto" for the cheaper form, "panes" wherever possible, or "window".
    `dispatch` is how events are taken from the input buffers that `offer` puts them into: "fcfs", first come first
    served, or "ejf", earliest job first; streams in ARRIVAL ORDER are always read through these buffers.

    `functions` are what rules may CALL besides functions that the program declares: each is called with the arguments
    and `idempotency_key`, on a thread beside the app's, or with `synchronous_calls` before the push returns.

    With a `checkpoint` directory that has a checkpoint, the app goes on from there: queries that are as they were
    resume, and their results go on counting; new and changed queries begin afresh, from now on; those that are gone
    are forgotten. Streams must be declared as they were.
    """

    def __init__(
        self,
        program: str | Program | BuiltQuery | Iterable[BuiltQuery] = "",
        *,
        memory: str | int = "64MB",
        checkpoint: str | Path | None = None,
        block_size: str | int = 65536,
        compression: str | None = None,
        aggregates: Iterable[UserAggregate] = (),
        max_ahead: float | None = None,
        linger: float = 0.0,
        clock: Clock | None = None,
        strategy: str = "auto",
        dispatch: str | None = None,
        functions: Mapping[str, Callable[..., object]] | None = None,
        synchronous_calls: bool = False,
    ) -> None:
        self._users = {aggregate.name.upper(): aggregate for aggregate in aggregates}
        functions = functions or {}
        if not isinstance(program, Program):
            text = program if isinstance(program, str) else render(program)
            program = parse(text, user_aggregates=self._users, functions=functions)
        self.program = program
        nodes = logical_plans(program)
        self._clock = clock or SystemClock()
        self._lingering = LingeringEvents(linger)
        self._rejects = Rejects()
        self._guard = Guard()
        self._finished = False
        self.restored: dict[str, Any] | None = None
        total, block = parse_size(memory), parse_size(block_size)
        self._directory = CheckpointDirectory(Path(checkpoint)) if checkpoint is not None else None
        self._scratch = Scratch() if checkpoint is None else None
        blocks = self._scratch.path if self._scratch is not None else Path(str(checkpoint)) / "blocks"
        try:
            self._stores = StoreManager(Budget(total), blocks, block, compression)
            self._calls = RuleCalls(functions, self._stores.budget, self._rejects.add, synchronous=synchronous_calls)
            sinks = tuple(sink.name for sink in program.sinks)
            self._flow = Flow(
                self._stores, self._rejects.add, self._users, self._clock, sinks, strategy=strategy, adapts=True
            )
            ahead = None if max_ahead is None else round(max_ahead * 1_000_000)
            self._inputs = Inputs(self._stores, self._rejects.add, self._clock, self._flow.dispatch, ahead)
            self._lanes = PushLanes(self._flow, self._inputs, self._guard, self._may_use_lanes)
            self._registration = Registration(
                self._inputs, self._flow, self._calls, self._users, sinks, self._begin_dispatch
            )
            state = None
            if self._directory is not None:
                self._saved = SavedApp(
                    self._directory, self._stores, self._inputs, self._flow, self._calls, self._rejects
                )
                state, self.restored = self._saved.read(program.streams)
            try:
                if dispatch is not None:
                    self._begin_dispatch(dispatch)
                self._registration.start(program, nodes, state)
            except BudgetError as error:
                buffered = self._inputs.dispatcher is not None
                raise with_least_budget(
                    error, program, nodes, self._users, self._clock, strategy, block_size=block, buffered=buffered
                ) from None
            if state is not None:
                if state["dispatch"] is not None and self._inputs.dispatcher is None:
                    self._begin_dispatch("fcfs")
                self._saved.restore(state)
                self._finished = state["finished"]
        except BaseException:
            self.close()
            raise

    # Queries

    def add_query(self, text: str | BuiltQuery, *, backfill: bool = False) -> str:
        """Starts a query (or several) on the running app, from now on; returns the name of the last one.

        The text may declare new streams, but no sinks. If one part of the text is refused, nothing is started. With
        `backfill` the query begins with past rows that other queries have stored, and answers as if it had been there.
        """
        self.flush()
        with self._guard.alone():
            return self._registration.add(text, backfill)

    def drop_query(self, name: str) -> None:
        """Ends a query and gives back what it held; nothing else is touched."""
        self.flush()
        with self._guard.alone():
            self._registration.drop(self._registration.query(name))

    def set_strategy(self, strategy: str, query: str | None = None) -> None:
        """From now on the windows of a query and its family, or of all queries, are kept as "panes", as "window", or in
        the cheaper form ("auto"). They change while they run, within the length of the longest window. The answers stay
        the same. If memory is too small for both forms at once, the windows stay as they are."""
        self.flush()
        with self._guard.alone():
            self._flow.set_strategy(strategy, None if query is None else self._registration.query(query))

    # Events in

    def push(self, stream: str, data: Any) -> None:
        """Events of one stream: a dict, a list of dicts, an Arrow batch or table, a pandas or polars frame.

        Data that does not fit the declared columns raises `InputError`, and nothing of it is taken.
        """
        if not self._lingering.is_used:
            left = self._lanes.push(stream, data)
            if left is ALL_TAKEN:
                return
            if left is not data:
                with self._guard.unwatched():
                    self._push(self._inputs.named(stream), left)
                return
        source = self._inputs.named(stream)
        self._guard.check()
        if self._finished:
            raise InputError("the app was finished; make a new one to push more events")
        dispatcher = self._inputs.dispatcher
        if dispatcher is not None and (source.definition.arrival or self._inputs.waiting(source.definition.name)):
            self._guard.heed()
            with self._guard.unwatched():
                self._inputs.put(source, data, dispatcher.work_a_round)
                dispatcher.work()
            return
        if self._lingering.is_used:
            self._guard.heed()
            if self._lingering.takes(data):
                if self._lingering.add(source.definition.name, data):
                    self.flush()
                return
            self.flush()
        self._push(source, data)

    def offer(self, stream: str, data: Any, timeout: float | None = None) -> None:
        """Puts events into the stream's input buffer, from any thread; `work` or `dispatching` takes them from there.

        If the buffers are full, the caller waits: up to `timeout` seconds if that is given, else as long as a thread
        dispatches. Then it raises `BudgetError`.
        """
        source = self._inputs.named(stream)
        dispatcher = self._inputs.dispatcher
        if dispatcher is None:
            raise InputError("this app has no input buffers; write App(..., dispatch='fcfs') or dispatch='ejf'")
        if self._finished:
            raise InputError("the app was finished; make a new one to push more events")
        dispatcher.check()
        self._inputs.put(source, data, lambda: dispatcher.wait(timeout))

    def work(self, limit: int | None = None) -> int:
        """Takes events from the input buffers, as `dispatch` says, until none waits or so many are done; returns how
        many."""
        self.flush()
        self._guard.check()
        return 0 if self._inputs.dispatcher is None else self._inputs.dispatcher.work(limit)

    @property
    def waiting(self) -> dict[str, int]:
        """How many events wait in the input buffers of streams that have had one. Any thread may look."""
        return self._inputs.buffered

    def dispatching(self) -> AbstractContextManager[Dispatcher]:
        """`with app.dispatching() as d:` a new thread takes the events that other threads offer. Only that thread uses
        the app, and it calls the subscribers. Within `d.paused()` it rests. At the end it processes all waiting events.
        """
        self.flush()
        self._guard.check()
        return (self._inputs.dispatcher or self._begin_dispatch("fcfs")).started()

    def _begin_dispatch(self, policy: str) -> Dispatcher:
        self._lanes.close()
        return self._inputs.begin_dispatch(policy, self._serve, self.tick, self._guard)

    def flush(self) -> None:
        """Processes the single events that linger."""
        if self._guard.inside or not self._lingering.is_used:
            return
        with self._guard.unwatched():
            for stream, events in self._lingering.take():
                source = self._inputs.streams[stream]
                try:
                    self._push(source, events)
                except InputError:
                    self._push_singly(source, events)

    def _push_singly(self, source: StreamInput, events: list[dict[str, Any]]) -> None:
        """One event that does not fit must not stop the other events of the batch. Its push has already returned, so
        the event is rejected."""
        for event in events:
            try:
                self._push(source, event)
            except InputError as error:
                self._rejects.add(str(error), event)

    def _push(self, source: StreamInput, data: Any) -> None:
        if self._lingering.is_used:
            data = self._lanes.push(source.definition.name, data)
            if data is ALL_TAKEN:
                return
        if data.__class__ is dict or data.__class__ is list:
            self._lanes.note_push(source)
        batches = source.ingest.batches(data)
        self._calls.begin()
        with self._guard:
            self._do_what_is_due()
            self._inputs.take(source, batches)
            self._flow.settle()

    def _may_use_lanes(self) -> bool:
        """Whether a push does nothing but take its events in."""
        return not (self._finished or self._calls.names or self._inputs.dispatcher)

    def _serve(self, taken: Round) -> dict[str, int]:
        """Events that were taken from input buffers."""
        self._calls.begin()
        with self._guard.unwatched(), self._guard:
            self._do_what_is_due()
            waiting = self._inputs.take_round(taken)
            self._flow.settle()
            return waiting

    def _do_what_is_due(self, now: int | None = None) -> None:
        """By the clock, before events come."""
        if self._flow.next_tick is not None:
            self._flow.tick(self._clock.now() if now is None else now)
        if self._flow.tables.refreshes:
            self._flow.tables.refresh_due()

    def tick(self, now: int | None = None) -> None:
        """Lets time pass without events: ON WALL CLOCK windows slide, streams become idle. Call it now and then.

        `now` (microseconds since 1970 UTC) stands in for the app's clock as far as windows go.
        """
        self.flush()
        if self._finished:
            return
        self._calls.begin()
        with self._guard:
            self._do_what_is_due(now)
            self._inputs.pass_time()
            self._flow.settle()

    def advance(self, stream: str, time: Any) -> None:
        """Moves a stream's event time on without an event: events with a time below `time` are late from now on.
        Windows close, and rows that waited for this stream come out, as if an event had come.

        `time` is an integer (microseconds since 1970 UTC, whatever the stream's UNIT), a datetime, or a timestamp of
        pandas, numpy or Arrow; without a zone it is UTC. A time that the stream has reached changes nothing. How far a
        stream has come is part of every checkpoint.
        """
        source = self._inputs.named(stream)
        micros = micros_of(time)
        self.flush()
        self._guard.check()
        if self._finished:
            raise InputError("the app was finished; make a new one to push more events")
        self._inputs.check_advance(source, micros)
        if self._inputs.waiting(source.definition.name):
            self.work()
        self._calls.begin()
        with self._guard:
            self._do_what_is_due()
            self._inputs.advance(source, micros)
            self._flow.settle()

    def finish(self) -> None:
        """Ends a bounded run: emits up to the first boundary after the last event (all of it with DRAIN)."""
        if self._finished:
            self.wait_for_calls()
            return
        self.work()
        with self._guard:
            self._inputs.finish()
            self._flow.finish()
            self._finished = True
            self._lanes.close()
        if self._directory is None:
            self._flow.tables.committed(0)
        self.wait_for_calls()

    def wait_for_calls(self, timeout: float | None = None) -> bool:
        """Waits until all calls that rules have made so far have succeeded or failed; returns False if that takes
        longer than so many seconds. `finish` waits by itself; `checkpoint` saves the calls that wait."""
        done = self._calls.wait(timeout)
        self._calls.settle()
        return done

    # Tables

    def table(self, name: str) -> pa.Table:
        """The rows of a table now, with all changes of events that have been put in order, by their key."""
        self.flush()
        return self._flow.tables.to_arrow(name)

    def refresh(self, table: str) -> None:
        """Loads a table from its source again. If that fails, the table stays as it was and the app goes on."""
        self.flush()
        self._guard.check()
        failure: PenstockError | None = None
        with self._guard:
            try:
                self._flow.tables.refresh(table)
            except PenstockError as error:
                failure = error
        if failure is not None:
            raise failure

    # Results out

    def results(self, query: str) -> pa.Table:
        """Everything the query emitted since the last call; or the late events that go to this name.

        The schema's metadata has the query (`penstock.query`) and the first row's number (`penstock.sequence`).
        Of a query that feeds a derived stream the last 65,536 rows are kept; what goes to a sink is not kept.
        """
        self.flush()
        return self._registration.outlet(query).take()

    def subscribe(self, query: str, callback: Callable[[pa.RecordBatch], None]) -> None:
        """Calls back with each batch of results, beginning with those that wait; metadata as in `results`."""
        self._registration.outlet(query).subscribe(callback)

    def late(self, stream: str) -> pa.Table:
        """The late events of a stream with LATE INTO since the last call (the last 65,536 of them), in the columns that
        are read. Those of other streams are counted and not kept."""
        self.flush()
        source = self._inputs.named(stream)
        if source.definition.late_into is None:
            raise InputError(
                f"stream {source.definition.name} does not keep late events: they are counted in `metrics.late`; write "
                "LATE INTO and a name behind CREATE STREAM to keep them"
            )
        return source.late.take()

    @property
    def rejects(self) -> list[dict[str, Any]]:
        """Rows that could not be computed, the last 10,000 of them, each with its reason."""
        self.flush()
        self._calls.settle()
        return list(self._rejects.rows)

    def subscribe_rejects(self, callback: Callable[[str, dict[str, Any]], None]) -> None:
        """Calls back with the reason and the row of everything rejected from now on."""
        self._rejects.subscribe(callback)

    # Durability

    def checkpoint(self, extra: dict[str, Any] | None = None, *, wait: bool = True) -> Checkpoint:
        """Makes everything durable; returns the number of events taken per stream, where a source goes on after a
        restart. `extra` comes back as `restored` then.

        Without `wait` it returns when all is taken that the checkpoint is to hold, and a thread writes it while events
        go on. It counts once it is `last_checkpoint`; if it cannot be written, the next call raises why, and the one
        before still counts. The next checkpoint and `close` wait for it."""
        if self._directory is None:
            raise InputError("this app has no checkpoint directory; write App(..., checkpoint='some/directory')")
        self.flush()
        with self._guard.alone():
            self._saved.writer.wait()
            self._guard.watch(self._saved.writer.heed)
            with self._inputs.offers_wait():
                return self._saved.begin(extra, self._finished, beside=not wait)

    @property
    def last_checkpoint(self) -> Checkpoint | None:
        """The last checkpoint of this app that is durable. Any thread may look."""
        return None if self._directory is None else self._saved.last

    # Looking in

    @property
    def metrics(self) -> Metrics:
        self.flush()
        return self._metrics()

    def look(self) -> Look:
        """The state of the app for any thread and at any time, also in the middle of a push. It processes no events and
        makes no thread wait (see `engine.live_view`)."""
        state = "finished" if self._finished and self._guard.state == "running" else self._guard.state
        return look(state, self.program, self._inputs, self._flow, self._stores, self._calls, self._rejects)

    def _metrics(self) -> Metrics:
        return metrics_of(self._stores, self._inputs, self._flow, self._calls, self._rejects)

    def sizes(self, query: str) -> pa.Table:
        """The sizes of the query's rate-sized windows, and the rows held in them, at the last boundaries of their
        samples: by the number of the join, the side and the time."""
        self.flush()
        return history(self._flow.running[self._registration.query(query)].pipeline.joins)

    def explain(self) -> str:
        """The plan of every query as a tree, with estimates of space and I/O. Any thread may look."""
        running = dict(self._flow.running)  # at once: another thread may add queries
        return explain(
            plan_at_work(running),
            memory=self._stores.budget.total,
            block_size=self._stores.block_size,
            changes=self._flow.changes(),
            writes=self.program.writes,
            streams=self.program.streams,
        )

    def needed_columns(self, stream: str) -> tuple[str, ...]:
        """The columns of a stream that are worth reading."""
        return tuple(self._inputs.named(stream).ingest.pushed)

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(self._flow.running)

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(self._inputs.streams)

    def __repr__(self) -> str:
        return f"<penstock.App {', '.join(self.streams)} -> {', '.join(self.queries)}: {self._metrics()}>"

    def _repr_html_(self) -> str:
        return as_html(self._flow.running, str(self._metrics()))

    # Ending

    def close(self) -> None:
        """Gives memory and files back; a checkpoint stays, and one that is being written is waited for. Calls of rules
        that wait are tried once more; with a checkpoint directory they are left to the next app, which finds them in
        the checkpoint or fires them again."""
        failure = self._end()
        if failure is not None:
            raise failure

    def _end(self) -> BaseException | None:
        """Closes everything; returns why the last checkpoint could not be written."""
        self._guard.close()
        failure = self._saved.writer.settled() if hasattr(self, "_saved") else None
        if hasattr(self, "_calls"):
            self._calls.close(abandon=self._directory is not None)
        if hasattr(self, "_flow"):
            self._flow.tables.disconnect()
        if hasattr(self, "_stores"):
            self._stores.close()
        if self._scratch is not None:
            self._scratch.close()
        return failure

    def __enter__(self) -> App:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failure = self._end()
        if failure is not None and error is None:
            raise failure
