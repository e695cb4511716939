"""What must hold between the parts of a setup: names that exist, columns that are made, phases that end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from penstock.types import SqlType
from penstock_bench.measure.setup.generators import (
    Constant,
    Generator,
    Listed,
    Normal,
    RandomWalk,
    Scalar,
    Uniform,
    Zipf,
)
from penstock_bench.measure.setup.model import Driver, Phase, Setup


def mistakes(setup: Setup) -> list[str]:
    """Everything that is wrong, each with its place and what to write instead; empty if the setup can be run."""
    return [*_names(setup), *_parameters(setup), *_tables(setup), *_drivers(setup), *_fed(setup), *_sinks(setup)]


def _names(setup: Setup) -> Iterator[str]:
    for kind, names in (("drivers", [d.name for d in setup.drivers]), ("sinks", [s.name for s in setup.sinks])):
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{kind}: two have the name '{name}'"
    for name in sorted(set(setup.streams) & set(setup.tables)):
        yield f"tables.{name}: a stream has that name"


def _parameters(setup: Setup) -> Iterator[str]:
    used: list[tuple[str, Iterable[str]]] = [("quick", setup.quick)]
    for place, series in enumerate(setup.series):
        path = f"series[{place}]"
        used += [(f"{path}.vary", series.vary), (f"{path}.fixed", series.fixed)]
        for name in series.quick:
            if name not in series.vary:
                yield f"{path}.quick.{name}: is not varied; there are {_listed(series.vary)}"
    for path, names in used:
        for name in names:
            if name not in setup.parameters and name != "adapter":
                yield f"{path}.{name}: there is no such parameter; there are {_listed(setup.parameters)}"


def _tables(setup: Setup) -> Iterator[str]:
    for name, table in setup.tables.items():
        if table.key not in table.columns:
            yield f"tables.{name}.key: there is no column '{table.key}'; there are {_listed(table.columns)}"
        yield from _made(f"tables.{name}.fields", table.columns, table.fields)


def _drivers(setup: Setup) -> Iterator[str]:
    if not setup.drivers:
        yield "drivers: there are none; begin one with [[drivers]]"
    for place, driver in enumerate(setup.drivers):
        path = f"drivers[{place}]"
        for name, fields in driver.fields.items():
            stream = setup.streams.get(name)
            if stream is None:
                yield f"{path}.fields.{name}: there is no stream '{name}'; there are {_listed(setup.streams)}"
            else:
                made = {column: kind for column, kind in stream.columns.items() if column != stream.time}
                yield from _made(f"{path}.fields.{name}", made, fields)
        for number, phase in enumerate(driver.phases):
            yield from _phase(f"{path}.phases[{number}]", driver, phase)
        replay = driver.replay
        if replay is not None:
            if replay.stream is not None and replay.stream not in setup.streams:
                yield f"{path}.replay.stream: there is no stream '{replay.stream}'; there are {_listed(setup.streams)}"
            if not os.path.isfile(replay.file):  # False as well for what no file system takes as a path
                yield f"{path}.replay.file: there is no file {replay.file}"
            if driver.copies > 1:
                yield f"{path}.copies: a replay has one copy; give each part of the data a driver of its own"


def _phase(path: str, driver: Driver, phase: Phase) -> Iterator[str]:
    if phase.duration is None and phase.events is None:
        yield f"{path}: a phase ends after a duration or after a number of events: give one of them"
    if phase.duration is not None and phase.events is not None and phase.rate != "max":
        yield f"{path}: only with rate = 'max' can a phase have both, a duration and a number of events: give one"
    if phase.rate == "max":
        if phase.event_rate is None:
            yield f"{path}.event_rate: rate = 'max' needs it: how many events a second of event time has"
        if phase.end_rate is not None:
            yield f"{path}.end_rate: has no meaning with rate = 'max'"
    else:
        if phase.event_rate is not None:
            yield f"{path}.event_rate: is for rate = 'max'; at a given rate events have their scheduled times"
        if phase.end_rate is not None and phase.duration is None:
            yield f"{path}.end_rate: a rate that changes needs a duration in which it does"
        if phase.events and phase.rate == 0:
            yield f"{path}.rate: {phase.events:,} events never come at rate 0"
    if not driver.fields:
        yield f"{path}: the driver has no fields: say how events are made, [drivers.fields.STREAM]"
    mix = phase.mix if phase.mix is not None else dict.fromkeys(driver.fields, 1.0)
    for name in sorted(set(mix) - set(driver.fields)):
        yield f"{path}.mix.{name}: the driver makes no such events; it has fields for {_listed(driver.fields)}"
    if driver.fields and sum(mix.values()) <= 0:
        yield f"{path}.mix: some stream must have a share above 0"


def _fed(setup: Setup) -> Iterator[str]:
    copies = dict.fromkeys(setup.streams, 0)
    for driver in setup.drivers:
        replay = driver.replay
        # Which streams the records of a type column name is known only when they are read.
        named = [*driver.fields] if replay is None else [*setup.streams] if replay.stream is None else [replay.stream]
        for name in named:
            if name in copies:
                copies[name] += driver.copies
    for name, count in copies.items():
        if count == 0:
            yield f"streams.{name}: no driver sends it"
        elif count > 1 and setup.streams[name].lateness == 0:
            yield (
                f"streams.{name}.lateness: {count} drivers send it side by side, so that events come a little out of"
                " order: say by how much at most, as in lateness = '100 ms'"
            )


def _sinks(setup: Setup) -> Iterator[str]:
    taken: set[str] = set()
    for place, sink in enumerate(setup.sinks):
        for name in sink.queries:
            if name not in setup.queries:
                yield f"sinks[{place}].queries: there is no query '{name}'; there are {_listed(setup.queries)}"
        taken.update(sink.queries or setup.queries)
    for name in setup.queries:
        if name not in taken:
            yield f"queries.{name}: no sink takes its results"


def _made(path: str, columns: Mapping[str, SqlType], fields: Mapping[str, Generator]) -> Iterator[str]:
    for name in fields:
        if name not in columns:
            yield f"{path}.{name}: is no column that is made; there are {_listed(columns)}"
    for name, kind in columns.items():
        generator = fields.get(name)
        if generator is None:
            yield f"{path}.{name}: is missing: say how column '{name}' is made"
        else:
            wrong = _misfit(kind, generator)
            if wrong is not None:
                yield f"{path}.{name}: {wrong}"


_RANGES = {
    SqlType.TINYINT: (-(2**7), 2**7 - 1),
    SqlType.SMALLINT: (-(2**15), 2**15 - 1),
    SqlType.INT: (-(2**31), 2**31 - 1),
    SqlType.BIGINT: (-(2**63), 2**63 - 1),
}


def _misfit(kind: SqlType, generator: Generator) -> str | None:
    """Why a generator cannot make values of a type."""
    if isinstance(generator, (Constant, Listed)):
        values = (generator.value,) if isinstance(generator, Constant) else generator.values
        wrong = next((value for value in values if not _is_of(kind, value)), None)
        return None if wrong is None else f"{wrong!r} is no {kind}"
    if kind in (SqlType.BOOLEAN, SqlType.DATE):
        return f"generator '{generator.generator}' makes no {kind}; use 'constant' or 'list'"
    if kind is SqlType.STRING and isinstance(generator, (Normal, RandomWalk)):
        return f"generator '{generator.generator}' makes no STRING; use 'sequential', 'uniform', 'zipf', 'list'"
    ends: tuple[float, ...] = ()
    if isinstance(generator, Uniform):
        ends = (generator.min, generator.max)
    elif isinstance(generator, Zipf):
        ends = (generator.count,)
    least, most = _RANGES.get(kind, (float("-inf"), float("inf")))
    outside = next((end for end in ends if not least <= end <= most), None)
    return None if outside is None else f"{outside:g} does not fit into {kind}"


def _is_of(kind: SqlType, value: Scalar) -> bool:
    if kind is SqlType.BOOLEAN:
        return isinstance(value, bool)
    if kind in (SqlType.STRING, SqlType.DATE):
        return isinstance(value, str)
    if isinstance(value, (bool, str)):
        return kind is SqlType.TIMESTAMP and isinstance(value, str)
    if kind in _RANGES:
        least, most = _RANGES[kind]
        return float(value).is_integer() and least <= value <= most
    return True


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
