"""Streams in arrival order are refused on Spark, with the reason, before a session is asked for anything."""

from __future__ import annotations

import pytest

from penstock.errors import QueryError
from penstock.spark.program import read_program


def test_arrival_order_is_refused() -> None:
    text = "CREATE STREAM s (t TIMESTAMP, v INT, ARRIVAL ORDER t); SELECT v FROM s"
    with pytest.raises(QueryError, match=r"ARRIVAL ORDER of stream 's' does not run on Spark(.|\n)*EVENT TIME"):
        read_program(text, {})
