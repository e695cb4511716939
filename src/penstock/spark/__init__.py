"""The Spark runtime: the same queries inside streaming DataFrames.

    spark = penstock.spark.session()
    results = penstock.spark.query(spark, {"calls": df}, "SELECT ... FROM calls [RANGE 24 HOURS SLIDE 10 SECONDS] ...")

Several queries at once give one tagged DataFrame, which `write` splits to their sinks and `results` takes one of.
`run` takes a bounded input to its end. Importing this package needs pyspark; the rest of the library does not.
"""

from penstock.spark.bounded import run
from penstock.spark.end_mark import mark_end
from penstock.spark.query import query
from penstock.spark.session import session
from penstock.spark.write import results, write

__all__ = ["mark_end", "query", "results", "run", "session", "write"]
