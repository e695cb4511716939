"""A Kafka broker between drivers, sinks and the system under test: any engine that speaks Kafka can be measured.

Drivers publish to a topic for each stream, sinks subscribe to a topic for each query. The engine is somebody else's,
connected to the same broker; or, with `engine = "penstock"`, Penstock in the host, so that a run is complete by itself.

Invariants:
1. `begin` notes where each topic ends. Everybody reads from there on, so what earlier runs left is not seen.
2. A partition of results is read by one sink alone: number p by the taker p modulo their number.
3. With an engine of ours the end travels in the topics: each driver marks its end in every partition; the engine, when
   it has seen all marks and emitted its last result, marks the partitions of results. Others know no marks: their run
   ends when no result has come for `idle` seconds.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock.errors import InputError
from penstock.instruments import build_plan, parse
from penstock_bench.measure.adapters.adapter import Adapter, Receiver, Results, Sender
from penstock_bench.measure.adapters.embedded import Embedded, program
from penstock_bench.measure.adapters.kafka_broker import KafkaBroker
from penstock_bench.measure.adapters.kafka_messages import FORMATS, LooseResults, decode, encode
from penstock_bench.measure.clock import Clock
from penstock_bench.measure.running.directory import RunDirectory
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.measure.setup.model import Setup, System

if TYPE_CHECKING:
    from penstock_bench.measure.adapters.kafka_bridge import Bridge

OWN = "own"
PENSTOCK = "penstock"

Positions = dict[tuple[str, int], int]
"""The offset of each partition, by topic and number, from which the run reads."""

_LEGAL_TOPIC = re.compile(r"[A-Za-z0-9._\-]{1,249}")
_TAKEN_AT_ONCE = 10_000
_QUIET_SECONDS = 0.1
_IDLE_POLL_SECONDS = 0.25


class Kafka(Adapter):
    dialect = "penstock"
    options: ClassVar[Mapping[str, str]] = {
        "bootstrap": "host:port of the broker, '127.0.0.1:9092' by default; 'own' starts one for the run",
        "engine": "'penstock' runs Penstock in the host, behind the broker; by default another engine is connected",
        "format": "of messages: 'json' (the default), one for each event, or 'arrow', one for each batch",
        "stream_topics": "the topic of stream {name}, by default 'penstock.events.{name}'",
        "query_topics": "the topic of the results of query {name}, by default 'penstock.results.{name}'",
        "partitions": "of the streams' topics, if they are made; 1 by default",
        "key": "the column whose value is the message's key; none by default",
        "idle": "seconds without a result after which another engine is taken to be done; 5 by default",
        **{name: f"with engine = 'penstock': {meaning}" for name, meaning in Embedded.options.items()},
    }

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._bootstrap = str(self.option("bootstrap", "127.0.0.1:9092"))
        self._ours = self._one_of("engine", "", ("", PENSTOCK)) == PENSTOCK
        if self._bootstrap == OWN and not self._ours:
            raise InputError(
                "system.options.bootstrap = 'own': no other engine could know the run's own broker; start one with"
                " `python -m penstock_bench.measure.adapters.kafka_broker`, or have engine = 'penstock'"
            )
        self._format = self._one_of("format", "json", FORMATS)
        self._key = str(self.option("key", "")) or None
        self._streams = self._topics("stream_topics", "penstock.events.{name}", setup.streams)
        self._queries = self._topics("query_topics", "penstock.results.{name}", setup.queries)
        both = set(self._streams.values()) & set(self._queries.values())
        if both:
            raise InputError(f"system.options: topic '{both.pop()}' would hold events and results; name them apart")
        for name, stream in setup.streams.items():
            if self._key is not None and self._key not in stream.columns:
                raise InputError(f"system.options.key = '{self._key}': stream '{name}' has no such column")
        self._broker: KafkaBroker | None = None
        self._bridge: Bridge | None = None

    def check(self) -> None:
        if find_spec("confluent_kafka") is None:
            raise InputError("the adapter 'kafka' needs confluent-kafka: pip install 'penstock-bench[kafka]'")
        if self._bootstrap != OWN:
            from penstock_bench.measure.adapters.kafka_client import reach

            reach(self._bootstrap)

    def begin(self, run: Path) -> Mapping[str, Scalar]:
        from penstock_bench.measure.adapters.kafka_bridge import Bridge
        from penstock_bench.measure.adapters.kafka_client import ends_of, make_topics

        bootstrap = self._bootstrap
        if bootstrap == OWN:
            self._broker = KafkaBroker(directory=run / "kafka")
            self._broker.start()
            bootstrap = self._broker.bootstrap
        wanted = {topic: self._whole("partitions", 1) for topic in self._streams.values()}
        wanted |= {topic: len(self._takers(name)) for name, topic in self._queries.items()}
        there = make_topics(bootstrap, wanted)
        positions = ends_of(bootstrap, there)
        place: dict[str, Scalar] = {
            "bootstrap": bootstrap,
            "positions": json.dumps([[topic, part, offset] for (topic, part), offset in positions.items()]),
            "clock_offset_ns": RunDirectory(run).clock().offset_ns,
        }
        if self._ours:
            options = {name: value for name, value in self.setup.system.options.items() if name in Embedded.options}
            engine_setup = self.setup.model_copy(update={"system": System(adapter="embedded", options=options)})
            engine = Embedded(engine_setup).engine()
            streams = {topic: (name, self._event_types(name)) for name, topic in self._streams.items()}
            self._bridge = Bridge(engine_setup, run, engine, self._format, bootstrap)
            self._bridge.begin(_of(positions, streams), streams, self._queries, there)
        return place

    def finish(self) -> None:
        if self._bridge is not None:
            self._bridge.finish()
        else:
            self._wait_until_idle()

    def end(self) -> None:
        if self._bridge is not None:
            self._bridge.end()
        if self._broker is not None:
            self._broker.stop()

    def progress(self) -> dict[str, Any]:
        return {} if self._bridge is None else self._bridge.progress()

    def sender(self, place: Mapping[str, Scalar], driver: str) -> Sender:
        parts = {topic: len(_of(_positions(place), [topic])) for topic in self._streams.values()}
        return _Sender(str(place["bootstrap"]), driver, self._streams, self._format, self._key, parts, self._ours)

    def receiver(self, place: Mapping[str, Scalar], sink: str) -> Receiver:
        mine: Positions = {}
        for query, topic in self._queries.items():
            takers = self._takers(query)
            for (name, part), offset in _of(_positions(place), [topic]).items():
                if takers[part % len(takers)] == sink:
                    mine[name, part] = offset
        readers = self._readers()
        by_topic = {topic: (query, readers[query]) for query, topic in self._queries.items()}
        clock = Clock(int(place["clock_offset_ns"]))
        return _Receiver(str(place["bootstrap"]), mine, by_topic, clock, self._ours)

    def _readers(self) -> dict[str, _Reader]:
        """How the results of each query are read: with the types that Penstock plans, or as they look."""
        if not self._ours:
            loose = ["window_start", "window_end", *(stream.time for stream in self.setup.streams.values())]
            return {
                name: LooseResults(self._format, [*loose, query.cause or ""])
                for name, query in self.setup.queries.items()
            }
        text = program(self.setup, dict.fromkeys(self.setup.tables, ""))
        planned = {query.name.lower(): build_plan(query.body).schema.arrow for query in parse(text).queries}
        return {name: _PlannedResults(self._format, planned[name.lower()]) for name in self.setup.queries}

    def _event_types(self, stream: str) -> dict[str, pa.DataType]:
        return {name: kind.arrow for name, kind in self.setup.streams[stream].columns.items()}

    def _takers(self, query: str) -> list[str]:
        """The copies of sinks that take a query's results."""
        return [
            f"{sink.name}-{copy}"
            for sink in self.setup.sinks
            if query in (sink.queries or self.setup.queries)
            for copy in range(sink.copies)
        ]

    def _wait_until_idle(self) -> None:
        from penstock_bench.measure.adapters.kafka_client import ends_of, make_topics

        idle = float(self.option("idle", 5.0))
        there = make_topics(self._bootstrap, dict.fromkeys(self._queries.values(), 1))
        seen, since = ends_of(self._bootstrap, there), time.monotonic()
        while time.monotonic() - since < idle:
            time.sleep(_IDLE_POLL_SECONDS)
            now = ends_of(self._bootstrap, there)
            if now != seen:
                seen, since = now, time.monotonic()

    def _topics(self, option: str, default: str, names: Mapping[str, object]) -> dict[str, str]:
        pattern = str(self.option(option, default))
        topics = {name: pattern.replace("{name}", name.replace(" ", "_")) for name in names}
        for topic in topics.values():
            if not _LEGAL_TOPIC.fullmatch(topic):
                raise InputError(
                    f"system.options.{option} = '{pattern}': '{topic}' is no topic name; letters, digits, '.', '_' and"
                    " '-' are allowed"
                )
        if len(set(topics.values())) < len(topics):
            raise InputError(f"system.options.{option} = '{pattern}': all have the same topic; put {{name}} into it")
        return topics

    def _one_of(self, option: str, default: str, allowed: tuple[str, ...]) -> str:
        value = str(self.option(option, default))
        if value not in allowed:
            known = ", ".join(f"'{one}'" for one in allowed if one)
            raise InputError(f"system.options.{option} = '{value}': is none of {known}")
        return value

    def _whole(self, option: str, default: int) -> int:
        value = self.option(option, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"system.options.{option} = {value!r}: must be a whole number above 0")
        return value


