"""Penstock: continuous SQL queries over sliding windows far larger than memory, exact and fast.

    import penstock as ps

    app = ps.App("CREATE STREAM ...; SELECT ... FROM stream [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY ...")
    app.push("stream", batch)
    app.results("q1")

`stream` builds the same from Python and `testing` has a clock for tests. `penstock.spark` runs the same queries inside
a streaming DataFrame.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.errors import (
    BudgetError,
    CheckpointError,
    InputError,
    PenstockError,
    QueryError,
    StorageError,
)
from penstock.types import SqlType

if TYPE_CHECKING:
    from penstock import connect, testing
    from penstock.aggregates.user import UserAggregate
    from penstock.engine.app import App
    from penstock.engine.builder import BuiltQuery, stream
    from penstock.engine.metrics import Metrics

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

# The engine is loaded when one of these names is first used: loading takes a second, and the processes of a run that
# only send events or take results do not need it.
_LATER = {
    "App": "penstock.engine.app",
    "BuiltQuery": "penstock.engine.builder",
    "Metrics": "penstock.engine.metrics",
    "UserAggregate": "penstock.aggregates.user",
    "connect": "penstock.connect",
    "stream": "penstock.engine.builder",
    "testing": "penstock.testing",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'penstock' has no attribute '{name}'")
    module = import_module(_LATER[name])
    found = module if _LATER[name] == f"penstock.{name}" else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
