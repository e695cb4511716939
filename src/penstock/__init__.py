"""Penstock: continuous SQL queries over sliding windows far larger than memory, exact and fast.

    import penstock as ps

    app = ps.App("CREATE STREAM ...; SELECT ... FROM stream [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY ...")
    app.push("stream", batch)
    app.results("q1")

`stream` builds the same from Python and `testing` has a clock for tests. `penstock.spark` runs the same queries inside
a streaming DataFrame.
"""

from penstock import connect, testing
from penstock.aggregates.user import UserAggregate
from penstock.engine.app import App
from penstock.engine.builder import BuiltQuery, stream
from penstock.engine.metrics import Metrics
from penstock.errors import (
    BudgetError,
    CheckpointError,
    InputError,
    PenstockError,
    QueryError,
    StorageError,
)
from penstock.types import SqlType

__version__ = "0.1.0"

__all__ = [
    "App",
    "BudgetError",
    "BuiltQuery",
    "CheckpointError",
    "InputError",
    "Metrics",
    "PenstockError",
    "QueryError",
    "SqlType",
    "StorageError",
    "UserAggregate",
    "__version__",
    "connect",
    "stream",
    "testing",
]
