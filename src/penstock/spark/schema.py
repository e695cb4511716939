"""Between Spark's types and ours, and from a DataFrame to the columns that a stream declares."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.engine.builder import quoted
from penstock.errors import InputError
from penstock.types import Field, Schema, SqlType

_FROM_SPARK: dict[type[DataType], SqlType] = {
    BooleanType: SqlType.BOOLEAN,
    ByteType: SqlType.TINYINT,
    ShortType: SqlType.SMALLINT,
    IntegerType: SqlType.INT,
    LongType: SqlType.BIGINT,
    FloatType: SqlType.FLOAT,
    DoubleType: SqlType.DOUBLE,
    StringType: SqlType.STRING,
    DateType: SqlType.DATE,
    TimestampType: SqlType.TIMESTAMP,
}

_WIDER: dict[SqlType, tuple[SqlType, ...]] = {
    SqlType.TINYINT: (SqlType.SMALLINT, SqlType.INT, SqlType.BIGINT),
    SqlType.SMALLINT: (SqlType.INT, SqlType.BIGINT),
    SqlType.INT: (SqlType.BIGINT,),
    SqlType.FLOAT: (SqlType.DOUBLE,),
}
"""What a column may become without a loss."""


def schema_of(struct: StructType) -> Schema:
    """The columns of a DataFrame that can be used in a query; columns of other types are left out."""
    known = ((field, _FROM_SPARK.get(type(field.dataType))) for field in struct.fields)
    return Schema(tuple(Field(field.name, kind, field.nullable) for field, kind in known if kind is not None))


def ddl(schema: Schema) -> str:
    """The schema as Spark reads it."""
    return ", ".join(f"{quoted(field.name)} {field.type}" for field in schema)


def conform(events: DataFrame, stream: str, schema: Schema, others: Sequence[str] = ()) -> DataFrame:
    """The declared columns of `events`, in their order and type, and those of `others` that there are; raises if a
    declared one is missing."""
    return events.select(
        *(_column(events, stream, field) for field in schema), *(name for name in others if name in events.columns)
    )


def _column(events: DataFrame, stream: str, field: Field) -> Column:
    found = next((f for f in events.schema.fields if f.name.lower() == field.name.lower()), None)
    if found is None:
        raise InputError(
            f"stream '{stream}' needs the column '{field.name}' ({field.type}), which its DataFrame does not have; "
            f"it has {', '.join(events.columns)}"
        )
    column = F.col(quoted(found.name))
    kind = _FROM_SPARK.get(type(found.dataType))
    if kind is field.type:
        return column.alias(field.name)
    if kind is not None and field.type in _WIDER.get(kind, ()):
        return column.cast(str(field.type)).alias(field.name)
    raise InputError(
        f"column '{field.name}' of stream '{stream}' is declared as {field.type}, but its DataFrame has "
        f"{found.dataType.simpleString()}; cast it before: df.withColumn('{found.name}', ...)"
    )
