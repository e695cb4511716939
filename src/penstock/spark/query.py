"""`penstock.spark.query`: a continuous query over a DataFrame, as an ordinary DataFrame.

The stream is declared by CREATE STREAM in the text, or derived from the DataFrame's schema. Only the columns that the
query reads are asked of the source. WHERE is not pushed down to it: the time of the stream goes on with events that
fail WHERE, too.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from penstock.errors import InputError, QueryError
from penstock.lang import parse
from penstock.lang.durations import UNITS, scale, singular
from penstock.lang.query import Query, StreamDef
from penstock.plan.build import build
from penstock.plan.columns import needed_columns
from penstock.plan.nodes import AggregateNode, Node, RelationNode, children
from penstock.plan.nodes import streams as streams_of
from penstock.spark.buckets import bucket_labels
from penstock.spark.dataframe import run_in_buckets
from penstock.spark.packing import Packer
from penstock.spark.placement import Placement, place
from penstock.spark.recipe import QueryRecipe
from penstock.spark.schema import conform, ddl, schema_of
from penstock.spark.session import REQUIRED
from penstock.store.budget import parse_size
from penstock.types import Schema, SqlType
from penstock.windows.spec import TimeSlide


def query(
    spark: SparkSession,
    streams: Mapping[str, DataFrame],
    text: str,
    *,
    memory: str | int = "64MB",
    buckets: int | None = None,
    event_time: str | None = None,
    lateness: str | int = 0,
    sequence: str | None = None,
    segments: str | None = None,
    end_directory: str | None = None,
) -> DataFrame:
    """The results of the one query in `text`: `window_start`, `window_end` and its outputs.

    `text` is a program with CREATE STREAM, or a SELECT over the DataFrame as it is; then `event_time` names its time
    column (not needed if it has just one TIMESTAMP), and `lateness` ("5 SECONDS", or microseconds) and `sequence` are
    what CREATE STREAM would say. `memory` is for all buckets together; `buckets` defaults to the number of shuffle
    partitions and belongs to the checkpoint: with another number the state does not fit.

    `segments` is a directory for closed blocks, best beside the checkpoint; without it they are part of the state.
    A streaming run ends when a file appears in `end_directory` (see `spark.bounded`); a static DataFrame just ends.
    """
    _check_settings(spark)
    found, stream = _parse(text, streams, event_time, lateness, sequence)
    node = build(found.body)
    if _follows_the_wall_clock(node):
        raise QueryError(
            "windows ON WALL CLOCK do not run on Spark",
            text,
            hint="leave ON WALL CLOCK out, or run it embedded: penstock run --engine embedded",
        )
    placement = place(node)
    count = _bucket_count(spark, placement, buckets)
    needed = needed_columns(stream, [node])
    stream = replace(stream, schema=Schema(tuple(f for f in stream.schema if f.name in needed)))
    events = conform(_named(streams, stream.name), stream.name, stream.schema)
    packer = Packer(stream, placement.keys, tuple(bucket_labels(spark, count)))
    recipe = QueryRecipe(
        node,
        stream,
        buckets=count,
        memory=parse_size(memory),
        segments=segments,
        retain=int(spark.conf.get("spark.sql.streaming.minBatchesToRetain") or 100),
    )
    return run_in_buckets(events, packer, recipe, node.schema.arrow, ddl(node.schema), end_directory)


def _check_settings(spark: SparkSession) -> None:
    for name, wanted in REQUIRED.items():
        if spark.conf.get(name, None) != wanted:
            raise InputError(
                f"this Spark session has {name}={spark.conf.get(name, None)}, but {wanted} is needed; "
                f"use penstock.spark.session() or spark.conf.set({name!r}, {wanted!r})"
            )


def _parse(
    text: str, streams: Mapping[str, DataFrame], event_time: str | None, lateness: str | int, sequence: str | None
) -> tuple[Query, StreamDef]:
    """The one query of the text and the one stream it reads."""
    if re.search(r"\bCREATE\s+STREAM\b", text, re.IGNORECASE):
        program = parse(text)
        declared = {stream.name.lower(): stream for stream in program.streams}
    else:
        schemas = {name: schema_of(frame.schema) for name, frame in streams.items()}
        program = parse(text, streams=schemas)
        declared = {}
    if len(program.queries) != 1:
        raise QueryError(f"on Spark one query runs at a time, and the text has {len(program.queries)}", text)
    (found,) = program.queries
    names = sorted(streams_of(build(found.body)))
    if len(names) != 1:
        raise QueryError(
            f"on Spark a query reads one stream, and this one reads {', '.join(names)}",
            text,
            hint="run it embedded: penstock run --engine embedded",
        )
    name = names[0]
    if name.lower() in declared:
        return found, declared[name.lower()]
    schema = schema_of(_named(streams, name).schema)
    time_column = _time_column(name, schema, event_time)
    return found, StreamDef(name, schema, time_column, lateness=_micros(lateness), sequence=sequence)


def _named(streams: Mapping[str, DataFrame], name: str) -> DataFrame:
    for given, frame in streams.items():
        if given.lower() == name.lower():
            return frame
    raise InputError(f"no DataFrame was given for the stream '{name}'; given were: {', '.join(streams) or 'none'}")


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
    if isinstance(lateness, int):
        return lateness
    number, _, unit = lateness.strip().partition(" ")
    micros = scale(number, singular(unit.strip())) if singular(unit.strip()) in UNITS else None
    if micros is None:
        raise InputError(f"{lateness!r} is no duration; write for example '5 SECONDS' or '200 MILLISECONDS'")
    return micros


def _follows_the_wall_clock(node: Node) -> bool:
    slide = node.window.slide if isinstance(node, AggregateNode | RelationNode) else None
    return (isinstance(slide, TimeSlide) and slide.wall_clock) or any(map(_follows_the_wall_clock, children(node)))


def _bucket_count(spark: SparkSession, placement: Placement, buckets: int | None) -> int:
    if buckets is not None and buckets < 1:
        raise InputError(f"buckets must be at least 1, not {buckets}")
    wanted = buckets or int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    if not placement.keys:
        if wanted > 1:
            warnings.warn(f"the query runs in one bucket: {placement.reason}", stacklevel=3)
        return 1
    return wanted
