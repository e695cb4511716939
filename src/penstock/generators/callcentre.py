"""The call-centre stream of the SlideM paper: each step of each interaction between agents and customers.

The 23 columns are those of the paper's Figure 12; `timestamp` is the event time, `start` microseconds since the epoch,
all durations are milliseconds. The 144 KPIs of the paper are COUNT, SUM and AVG of `FIELDS` by each of `GROUP_KEYS`.

How many different values the keys take (20 sites and 12,000 agents are the paper's; the others are ours, such that the
eight groupings have 10,000 groups on average, and at 1,000 events a second about 1,000 of them in 10 seconds, which
are the paper's, too):

    instance              4    a site belongs to one instance
    serviceId           200    a few services get most of the calls
    agentId          12,000    an agent works at one site
    interactionLegId 67,748    ten events, among those of 15 others; numbers begin again when they are used up
    mediaId               5    voice, chat, mail, video, messages
    direction             3    in, out, internal
    agentSite            20
    callSite             20    mostly the agent's own
                     80,000    groups together

`generate:callcentre?rate=1000&seconds=86400&seed=1&start=2024-01-01T00:00:00`; seconds=0 goes on without end.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.connect.generate import Parameters
from penstock.expressions.vector import Vector, to_arrow
from penstock.generators.chunks import CHUNK_ROWS, ChunkedGenerator, Rows, event_times, random_source
from penstock.types import Field, Schema, SqlType

STREAM = "AgentInteractions"
FIELDS = ("alertingTime", "busyTime", "wrapUpTime", "waitTime", "helpTime", "availableTime")
GROUP_KEYS = (
    "instance",
    "serviceId",
    "agentId",
    "mediaId",
    "interactionLegId",
    "agentSite",
    "callSite",
    "direction",
)
SITES, AGENTS, SERVICES, INSTANCES, LEGS, MEDIA, DIRECTIONS = 20, 12_000, 200, 4, 67_748, 5, 3
LEG_EVENTS = 10
_OPEN_LEGS = 16

_COLUMNS: tuple[tuple[str, SqlType], ...] = (
    ("timestamp", SqlType.TIMESTAMP),
    ("instance", SqlType.INT),
    ("start", SqlType.BIGINT),
    ("sessionId", SqlType.INT),
    ("serviceId", SqlType.INT),
    ("agentId", SqlType.INT),
    ("interactionLegId", SqlType.INT),
    ("alertingTime", SqlType.INT),
    ("busyTime", SqlType.INT),
    ("wrapUpTime", SqlType.INT),
    ("waitTime", SqlType.INT),
    ("direction", SqlType.INT),
    ("mediaId", SqlType.INT),
    ("helpTime", SqlType.INT),
    ("agentReleased", SqlType.BOOLEAN),
    ("mediaOutcome", SqlType.INT),
    ("finalSegment", SqlType.BOOLEAN),
    ("agentSite", SqlType.INT),
    ("callSite", SqlType.INT),
    ("availableTime", SqlType.INT),
    ("availableTimeByService", SqlType.INT),
    ("held", SqlType.INT),
    ("help", SqlType.INT),
)

_MEAN_MILLISECONDS = {
    "alertingTime": 6_000,
    "busyTime": 180_000,
    "wrapUpTime": 30_000,
    "waitTime": 45_000,
    "helpTime": 2_000,
    "availableTime": 60_000,
    "availableTimeByService": 20_000,
}

Ints = NDArray[np.int64]


def schema() -> Schema:
    return Schema(tuple(Field(name, kind, nullable=name != "timestamp") for name, kind in _COLUMNS))


def from_parameters(parameters: Parameters) -> ChunkedGenerator:
    return generator(
        rate=parameters.integer("rate", 1000, least=1),
        seconds=parameters.integer("seconds", 86_400),
        seed=parameters.integer("seed", 1),
        start=parameters.time("start", datetime(2024, 1, 1)),
    )


def generator(*, rate: int, seconds: int, seed: int, start: int) -> ChunkedGenerator:
    """`start` in microseconds since the epoch; `seconds` 0: without end."""
    draws = _Draws(seed)
    makers: dict[str, Callable[[int, Rows], Any]] = {
        "timestamp": lambda chunk, rows: event_times(start, rate, rows),
        "instance": lambda chunk, rows: draws.agents(chunk) % SITES % INSTANCES,
        "start": lambda chunk, rows: event_times(start, rate, rows) - draws.milliseconds("busyTime", chunk) * 1000,
        "sessionId": lambda chunk, rows: rows // 3 % (1 << 31),
        "serviceId": lambda chunk, rows: _skewed(draws.uniform("serviceId", chunk), SERVICES, 2.0),
        "agentId": lambda chunk, rows: draws.agents(chunk),
        "interactionLegId": lambda chunk, rows: _legs(rows),
        "direction": lambda chunk, rows: _skewed(draws.uniform("direction", chunk), DIRECTIONS, 2.0),
        "mediaId": lambda chunk, rows: _skewed(draws.uniform("mediaId", chunk), MEDIA, 2.0),
        "agentReleased": lambda chunk, rows: draws.uniform("agentReleased", chunk) < 0.3,
        "mediaOutcome": lambda chunk, rows: _skewed(draws.uniform("mediaOutcome", chunk), 8, 2.0),
        "finalSegment": lambda chunk, rows: rows % 3 == 2,
        "agentSite": lambda chunk, rows: draws.agents(chunk) % SITES,
        "callSite": lambda chunk, rows: draws.call_sites(chunk),
        "held": lambda chunk, rows: _skewed(draws.uniform("held", chunk), 4, 4.0),
        "help": lambda chunk, rows: _skewed(draws.uniform("help", chunk), 3, 6.0),
    }

    def durations(name: str) -> Callable[[int, Rows], Any]:
        return lambda chunk, rows: draws.milliseconds(name, chunk)

    def as_array(make: Callable[[int, Rows], Any], kind: SqlType) -> Callable[[int, Rows], pa.Array]:
        return lambda chunk, rows: to_arrow(Vector(make(chunk, rows), None), kind, len(rows))

    makers |= {name: durations(name) for name in _MEAN_MILLISECONDS}
    arrays = {name: as_array(makers[name], kind) for name, kind in _COLUMNS}
    return ChunkedGenerator(schema(), rate * seconds or None, arrays)


class _Draws:
    """The random numbers behind the columns, each from a source of its own."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._places = {name: i for i, (name, _) in enumerate(_COLUMNS)}

    def uniform(self, name: str, chunk: int) -> NDArray[np.float64]:
        return random_source(self._seed, self._places[name], chunk).random(CHUNK_ROWS)

    def milliseconds(self, name: str, chunk: int) -> Ints:
        drawn = random_source(self._seed, self._places[name], chunk).standard_exponential(CHUNK_ROWS)
        return (drawn * _MEAN_MILLISECONDS[name]).astype(np.int64)

    def agents(self, chunk: int) -> Ints:
        return _skewed(self.uniform("agentId", chunk), AGENTS, 1.0)

    def call_sites(self, chunk: int) -> Ints:
        """Nine calls of ten come in where the agent sits."""
        drawn = self.uniform("callSite", chunk)
        elsewhere = (drawn * 10 * SITES).astype(np.int64) % SITES
        return np.where(drawn < 0.9, self.agents(chunk) % SITES, elsewhere)


def _legs(rows: Rows) -> Ints:
    """Legs follow each other, some of them at a time."""
    return (rows // (_OPEN_LEGS * LEG_EVENTS) * _OPEN_LEGS + rows % _OPEN_LEGS) % LEGS


def _skewed(uniform: NDArray[np.float64], values: int, power: float) -> Ints:
    """Whole numbers 0..values-1; the greater the power, the more often the small ones."""
    return (uniform**power * values).astype(np.int64)
