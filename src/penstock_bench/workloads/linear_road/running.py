"""The application over an input file, on either runtime, to a file of answers.

The file is taken as fast as it can be read. There is no clock in such a run, so an answer counts as emitted in the
second of the row that it answers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock_bench.workloads.linear_road.application import LAYOUTS, STREAM, AnswerFile, answers, embedded, program
from penstock_bench.workloads.linear_road.reports import COLUMNS, report_batches

Watch = Callable[[int], None]
"""Is told about how many bytes of the file have been taken."""

_LINE_BYTES = 45
"""Of an input file, about."""


def run_embedded(
    rows: Path,
    output: Path,
    tolls: str | Path,
    *,
    segments: str | Path | None = None,
    lav: str = "pooled",
    memory: str | int = "1GB",
    watch: Watch = lambda taken: None,
) -> dict[str, int]:
    """Returns how many answers of each query there are."""
    taken = 0
    with embedded(tolls, segments=segments, lav=lav, memory=memory) as app, AnswerFile(output) as file:
        for batch in report_batches(rows):
            app.push(STREAM, batch)
            taken += batch.num_rows
            for name, found in answers(app):
                file.write(name, found)
            watch(taken * _LINE_BYTES)
        app.finish()
        for name, found in answers(app):
            file.write(name, found)
    return file.rows


def run_on_spark(
    rows: Path,
    output: Path,
    tolls: str | Path,
    *,
    segments: str | Path | None = None,
    lav: str = "pooled",
    memory: str | int = "1GB",
) -> dict[str, int]:
    """The same in Spark's local mode."""
    from pyspark.sql import DataFrame

    from penstock import spark as penstock_spark

    spark = penstock_spark.session("linear road", "local[2]")
    reader = spark.readStream.schema(", ".join(f"{column} INT" for column in COLUMNS))
    source = reader.option("pathGlobFilter", rows.name).csv(str(rows.absolute().parent))
    answering = [name for name in LAYOUTS if name != "travel_times" or segments is not None]
    with AnswerFile(output) as file, TemporaryDirectory() as checkpoint:

        def sink(name: str) -> Callable[[DataFrame, int], None]:
            return lambda found, batch: file.write(name, found.toArrow())

        penstock_spark.run(
            spark,
            {STREAM: source},
            program(tolls, segments=segments, lav=lav),
            lambda tagged: penstock_spark.write(tagged, {name: sink(name) for name in answering}),
            checkpoint,
            memory=memory,
        )
    return file.rows
