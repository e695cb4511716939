"""An application for spark-submit: orders arrive as CSV files in a directory; sums per shop and late orders go out.

    spark-submit --master spark://host:7077 examples/spark_orders.py INPUT OUTPUT CHECKPOINT [--follow]

Without --follow it processes what is there and stops; the next run goes on from the checkpoint, with the windows that
are still open. INPUT, OUTPUT and CHECKPOINT may be on any file system of the cluster. The workers need penstock, too:
install it there, or ship it with --archives.
"""

from __future__ import annotations

import argparse

import penstock.spark

PROGRAM = """
CREATE STREAM orders (
    at     TIMESTAMP NOT NULL,
    id     BIGINT,
    shop   STRING,
    amount DOUBLE,
    EVENT TIME at LATENESS 1 MINUTE SEQUENCE id LATE INTO late
);

CREATE QUERY sales AS
SELECT shop, COUNT(*) AS orders, SUM(amount) AS amount
FROM orders [RANGE 10 MINUTES SLIDE 5 MINUTES]
GROUP BY shop;

CREATE QUERY largest AS
SELECT MAX(amount) AS amount, ARG_MAX(shop, amount) AS shop
FROM orders [RANGE 10 MINUTES SLIDE 5 MINUTES];
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description="Sums of orders per shop.")
    arguments.add_argument("input")
    arguments.add_argument("output")
    arguments.add_argument("checkpoint")
    arguments.add_argument("--follow", action="store_true", help="wait for more files")
    given = arguments.parse_args()

    spark = penstock.spark.session("orders", master=None)  # the master is spark-submit's
    # From Kafka: spark.readStream.format("kafka")...load(), then F.from_json of its column `value`
    orders = (
        spark.readStream.schema("at timestamp, id bigint, shop string, amount double")
        .option("header", True)
        .csv(given.input)
    )
    results = penstock.spark.query(spark, {"orders": orders}, PROGRAM, checkpoint=given.checkpoint)
    sinks = {name: f"{given.output}/{name}" for name in ("sales", "largest", "late", "rejects")}
    writer = penstock.spark.write(results, sinks).option("checkpointLocation", given.checkpoint)
    if not given.follow:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
