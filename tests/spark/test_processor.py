"""Programs in buckets, driven by hand: micro-batches cut, shuffled, failed and moved to other workers at random."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App
from penstock.errors import StorageError
from penstock.lang import parse
from penstock.plan.placement import Spread
from penstock.spark import bucket_state
from penstock.spark import processor as module
from penstock.spark.live import LiveObjects
from penstock.store import differences

from .by_hand import Run
from .runs import in_order, stream_of

SECOND = 1_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, v DOUBLE, n BIGINT, EVENT TIME t LATENESS 5 SECONDS);"
QUERIES = {
    "SELECT k, COUNT(*) AS c, SUM(v) AS a, SUM(n) AS b FROM s [RANGE 25 SECONDS SLIDE 10 SECONDS] GROUP BY k": "by key",
    "SELECT k, MIN(v) AS a, MAX(n) AS b FROM s [RANGE 1 MINUTE SLIDE 7 SECONDS] GROUP BY k": "by key",
    "SELECT k, LAST(n) AS a, COUNT(DISTINCT n) AS b FROM s [RANGE 30 SECONDS SLIDE 30 SECONDS] GROUP BY k": "by key",
    "SELECT k, n % 2 AS o, AVG(v) AS a FROM s [RANGE 20 SECONDS SLIDE 9 SECONDS] WHERE n > 1 GROUP BY k, o DRAIN": (
        "by key"
    ),
    "SELECT ISTREAM k, SUM(n) AS a FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY k": "by key",
    "SELECT k, SUM(n) AS a, FIRST(v) AS b FROM s [RANGE 20 SECONDS] GROUP BY k": "by key",
    "SELECT k, SUM(n) AS a FROM s [PARTITION BY k ROWS 3] GROUP BY k": "by key",
    "SELECT n, COUNT(*) AS c FROM s [PARTITION BY n SESSION 5 SECONDS] GROUP BY n": "by key",
    "SELECT SUM(v) AS a, STDDEV(n) AS b, MAX(v) AS c FROM s [RANGE 25 SECONDS SLIDE 10 SECONDS]": "partials",
    "SELECT k, COUNT(*) AS c FROM s [RANGE 25 SECONDS SLIDE 5 SECONDS] GROUP BY k ORDER BY c, k LIMIT 2": "partials",
    "SELECT t, n + 1 AS m FROM s WHERE n > 0": "anywhere",
    "SELECT SUM(n) AS a, LAST(k) AS b FROM s [ROWS 4 SLIDE 3]": "one place",
    "SELECT k, MEDIAN(v) AS a FROM s [ROWS 5] GROUP BY k": "one place",
    "SELECT MODE(n) AS a FROM s [SESSION 4 SECONDS]": "one place",
}

events = st.lists(
    st.builds(
        lambda gap, ahead, k, v, n: {"gap": gap, "ahead": ahead, "k": k, "v": v, "n": n},
        st.integers(0, 8 * SECOND),
        st.integers(0, 4 * SECOND),
        st.sampled_from(["a", "b", "c", "d", None]),
        st.none() | st.floats(-1e9, 1e9) | st.sampled_from([1e16, -1e16, 1e-16]),
        st.none() | st.integers(-5, 5),
    ),
    min_size=1,
    max_size=40,
)


def in_disorder(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events with times of their own: among equal ones the order of arrival would decide for the embedded engine."""
    stream: list[dict[str, Any]] = []
    now = 100 * SECOND
    for number, event in enumerate(drawn):
        now += event["gap"]
        time = (now + event["ahead"]) // 100 * 100 + number
        stream.append({"t": time, "k": event["k"], "v": event["v"], "n": event["n"]})
    return stream


def run_at_random(run: Run, stream: list[dict[str, Any]], chance: random.Random) -> None:
    """Micro-batches of any size from two tasks; some fail and are run again, some find their worker gone."""
    at = batch_id = 0
    while at <= len(stream):
        size = chance.randrange(1, 12)
        piece = stream[at : at + size]
        split = chance.randrange(len(piece) + 1)
        tasks = [{"s": task} for task in (piece[:split], piece[split:]) if task] if piece else None
        while chance.random() < 0.2:
            run.settle(run.attempt(batch_id, tasks), commit=False)
        if chance.random() < 0.3:
            module._live = LiveObjects()
        run.settle(run.attempt(batch_id, tasks), commit=True)
        batch_id += 1
        at = min(at + size, len(stream)) if piece else len(stream) + 1


