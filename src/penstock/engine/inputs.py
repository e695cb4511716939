"""The streams of an app: what comes in is checked, put in order and passed on to the queries.

    push ────────────────────────────┐
    offer ─▶ input buffers ─▶ rounds ─┴▶ take ─▶ reorder ─▶ pass_on
                                               └▶ late events

Invariant: `pass_on` is told of each stream's rows in order, with a watermark that never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.arrivals import ArrivalClock
from penstock.engine.checkpoint import new_columns
from penstock.engine.clock import Clock
from penstock.engine.dispatcher import Dispatcher
from penstock.engine.guard import Guard
from penstock.engine.input_buffers import Round
from penstock.engine.names import find
from penstock.engine.outlet import Outlet
from penstock.engine.pieces import Pieces
from penstock.engine.stream_input import StreamInput
from penstock.errors import InputError, QueryError
from penstock.expressions.batch import Rows
from penstock.lang.query import StreamDef
from penstock.operators.chunk import NO_ROWS, Chunk
from penstock.operators.reorder import START, Released
from penstock.rejects import Reject
from penstock.store.manager import StoreManager

BUFFERS_SHARE = 8
"""Input buffers have this part of the memory."""

_NO_TIMES = np.empty(0, np.int64)


class Inputs:
    """`max_ahead` is how many microseconds an event's time may be ahead of the clock; `late` counts late events."""

    def __init__(
        self,
        stores: StoreManager,
        reject: Reject,
        clock: Clock,
        pass_on: Callable[[str, list[Chunk], int], None],
        max_ahead: int | None,
    ) -> None:
        self.streams: dict[str, StreamInput] = {}
        self.dispatcher: Dispatcher | None = None
        self.late = 0
        self._stores = stores
        self._pieces = Pieces(stores)
        self._reject = reject
        self._clock = clock
        self._pass_on = pass_on
        self._max_ahead = max_ahead
        self._late_outlets: dict[str, Outlet] = {}
        self._arrivals = ArrivalClock(clock)
        self._has_idle_streams = False

    # Streams come and go

    def declare(self, stream: StreamDef, columns: Sequence[str], sinks: Iterable[str], queries: Iterable[str]) -> None:
        """Begins a stream of which these columns are taken in. Late events may go to one of the sinks, and not where
        the results of one of the queries go."""
        arrivals = self._arrivals if stream.arrival else None
        source = StreamInput(stream, columns, self._stores, self._reject, self._clock, arrivals=arrivals)
        self.streams[stream.name] = source
        self._has_idle_streams = self._has_idle_streams or stream.idle_after is not None
        if stream.late_into is None:
            return
        schema, lowered = stream.schema.arrow, stream.late_into.lower()
        to_sink = lowered in (sink.lower() for sink in sinks)
        if lowered not in self._late_outlets:
            waiting = self._stores.create_waiting(_late_store(lowered))
            self._late_outlets[lowered] = Outlet(stream.late_into, schema, waiting, keep=0 if to_sink else None)
        if self._late_outlets[lowered].schema != schema:
            raise QueryError(
                f"the late events of several streams go to '{stream.late_into}', and their columns differ",
                hint="give each stream a LATE INTO of its own",
            )
        if lowered in (query.lower() for query in queries):
            raise QueryError(
                f"the results of a query and the late events of '{stream.name}' both go to '{stream.late_into}'",
                hint="give the late events a sink or a name of their own",
            )

    @property
    def heeds_the_clock(self) -> bool:
        """Whether a push depends on the clock besides its own events: some are too far ahead, or streams are idle."""
        return self._max_ahead is not None or self._has_idle_streams

    def named(self, name: str) -> StreamInput:
        return self.streams.get(name) or self.streams[find(name, "stream", self.streams)]

    @property
    def late_names(self) -> list[str]:
        """Where late events go, as written."""
        return [outlet.name for outlet in self._late_outlets.values()]

    def late_outlet(self, name: str) -> Outlet | None:
        return self._late_outlets.get(name.lower())

    def take_back(self, streams: Iterable[str], late_names: Iterable[str]) -> None:
        """Ends everything but these."""
        for name in self.streams.keys() - set(streams):
            self.streams.pop(name).close()
        for name in self._late_outlets.keys() - {late.lower() for late in late_names}:
            del self._late_outlets[name]
            self._stores.drop(_late_store(name))

    # Events in

    def take(self, source: StreamInput, batches: Iterable[Rows]) -> None:
        for batch in batches:
            self._take(source, batch)
        if self._has_idle_streams:
            self._pass_idle_streams()

    def take_round(self, taken: Round) -> dict[str, int]:
        """Events from the input buffers; returns the microseconds that each stream took. Events in arrival order have
        instants, which keep their order over all streams. So the events of a stream are passed on together."""
        spent: dict[str, int] = {}
        instants = self._arrivals.take(taken.events)
        self._pass_arrivals({run.stream for run in taken.runs})
        for run in taken.runs:
            began, source = self._clock.elapsed(), self.streams[run.stream]
            if source.definition.arrival:
                self._hand_on(source, source.take(run.rows, self._latest(), taken=instants[run.places]))
            else:
                self._take(source, run.rows)
            spent[run.stream] = self._clock.elapsed() - began
        if self._has_idle_streams:
            self._pass_idle_streams()
        return spent

    def _take(self, source: StreamInput, batch: Rows) -> None:
        latest = self._latest()
        for piece in self._pieces.to_sort(batch) if source.reorder.holds else (batch,):
            self._hand_on(source, source.take(piece, latest))

    def _latest(self) -> int | None:
        """The time beyond which an event is too far ahead."""
        return None if self._max_ahead is None else self._clock.now() + self._max_ahead

    def _hand_on(self, source: StreamInput, released: Released) -> None:
        if released.late is not None:
            self._set_aside(source, released.late)
        if released.chunk.rows or released.watermark > source.dispatched:
            self._pass_parts(source, released)

    def _pass_parts(self, source: StreamInput, released: Released) -> None:
        name = source.definition.name
        for chunk, reached in released.parts():
            if reached > source.dispatched:
                source.dispatched = reached
            self._pass_on(name, [chunk], reached)

    def _set_aside(self, source: StreamInput, late: pa.RecordBatch) -> None:
        self.late += late.num_rows
        source.late.put(late)
        if source.definition.late_into is not None:
            self._late_outlets[source.definition.late_into.lower()].put(late)

    def pass_time(self) -> None:
        """Time passes without events."""
        if self.dispatcher is not None:
            self._arrivals.advance()
            self._pass_arrivals()
        self._beat()
        if self._has_idle_streams:
            self._pass_idle_streams()

    def _pass_arrivals(self, taken: Container[str] = ()) -> None:
        """Streams in arrival order come as far together, so that queries over several of them never wait."""
        reached = self._arrivals.reached
        for source in self.streams.values():
            is_other = source.definition.arrival and source.definition.name not in taken
            if is_other and source.dispatched < reached:
                source.dispatched = source.reach(reached)
                self._pass_on(source.definition.name, [Chunk(_NO_TIMES, NO_ROWS)], source.dispatched)

    def _pass_idle_streams(self) -> None:
        """Streams that have been silent for their IDLE AFTER hold nothing back: neither their own last events nor, if
        some stream is not idle, what those have brought. Where all are idle, all come as far as any of them."""
        idle = [source for source in self.streams.values() if source.is_idle]
        if not idle:
            return
        for source in idle:
            rested = source.rest()
            if rested is not None:
                self._hand_on(source, rested)
        awake = [source.reorder.watermark for source in self.streams.values() if source not in idle]
        reached = min(awake) + 1 if awake else max(source.reorder.watermark for source in idle)
        if reached > START + 1:
            for source in idle:
                self._hand_on(source, source.advance(reached))

    def _beat(self) -> None:
        """Streams that are silent for their heartbeat go on with the local clock."""
        for source in self.streams.values():
            beat = source.beat
            if beat is not None:
                self._hand_on(source, source.advance(beat))

    def check_advance(self, source: StreamInput, time: int) -> None:
        """Refuses to advance a stream in ARRIVAL ORDER, or to a time too far ahead of the clock."""
        if source.definition.arrival:
            raise InputError(
                f"stream {source.definition.name} is in ARRIVAL ORDER, so its time is that of the clock; call tick()"
            )
        latest = self._latest()
        if latest is not None and time > latest:
            raise InputError(
                f"stream {source.definition.name}: the time to advance to is further ahead of the clock than max_ahead "
                "allows; give microseconds since 1970 UTC, or a larger max_ahead"
            )

    def advance(self, source: StreamInput, time: int) -> None:
        """From now on events of this stream with a time below `time` are late."""
        self._hand_on(source, source.advance(time, is_news=True))

    def finish(self) -> None:
        """No more events come: the rows that wait to be put in order are released."""
        for source in self.streams.values():
            self._pass_parts(source, source.reorder.finish())

    # Input buffers

    def begin_dispatch(
        self,
        policy: str,
        serve: Callable[[Round], dict[str, int]],
        idle: Callable[[], None],
        guard: Guard,
    ) -> Dispatcher:
        capacity = max(self._stores.budget.total // BUFFERS_SHARE, 1024)
        self._stores.budget.account("input buffers").resize(capacity)
        self.dispatcher = Dispatcher(policy, capacity, self._clock, serve, idle, guard)
        return self.dispatcher

    def put(self, source: StreamInput, data: Any, wait: Callable[[], None]) -> None:
        """Into the input buffer; `wait` is called while there is no room."""
        assert self.dispatcher is not None, "there are input buffers"
        with self.dispatcher.buffers.lock:  # so that the columns stay as they are meanwhile
            for batch in source.ingest.batches(data):
                rows = source.ingest.arriving(batch, self._clock.now())
                self.dispatcher.put(source.definition.name, rows, source.ingest.stamps(batch), wait)

    @property
    def buffered(self) -> dict[str, int]:
        """How many events wait in the input buffers of streams that have had one. Any thread may look."""
        return {} if self.dispatcher is None else self.dispatcher.buffers.all_events()

    def waiting(self, stream: str) -> int:
        return self.buffered.get(stream, 0)

    def offers_wait(self) -> AbstractContextManager[Any]:
        """A lock under which no event is put into the input buffers."""
        return nullcontext() if self.dispatcher is None else self.dispatcher.buffers.lock

    # Durability

    @property
    def positions(self) -> dict[str, int]:
        """How many events of each stream have come."""
        return {name: source.events + self.waiting(name) for name, source in self.streams.items()}

    def snapshot(self) -> dict[str, Any]:
        return {
            "streams": {name: source.snapshot() for name, source in self.streams.items()},
            "late_outlets": {name: outlet.snapshot() for name, outlet in self._late_outlets.items()},
            "late": self.late,
            "arrivals": self._arrivals.reached,
            "dispatch": None if self.dispatcher is None else self.dispatcher.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """After the stores. Where events wait in input buffers, dispatching has begun."""
        self._arrivals.reached = snapshot["arrivals"]
        if self.dispatcher is not None and snapshot["dispatch"] is not None:
            self.dispatcher.restore(snapshot["dispatch"], self.streams)
        for name, source in self.streams.items():
            if name in snapshot["streams"]:
                came = new_columns(snapshot["declared"][name], source.definition)
                source.restore(snapshot["streams"][name], self.waiting(name), came)
        for name, outlet in self._late_outlets.items():
            if name in snapshot["late_outlets"]:
                outlet.restore(snapshot["late_outlets"][name])
        self.late = snapshot["late"]


def _late_store(name: str) -> str:
    """Where late events wait that go to a name."""
    return f"late into {name}"
