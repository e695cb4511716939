"""Where the order of arrival is known, the events that are late embedded are late on Spark, however it is cut."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App
from penstock.lang import parse
from penstock.operators.reorder import START
from penstock.spark import packing
from penstock.spark import processor as module
from penstock.spark.arrival import NO_TIES, Arrivals, Told, decode_ties, encode_ties, marks, ties
from penstock.spark.live import LiveObjects

from .by_hand import Run
from .runs import in_order, stream_of

SELECTS = (
    "SELECT k, COUNT(*) AS c, SUM(n) AS a FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY k",
    "SELECT n, MAX(t) AS a FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] WHERE k = 'a' GROUP BY n",
    "SELECT t, n + 1 AS m FROM s WHERE n > 0",
    "SELECT SUM(n) AS a, COUNT(*) AS c FROM s [ROWS 4 SLIDE 4]",
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
    # Among equal times only a SEQUENCE says the same to both, and only if it tells all of them apart.
    stream = [
        {"t": t * 1_000_000 + (0 if sequenced else i), "q": q * 100 + i % 100, "k": k, "n": n}
        for i, (t, q, k, n) in enumerate(drawn)
    ]
    chance = random.Random(seed)
    run = Run(program, chance, in_order=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "STRETCH_BYTES", 1)
        at = number = 0
        while at < len(stream):
            piece = stream[at : at + chance.randrange(1, 12)]
            split = chance.randrange(len(piece) + 1)
            tasks = [{"s": task} for task in (piece[:split], piece[split:])]
            if chance.random() < 0.2:
                run.settle(run.attempt(number, tasks), commit=False)
            if chance.random() < 0.3:
                module._live = LiveObjects()
            run.settle(run.attempt(number, tasks), commit=True)
            at, number = at + len(piece), number + 1
        run.settle(run.attempt(number, None), commit=True)
    with App(program) as app:
        app.push("s", pa.RecordBatch.from_pylist(stream, stream_of(program).schema.arrow))
        app.finish()
        assert in_order(run.table("missed")) == in_order(app.results("missed"))
        for query in parse(program).queries:
            assert in_order(run.table(query.name)) == in_order(app.results(query.name)), query.text
