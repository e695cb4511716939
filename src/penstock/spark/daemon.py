"""The process from which Spark forks its Python workers: the library is imported here once and not in every worker.

Spark starts it by name (`spark.python.daemon.module`). Nothing is written to standard output, where Spark reads the
daemon's port.

A worker collects garbage after every task. Each time it would visit all objects of the imported libraries, which takes
longer than a small task itself. Frozen objects are skipped. (`spark.live` freezes objects that come later.)

Spark gives a task to any worker. Workers that are forked here hand the tasks of our stateful operator over to the
process that keeps their buckets (`spark.switchboard`), and run all others as PySpark does.

Why: docs/decisions/buckets-stay.md
"""

from __future__ import annotations

import gc
import io
import os
import socket
import sys
from collections.abc import Callable
from typing import BinaryIO

import pandas  # noqa: F401  pyarrow would import it in every worker
import pyspark.worker
from pyspark.daemon import manager

import penstock.spark
import penstock.spark.processor  # noqa: F401

try:
    from penstock.spark import switchboard
    from penstock.spark.keeper import hand_over
    from penstock.spark.worker_task import read_task, run_task
except ImportError:  # before PySpark 4.3, where a task does not begin with a message
    CAN_HAND_OVER = False
else:
    CAN_HAND_OVER = True


def main_of_worker(asking: socket.socket) -> Callable[[io.BufferedReader, BinaryIO], None]:
    """What runs a task in place of PySpark's own `main`. `asking` is where the switchboard is asked."""

    def main(infile: io.BufferedReader, outfile: BinaryIO) -> None:
        task = read_task(infile)
        bucket, code = task.bucket, None
        if bucket is not None and isinstance(task.message, bytes):
            code = hand_over(task.message, infile.fileno(), bucket, asking)
        if code is None:
            run_task(task, outfile)
        elif code:
            sys.exit(code)

    return main


def run() -> None:
    """Forks workers for Spark until Spark has ended."""
    gc.collect()
    gc.freeze()
    if CAN_HAND_OVER and os.environ.get("SPARK_REUSE_WORKER"):
        os.setpgid(0, 0)  # the daemon's group, which it ends with all that is in it
        pyspark.worker.main = main_of_worker(switchboard.start())
    manager()


if __name__ == "__main__":
    run()
