"""A plain PySpark script: average prices of the last hour, every ten minutes, over a stream of Parquet files.

    python examples/spark_stream.py

In Spark's own words this would be `groupBy(window("at", "1 hour", "10 minutes"), "symbol").agg(...)`.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta

import penstock.spark

OPENING = datetime(2024, 3, 1, 9)


def main() -> None:
    spark = penstock.spark.session("prices", "local[2]")
    directory = tempfile.mkdtemp(prefix="penstock-example-")

    trades = [(OPENING + timedelta(minutes=i), "AB"[i % 2], 100.0 + i, 10 + i % 3) for i in range(90)]
    table = spark.createDataFrame(trades, "at timestamp, symbol string, price double, volume bigint")
    table.coalesce(1).write.parquet(f"{directory}/trades")
    stream = spark.readStream.schema(table.schema).parquet(f"{directory}/trades")

    # What is returned is a streaming DataFrame like any other; `run` takes what there is to its end. For a stream
    # without end write penstock.spark.query(...).writeStream...start() instead.
    penstock.spark.run(
        spark,
        {"trades": stream},
        """
        SELECT symbol, SUM(price * volume) / SUM(volume) AS vwap, MAX(price) AS highest
        FROM trades [RANGE 1 HOUR SLIDE 10 MINUTES]
        GROUP BY symbol
        """,
        lambda prices: prices.writeStream.format("parquet").option("path", f"{directory}/prices"),
        f"{directory}/checkpoint",
    )
    spark.read.parquet(f"{directory}/prices").orderBy("window_end", "symbol").show()


if __name__ == "__main__":
    main()
