"""Spark's own structured streaming: the queries are Spark SQL over the streams, which are views with a watermark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.errors import InputError
from penstock_bench.measure.adapters.engine import Engine
from penstock_bench.measure.adapters.hosted import Hosted
from penstock_bench.measure.adapters.spark import COMMON, check_spark

_MODES = ("append", "update")
STATES = {
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
"""Spark's two state stores, its default first; here, since drivers and sinks know this adapter without pyspark."""


class SparkStreaming(Hosted):
    dialect = "spark"
    options: ClassVar[Mapping[str, str]] = {
        **COMMON,
        "output_mode": "'append' (the default): a window once, when it is complete; 'update': whenever it changes",
        "state": "where Spark keeps state: 'memory', its own default, or 'rocksdb'",
    }

    def check(self) -> None:
        for name, known in (("output_mode", _MODES), ("state", tuple(STATES))):
            given = self.option(name, known[0])
            if given not in known:
                raise InputError(f"system.options.{name} = '{given}': is none of {', '.join(known)}")
        check_spark(self)

    def engine(self) -> Engine:
        from penstock_bench.measure.adapters.spark_engines import StreamingEngine

        return StreamingEngine()
