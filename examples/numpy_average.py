"""An adapter of one's own: a moving average in numpy as a system under test.

PYTHONPATH=examples penstock bench run examples/numpy_average.toml
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import InputError
from penstock_bench.measure.adapters.engine import Emit, Engine
from penstock_bench.measure.adapters.hosted import Hosted
from penstock_bench.measure.setup.model import Setup


class AverageEngine:
    """Answers each query, which is the name of a column, with its average over the last `rows` events."""

    def start(self, setup: Setup, tables: Mapping[str, Path], emit: Emit) -> None:
        self._emit = emit
        self._rows = int(setup.system.options.get("rows", 100))
        self._times = {name: stream.time for name, stream in setup.streams.items()}
        self._columns = {name: query.text["numpy"] for name, query in setup.queries.items()}
        known = {column for stream in setup.streams.values() for column in stream.columns}
        for name, column in self._columns.items():
            if column not in known:
                raise InputError(f"queries.{name}.text.numpy: there is no column '{column}'")
        self._before = dict.fromkeys(self._columns, np.empty(0))
        self._events = 0

    def push(self, stream: str, batch: pa.RecordBatch) -> None:
        self._events += batch.num_rows
        for query, column in self._columns.items():
            values = np.concatenate([self._before[query], batch.column(column).to_numpy()])
            sums = np.concatenate([[0.0], np.cumsum(values)])
            last = np.arange(len(values) - batch.num_rows, len(values)) + 1
            first = np.maximum(last - self._rows, 0)
            average = (sums[last] - sums[first]) / (last - first)
            self._before[query] = values[max(0, len(values) - self._rows + 1) :]
            times = batch.column(self._times[stream])
            self._emit(query, pa.record_batch({"ts": times, "average": average}))

    def finish(self) -> None:
        """Every result has been emitted by the push that caused it."""

    def status(self) -> dict[str, Any]:
        return {"events": self._events}

    def close(self) -> None:
        """There is nothing to stop."""


class Average(Hosted):
    dialect = "numpy"
    options: ClassVar[Mapping[str, str]] = {"rows": "the length of the window in events, by default 100"}

    def engine(self) -> Engine:
        return AverageEngine()
