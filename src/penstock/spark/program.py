"""What is to run: the streams and queries of a text, with the DataFrames that stand for the streams.

A stream is declared by CREATE STREAM in the text, or else derived from the schema of its DataFrame.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from penstock.aggregates.user import UserAggregate
from penstock.errors import InputError, QueryError
from penstock.lang import ProgramText
from penstock.lang import query as lang
from penstock.lang.catalog import Catalog
from penstock.lang.durations import LONGEST, duration
from penstock.lang.query import Query, StreamDef
from penstock.lang.stream_options import heartbeat_of
from penstock.lang.table_defs import TableWrite
from penstock.lang.table_options import is_database
from penstock.plan.build import build
from penstock.plan.chains import check_chains
from penstock.plan.nodes import Node
from penstock.plan.nodes import streams as streams_of
from penstock.plan.placement import follows_the_wall_clock
from penstock.spark.schema import schema_of
from penstock.types import Schema, SqlType


@dataclass(frozen=True)
class Program:
    """`parsed` is what the text declares. `streams` are those that some query reads; `nodes` are the logical plans of
    the queries by their names."""

    parsed: lang.Program
    streams: tuple[StreamDef, ...]
    nodes: Mapping[str, Node]

    @property
    def queries(self) -> tuple[Query, ...]:
        return self.parsed.queries

    @property
    def sinks(self) -> tuple[str, ...]:
        return tuple(sink.name for sink in self.parsed.sinks)


def read_program(
    text: str,
    frames: Mapping[str, DataFrame],
    aggregates: Iterable[UserAggregate] = (),
    *,
    event_time: str | None = None,
    lateness: str | int = 0,
    sequence: str | None = None,
    functions: Collection[str] = (),
) -> Program:
    """Parses and plans; refuses what does not run on Spark."""
    users = {aggregate.name.upper(): aggregate for aggregate in aggregates}
    read_text = ProgramText(text)
    in_text = read_text.declared_streams
    known = {name: schema_of(frame.schema) for name, frame in frames.items() if name.lower() not in in_text}
    parsed = read_text.bind(Catalog(known), users, functions)
    if not parsed.queries:
        raise QueryError("the text has no query", text, hint="add a SELECT")
    declared = {stream.name: stream for stream in parsed.streams}
    nodes = {query.name: build(query.body) for query in parsed.queries}
    check_chains((query, nodes[query.name]) for query in parsed.queries)
    read = set().union(*map(streams_of, nodes.values()))
    for name, schema in known.items():
        if name in read:
            time = _time_column(name, schema, event_time)
            declared[name] = StreamDef(name, schema, time, lateness=_micros(lateness), sequence=sequence)
    streams = tuple(stream for name, stream in declared.items() if name in read)
    _refuse(text, nodes, streams)
    behind = [table.name for table in parsed.tables if is_database(table.uri) and table.name in _written(parsed.writes)]
    if behind:
        raise QueryError(
            f"the table '{behind[0]}' in a database is not written on Spark: its parts would have to be written as one",
            text,
            hint="leave out its ON statements, or run it embedded: penstock run --engine embedded",
        )
    late = [query.name for query in parsed.queries if query.backfill]
    if late:
        raise QueryError(
            f"BACKFILL of query {late[0]} does not run on Spark: a query that comes later begins with the next events",
            text,
            hint="leave BACKFILL out, or run it embedded and add it with add_query",
        )
    return Program(parsed, streams, nodes)


def _written(writes: Iterable[TableWrite]) -> set[str]:
    return {write.table for write in writes}


def frame_of(stream: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    for given, frame in frames.items():
        if given.lower() == stream.lower():
            return frame
    raise InputError(f"no DataFrame was given for the stream '{stream}'; given were: {', '.join(frames) or 'none'}")


def _refuse(text: str, nodes: Mapping[str, Node], streams: tuple[StreamDef, ...]) -> None:
    embedded = "run it embedded: penstock run --engine embedded"
    if any(map(follows_the_wall_clock, nodes.values())):
        raise QueryError(
            "windows ON WALL CLOCK do not run on Spark: a micro-batch that is run again could not repeat its ticks",
            text,
            hint=f"leave ON WALL CLOCK out, or {embedded}",
        )
    arriving = [stream.name for stream in streams if stream.arrival]
    if arriving:
        raise QueryError(
            f"the ARRIVAL ORDER of stream '{arriving[0]}' does not run on Spark: its partitions are read side by side, "
            "so there is no order of taking that a micro-batch which is run again could repeat",
            text,
            hint=f"declare EVENT TIME, or {embedded}",
        )
    idle = [stream.name for stream in streams if stream.idle_after is not None]
    if idle and len(streams) > 1:
        raise QueryError(
            f"IDLE AFTER of stream '{idle[0]}' does not run on Spark beside other streams: when a stream is idle "
            "depends on the local clock, and a micro-batch that is run again could not repeat it",
            text,
            hint=f"leave IDLE AFTER out, or {embedded}",
        )
    beating = [stream.name for stream in streams if heartbeat_of(stream) is not None]
    if beating:
        raise QueryError(
            f"the heartbeat of stream '{beating[0]}' does not run on Spark: it follows the local clock, and a "
            "micro-batch that is run again could not repeat it",
            text,
            hint=f"leave the option heartbeat out, or {embedded}",
        )


def _time_column(stream: str, schema: Schema, event_time: str | None) -> str:
    times = [field.name for field in schema if field.type is SqlType.TIMESTAMP]
    if event_time is None and len(times) == 1:
        return times[0]
    field = None if event_time is None else schema.find(event_time)
    if field is None:
        asked = f"has no column '{event_time}'" if event_time else "needs its event time"
        raise InputError(
            f"the DataFrame of '{stream}' {asked}; pass event_time=, one of {', '.join(times) or 'no TIMESTAMP column'}"
        )
    if field.type is not SqlType.TIMESTAMP:
        raise InputError(
            f"column '{field.name}' of '{stream}' is {field.type} and no TIMESTAMP; "
            "declare the stream with CREATE STREAM ... EVENT TIME column UNIT ..."
        )
    return field.name


def _micros(lateness: str | int) -> int:
    micros = duration(lateness) if isinstance(lateness, str) else lateness
    if not isinstance(micros, int) or not 0 <= micros <= LONGEST:
        raise InputError(f"{lateness!r} is no duration; write for example '5 SECONDS' or '200 MILLISECONDS'")
    return micros
