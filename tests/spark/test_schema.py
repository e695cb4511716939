"""DataFrames as streams: which columns fit, and what is said about those that do not."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.errors import InputError
from penstock.spark.schema import conform, ddl, schema_of
from penstock.types import Field, Schema, SqlType

EVERY_TYPE = "b boolean, i1 tinyint, i2 smallint, i4 int, i8 bigint, f float, d double, s string, day date, t timestamp"


def test_every_type_there_and_back(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], EVERY_TYPE)
    schema = schema_of(frame.schema)
    assert [field.type.value for field in schema] == [
        *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "DATE", "TIMESTAMP")
    ]
    assert spark.createDataFrame([], ddl(schema)).schema == frame.schema


def test_columns_of_other_types_are_left_out(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "n int, price decimal(10, 2), tags array<string>")
    assert schema_of(frame.schema).names == ("n",)


def test_conforming_prunes_orders_and_widens(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 2, "x")], "A int, b int, c string")
    schema = Schema((Field("b", SqlType.BIGINT), Field("a", SqlType.INT)))
    conformed = conform(frame, "s", schema)
    assert conformed.dtypes == [("b", "bigint"), ("a", "int")]
    assert [tuple(row) for row in conformed.collect()] == [(2, 1)]


def test_a_column_that_is_not_there_is_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "a int, b int")
    with pytest.raises(InputError, match=r"stream 'calls' needs the column 'c' \(INT\).*it has a, b"):
        conform(frame, "calls", Schema((Field("c", SqlType.INT),)))


@pytest.mark.parametrize(
    ("has", "wants"), [("string", SqlType.INT), ("bigint", SqlType.INT), ("double", SqlType.FLOAT)]
)
def test_a_column_that_would_lose_something_is_refused(spark: SparkSession, has: str, wants: SqlType) -> None:
    frame = spark.createDataFrame([], f"a {has}")
    with pytest.raises(InputError, match=f"declared as {wants}, but its DataFrame has {has}"):
        conform(frame, "calls", Schema((Field("a", wants),)))
