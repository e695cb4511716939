"""A heartbeat is refused on Spark, with the reason, before a session is asked for anything."""

from __future__ import annotations

import pytest

from penstock.errors import QueryError
from penstock.spark.program import read_program


def test_a_heartbeat_is_refused() -> None:
    text = "CREATE STREAM s (t TIMESTAMP, v INT, EVENT TIME t) WITH ('heartbeat' = '1 SECOND'); SELECT v FROM s"
    with pytest.raises(QueryError, match=r"the heartbeat of stream 's' does not run on Spark(.|\n)*--engine embedded"):
        read_program(text, {})
