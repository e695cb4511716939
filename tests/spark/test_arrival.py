"""Where the order of arrival is known, the events that are late embedded are late on Spark, however it is cut."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock import App
from penstock.connect import open_source
from penstock.lang import parse
from penstock.operators.reorder import START
from penstock.spark import packing, run
from penstock.spark import processor as module
from penstock.spark.arrival import NO_TIES, Arrivals, Told, decode_ties, encode_ties, marks, ties
from penstock.spark.live import LiveObjects
from penstock.spark.sources import open_stream

from .by_hand import Run
from .runs import Collected, in_order, stream_of, streams_in_order

ROOT = Path(__file__).parents[2]
SELECTS = (
    "SELECT k, COUNT(*) AS c, SUM(n) AS a FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY k",
    "SELECT n, MAX(t) AS a FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] WHERE k = 'a' GROUP BY n",
    "SELECT t, n + 1 AS m FROM s WHERE n > 0",
    "SELECT SUM(n) AS a, LAST(k) AS l FROM s [ROWS 4 SLIDE 3]",
    "SELECT k, FIRST(n) AS f, LAST(n) AS l, ARG_MAX(n, q) AS a FROM s [RANGE 15 SECONDS SLIDE 5 SECONDS] GROUP BY k",
    "SELECT k, SUM(n) AS a FROM s [PARTITION BY k ROWS 2] GROUP BY k",
)

events = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 3), st.sampled_from(["a", "b", "c", None]), st.integers(-3, 3)),
    min_size=1,
    max_size=40,
)


def late_by_rule(times: list[int], sequences: list[int] | None, lateness: int) -> list[bool]:
    """The contract, event by event."""
    found = []
    for at, time in enumerate(times):
        watermark = max(times[:at], default=START) - lateness
        earlier = range(at) if sequences is not None else ()
        tied = any(times[i] == time and sequences[i] > sequences[at] for i in earlier)  # type: ignore[index]
        found.append(time < watermark or (time == watermark and tied))
    return found


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=30),
    st.booleans(),
    st.integers(0, 4),
    st.data(),
)
def test_stretches_and_buckets_together_find_what_the_contract_says(
    drawn: list[tuple[int, int]], sequenced: bool, lateness: int, data: st.DataObject
) -> None:
    times = np.array([time for time, _ in drawn])
    sequences = np.array([sequence for _, sequence in drawn])
    cuts = sorted(data.draw(st.sets(st.integers(0, len(drawn)))) | {0, len(drawn)})
    micro_batches = data.draw(st.sets(st.sampled_from(cuts)))
    last, before = None, NO_TIES
    batch: list[tuple[int, int]] = []
    found: list[bool] = []
    for start, stop in itertools.pairwise(cuts):
        batch.append((start, stop))
        if stop not in micro_batches and stop != len(drawn):
            continue
        own = [(times[a:b], sequences[a:b] if sequenced else None) for a, b in batch]
        told = [
            Told(a, int(t.max()), decode_ties(encode_ties(ties(t, s, lateness))))
            for (a, _), (t, s) in zip(batch, own, strict=True)
        ]
        arrivals = Arrivals(last, before, data.draw(st.permutations(told)), lateness)
        for (a, _), (t, s) in zip(batch, own, strict=True):
            found += arrivals.late(a, t, s, marks(t, s, lateness)).tolist()
        last, before = int(times[:stop].max()), arrivals.ties()
        batch = []
    assert found == late_by_rule(times.tolist(), sequences.tolist() if sequenced else None, lateness)


@settings(max_examples=60, deadline=None)
@given(
    events,
    st.lists(st.sampled_from(SELECTS), min_size=1, max_size=3, unique=True),
    st.integers(0, 5),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_the_same_events_are_late_as_embedded(
    drawn: list[tuple[int, int, Any, int]], selects: list[str], lateness: int, sequenced: bool, seed: int
) -> None:
    """In micro-batches and tasks of any size, some of which fail and are run again or find their worker gone."""
    sequence = " SEQUENCE q" if sequenced else ""
    program = (
        f"CREATE STREAM s (t TIMESTAMP, q BIGINT, k STRING, n BIGINT, EVENT TIME t LATENESS {lateness} SECONDS"
        f"{sequence}) LATE INTO missed; {'; '.join(selects)}"
    )
    stream = [{"t": t * 1_000_000, "q": q, "k": k, "n": n} for t, q, k, n in drawn]
    chance = random.Random(seed)
    buckets = Run(program, chance, in_order=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "STRETCH_BYTES", 1)
        at = number = late = 0
        while at < len(stream):
            piece = stream[at : at + chance.randrange(1, 12)]
            split = chance.randrange(len(piece) + 1)
            tasks = [{"s": task} for task in (piece[:split], piece[split:])]
            if chance.random() < 0.2:
                buckets.settle(buckets.attempt(number, tasks), commit=False)
            if chance.random() < 0.3:
                module._live = LiveObjects()
            buckets.settle(buckets.attempt(number, tasks), commit=True)
            at, number, late = at + len(piece), number + 1, late + buckets.late
        buckets.settle(buckets.attempt(number, None), commit=True)
    with App(program) as app:
        app.push("s", pa.RecordBatch.from_pylist(stream, stream_of(program).schema.arrow))
        app.finish()
        assert late == app.metrics.late
        assert in_order(buckets.table("missed")) == in_order(app.results("missed"))
        for query in parse(program).queries:
            assert in_order(buckets.table(query.name)) == in_order(app.results(query.name)), query.text


def test_the_first_example_of_the_documents_has_one_answer(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One order comes more than a minute late: south has 12.25 up to 9:10, on both runtimes."""
    found = re.search(r"```sql\n(CREATE STREAM orders.*?)```", (ROOT / "docs" / "getting-started.md").read_text(), re.S)
    assert found is not None
    program = parse(found[1])
    monkeypatch.chdir(ROOT / "examples")
    sink = Collected()
    frames = {"orders": open_stream(spark, program.streams[0], ["shop", "amount"], follow=False)}
    run(spark, frames, found[1], sink.write, str(tmp_path / "checkpoint"))
    with App(found[1]) as app:
        for got in open_source(program.streams[0]):
            app.push("orders", got.batch)
        app.finish()
        assert in_order(app.results("q1")) == sink.rows
    south = [row for row in sink.rows if row[2] == "south"]
    assert [(row[3], row[4]) for row in south] == [(2, 12.25), (3, 43.65)]


