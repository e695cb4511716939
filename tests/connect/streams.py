"""Streams and helpers that the tests of this package share."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.connect import open_source
from penstock.connect.source import Reject
from penstock.lang.query import StreamDef
from penstock.types import Field, Schema, SqlType

TICKS = Schema(
    (
        Field("t", SqlType.TIMESTAMP),
        Field("name", SqlType.STRING),
        Field("n", SqlType.INT, nullable=False),
        Field("x", SqlType.DOUBLE),
        Field("ok", SqlType.BOOLEAN),
        Field("day", SqlType.DATE),
    )
)


def stream(uri: object, schema: Schema = TICKS, event_time: str = "t", **options: str) -> StreamDef:
    return StreamDef("ticks", schema, event_time, uri=str(uri), options=tuple(options.items()))


def read_all(definition: StreamDef, **how: Any) -> tuple[pa.Table, list[Reject]]:
    source = open_source(definition, **how)
    batches = list(source)
    source.close()
    rejects = [reject for batch in batches for reject in batch.rejects]
    schema = batches[0].batch.schema if batches else definition.schema.arrow
    return pa.Table.from_batches([batch.batch for batch in batches], schema), rejects
