"""The process from which Spark forks its Python workers: the library is imported here once and not in every worker.

Spark starts it by name (`spark.python.daemon.module`). Nothing is written to standard output, where Spark reads the
daemon's port.
"""

from __future__ import annotations

from pyspark.daemon import manager

import penstock.spark.processor  # noqa: F401

if __name__ == "__main__":
    manager()
