"""The Spark runtime: the same queries inside streaming DataFrames.

    spark = penstock.spark.session()
    results = penstock.spark.query(spark, {"calls": df}, "SELECT ... FROM calls [RANGE 24 HOURS SLIDE 10 SECONDS] ...")

`run` takes a bounded input to its end. Importing this package needs pyspark; the rest of the library does not.
"""

from penstock.spark.bounded import run
from penstock.spark.query import query
from penstock.spark.session import session

__all__ = ["query", "run", "session"]
