"""Penstock on Spark: the same operators as embedded, in the workers of a Spark session that runs in the host."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import ClassVar

from penstock.errors import InputError
from penstock.instruments import java_home
from penstock_bench.measure.adapters import rehearsal
from penstock_bench.measure.adapters.engine import Engine
from penstock_bench.measure.adapters.heap import heap_size
from penstock_bench.measure.adapters.hosted import Hosted

HEAP = "4g"
"""As much as the other systems in Java have; Spark's own default is a quarter of it."""

MICRO_BATCH = 1_000_000

COMMON: Mapping[str, str] = {
    "master": "where Spark runs, 'local[*]' by default: all cores of this machine",
    "heap": "memory of Spark's Java machine, such as 512m or 4g (the default), if it runs on this machine",
    "micro_batch": "its events at most, 1,000,000 by default; when as many wait for the next one, drivers are held up",
    **rehearsal.OPTION,
}


class PenstockOnSpark(Hosted):
    dialect = "penstock"
    options: ClassVar[Mapping[str, str]] = {
        **COMMON,
        "memory": "the budget for all state, of all buckets together, as '64MB' (the default)",
        "buckets": "into how many parts streams are spread; as many as there are cores by default",
        "spread": "'keys' (the default) or 'partials', for keys of which a few have most of the events",
    }

    def check(self) -> None:
        check_spark(self)

    def engine(self) -> Engine:
        from penstock_bench.measure.adapters.spark_engines import PenstockEngine

        return PenstockEngine()


def check_spark(adapter: Hosted) -> None:
    heap_size(adapter.option("heap", HEAP))
    adapter.whole_option("micro_batch", MICRO_BATCH)
    if find_spec("pyspark") is None:
        name = adapter.setup.system.adapter
        raise InputError(f"the adapter '{name}' needs Spark and Java: pip install 'penstock-bench[spark]'")
    java_home()
