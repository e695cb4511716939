"""Instruments: the internals that measurements look at, for `penstock_bench` and nothing else.

An application uses `penstock` and `penstock.spark`. What is named here may change with any version. A name is loaded
when it is first used, so that the processes of a run that only send events or take results do without the engine.

Stores, to measure them by themselves
    StoreManager, Budget, Account     make stores within a budget of memory, and count what is taken from it
    Properties, ReadPattern,          what is known of a store, from which `StoreManager.create` chooses its kind
    Sharing, UpdatePattern
    FifoStore, RowQueues, KeyedStore  the kinds: rows that leave in order, from the middle, by their key
    BlockDevice, BlockLayout, Frame,  the blocks on disk, and their columns; `Argument` is a column or one value
    ColumnSpec, Argument
    Database, SqliteDatabase,         the databases that tables are kept in, to keep items there
    PostgresDatabase, Part, Row, Statement, Value, POSTGRES_TYPES

Sliding, to measure other strategies beside the calendar
    Calendar                          which queries are due at which position; the engine's own
    GroupedStrategy, SlideGroups,     what strategies are made of, and how their work is counted
    Candidates, Due, Work, PUSH_OPERATIONS
    SlidingGraph                      slides as nodes, divisibility as edges

Plans, to compare what is planned with what is measured
    parse, build_plan                 a program from its text, and the plan of a query
    StreamDef                         how a stream is declared
    plan_program                      the physical plan of a program
    aggregations, count_aggregations  which aggregations a physical plan has, and how many there are
    segments, resident_blocks,        the formulas of the blocks that shared windows find in memory, and of their
    hit_rate, shared_io               input/output
    Outside, outside                  the files and servers that a program names
    quoted                            a name as the language quotes it
    SideSizing                        the sizes that a rate-sized join has chosen
    CHUNK_ROWS, LEAST_TURN            how many rows the operators take at once, and how many at least

Input and output, to feed systems with the engine's formats
    open_source, format_by_name,      events from files, as `FROM` reads them
    can_become
    json_lines                        rows as lines of JSON

Spark, to feed and watch its streams
    generated_stream                  a stream of events that Spark's tasks make
    Figures, ProgressDisplay          what the micro-batches of a run add up to, and how it is shown
    SHORT_RUN, STATE_STORE            settings of sessions
    ddl                               a schema as Spark writes it
    decode_results, result_schemas    the rows in a tagged DataFrame, and the schema of each query in it
    as_ours                           an error of Spark's as one of the engine's, where it is one

Tools
    kernel                            compiles a hot loop, and keeps the machine code
    Histogram                         counts values within one percent, in little memory
    java_home                         where there is a Java
    Interrupt                         Ctrl-C as a wish that a run can grant in its own time
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.cli.interrupt import Interrupt
    from penstock.columns import Argument
    from penstock.connect.conform import can_become
    from penstock.connect.encode import json_lines
    from penstock.connect.files import format_by_name
    from penstock.connect.opening import open_source
    from penstock.engine.builder import quoted
    from penstock.engine.sizing_metrics import SideSizing
    from penstock.engine.tables.database import POSTGRES_TYPES
    from penstock.histogram import Histogram
    from penstock.java import java_home
    from penstock.jit import kernel
    from penstock.lang import Outside, outside, parse
    from penstock.lang.query import StreamDef
    from penstock.operators.chunk import CHUNK_ROWS
    from penstock.operators.shared_window import LEAST_TURN
    from penstock.plan.aggregations import count as count_aggregations
    from penstock.plan.build import build as build_plan
    from penstock.plan.cost import hit_rate, resident_blocks, segments, shared_io
    from penstock.plan.physical.readers import aggregations
    from penstock.plan.physical.rules import plan_program
    from penstock.spark.failures import as_ours
    from penstock.spark.generated import generated_stream
    from penstock.spark.packing import decode as decode_results
    from penstock.spark.progress import Figures, ProgressDisplay
    from penstock.spark.schema import ddl
    from penstock.spark.session import SHORT_RUN, STATE_STORE
    from penstock.spark.write import names as result_schemas
    from penstock.store.blocks import BlockLayout, ColumnSpec, Frame
    from penstock.store.budget import Account, Budget
    from penstock.store.databases.database import Database, Part, Row, Statement, Value
    from penstock.store.databases.postgres import PostgresDatabase
    from penstock.store.databases.sqlite import SqliteDatabase
    from penstock.store.device import BlockDevice
    from penstock.store.fifo import FifoStore
    from penstock.store.keyed import KeyedStore
    from penstock.store.manager import StoreManager
    from penstock.store.properties import Properties, ReadPattern, Sharing, UpdatePattern
    from penstock.store.queues import RowQueues
    from penstock.windows.sliding.calendar import Calendar
    from penstock.windows.sliding.graph_nodes import SlidingGraph
    from penstock.windows.sliding.groups import SlideGroups
    from penstock.windows.sliding.strategy import PUSH_OPERATIONS, Candidates, Due, GroupedStrategy, Work

__all__ = [
    "CHUNK_ROWS",
    "LEAST_TURN",
    "POSTGRES_TYPES",
    "PUSH_OPERATIONS",
    "SHORT_RUN",
    "STATE_STORE",
    "Account",
    "Argument",
    "BlockDevice",
    "BlockLayout",
    "Budget",
    "Calendar",
    "Candidates",
    "ColumnSpec",
    "Database",
    "Due",
    "FifoStore",
    "Figures",
    "Frame",
    "GroupedStrategy",
    "Histogram",
    "Interrupt",
    "KeyedStore",
    "Outside",
    "Part",
    "PostgresDatabase",
    "ProgressDisplay",
    "Properties",
    "ReadPattern",
    "Row",
    "RowQueues",
    "Sharing",
    "SideSizing",
    "SlideGroups",
    "SlidingGraph",
    "SqliteDatabase",
    "Statement",
    "StoreManager",
    "StreamDef",
    "UpdatePattern",
    "Value",
    "Work",
    "aggregations",
    "as_ours",
    "build_plan",
    "can_become",
    "count_aggregations",
    "ddl",
    "decode_results",
    "format_by_name",
    "generated_stream",
    "hit_rate",
    "java_home",
    "json_lines",
    "kernel",
    "open_source",
    "outside",
    "parse",
    "plan_program",
    "quoted",
    "resident_blocks",
    "result_schemas",
    "segments",
    "shared_io",
]

_PLACES = {
    "Account": "penstock.store.budget:Account",
    "Argument": "penstock.columns:Argument",
    "BlockDevice": "penstock.store.device:BlockDevice",
    "BlockLayout": "penstock.store.blocks:BlockLayout",
    "Budget": "penstock.store.budget:Budget",
    "CHUNK_ROWS": "penstock.operators.chunk:CHUNK_ROWS",
    "Calendar": "penstock.windows.sliding.calendar:Calendar",
    "Candidates": "penstock.windows.sliding.strategy:Candidates",
    "ColumnSpec": "penstock.store.blocks:ColumnSpec",
    "Database": "penstock.store.databases.database:Database",
    "Due": "penstock.windows.sliding.strategy:Due",
    "FifoStore": "penstock.store.fifo:FifoStore",
    "Figures": "penstock.spark.progress:Figures",
    "Frame": "penstock.store.blocks:Frame",
    "GroupedStrategy": "penstock.windows.sliding.strategy:GroupedStrategy",
    "Histogram": "penstock.histogram:Histogram",
    "Interrupt": "penstock.cli.interrupt:Interrupt",
    "KeyedStore": "penstock.store.keyed:KeyedStore",
    "LEAST_TURN": "penstock.operators.shared_window:LEAST_TURN",
    "Outside": "penstock.lang:Outside",
    "POSTGRES_TYPES": "penstock.engine.tables.database:POSTGRES_TYPES",
    "PUSH_OPERATIONS": "penstock.windows.sliding.strategy:PUSH_OPERATIONS",
    "Part": "penstock.store.databases.database:Part",
    "PostgresDatabase": "penstock.store.databases.postgres:PostgresDatabase",
    "ProgressDisplay": "penstock.spark.progress:ProgressDisplay",
    "Properties": "penstock.store.properties:Properties",
    "ReadPattern": "penstock.store.properties:ReadPattern",
    "Row": "penstock.store.databases.database:Row",
    "RowQueues": "penstock.store.queues:RowQueues",
    "SHORT_RUN": "penstock.spark.session:SHORT_RUN",
    "STATE_STORE": "penstock.spark.session:STATE_STORE",
    "Sharing": "penstock.store.properties:Sharing",
    "SideSizing": "penstock.engine.sizing_metrics:SideSizing",
    "SlideGroups": "penstock.windows.sliding.groups:SlideGroups",
    "SlidingGraph": "penstock.windows.sliding.graph_nodes:SlidingGraph",
    "SqliteDatabase": "penstock.store.databases.sqlite:SqliteDatabase",
    "Statement": "penstock.store.databases.database:Statement",
    "StoreManager": "penstock.store.manager:StoreManager",
    "StreamDef": "penstock.lang.query:StreamDef",
    "UpdatePattern": "penstock.store.properties:UpdatePattern",
    "Value": "penstock.store.databases.database:Value",
    "Work": "penstock.windows.sliding.strategy:Work",
    "aggregations": "penstock.plan.physical.readers:aggregations",
    "as_ours": "penstock.spark.failures:as_ours",
    "build_plan": "penstock.plan.build:build",
    "can_become": "penstock.connect.conform:can_become",
    "count_aggregations": "penstock.plan.aggregations:count",
    "ddl": "penstock.spark.schema:ddl",
    "decode_results": "penstock.spark.packing:decode",
    "format_by_name": "penstock.connect.files:format_by_name",
    "generated_stream": "penstock.spark.generated:generated_stream",
    "hit_rate": "penstock.plan.cost:hit_rate",
    "java_home": "penstock.java:java_home",
    "json_lines": "penstock.connect.encode:json_lines",
    "kernel": "penstock.jit:kernel",
    "open_source": "penstock.connect.opening:open_source",
    "outside": "penstock.lang:outside",
    "parse": "penstock.lang:parse",
    "plan_program": "penstock.plan.physical.rules:plan_program",
    "quoted": "penstock.engine.builder:quoted",
    "resident_blocks": "penstock.plan.cost:resident_blocks",
    "result_schemas": "penstock.spark.write:names",
    "segments": "penstock.plan.cost:segments",
    "shared_io": "penstock.plan.cost:shared_io",
}
"""Where each name is defined, as `module:name`."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'penstock.instruments' has no attribute '{name}'")
    module, _, attribute = _PLACES[name].partition(":")
    found = globals()[name] = getattr(import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    return __all__
