"""Measurements of the engine, each a command: `penstock bench NAME [--quick]`.

A bench measures and judges nothing. It shows its progress and a table on standard error, and prints one JSON object,
its figures with the machine and the parameters they were taken on, as the last line of standard output.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.measure.machine import describe

NAMES = {
    "vwap": "Query 3 of the SlideM paper: per-event VWAP, paged through two blocks against all in memory",
    "flat-window": "per-event SUM, AVG and MAX while the window grows from a thousand rows to a hundred million",
    "flat-slide": "a window of 24 hours while the slide shrinks from 24 hours to a second",
    "peers": "per-event SUM, MAX and MEDIAN against polars and DuckDB on the same data",
    "push": "the processor time of one push: a dict, a list of 100, and a dict into the linked queries of Linear Road",
    "start": "the processor time until the first result of a new process, with compiled kernels and without",
    "istream": "ISTREAM and DSTREAM with every event, beside the default output, over small and large windows",
    "relation": "the rows of a window per key as they are, beside LAST of the same rows",
    "latency": "single events at a fixed rate: how late is each result",
    "tuples": "what an event costs in memory and time as a dict, a list, an object, columns, and in our store",
    "ssm": "2 to 32 windows over one stream, apart and in one store: requests and space, and what is possible",
    "slides": "which of 10 to 10,000 queries are due: plain, sliding graph, optimised graph and calendar",
    "remote-time": "slides by a remote clock: Algorithm 2 and synchronised timers, as in the paper's Tables I and II",
    "callcentre": "the 144 KPIs of the SlideM paper's call centre: 24 hours, every 10 seconds, in 64 MB",
    "budget": "64 MB for a million keys, large texts, joins, patterns, tables: what the process takes for each",
    "multi": "1 to 16 times the same aggregation over one stream, over a stream each, in a thread each",
    "join-window": "two windows joined by key while they grow and as matches become rare; up to 64 such queries",
    "join-table": "events looked up in a table of 1,000 to 10 million rows: hash join and batch grace hash join",
    "pattern": "Q7 of the thesis, two events of one id within 10 to 600 seconds, for several ids and selectivities",
    "join-db": "events looked up in a table in PostgreSQL: a batch in one question against a question for each event",
    "stores": "Linear Road's traffic through stores that know nothing of their use, and through stores that are told",
    "pairs": "the thesis' Pairs: the highest scale factor that is sustained, its p_score, and Esper on the same load",
    "queries": "one to a thousand overlapping windows over one stream: what does the next query cost",
    "rate-sizing": "windows of a join that follow the rate of their stream: rows held, matches lost, overhead",
    "dispatch": "how soon matches are recognised under load: first come first served and earliest job first",
    "driver": "the framework itself: events a second of a driver, how its schedule is kept, what measuring costs",
    "blowup": "an average per key on Spark against Spark's own window() while RANGE/SLIDE grows",
    "spark-throughput": "call-centre KPIs per service on Spark, from Parquet, beside the embedded engine",
    "spark-flat": "the same stream on Spark through windows of ten minutes to 24 hours",
    "spark-latency": "few events on Spark: how late is a result, and what does a micro-batch cost",
    "linear-road": "Linear Road: are all answers right, and how many expressways are answered within 5 seconds",
    "groups": "SUM and COUNT by key for a thousand to a hundred million keys in the same budget",
    "snapshot": "a million groups of which 10,000 change: what a checkpoint writes, and how long a push waits for it",
    "spark-state": "small micro-batches on Spark: buckets whose state is read back, and what is written of it",
    "recovery": "a query on Spark killed with a large window, and started again",
}
"""The benches, with what each measures."""

SERIES = "series"
"""The field with the points of curves: kept with a bench's figures, but not printed."""


def measure(name: str, size: Size, report: Report, **options: Any) -> dict[str, Any]:
    """The figures of one bench, with the machine's description. What options there are is the bench's to say."""
    module = import_module(f"penstock_bench.benches.{name.replace('-', '_')}")
    figures: dict[str, Any] = module.measure(size, report, **options)
    return {"bench": name, "size": size.value, **figures, "machine": describe()}


def run(name: str, quick: bool, output: Path | None = None, **options: Any) -> dict[str, Any]:
    """Measures, and prints the figures as one line of JSON; keeps them, with their curves, as `output`/NAME.json."""
    if output is not None:
        _usable(output)
    report = Report(f"penstock bench {name}")
    figures = measure(name, Size.QUICK if quick else Size.FULL, report, **options)
    if output is not None:
        keep(output / f"{name}.json", json.dumps(figures) + "\n")
    print(json.dumps({key: value for key, value in figures.items() if key != SERIES}), flush=True)
    return figures


def keep(file: Path, text: str) -> None:
    """Whole or not at all, so that a file that is there is a result."""
    part = file.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def _usable(directory: Path) -> None:
    """Checked before anything is measured, so that a long run does not fail at its end."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{directory}: cannot be made a directory for results: {error.strerror}") from None
