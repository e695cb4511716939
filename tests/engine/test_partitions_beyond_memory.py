"""Windows per partition with far more partitions than memory: the rows of all of them are on disk, by shard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import penstock as ps
from penstock.operators.paged.partitions import PagedPartitions

STREAM = "CREATE STREAM s (t TIMESTAMP, k BIGINT, v BIGINT, EVENT TIME t);"
EVENTS, KEYS, PUSH = 60_000, 40_000, 15_000
MEMORY = "3MB"

Ints = NDArray[np.int64]


def stream(seed: int = 5) -> tuple[pa.Table, Ints, Ints]:
    chance = np.random.default_rng(seed)
    keys = chance.integers(0, KEYS, EVENTS)
    values = chance.integers(-1000, 1000, EVENTS)
    times = pa.array(np.arange(EVENTS), pa.timestamp("us", tz="UTC"))
    return pa.table({"t": times, "k": keys, "v": values}), keys, values


def sums(keys: Ints, values: Ints, rows: int) -> Ints:
    """For each event the sum of the last values of its key."""
    last: dict[int, list[int]] = {}
    found = np.empty(len(keys), np.int64)
    for i, (key, value) in enumerate(zip(keys.tolist(), values.tolist(), strict=True)):
        own = last.setdefault(key, [])
        own.append(value)
        del own[:-rows]
        found[i] = sum(own)
    return found


def push_all(app: ps.App, events: pa.Table) -> list[pa.Table]:
    found = []
    for begin in range(0, EVENTS, PUSH):
        app.push("s", events.slice(begin, PUSH))
        found.append(app.results("q"))
    return found


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows had come at each time that shards were played."""
    found: list[int] = []
    original = PagedPartitions.pass_over

    def noted(self: PagedPartitions) -> None:
        found.append(self._seen)
        original(self)

    monkeypatch.setattr(PagedPartitions, "pass_over", noted)
    return found


def test_aggregates_of_the_last_rows_of_many_keys(played: list[int]) -> None:
    events, keys, values = stream()
    query = "CREATE QUERY q AS SELECT k, SUM(v) AS s FROM s [PARTITION BY k ROWS 2] GROUP BY k"
    with ps.App(STREAM + query, memory=MEMORY) as app:
        found = pa.concat_tables(push_all(app, events))
    assert played, "partitions were meant to be in shards"
    assert np.array_equal(found["k"].to_numpy(), keys)
    assert np.array_equal(found["s"].to_numpy(), sums(keys, values, 2))


def test_a_restart_goes_on_under_another_budget(tmp_path: Path, played: list[int]) -> None:
    events, _, _ = stream()
    query = "CREATE QUERY q AS SELECT k, COUNT(*) AS c, SUM(v) AS s FROM s [PARTITION BY k ROWS 3 SLIDE 2] GROUP BY k"
    with ps.App(STREAM + query) as app:
        expected = pa.concat_tables(push_all(app, events))
    assert not played
    found = []
    app = ps.App(STREAM + query, memory=MEMORY, checkpoint=tmp_path)
    for begin in range(0, EVENTS, PUSH):
        if begin in (PUSH, 3 * PUSH):
            app.checkpoint()
            app.close()
            app = ps.App(STREAM + query, memory="4MB" if begin == PUSH else "64MB", checkpoint=tmp_path)
        app.push("s", events.slice(begin, PUSH))
        found.append(app.results("q"))
    app.close()
    assert played
    assert pa.concat_tables(found).equals(expected)


def test_the_last_row_of_each_key_at_boundaries_of_time(played: list[int]) -> None:
    events, _, _ = stream()
    query = "CREATE QUERY q AS SELECT k, v FROM s [PARTITION BY k ROWS 1 SLIDE 20 MILLISECONDS]"

    def answers(memory: str) -> pa.Table:
        with ps.App(STREAM + query, memory=memory) as app:
            found = push_all(app, events)
            app.finish()
            return pa.concat_tables([*found, app.results("q")])

    expected = answers("256MB")
    assert not played
    assert answers(MEMORY).equals(expected)
    assert played


def test_what_is_compared_with_the_evaluation_before_stays_in_memory() -> None:
    events, _, _ = stream()
    query = "CREATE QUERY q AS SELECT ISTREAM k, SUM(v) AS s FROM s [PARTITION BY k ROWS 2] GROUP BY k"
    with ps.App(STREAM + query, memory=MEMORY) as app, pytest.raises(ps.BudgetError):
        push_all(app, events)
