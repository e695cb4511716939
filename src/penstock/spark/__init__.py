"""The Spark runtime: the same queries inside streaming DataFrames.

    spark = penstock.spark.session()
    results = penstock.spark.query(spark, {"calls": df}, "SELECT ... FROM calls [RANGE 24 HOURS SLIDE 10 SECONDS] ...")

Several queries at once give one tagged DataFrame, which `write` splits to their sinks and `results` takes one of.
`run` takes a bounded input to its end. `REQUIRED` names the settings that a session of your own needs, `Files` is a
sink of `write` in a format of your choice. Importing this package needs pyspark; the rest of the library does not.
"""

from penstock.spark.bounded import run
from penstock.spark.end_mark import mark_end
from penstock.spark.query import query
from penstock.spark.session import REQUIRED, session
from penstock.spark.write import Files, results, write

__all__ = ["REQUIRED", "Files", "mark_end", "query", "results", "run", "session", "write"]
