"""Errors of workers: users see the message of our code, without the traceback of Spark.

Spark reports an error of a worker as its whole traceback, inside an error of its own. Our errors say what was wrong and
what to do; the frames above them do not help, and would push the message out of sight.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TypeVar

from penstock import errors
from penstock.errors import CheckpointError, PenstockError

T = TypeVar("T")

_IN_USE = re.compile(r"CONCURRENT_STREAM_LOG_UPDATE|[Mm]ultiple streaming (?:jobs|queries)|another query with same id")


def plainly(rows: Iterator[T]) -> Iterator[T]:
    """What a worker gives back; our errors leave it without a traceback, all others as they are."""
    try:
        yield from rows
    except PenstockError as error:
        # Spark asks for this when it reports the error; the worker ends then, so that nothing else is hidden.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise error.with_traceback(None) from None


def as_ours(error: Exception) -> Exception:
    """The error that one of our workers raised, out of the report that Spark makes of it; else Spark's own."""
    report = str(error)
    if _IN_USE.search(report):
        return CheckpointError(
            "another run is using the same checkpoint directory, and only one can: Spark has stopped this one. "
            "Nothing is lost; stop the other run or choose another checkpoint directory"
        )
    found = re.search(r"penstock\.errors\.(\w+): (.*?)(?:\n *SQLSTATE|\n *at |\n\n|$)", report, re.DOTALL)
    kind = getattr(errors, found.group(1), None) if found else None
    if found is None or kind is None or not issubclass(kind, PenstockError):
        return error
    ours: Exception = kind(found.group(2).strip())
    return ours
