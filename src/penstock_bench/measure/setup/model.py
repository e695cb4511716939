"""The model of a setup. `docs/setup-files.md` describes every field; the descriptions are those given here.

All times are microseconds. A driver stamps every event with its scheduled time (the stream's `time` column), in
microseconds since the epoch; driver copy k of all n copies in a setup uses times that are k modulo n, so that a
time tells which copy sent the event: this is how a result's cause is found without a field of ours in the events.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from penstock.types import Field as Column
from penstock.types import Schema, SqlType
from penstock_bench.measure.setup.durations import Duration
from penstock_bench.measure.setup.generators import Generator, Scalar
from penstock_bench.measure.setup.strict import Strict

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_\- ]*$", max_length=100)]
"""Names become names of files."""

MOST = 10**15
"""Events of a phase, and events a second."""
LEAST_RATE = 1e-6
"""Events a second; the times of fewer soon are beyond any clock."""
MOST_COPIES = 1_000
"""Processes; a misprint would bring the machine down otherwise."""


def _sql_type(value: object) -> object:
    if isinstance(value, str):
        known = [kind for kind in SqlType if kind not in (SqlType.NULL, SqlType.INTERVAL)]
        found = next((kind for kind in known if kind.value == value.upper()), None)
        if found is None:
            raise ValueError(f"'{value}' is no type; there are {', '.join(kind.value for kind in known)}")
        return found
    return value


ColumnType = Annotated[SqlType, BeforeValidator(_sql_type)]


class Stream(Strict):
    """A stream of events; `time` is the column that drivers fill with the scheduled time."""

    columns: Mapping[str, ColumnType] = Field(min_length=1, description="names and SQL types, in order")
    time: str = Field("ts", description="the TIMESTAMP column that holds the event's (scheduled) time")
    lateness: Duration = Field(0, description="how far out of order events may come; needed with several drivers")

    @model_validator(mode="after")
    def _has_time(self) -> Stream:
        if self.columns.get(self.time) is not SqlType.TIMESTAMP:
            raise ValueError(f"time = '{self.time}' must name a TIMESTAMP column")
        return self

    @property
    def schema_(self) -> Schema:
        return Schema(tuple(Column(name, kind, name != self.time) for name, kind in self.columns.items()))


class Table(Strict):
    """A table that is filled before the run with made rows; its columns are made like fields of events."""

    columns: Mapping[str, ColumnType] = Field(min_length=1, description="names and SQL types, in order")
    key: str = Field(description="the column that rows are found by")
    rows: int = Field(ge=0, description="how many")
    fields: Mapping[str, Generator] = Field(description="how each column is made")
    where: Literal["memory", "postgresql"] = Field("memory", description="in the system, or in a database beside it")


class Arrivals(StrEnum):
    DETERMINISTIC = "deterministic"
    POISSON = "poisson"


def _rate(value: object) -> object:
    if value == "max":
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and (value == 0 or LEAST_RATE <= value <= MOST):
        return value
    raise ValueError(f"{value!r} is no rate; write events a second, 0 or {LEAST_RATE:g} to {MOST:g}, or 'max'")


Rate = Annotated[float | Literal["max"], BeforeValidator(_rate)]


class Phase(Strict):
    """A part of a driver's work: for `duration`, or until `events` are sent; with `rate = "max"` both may be given, and
    whichever comes first ends it.

    The rate goes evenly from `rate` to `end_rate`. `rate = "max"` sends as fast as the system accepts (a closed
    loop, to find what it can take); the events' times then run at `event_rate` events a second of event time.
    """

    name: str = Field("load", description="steady, peak and recovery have a meaning for adaptivity")
    duration: Duration | None = Field(None, description="how long; or give events, or both with rate = 'max'")
    events: int | None = Field(None, ge=0, le=MOST, description="how many; or give duration, or both with rate = 'max'")
    rate: Rate = Field(description="events a second at its beginning, or 'max'")
    end_rate: float | None = Field(None, ge=0, le=MOST, description="by default the rate stays")
    event_rate: float | None = Field(
        None, ge=LEAST_RATE, le=MOST, description="with rate = 'max': events in a second of event time"
    )
    arrivals: Arrivals = Field(Arrivals.DETERMINISTIC, description="evenly spaced, or a Poisson process")
    seed: int = Field(0, description="equal seeds give equal events and times")
    mix: Mapping[str, Annotated[float, Field(ge=0)]] | None = Field(
        None, description="the streams and their shares of the events; by default all streams of `fields`, equally"
    )
    measured: bool = Field(True, description="a warm-up says false: its events and results are not measured")


class Pace(StrEnum):
    RECORDED = "recorded"
    FIXED = "fixed"
    MAX = "max"


class Replay(Strict):
    """Events from a file instead of made ones."""

    file: Path = Field(description="beside the setup, if the path is relative")
    format: Literal["csv", "parquet", "jsonl"] | None = Field(None, description="by default by the file's name")
    stream: str | None = Field(None, description="the stream of all records; or give type_column")
    type_column: str | None = Field(None, description="the column that names each record's stream")
    time_column: str | None = Field(None, description="the column with the record's time, if there is one")
    time_unit: Literal["s", "ms", "us", "ns"] = Field("us", description="of a time column that is a number")
    delimiter: str = Field(",", min_length=1, max_length=1, description="of a CSV file")
    pace: Pace = Field(Pace.RECORDED, description="at the records' own times, at a fixed rate, or as fast as can be")
    speed: float = Field(1.0, gt=0, description="with pace = 'recorded': 10 is ten times as fast")
    rate: float | None = Field(None, ge=LEAST_RATE, le=MOST, description="with pace = 'fixed': events a second")
    keep_times: bool = Field(False, description="send the recorded times instead of the scheduled ones")
    repeat: int = Field(1, ge=1, description="how often the file is sent")

    @model_validator(mode="after")
    def _fits(self) -> Replay:
        if (self.stream is None) == (self.type_column is None):
            raise ValueError("give either stream = '…' for all records or type_column = '…', the one that names it")
        if self.pace is Pace.RECORDED and self.time_column is None:
            raise ValueError("pace = 'recorded' needs time_column; or give pace = 'fixed' and a rate")
        if (self.pace is Pace.FIXED) != (self.rate is not None):
            raise ValueError("pace = 'fixed' and rate belong together")
        if self.keep_times and self.time_column is None:
            raise ValueError("keep_times needs time_column")
        return self


class Driver(Strict):
    """A source of events: phases of made events, or a replay. `copies` share its rates evenly, each a process."""

    name: Name = Field(description="in logs and reports")
    copies: int = Field(1, ge=1, le=MOST_COPIES, description="processes that share the work")
    fields: Mapping[str, Mapping[str, Generator]] = Field(
        default_factory=dict, description="for each stream, how each column but its time is made"
    )
    phases: tuple[Phase, ...] = Field((), description="what it does, one after the other; or give a replay")
    replay: Replay | None = Field(None, description="a file of events instead of phases")

    @property
    def length_us(self) -> int | None:
        """How long its phases take; None if that is not known before."""
        if not self.phases or any(phase.duration is None or phase.events is not None for phase in self.phases):
            return None
        return sum(phase.duration or 0 for phase in self.phases)

    @model_validator(mode="after")
    def _one_way(self) -> Driver:
        if bool(self.phases) == (self.replay is not None):
            raise ValueError("a driver has phases or a replay, one of them")
        return self


class Sink(Strict):
    """Takes results; `copies` share them, each a process."""

    name: Name = Field(description="in logs and reports")
    copies: int = Field(1, ge=1, le=MOST_COPIES, description="processes that share the work")
    queries: tuple[str, ...] = Field((), description="by default all")


class Query(Strict):
    """One question, in the words of each system: `penstock`, `spark`, `flink`, `esper`, …"""

    text: Mapping[str, str] = Field(min_length=1, description="the query in each dialect")
    cause: str | None = Field(
        None,
        description="the result's column with the time of the event that caused it; by default window_end,"
        " or the time column of a stream",
    )


class System(Strict):
    """The system under test: the adapter and what it is told (its page lists its options)."""

    adapter: str = Field("embedded", description="see [adapters](adapters.md)")
    options: Mapping[str, Scalar] = Field(default_factory=dict, description="the adapter's own")
    others: Mapping[str, Mapping[str, Scalar]] = Field(
        default_factory=dict, description="options of other adapters, each by its name, for `--adapter`"
    )


class LatencyMode(StrEnum):
    END_TO_END = "end-to-end"
    ADAPTER = "adapter"
    SCHEDULED = "scheduled"


class Measuring(Strict):
    """What is measured, how finely, and what is kept."""

    latency: LatencyMode = Field(
        LatencyMode.SCHEDULED, description="from the driver's send, inside the adapter, or from the scheduled time"
    )
    resolution: Literal["ms", "ns"] = Field("ns", description="drivers and sinks on several machines need ms")
    sample: float = Field(1.0, ge=0, le=1, description="the share of results whose latency is taken")
    log: bool = Field(True, description="keep every sample as Parquet; without it there are only histograms")
    answers: bool = Field(False, description="keep the results themselves, for validation")
    resources: Duration = Field(500_000, description="time between looks at CPU, memory and disk")
    linger: Duration = Field(1_000, description="a driver sends what is due at most this often")
    patience: Duration = Field(
        120_000_000,
        description="a run has failed if a driver could send nothing for so long, or if the system still has not worked"
        " off the rest so long after the last event",
    )


class Series(Strict):
    """Runs that belong together: `penstock bench sweep` makes one for each combination of the values in `vary`."""

    name: Name = Field(description="in the table and the report")
    vary: Mapping[str, tuple[Scalar, ...]] = Field(min_length=1, description="values of parameters, or of 'adapter'")
    fixed: Mapping[str, Scalar] = Field(default_factory=dict, description="other parameters that differ in this series")
    quick: Mapping[str, tuple[Scalar, ...]] = Field(
        default_factory=dict, description="fewer values for --quick; what is not here has all of them"
    )


class Setup(Strict):
    """A whole run."""

    name: Name = Field(description="in reports")
    description: str = Field("", description="what it asks")
    parameters: Mapping[str, Scalar] = Field(default_factory=dict, description="names and values for `${…}`")
    quick: Mapping[str, Scalar] = Field(default_factory=dict, description="parameters of a short run, with --quick")
    series: tuple[Series, ...] = Field((), description="what a sweep varies when it is not told")
    streams: Mapping[Name, Stream] = Field(min_length=1, description="what drivers send")
    tables: Mapping[Name, Table] = Field(default_factory=dict, description="what queries look up")
    drivers: tuple[Driver, ...] = Field(description="the processes that send")
    sinks: tuple[Sink, ...] = Field(
        (Sink(name="sink"),), description="the processes that take results; by default one takes all"
    )
    queries: Mapping[Name, Query] = Field(min_length=1, description="what is asked")
    system: System = Field(System(), description="the system under test")
    measuring: Measuring = Field(Measuring(), description="what is measured and kept")

    @property
    def times_are_due(self) -> bool:
        """Whether every event has the time at which it is due: not in a closed loop, whose times run ahead, nor after
        one, nor in a replay that keeps its recorded times."""
        return not any(
            any(phase.rate == "max" for phase in driver.phases)
            or (driver.replay is not None and (driver.replay.keep_times or driver.replay.pace is Pace.MAX))
            for driver in self.drivers
        )
