"""CALL on Spark: a firing is a row with its key and the arguments, under the name that the key begins with; the driver
makes the calls of a micro-batch before it is committed.

    bucket: rule fires ─▶ rows (idempotency_key, arguments...) named `high` ─▶ tagged DataFrame ─▶ write, on the driver

Invariants:
1. A key is the rule's name, the bucket and the number of the firing there, which is part of the bucket's state: a
   micro-batch that is run again makes the same calls with the same keys.
2. A micro-batch is committed after each of its calls has been taken in, or has failed and was rejected.

Functions stay in the driver's process, under an id that the DataFrame's metadata names: neither code nor what stands in
headers travels.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.arrays import Int64s
from penstock.calls.function import CallFailed, Function
from penstock.calls.http import HttpFunction
from penstock.engine.firings import call_names
from penstock.engine.rule_calls import registered
from penstock.errors import InputError
from penstock.lang.bind_rule import KEY
from penstock.lang.query import FunctionDef, Query
from penstock.operators.chunk import readable
from penstock.spark.packing import decode, reject_row
from penstock.types import Field, Schema, SqlType

CALLS = "penstock calls"
"""The key in the metadata of column `packed` under which the id of the functions is."""

Functions = Mapping[str, Callable[..., object]]


@dataclass(frozen=True)
class Delivery:
    """The function that each name's rows are for."""

    functions: Mapping[str, Function]

    def deliver(self, name: str, rows: Iterable[pa.RecordBatch]) -> list[dict[str, str]]:
        """Makes the calls; returns what has failed, as rejects."""
        failed: list[dict[str, str]] = []
        for batch in rows:
            for row in readable(batch):
                arguments = dict(row)
                key = arguments.pop(KEY)
                try:
                    self.functions[name].call(arguments, key, _pause)
                except Exception as error:
                    reason = str(error) if isinstance(error, CallFailed) else f"{type(error).__name__}: {error}"
                    failed.append(reject_row(reason, row, f"CALL of {name}"))
        return failed


_deliveries: dict[str, Delivery] = {}


def call_schemas(queries: Iterable[Query]) -> dict[str, Schema]:
    """What comes out for calls, by name."""
    found = {}
    for query in queries:
        if query.rule is not None:
            for name, call in zip(call_names(query.rule), query.rule.calls, strict=True):
                arguments = (Field(a.name, a.expression.type) for a in call.arguments)
                found[name] = Schema((Field(KEY, SqlType.STRING, False), *arguments))
    return found


def remember(queries: Iterable[Query], declared: Iterable[FunctionDef], functions: Functions) -> str | None:
    """Keeps the functions that the queries call; returns the id that they are found under."""
    known: dict[str, Function] = registered(functions)
    known |= {definition.name: HttpFunction(definition) for definition in declared}
    calls = [
        (name, known[call.function])
        for query in queries
        if query.rule is not None
        for name, call in zip(call_names(query.rule), query.rule.calls, strict=True)
    ]
    if not calls:
        return None
    for _, function in calls:
        function.check()
    found = uuid.uuid4().hex
    _deliveries[found] = Delivery(dict(calls))
    return found


def delivery_of(tagged: DataFrame) -> Delivery | None:
    """The object that makes the calls of a tagged DataFrame; None if there are no calls."""
    known = tagged.schema["packed"].metadata.get(CALLS)
    if known is None:
        return None
    if known not in _deliveries:
        raise InputError("the functions that its rules call are in another process: write it where query was called")
    return _deliveries[known]


def rows_of(tagged: DataFrame, name: str, schema: pa.Schema) -> list[pa.RecordBatch]:
    """The rows of one name, in this process."""
    own = tagged.where(F.col("name") == name).select("packed").collect()
    return [decode(bytes(row.packed), schema) for row in own]


class CallRows:
    """Takes what rules fire in a bucket, as rows that come out."""

    def __init__(self, label: str, put: Callable[[str, pa.RecordBatch], None]) -> None:
        self._label = label
        self._put = put

    def put(self, name: str, numbers: Int64s, arguments: pa.RecordBatch) -> None:
        keys = pa.array([f"{name}:{self._label}:{number}" for number in numbers.tolist()], pa.string())
        self._put(name, pa.RecordBatch.from_arrays([keys, *arguments.columns], names=[KEY, *arguments.schema.names]))


def _pause(seconds: float) -> bool:
    time.sleep(seconds)
    return True


def as_frame(like: DataFrame, failed: list[dict[str, Any]]) -> DataFrame:
    """Failed calls in the columns of the rejects."""
    rows = [tuple(row[name] for name in like.columns) for row in failed]
    return like.sparkSession.createDataFrame(rows, like.schema)
