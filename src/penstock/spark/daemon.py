"""The process from which Spark forks its Python workers: the library is imported here once and not in every worker.

Spark starts it by name (`spark.python.daemon.module`). Nothing is written to standard output, where Spark reads the
daemon's port.

A worker collects garbage after every task. Each time it would visit all objects of the imported libraries, which takes
longer than a small task itself. Frozen objects are skipped. (`spark.live` freezes objects that come later.)
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401  pyarrow would import it in every worker
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import penstock.spark
import penstock.spark.processor  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
