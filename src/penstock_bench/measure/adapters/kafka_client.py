"""Clients of a Kafka broker: one that publishes, one that subscribes, and what both do when the broker is gone.

librdkafka tries for ever to get back to a broker. In a run that is of no use: after `PATIENCE` seconds without one the
next call raises, and what has been measured so far is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from penstock.errors import InputError, PenstockError
from penstock_bench.measure.adapters.kafka_messages import END

PATIENCE = 5.0
_PROBE_SECONDS = 1.0
_QUEUED_MESSAGES = 200_000
_CLOSE_SECONDS = 30.0
_FULL_WAIT = 0.01


class _Watch:
    """Knows since when no broker can be reached."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._down_since: float | None = None

    def heard(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._down_since is None:
            self._down_since = time.monotonic()

    def look(self, client: Producer | Consumer) -> None:
        """Raises if the broker is gone for good; costs nothing while nothing is wrong."""
        if self._down_since is None:
            return
        try:
            client.list_topics(timeout=_PROBE_SECONDS)
        except KafkaException:
            if time.monotonic() - self._down_since > PATIENCE:
                raise gone(self._bootstrap) from None
        else:
            self._down_since = None


def gone(bootstrap: str) -> PenstockError:
    return PenstockError(f"the Kafka broker {bootstrap} is gone: it has not answered for {PATIENCE:.0f} s")


class Publisher:
    """Publishes each message once. A full queue to the broker makes the caller wait."""

    def __init__(self, bootstrap: str, linger_ms: float = 1.0) -> None:
        self._bootstrap = bootstrap
        self._watch = _Watch(bootstrap)
        self._failed: KafkaError | None = None
        self._producer = Producer(
            {
                **_common(bootstrap, self._watch),
                # A message that is sent again, because its confirmation was lost, is not there twice.
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "queue.buffering.max.messages": _QUEUED_MESSAGES,
                # A call back for every event would cost as much as sending it.
                "delivery.report.only.error": True,
            }
        )

    def publish(self, topic: str, messages: list[dict[str, Any]], partition: int = -1) -> None:
        while messages:
            queued = self._producer.produce_batch(topic, messages, partition, on_delivery=self._delivered)
            self._producer.poll(0)
            self._raise_failure()
            if queued < len(messages):
                messages = [_again(message) for message in messages if "_error" in message]
                self._producer.poll(_FULL_WAIT)
            else:
                return

    def end(self, topic: str, partitions: int, who: str) -> None:
        """Marks the end of what `who` publishes, in each partition."""
        for partition in range(partitions):
            self._producer.produce(topic, b"", partition=partition, headers={END: who}, on_delivery=self._delivered)

    def close(self) -> None:
        """Returns when the broker has everything."""
        until = time.monotonic() + _CLOSE_SECONDS
        while self._producer.flush(_PROBE_SECONDS):
            self._raise_failure()
            if time.monotonic() > until:
                raise gone(self._bootstrap)
        self._raise_failure()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = error

    def _raise_failure(self) -> None:
        self._watch.look(self._producer)
        if self._failed is not None:
            raise PenstockError(f"the Kafka broker {self._bootstrap} did not take an event: {self._failed.str()}")


class Subscriber:
    """Reads partitions from given offsets on. There is no consumer group: the setup decides what to read."""

    def __init__(self, bootstrap: str, positions: Mapping[tuple[str, int], int]) -> None:
        self._watch = _Watch(bootstrap)
        self._bootstrap = bootstrap
        self._consumer = Consumer(
            {
                **_common(bootstrap, self._watch),
                "group.id": "penstock",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
                "queued.min.messages": _QUEUED_MESSAGES,
            }
        )
        self._consumer.assign([TopicPartition(topic, part, offset) for (topic, part), offset in positions.items()])

    def take(self, most: int, seconds: float) -> list[Message]:
        """Messages that have come; none if none came for so many seconds."""
        # To take many with a time limit would wait for the limit, or for as many.
        first = self._consumer.poll(seconds)
        self._watch.look(self._consumer)
        found = [] if first is None else [first, *self._consumer.consume(most - 1, 0)]
        for message in found:
            error = message.error()
            if error is not None:
                raise PenstockError(f"topic '{message.topic()}' of {self._bootstrap}: {error.str()}")
        return found

    def close(self) -> None:
        self._consumer.close()


def reach(bootstrap: str) -> AdminClient:
    """The broker, or a clear word that it is not there."""
    admin = AdminClient(_common(bootstrap, _Watch(bootstrap)))
    try:
        admin.list_topics(timeout=PATIENCE)
    except KafkaException:
        raise InputError(
            f"system.options.bootstrap = '{bootstrap}': no Kafka broker answers there; start one with"
            " `python -m penstock_bench.measure.adapters.kafka_broker`,"
            " or let the run have its own with bootstrap = 'own'"
        ) from None
    return admin


def make_topics(bootstrap: str, wanted: Mapping[str, int]) -> dict[str, int]:
    """Topics with so many partitions each; those that are there stay as they are. Returns what there is."""
    admin = reach(bootstrap)
    there = admin.list_topics(timeout=PATIENCE).topics
    missing = [NewTopic(name, parts, 1) for name, parts in wanted.items() if name not in there]
    for name, made in admin.create_topics(missing).items() if missing else ():
        try:
            made.result(PATIENCE * 2)
        except KafkaException as error:
            raise InputError(f"topic '{name}' cannot be made: {error.args[0].str()}") from None
    return {name: len(there[name].partitions) if name in there else parts for name, parts in wanted.items()}


def ends_of(bootstrap: str, topics: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """The offset after the last message of each partition."""
    admin = reach(bootstrap)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(topic, part): latest for topic, parts in topics.items() for part in range(parts)}
    until = time.monotonic() + PATIENCE * 2
    while True:
        try:
            found = admin.list_offsets(wanted, request_timeout=PATIENCE)
            return {(place.topic, place.partition): end.result(PATIENCE).offset for place, end in found.items()}
        except (KafkaException, TimeoutError):
            # A topic that has just been made has no leader yet.
            if time.monotonic() > until:
                raise gone(bootstrap) from None
            time.sleep(_FULL_WAIT)


def by_topic(messages: Iterable[Message]) -> dict[str, list[bytes]]:
    """The values, but for end marks, which have none."""
    found: dict[str, list[bytes]] = {}
    for message in messages:
        value = message.value()
        if value:
            found.setdefault(str(message.topic()), []).append(value)
    return found


def end_marks(messages: Iterable[Message]) -> list[Message]:
    """Those that end something; there is hardly ever one, and only they have no value."""
    return [message for message in messages if not message.value() and END in dict(message.headers() or ())]


def _again(message: dict[str, Any]) -> dict[str, Any]:
    del message["_error"]
    return message


def _common(bootstrap: str, watch: _Watch) -> dict[str, Any]:
    # What it says of lost connections is said by us, once.
    return {"bootstrap.servers": bootstrap, "error_cb": watch.heard, "log_level": 0}