class _PlannedResults:
    def __init__(self, form: str, schema: pa.Schema) -> None:
        self._form = form
        self._known = {field.name: field.type for field in schema}

    def read(self, values: list[bytes]) -> pa.RecordBatch:
        return decode(values, self._form, self._known, others=False)


_Reader = LooseResults | _PlannedResults


class _Sender(Sender):
    def __init__(
        self,
        bootstrap: str,
        driver: str,
        topics: Mapping[str, str],
        form: str,
        key: str | None,
        partitions: Mapping[str, int],
        marks_end: bool,
    ) -> None:
        from penstock_bench.measure.adapters.kafka_client import Publisher

        self._publisher = Publisher(bootstrap)
        self._driver = driver
        self._topics = topics
        self._form = form
        self._key = key
        self._partitions = partitions
        self._marks_end = marks_end

    def send(self, stream: str, batch: pa.RecordBatch) -> None:
        self._publisher.publish(self._topics[stream], encode(batch, self._form, self._key))

    def close(self) -> None:
        if self._marks_end:
            for topic, partitions in self._partitions.items():
                self._publisher.end(topic, partitions, self._driver)
        self._publisher.close()


class _Receiver(Receiver):
    def __init__(
        self,
        bootstrap: str,
        positions: Positions,
        topics: Mapping[str, tuple[str, _Reader]],
        clock: Clock,
        awaits_marks: bool,
    ) -> None:
        from penstock_bench.measure.adapters.kafka_client import Subscriber

        self._subscriber = Subscriber(bootstrap, positions)
        self._open = len(positions)
        self._topics = topics
        self._clock = clock
        self._awaits_marks = awaits_marks

    def __iter__(self) -> Iterator[Results | None]:
        from penstock_bench.measure.adapters.kafka_client import by_topic, end_marks

        while self._open:
            messages = self._subscriber.take(_TAKEN_AT_ONCE, _QUIET_SECONDS)
            arrived = self._clock.ns()
            if not messages:
                yield None
            for topic, values in by_topic(messages).items():
                query, reader = self._topics[topic]
                yield Results(query, reader.read(values), arrived)
            if self._awaits_marks:
                self._open -= len(end_marks(messages))

    def close(self) -> None:
        self._subscriber.close()


def _positions(place: Mapping[str, Scalar]) -> Positions:
    return {(topic, part): offset for topic, part, offset in json.loads(str(place["positions"]))}


def _of(positions: Positions, topics: Mapping[str, object] | list[str]) -> Positions:
    return {(topic, part): offset for (topic, part), offset in positions.items() if topic in topics}
