"""The microbenchmarks ask every system the same question: on a small stream their answers are those of Penstock."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from measure.adapters.answers import EPOCH, SECOND, all_answers, assert_same
from penstock_bench.measure.adapters.embedded import EmbeddedEngine
from penstock_bench.measure.adapters.engine import Engine
from penstock_bench.measure.setup.model import Setup
from penstock_bench.measure.setup.read import parse_setup, read_setup
from penstock_bench.workloads import micro

RATE = 10  # Events of a stream in a second: fine enough for all, since Flink's clock goes by milliseconds.
SECONDS = 63
IDS = 10
TIME = pa.timestamp("us", "UTC")
SMALL: Mapping[str, list[dict[str, Any]]] = {
    "selection": [{}],
    "projection": [{"attributes": 5}],
    "aggregation-sliding": [{"rate": RATE, "window": 100, "function": f} for f in ("SUM", "AVG", "MAX")],
    "aggregation-tumbling": [{"rate": RATE, "window": 100, "function": f} for f in ("SUM", "AVG", "MAX")],
    "time-window": [{"minutes": 1}],
    "time-window-two-level": [{"minutes": 1}],
    "join-windows": [{"rate": 2 * RATE, "window": 30}],
    "join-table": [{"rows": IDS}],
    "pattern": [{"interval": 5, "selectivity": 10.0}],
    "adaptivity": [{"rate": RATE, "window": 100}],
    "queries-identical": [{"rate": 2 * RATE, "window": 30, "queries": 2}],
    "queries-similar": [{"rate": 2 * RATE, "window": 30, "queries": 2}],
}


def together(dialect: str) -> Setup:
    """The microbenchmarks that have a text in this dialect as one setup, so that a system is started once."""
    queries = {}
    for name, parameters in SMALL.items():
        for number, given in enumerate(parameters):
            for query, asked in read_setup(micro.setup_file(name), given).queries.items():
                if dialect in asked.text:
                    texts = {"penstock": asked.text["penstock"], dialect: asked.text[dialect]}
                    cause = {"cause": asked.cause} if asked.cause else {}
                    queries[f"{name}_{number}_{query}".replace("-", "_")] = {"text": texts, **cause}
    attributes = {f"a{i}": "DOUBLE" for i in range(1, 6)}
    columns = {"id": "INT", **attributes, "ts": "TIMESTAMP"}
    table = read_setup(micro.setup_file("join-table"), {"rows": IDS}).tables["table1"]
    made = {column: {"generator": "constant", "value": 1} for column in ("id", *attributes)}
    streams = ("stream1", "stream2", "A")
    return parse_setup(
        {
            "name": "together",
            "streams": {name: {"columns": columns} for name in streams},
            "tables": {"table1": table.model_dump(mode="python")},
            "drivers": [
                {"name": "d", "fields": dict.fromkeys(streams, made), "phases": [{"rate": 1, "events": 1}]},
            ],
            "queries": queries,
        }
    )


def streams_of(setup: Setup) -> dict[str, pa.RecordBatch]:
    """Each event is alone in its millisecond and, but for the first, on no boundary."""
    sides = {}
    for number, name in enumerate(setup.streams):
        random = np.random.default_rng(number)
        count = RATE * SECONDS
        times = EPOCH + np.arange(count) * (SECOND // RATE) + number * 1_000 + 137
        if number == 0:
            times[0] -= 137
        made = {"id": random.integers(1, IDS + 1, count).astype(np.int32)}
        made |= {f"a{i}": random.uniform(1, 100, count) for i in range(1, 6)}
        columns = [pa.array(values) for values in made.values()]
        columns.append(pa.array(times).cast(pa.timestamp("us", "UTC")))
        sides[name] = pa.RecordBatch.from_arrays(columns, names=list(setup.streams[name].columns))
    return sides


def table_file(directory: Path) -> Path:
    ids = np.arange(1, IDS + 1).astype(np.int32)
    columns = {"id": pa.array(ids)} | {f"b{i}": pa.array(ids * i / 7) for i in range(1, 10)}
    file = directory / "table1.parquet"
    pq.write_table(pa.table(columns), file)
    return file


def compare(engine: Engine, dialect: str, directory: Path, without: Mapping[str, datetime]) -> set[str]:
    """Compares all that there is; `without` names evaluations that are known to differ."""
    setup = together(dialect)
    sides = streams_of(setup)
    in_turn = [(name, side.slice(i, 1)) for i in range(RATE * SECONDS) for name, side in sides.items()]
    files = {"table1": table_file(directory)}
    expected = all_answers(EmbeddedEngine(), setup, list(sides.items()), files)
    got = all_answers(engine, setup, in_turn, files)
    for name in setup.queries:
        left, right = expected[name], got[name]
        if "window_end" in right.column_names:
            # A system that is told of an end may go on until its windows are empty.
            last = pc.max(left.column("window_end")).as_py() + timedelta(seconds=1 / RATE)
            right = right.filter(pc.less_equal(right.column("window_end"), pa.scalar(last, TIME)))
            if name.startswith(("aggregation_tumbling", "time_window_two_level")):
                # The end is the last event's time where rows are counted, and the boundary where time is; a row of a
                # derived stream has the last microsecond of its window.
                right = right.drop_columns(["window_end"])
        for prefix, end in without.items():
            if name.startswith(prefix):
                left, right = (
                    rows.filter(pc.not_equal(rows.column("window_end"), pa.scalar(end, TIME))) for rows in (left, right)
                )
        assert_same(left, right)
    return set(setup.queries)


MINUTE_AFTER = datetime.fromtimestamp(EPOCH // SECOND, UTC) + timedelta(minutes=1)


@pytest.mark.slow
def test_esper_answers_as_penstock(tmp_path: Path) -> None:
    from penstock_bench.measure.adapters.esper import EsperEngine

    # An event that is as old as the window is long has left it in Esper, and is the oldest one in Penstock.
    asked = compare(EsperEngine("512m", True), "esper", tmp_path, {"time_window_0": MINUTE_AFTER})
    assert len(asked) == 18


@pytest.mark.slow
def test_flink_answers_as_penstock(tmp_path: Path) -> None:
    from penstock_bench.measure.adapters import flink_environment
    from penstock_bench.measure.adapters.flink import Flink

    flink_environment.make()
    adapter = Flink(together("flink"))
    assert len(compare(adapter.engine(), "flink", tmp_path, {})) == 18


@pytest.mark.slow
def test_spark_answers_as_penstock(tmp_path: Path) -> None:
    from penstock_bench.measure.adapters.spark_engines import StreamingEngine

    assert len(compare(StreamingEngine(), "spark", tmp_path, {})) == 13
