"""The workloads and queries of the RS-Algo paper (TR 601, Section 4).

    D  statistics of a host, large events (50 KB in the paper; here `payload` characters, 0 if not said)
    R  requests, small; row i has id i
    M  a further stream of small events

    case 1, async       D 50 events/s, R 1/s
    case 2, sync        D 50 events/s, R 50/s
    case 3, variable    D 10 events/s, R alternates every 10 s between 10/s and 1/s

M has 10 events/s throughout; the paper does not say. Each D and each M belongs to one R whose time differs from its
own by a skew that is spread evenly over ±10 s, the time that the paper's windows of 500 events hold at 50 events/s.

`generate:rate-sizing-d?case=3&seconds=180&seed=1&payload=0`, likewise `rate-sizing-r` and `rate-sizing-m`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.connect.generate import Generator, Parameters

SECOND = 1_000_000
WINDOW = 10 * SECOND
STREAMS = ("d", "r", "m")

DECLARATIONS = """
CREATE STREAM d (t TIMESTAMP NOT NULL, id INT NOT NULL, payload STRING, EVENT TIME t);
CREATE STREAM r (t TIMESTAMP NOT NULL, id INT NOT NULL, EVENT TIME t);
CREATE STREAM m (t TIMESTAMP NOT NULL, id INT NOT NULL, EVENT TIME t);
"""

_Times = NDArray[np.int64]
_ALTERNATING = 3
_RATES = {1: (50, 1), 2: (50, 50), _ALTERNATING: (10, 10)}
_M_RATE = 10


def configured_size(case: int) -> int:
    """The count that a window of fixed size needs for the fastest stream."""
    return max(_RATES[case]) * WINDOW // SECOND


def q3(window: str) -> str:
    """Q3-simple: a join, and a selection of the pairs that match."""
    return f"""CREATE QUERY q3 AS
        SELECT d.id AS id, d.t AS d_time, r.t AS r_time, d.payload AS payload
        FROM d {window} AS d, r {window} AS r WHERE d.id = r.id;"""


def q4(window: str) -> str:
    """Q4-complex: the pairs <M, R> of a first join go on to a second one, with D. The windows of the first see streams
    as they come in, the second sees the first one's results."""
    return f"""INSERT INTO mr SELECT r.id AS id, m.t AS m_time FROM m {window} AS m, r {window} AS r WHERE m.id = r.id;
        CREATE QUERY q4 AS
        SELECT d.id AS id, d.t AS d_time, mr.m_time AS m_time, d.payload AS payload
        FROM d {window} AS d, mr {window} AS mr WHERE d.id = mr.id;"""


@dataclass(frozen=True)
class Workload:
    case: int
    seconds: int = 180
    seed: int = 1
    start: int = 0
    payload: int = 0

    def events(self, stream: str) -> pa.RecordBatch:
        """All events of a stream, in order."""
        times = self._times(stream)
        if stream == "r":
            ids = np.arange(len(times), dtype=np.int32)
        else:
            skew = self._random(stream).uniform(-WINDOW, WINDOW, len(times)).astype(np.int64)
            ids = np.maximum(np.searchsorted(self._times("r"), times + skew, side="right") - 1, 0).astype(np.int32)
        columns = {"t": pa.array(self.start + times).cast(pa.timestamp("us", tz="UTC")), "id": pa.array(ids)}
        if stream == "d":
            columns["payload"] = pa.array([f"{row:08d}".ljust(self.payload, "x") for row in range(len(times))])
        return pa.RecordBatch.from_pydict(columns)

    def _random(self, stream: str) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[self.seed, STREAMS.index(stream)]))

    def _times(self, stream: str) -> _Times:
        if stream == "r" and self.case == _ALTERNATING:
            return np.concatenate(
                [second * SECOND + _evenly(10 if second // 10 % 2 == 0 else 1, 1) for second in range(self.seconds)]
            )
        d_rate, r_rate = _RATES[self.case]
        return _evenly({"d": d_rate, "r": r_rate, "m": _M_RATE}[stream], self.seconds)


def _evenly(rate: int, seconds: int) -> _Times:
    return np.arange(rate * seconds, dtype=np.int64) * SECOND // rate


class _Generated:
    """A stream of a workload, for `generate:`."""

    def __init__(self, workload: Workload, stream: str) -> None:
        self._events = workload.events(stream)

    @property
    def schema(self) -> pa.Schema:
        return self._events.schema

    @property
    def rows(self) -> int:
        return int(self._events.num_rows)

    def batch(self, start: int, count: int, columns: Sequence[str]) -> pa.RecordBatch:
        return self._events.select(list(columns)).slice(start, count)


def factory(stream: str) -> Callable[[Parameters], Generator]:
    def from_parameters(parameters: Parameters) -> Generator:
        workload = Workload(
            min(parameters.integer("case", 1, least=1), _ALTERNATING),
            seconds=parameters.integer("seconds", 180, least=1),
            seed=parameters.integer("seed", 1),
            start=parameters.time("start", datetime(2024, 1, 1)),
            payload=parameters.integer("payload", 0),
        )
        return _Generated(workload, stream)

    return from_parameters
