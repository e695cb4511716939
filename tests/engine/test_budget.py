"""The budget holds for groups, strings, states and sessions, whatever a push is cut to."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

STREAM = "CREATE STREAM s (t BIGINT, k BIGINT, z STRING, x DOUBLE, EVENT TIME t UNIT MICROSECONDS);"
SECOND = 1_000_000

Event = dict[str, Any]


def events(count: int, *, apart: int = 1, size: int = 0, keys: int = 0) -> list[Event]:
    return [
        {"t": i * apart, "k": i % keys if keys else i, "z": f"{i:08}" * (size // 8), "x": 1.0} for i in range(count)
    ]


def cuts(whole: list[Event]) -> Iterable[list[list[Event]]]:
    for rows in (len(whole), 500, 20):
        yield [whole[i : i + rows] for i in range(0, len(whole), rows)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, SUM(x) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k",
        "SELECT k, SUM(x) AS n FROM s [PARTITION BY k SESSION 500 MILLISECONDS] GROUP BY k",
        "SELECT k, MEDIAN(x) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k",
        "SELECT k, COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 500 MILLISECONDS] GROUP BY k",
        "SELECT z, COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 500 MILLISECONDS] GROUP BY z",
        "SELECT k, z FROM s [PARTITION BY k SESSION 500 MILLISECONDS]",
    ],
)
def test_memory_does_not_depend_on_the_cut(query: str) -> None:
    """Ever new keys and texts, of which 100 are in a window: it takes no more memory when they come in one push."""
    whole = events(2_000, apart=10_000, size=80)
    answers, peaks = [], []
    for batches in cuts(whole):
        came: list[Any] = []
        with ps.App(STREAM + query, memory="1MB", block_size="4KiB") as app:
            app.subscribe("q1", lambda batch, came=came: came.extend(batch.to_pylist()))  # type: ignore[misc]
            for batch in batches:
                app.push("s", batch)
            app.finish()
            pools = sum(size for name, size in app._stores.budget.describe().items() if "window" in name)
            peaks.append(app.metrics.memory_peak - pools)
        answers.append(came)
    assert all(answer == answers[0] for answer in answers)
    assert max(peaks) <= min(peaks) + 128 * 1024


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, SUM(x) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k",
        "SELECT k, MEDIAN(x) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k",
        "SELECT z, COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 500 MILLISECONDS] GROUP BY z",
        "SELECT z, LAST(x) AS n FROM s [ROWS 2000 SLIDE 500] GROUP BY z",
        "SELECT k, SUM(x) AS n FROM s [PARTITION BY k SESSION 200 MILLISECONDS] GROUP BY k",
    ],
)
def test_the_least_budget_does_not_depend_on_the_cut(query: str) -> None:
    """With blocks as large as they are by default, and windows of which many lie within a push."""
    block = 65_536
    whole = pa.RecordBatch.from_pylist(events(8_000, apart=400, size=40, keys=6_000))

    def fits(rows: int, half_blocks: int) -> bool:
        with ps.App(STREAM + query, memory=half_blocks * block // 2, block_size=block) as app:
            app.subscribe("q1", lambda batch: None)
            try:
                for start in range(0, whole.num_rows, rows):
                    app.push("s", whole.slice(start, rows))
                app.finish()
            except ps.BudgetError:
                return False
        return True

    least = [bisect.bisect_left(range(90), True, lo=1, key=partial(fits, rows)) for rows in (20, 997, whole.num_rows)]
    assert max(least) <= min(least) + 5, "two blocks, and the half that they are counted in"


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT MAX(z) AS m FROM s [RANGE 1 HOUR]",
        "SELECT LAST(z) AS m FROM s [RANGE 1 HOUR]",
        "SELECT z FROM s [RANGE 1 HOUR SLIDE 1 HOUR]",
        "SELECT COUNT(DISTINCT z) AS m FROM s [SESSION 1 HOUR]",
    ],
)
def test_texts_are_refused_before_they_are_kept(query: str, at_once: bool) -> None:
    whole = events(200, size=100_000)
    with ps.App(STREAM + query, memory="2MB") as app:
        app.subscribe("q1", lambda batch: None)

        def push() -> None:
            for batch in [whole] if at_once else [[event] for event in whole]:
                app.push("s", batch)

        with pytest.raises(ps.BudgetError, match=r"needs [\d,]+ more bytes"):
            push()
        assert app.metrics.memory_peak > 1_700_000


@pytest.mark.parametrize(
    "query",
    [
        "SELECT MAX(z) AS m FROM s [SESSION 50 MILLISECONDS]",
        "SELECT k, MIN(z) AS m, COUNT(DISTINCT z) AS n FROM s [PARTITION BY k SESSION 50 MILLISECONDS] GROUP BY k",
        "SELECT MAX(z) AS m FROM s [RANGE 1 SECOND SLIDE 1 SECOND]",
        "SELECT z, COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY z",
    ],
)
def test_texts_that_leave_again_take_nothing(query: str) -> None:
    with ps.App(STREAM + query, memory="2MB", block_size="4KiB") as app:
        app.subscribe("q1", lambda batch: None)
        for start in range(0, 2000, 50):
            app.push("s", [{**e, "t": e["t"] + start * SECOND // 10} for e in events(2000, size=10_000)[start:][:50]])


def test_a_few_groups_too_many_are_refused_at_once() -> None:
    """Not only after some thousand rows."""
    with ps.App(
        STREAM + "SELECT k, SUM(x) AS n FROM s [SINCE TIMESTAMP '1970-01-01 00:00:00Z' SLIDE 1 HOUR] GROUP BY k",
        memory="60KB",
    ) as app:
        with pytest.raises(ps.BudgetError):
            app.push("s", events(2000))
        assert app.metrics.memory_peak <= 60_000


def test_a_checkpoint_is_on_the_account_when_it_is_restored(tmp_path: Any) -> None:
    text = (
        STREAM
        + "CREATE QUERY q AS SELECT z, MEDIAN(x) AS n, MAX(z) AS m FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY z;"
    )
    with ps.App(text, checkpoint=tmp_path) as app:
        app.push("s", events(1000, size=800))
        app.checkpoint()
        before = app._stores.budget.describe()
    with ps.App(text, checkpoint=tmp_path) as app:
        after = app._stores.budget.describe()
    texts = [name for name in before if name.endswith("groups and strings")]
    assert texts
    for name in texts:
        assert before[name] > 1_600_000
        assert 0.9 * before[name] <= after[name] <= 1.1 * before[name]