@settings(max_examples=60, deadline=None)
@given(events, st.lists(st.sampled_from(sorted(QUERIES)), min_size=1, max_size=4), st.integers(0, 2**32), st.booleans())
def test_rows_do_not_depend_on_how_it_ran(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[dict[str, Any]], selects: list[str], seed: int, on_disk: bool
) -> None:
    stream = in_disorder(drawn)
    program = f"{STREAM} {'; '.join(selects)}"
    chance = random.Random(seed)
    run = Run(program, chance, tmp_path_factory.mktemp("segments") if on_disk else None)
    run_at_random(run, stream, chance)
    with App(program) as app:
        app.push("s", pa.RecordBatch.from_pylist(stream, stream_of(program).schema.arrow))
        app.finish()
        for query in parse(program).queries:
            assert in_order(run.table(query.name)) == in_order(app.results(query.name)), query.text


@pytest.mark.parametrize(("select", "spread"), QUERIES.items())
def test_alone_each_is_placed_as_well_as_it_can_be(select: str, spread: str) -> None:
    assert Run(f"{STREAM} {select}", random.Random(0)).spreads == {"q1": Spread(spread)}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 9)), max_size=25), st.data())
def test_equal_times_go_by_their_columns_however_they_come(
    drawn: list[tuple[int, str, int]], data: st.DataObject
) -> None:
    program = """CREATE STREAM s (t TIMESTAMP, k STRING, n BIGINT, EVENT TIME t);
        SELECT LAST(k) AS k, LAST(n) AS l, SUM(n) AS a FROM s [ROWS 3]"""
    stream = [{"t": t * SECOND, "k": k, "n": n} for t, k, n in sorted(drawn)]
    shuffled = data.draw(st.permutations(stream))
    cut = data.draw(st.integers(0, len(stream)))
    chance = random.Random(data.draw(st.integers(0, 99)))
    by_time = [[e for e in shuffled if e["t"] <= at * SECOND] for at in (1, 3)]
    run = Run(program, chance)
    tasks = [by_time[0][:cut], by_time[0][cut:]], [[e for e in by_time[1] if e["t"] > SECOND]]
    for number, task in enumerate(tasks):
        run.settle(run.attempt(number, [{"s": events} for events in task]), commit=True)
    run.settle(run.attempt(2, None), commit=True)
    with App(program) as app:
        app.push("s", pa.RecordBatch.from_pylist(stream, stream_of(program).schema.arrow))
        assert in_order(run.table("q1")) == in_order(app.results("q1"))


def a_run_that_forgets(directory: Path) -> Run:
    """A micro-batch is committed, and the worker is gone."""
    run = Run(
        f"{STREAM} SELECT k, SUM(n) AS a FROM s [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY k", random.Random(0), directory
    )
    events = in_disorder([{"gap": SECOND, "ahead": 0, "k": "abcdefgh"[i % 8], "v": 1.0, "n": i} for i in range(600)])
    run.settle(run.attempt(0, [{"s": events}]), commit=True)
    module._live = LiveObjects()
    return run


@pytest.mark.parametrize("damage", ["remove", "flip"])
def test_a_file_of_state_that_cannot_be_read_is_told_with_who_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(bucket_state, "INSIDE", 0)
    run = a_run_that_forgets(tmp_path)
    file = next(tmp_path.rglob("*.state"))
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(StorageError) as told:
        run.attempt(1, None)
    assert f"the state of bucket {file.parent.name} cannot be read, and none of its queries (q1) can go on" in str(
        told.value
    )
    assert file.name in str(told.value)


def test_small_states_cost_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_state, "INSIDE", 1 << 14)  # `faults` has another
    monkeypatch.setattr(differences, "SMALL", 1 << 14)
    run = a_run_that_forgets(tmp_path)
    run.settle(run.attempt(1, None), commit=True)
    assert not list(tmp_path.rglob("*.state"))
    assert len(run.table("q1"))