TWO_STREAMS = """
    CREATE STREAM s (t TIMESTAMP, q BIGINT, k STRING, n BIGINT, EVENT TIME t LATENESS 3 SECONDS SEQUENCE q) LATE INTO a;
    CREATE STREAM r (t TIMESTAMP, k STRING, n BIGINT, EVENT TIME t) LATE INTO b;
    CREATE QUERY joined AS SELECT s.k AS k, COUNT(*) AS c, SUM(s.n * r.n) AS total
    FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] JOIN r [RANGE 10 SECONDS SLIDE 5 SECONDS] ON s.k = r.k GROUP BY s.k;
    CREATE QUERY sums AS SELECT k, SUM(n) AS total FROM r [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k;
    CREATE QUERY last AS SELECT k, LAST(n) AS l FROM r [PARTITION BY k ROWS 3 SLIDE 2] GROUP BY k;
    CREATE QUERY whole AS SELECT COUNT(*) AS c, MAX(n) AS m FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS];
    CREATE QUERY places AS SELECT n, LAST(k) AS k FROM s [ROWS 3 SLIDE 3] GROUP BY n
"""


def two_streams(chance: random.Random, rows: int) -> dict[str, list[dict[str, Any]]]:
    """Times rise, with steps back of which some are beyond the lateness."""

    def one() -> list[dict[str, Any]]:
        times = [max(0, i // 3 - chance.choice([0, 0, 0, 1, 2, 6])) for i in range(rows)]
        return [
            {"t": t * 1_000_000, "q": chance.randrange(4), "k": chance.choice("abc"), "n": chance.randrange(9)}
            for t in times
        ]

    return {"s": one(), "r": [{"t": e["t"], "k": e["k"], "n": e["n"]} for e in one()]}


def same_on_both(spark: SparkSession, seed: int, directory: Path) -> None:
    events = two_streams(random.Random(seed), 30)
    sink = Collected()
    frames = streams_in_order(spark, TWO_STREAMS, events, directory, batch_bytes=2000)
    run(spark, frames, TWO_STREAMS, sink.write, str(directory / "checkpoint"), buckets=3, tagged=True)
    tables = sink.tables()
    with App(TWO_STREAMS) as app:
        for name, own in events.items():
            app.push(name, own)
        app.finish()
        assert app.metrics.late
        for name in ("a", "b", "joined", "sums", "last", "whole", "places"):
            assert in_order(tables[name]) == in_order(app.results(name)), name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* runs in one bucket")
@pytest.mark.parametrize("seed", range(1, 9))
def test_two_runtimes_on_the_same_order_of_arrival(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    same_on_both(spark, seed, tmp_path)
