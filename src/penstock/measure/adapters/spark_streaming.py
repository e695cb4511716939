"""Spark's own structured streaming: the queries are Spark SQL over the streams, which are views with a watermark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.errors import InputError
from penstock.measure.adapters.engine import Engine
from penstock.measure.adapters.hosted import Hosted
from penstock.measure.adapters.spark import COMMON, check_spark

_MODES = ("append", "update")


class SparkStreaming(Hosted):
    dialect = "spark"
    options: ClassVar[Mapping[str, str]] = {
        **COMMON,
        "output_mode": "'append' (the default): a window once, when it is complete; 'update': whenever it changes",
    }

    def check(self) -> None:
        mode = self.option("output_mode", _MODES[0])
        if mode not in _MODES:
            raise InputError(f"system.options.output_mode = '{mode}': is none of {', '.join(_MODES)}")
        check_spark(self)

    def engine(self) -> Engine:
        from penstock.measure.adapters.spark_engines import StreamingEngine

        return StreamingEngine()
