"""A streaming query from its start to its end: looked after while it runs, with errors that say what our code said."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock import errors

Watch = Callable[[StreamingQuery], None]
"""Called a few times per second. What it raises stops the query, whose next run goes on from the checkpoint."""

_POLL_SECONDS = 0.2


def run_to_end(writer: DataStreamWriter, checkpoint: str, watch: Watch) -> None:
    """Starts the query and waits until it has ended, as its trigger has it."""
    running = writer.option("checkpointLocation", checkpoint).start()
    try:
        while running.isActive:
            watch(running)
            time.sleep(_POLL_SECONDS)
        watch(running)
        running.awaitTermination()
    except StreamingQueryException as error:
        raise as_ours(error) from error
    finally:
        running.stop()


def as_ours(error: Exception) -> Exception:
    """The error that one of our workers raised, out of the report that Spark makes of it; else Spark's own."""
    found = re.search(r"penstock\.errors\.(\w+): (.*?)(?:\n *SQLSTATE|\n *at |\n\n|$)", str(error), re.DOTALL)
    kind = getattr(errors, found.group(1), None) if found else None
    if found is None or kind is None or not issubclass(kind, errors.PenstockError):
        return error
    ours: Exception = kind(found.group(2).strip())
    return ours
