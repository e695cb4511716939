"""`penstock.spark.query`: continuous queries over DataFrames, as an ordinary DataFrame.

Only the columns that some query reads are asked of the sources.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Literal, get_args

from pyspark.sql import DataFrame, SparkSession

from penstock.aggregates.user import UserAggregate
from penstock.errors import InputError
from penstock.lang.fingerprint import fingerprint
from penstock.plan.physical.circumstances import Circumstances, OnSpark
from penstock.plan.physical.rules import make_plan
from penstock.plan.placement import Spread
from penstock.spark.arrival import PLACE
from penstock.spark.bucket_app import REJECTS, BucketMaker
from penstock.spark.buckets import bucket_labels
from penstock.spark.calls import Functions, call_schemas, remember
from penstock.spark.checkpoint_files import last_begun
from penstock.spark.dataframe import run_in_buckets
from penstock.spark.end_mark import make_end_directory
from penstock.spark.file_system import qualified
from penstock.spark.left_behind import segments_directory, sweep
from penstock.spark.packing import REJECTED, packers
from penstock.spark.plan_file import Plan, gone_shares, read_plan, write_plan
from penstock.spark.program import Program, frame_of, read_program
from penstock.spark.session import REQUIRED
from penstock.spark.shares import Share, share_out, shown
from penstock.spark.write import results
from penstock.store.budget import parse_size
from penstock.types import Field, Schema, SqlType

SpreadBy = Literal["keys", "partials"]
"""Where events go: to the bucket of their key, or anywhere, with partial aggregates that are merged."""


def query(
    spark: SparkSession,
    streams: Mapping[str, DataFrame],
    text: str | Program,
    *,
    memory: str | int = "64MB",
    buckets: int | None = None,
    spread: SpreadBy = "keys",
    event_time: str | None = None,
    lateness: str | int = 0,
    sequence: str | None = None,
    aggregates: Iterable[UserAggregate] = (),
    functions: Functions | None = None,
    checkpoint: str | None = None,
    bounded: bool = False,
    tagged: bool | None = None,
) -> DataFrame:
    """The results of the queries in `text`, over DataFrames that are all streaming or all static.

    `text` is a program with CREATE STREAM, or just queries over the DataFrames as they are; then `event_time` names
    their time column (not needed if there is just one TIMESTAMP), and `lateness` ("5 SECONDS", or microseconds) and
    `sequence` are what CREATE STREAM would say. A program that `read_program` has read may stand in its place. `memory`
    is for all buckets together; `buckets` defaults to the number of shuffle partitions and belongs to the checkpoint.
    `spread="partials"` is for keys of which a few have most of the events: aggregates that can be merged are computed
    in parts, whatever the key of an event.

    One query without LATE INTO gives a DataFrame of its columns: `window_start`, `window_end` and its outputs. That is
    so for INSERT INTO a stream, too, if no query reads the stream; else its rows just go on to those queries. Several
    give a tagged one that `penstock.spark.write` splits to their sinks, with late and rejected rows under names of
    their own; `tagged` says so explicitly. What rules CALL comes out as rows, too, with the key and the arguments under
    the name of the rule; `write` makes the calls, in this process: of `functions`, or those that the program declares.

    `checkpoint` is the directory that the result is written with. The blocks of windows live beside it then, and the
    query set may change between runs; without it blocks are part of Spark's state, and the queries must stay as they
    are. With `bounded` the run ends when `penstock.spark.mark_end` says so; static DataFrames just end.
    """
    _check_settings(spark)
    users = tuple(aggregates)
    functions = functions or {}
    program = (
        text
        if isinstance(text, Program)
        else read_program(
            text, streams, users, event_time=event_time, lateness=lateness, sequence=sequence, functions=functions
        )
    )
    frames = {stream.name: frame_of(stream.name, streams) for stream in program.streams}
    _check_kinds(frames, checkpoint, bounded)
    place_of = None if checkpoint is None else qualified(spark, checkpoint).rstrip("/")
    retain = int(spark.conf.get("spark.sql.streaming.minBatchesToRetain") or 100)
    plan = Plan() if place_of is None else read_plan(place_of)
    plan.check_streams(program.streams, program.nodes, bounded)
    in_order = {name for name, frame in frames.items() if PLACE in frame.columns}
    shares = _shares(spark, program, plan, buckets, place_of, spread, in_order)
    recipe = BucketMaker(
        shares,
        program.sinks,
        users,
        memory=parse_size(memory),
        segments=None if place_of is None else segments_directory(place_of),
        retain=retain,
    )
    recipe.check_memory()
    if place_of is not None:
        gone = sweep(place_of, gone_shares(plan, shares, last_begun(place_of)), retain)
        write_plan(place_of, program.streams, shares, program.nodes, plan, bounded=bounded, gone=gone)
    schemas = _schemas(program)
    end_directory = make_end_directory(place_of) if bounded and place_of is not None else None
    # Spark keeps the positions of sources by their number, which must not depend on how a text is arranged.
    by_name = tuple(sorted(program.streams, key=lambda stream: stream.name))
    calls = remember(program.queries, program.parsed.functions, functions)
    found = run_in_buckets(frames, packers(by_name, shares), recipe, schemas, end_directory, calls)
    if tagged is None:
        tagged = len(schemas) > 2 or calls is not None
    return found if tagged else results(found, next(iter(schemas)))


def _shares(
    spark: SparkSession,
    program: Program,
    plan: Plan,
    buckets: int | None,
    checkpoint: str | None,
    spread: SpreadBy,
    in_order: Collection[str],
) -> tuple[Share, ...]:
    """The shares with their buckets; with a checkpoint directory those of the last run, as far as they can be."""
    if buckets is not None and buckets < 1:
        raise InputError(f"buckets must be at least 1, not {buckets}")
    if spread not in get_args(SpreadBy):
        raise InputError(f"spread must be one of {', '.join(map(repr, get_args(SpreadBy)))}, not {spread!r}")
    on_spark = OnSpark(plan.spreads(program.nodes), in_parts=spread == "partials")
    placements = make_plan(
        [(query, program.nodes[query.name]) for query in program.queries], Circumstances(on_spark=on_spark)
    ).placements
    default = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    shares = []
    given = (program.streams, program.queries, program.nodes, placements)
    for number, share in enumerate(share_out(*given, plan.kept(program.nodes), plan.held(), in_order=in_order)):
        count = 1 if share.placement.spread is Spread.ONE_PLACE else plan.buckets(share, buckets, default)
        if share.placement.spread is Spread.ONE_PLACE and (buckets or default) > 1:
            names = ", ".join(query.name for query in share.queries)
            warnings.warn(f"{names} runs in one bucket: {share.placement.reason}", stacklevel=3)
        prefix = f"{share.id}-{plan.generation(share)}" if checkpoint is not None else f"share-{number}"
        shares.append(replace(share, labels=bucket_labels(spark, prefix, count)))
    if checkpoint is None:
        everything = fingerprint(tuple((name, fingerprint(node)) for name, node in program.nodes.items()))
        return tuple(replace(share, belongs_to=everything) for share in shares)
    plan.check(program.queries, program.nodes, shares)
    return tuple(shares)


def _schemas(program: Program) -> dict[str, Schema]:
    """What comes out under which name: results of queries, late events, rejects."""
    nodes = [program.nodes[query.name] for query in program.queries]
    found = {name: program.nodes[name].schema for name in shown(program.queries, nodes, program.sinks)}
    found |= call_schemas(program.queries)
    found |= {stream.late_into: stream.schema for stream in program.streams if stream.late_into is not None}
    return {**found, REJECTS: Schema(tuple(Field(field.name, SqlType.STRING, True) for field in REJECTED))}


def _check_settings(spark: SparkSession) -> None:
    for name, wanted in REQUIRED.items():
        if spark.conf.get(name, None) != wanted:
            raise InputError(
                f"this Spark session has {name}={spark.conf.get(name, None)}, but {wanted} is needed; "
                f"use penstock.spark.session() or spark.conf.set({name!r}, {wanted!r})"
            )


def _check_kinds(frames: Mapping[str, DataFrame], checkpoint: str | None, bounded: bool) -> None:
    streaming = {name for name, frame in frames.items() if frame.isStreaming}
    if streaming and streaming != set(frames):
        static = ", ".join(sorted(set(frames) - streaming))
        raise InputError(
            f"{', '.join(sorted(streaming))} is streaming and {static} is not; read all streams with spark.readStream, "
            "or all with spark.read for a backfill"
        )
    if not streaming and (checkpoint is not None or bounded):
        raise InputError(
            f"{', '.join(sorted(frames))} is static, and only a stream has a checkpoint or an end to wait for; read it "
            "with spark.readStream, or leave checkpoint and bounded out for a backfill"
        )
