"""Windows made of panes in an app: who is, who may ask for it, and that queries around them come, go and read on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine.running import plan_at_work
from penstock.plan.physical.nodes import PaneFamily

STREAM = "CREATE STREAM s (t TIMESTAMP, k INT, x DOUBLE, EVENT TIME t);"
SECOND = 1_000_000


def windows(count: int, what: str = "AVG(x) AS a") -> str:
    text = (f"CREATE QUERY w{i} AS SELECT {what} FROM s [RANGE {i + 2} SECONDS SLIDE 1 SECOND];" for i in range(count))
    return STREAM + "".join(text)


def batch(first: int, rows: int, per_second: int) -> pa.RecordBatch:
    numbers = np.arange(first, first + rows)
    times = pa.array(numbers * (SECOND // per_second)).view(pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays(
        [times, pa.array((numbers % 3).astype(np.int32)), pa.array(numbers * 0.1)], names=["t", "k", "x"]
    )


def rows(app: ps.App, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = app.results(name).to_pylist()
    return found


def bits(table: pa.Table) -> list[bytes]:
    """The columns, bit for bit, except that all NaN are one."""
    arrays = (column.combine_chunks().to_numpy(zero_copy_only=False) for column in table.columns)
    return [np.where(a != a, np.nan, a).tobytes() if a.dtype.kind == "f" else a.tobytes() for a in arrays]


def uses_panes(app: ps.App) -> bool:
    return "stores   panes" in app.explain()


def test_many_windows_are_made_of_panes_and_few_are_not() -> None:
    with ps.App(windows(3)) as few, ps.App(windows(30)) as many, ps.App(windows(30), strategy="window") as forced:
        assert [uses_panes(app) for app in (few, many, forced)] == [False, True, False]
        for app in (many, forced):
            app.push("s", batch(0, 500, 10))
            app.finish()
        assert [rows(many, f"w{i}") for i in range(30)] == [rows(forced, f"w{i}") for i in range(30)]
        assert len(rows(few, "w0")) == 0


def test_windows_that_show_changes_of_groups_keep_their_rows() -> None:
    """Rows say which groups have changed; whole relations would be compared otherwise."""
    changes = windows(30, "ISTREAM k, AVG(x) AS a").replace("];", "] GROUP BY k;")
    with ps.App(changes) as app, ps.App(changes, strategy="panes") as forced:
        assert [uses_panes(one) for one in (app, forced)] == [False, True]
        for one in (app, forced):
            one.push("s", batch(0, 500, 10))
            one.finish()
        assert [rows(app, f"w{i}") for i in range(30)] == [rows(forced, f"w{i}") for i in range(30)]


def test_what_was_measured_decides_for_queries_that_come_later() -> None:
    """Two windows are not worth panes at the rate that is assumed, and are at a hundred times that."""
    more = windows(2).removeprefix(STREAM)
    with ps.App(STREAM) as slow, ps.App(STREAM + "SELECT COUNT(*) AS n FROM s [ROWS 2];") as fast:
        fast.push("s", batch(0, 20_000, 100_000))
        for app in (slow, fast):
            app.add_query(more)
        assert [uses_panes(app) for app in (slow, fast)] == [False, True]


def test_groups_that_are_known_count_for_queries_that_come_later() -> None:
    by_key = windows(30, "k, AVG(x) AS a").removeprefix(STREAM).replace("];", "] GROUP BY k;")
    first = "CREATE QUERY known AS SELECT k, AVG(x) AS a FROM s [RANGE 9 SECONDS SLIDE 2 SECONDS] GROUP BY k;"
    outcomes = []
    for strategy in ("auto", "window"):
        with ps.App(STREAM + first, strategy=strategy) as app:
            app.push("s", batch(0, 5_000, 1_000))
            app.add_query(by_key)
            assert uses_panes(app) == (strategy == "auto")
            app.push("s", batch(5_000, 5_000, 1_000))
            outcomes.append([rows(app, name) for name in app.queries])
    assert outcomes[0] == outcomes[1]


def test_a_query_of_a_family_may_feed_another() -> None:
    text = windows(8, "MAX(x) AS a") + "INSERT INTO peaks SELECT MAX(x) AS a FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS];"
    text += "CREATE QUERY last AS SELECT LAST(a) AS b FROM peaks [ROWS 1];"
    outcomes = []
    for strategy in ("panes", "window"):
        with ps.App(text, strategy=strategy) as app:
            for first in range(0, 300, 7):
                app.push("s", batch(first, 7, 10))
            app.finish()
            outcomes.append([rows(app, name) for name in ("w0", "w7", "last")])
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][2]


def test_dropping_the_longest_window_lets_its_rows_go() -> None:
    text = STREAM + "CREATE QUERY long AS SELECT k, SUM(x) AS a FROM s [RANGE 1 HOUR SLIDE 1 SECOND] GROUP BY k;"
    text += "CREATE QUERY short AS SELECT k, SUM(x) AS a FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k;"
    with ps.App(text, strategy="panes") as app, ps.App(text, strategy="window") as other:
        for one in (app, other):
            one.push("s", batch(0, 30_000, 10))
        held = app.metrics.stored_bytes
        app.drop_query("long")
        assert app.metrics.stored_bytes < held
        for one in (app, other):
            one.push("s", batch(30_000, 100, 10))
            one.finish()
        assert rows(app, "short") == rows(other, "short")


@pytest.mark.slow
def test_pane_rows_page_to_disk() -> None:
    """Forty windows of up to 400 seconds over 150 groups, in a budget that holds a small part of their pane rows; some
    panes have values that take extra words."""
    text = STREAM + "".join(
        f"CREATE QUERY w{i} AS SELECT k, SUM(x) AS a, MIN(x) AS b, VAR_POP(x) AS c "
        f"FROM s [RANGE {10 * (i + 1)} SECONDS SLIDE 5 SECONDS] GROUP BY k;"
        for i in range(40)
    )
    rng = np.random.default_rng(3)
    count = 40_000
    numbers, values = rng.integers(0, 150, count).astype(np.int32), rng.random(count)
    odd = np.flatnonzero((numbers < 3) & (np.arange(count) > 7_000))[::4]
    values[odd] = rng.choice([1e300, -1e300, np.nan, np.inf, 5e-324], len(odd))
    times = pa.array(np.sort(rng.integers(0, 600 * SECOND, count))).view(pa.timestamp("us", tz="UTC"))
    events = pa.RecordBatch.from_arrays([times, pa.array(numbers), pa.array(values)], names=["t", "k", "x"])
    outcomes = []
    for strategy, memory in (("panes", "6MB"), ("window", "256MB")):
        with ps.App(text, strategy=strategy, memory=memory, block_size=4096) as app:
            for first in range(0, count, 7_000):
                app.push("s", events.slice(first, 7_000))
            app.finish()
            outcomes.append([bits(app.results(f"w{i}")) for i in range(40)])
            if strategy == "panes":
                assert app.metrics.blocks_read > 0
                assert app.metrics.memory_peak <= 6_000_000
    assert outcomes[0] == outcomes[1]


def test_groups_that_come_with_a_boundary_to_close() -> None:
    """No pane is open when they come, since the events before fail WHERE; and there are more of them than ever."""
    text = STREAM + "".join(
        f"CREATE QUERY w{extent} AS SELECT k, SUM(x) AS a FROM s [RANGE {extent} SECONDS SLIDE 2 SECONDS] "
        "WHERE x > 0 GROUP BY k;"
        for extent in (4, 8)
    )
    events = [(0, 0, 1.0), (3, 0, -1.0), *((7, k, 1.0) for k in range(100)), (9, 0, -1.0)]
    outcomes = []
    for strategy in ("panes", "window"):
        with ps.App(text, strategy=strategy) as app:
            for begin, end in ((0, 2), (2, len(events))):
                app.push("s", [{"t": t * SECOND, "k": k, "x": x} for t, k, x in events[begin:end]])
                app.flush()
            app.finish()
            outcomes.append([rows(app, name) for name in ("w4", "w8")])
    assert outcomes[0] == outcomes[1]
    assert [len(came) for came in outcomes[0]] == [202, 203]


def test_windows_ask_before_they_grow() -> None:
    """A hundred windows of ten thousand groups: what is refused has not been taken, and groups go to shards."""
    text = STREAM + "".join(
        f"CREATE QUERY w{i} AS SELECT k, SUM(x) AS a FROM s [RANGE {i + 2} HOURS SLIDE 1 HOUR] GROUP BY k;"
        for i in range(100)
    )
    with ps.App(text, strategy="panes", memory="8MB") as app:
        (family,) = app._flow._aggregations.values()
        events = [{"t": k, "k": k, "x": 1.0} for k in range(10_000)]
        app.push("s", events[:10])
        assert family._held is not None
        app.push("s", events[10:])
        assert family._held is None
        assert app.metrics.memory_peak <= 8_000_000


def test_what_goes_on_from_a_checkpoint_stays_as_it_was(tmp_path: Path) -> None:
    with ps.App(windows(30), checkpoint=tmp_path) as app:
        app.push("s", batch(0, 200, 10))
        app.checkpoint()
    with ps.App(windows(30), checkpoint=tmp_path, strategy="window") as app, ps.App(windows(30)) as whole:
        assert uses_panes(app)
        app.push("s", batch(200, 200, 10))
        whole.push("s", batch(0, 400, 10))
        assert rows(app, "w29") == rows(whole, "w29")


def test_queries_that_are_left_after_a_restart_find_what_they_compare_with(tmp_path: Path) -> None:
    """`sums` goes; the states of the others were behind its own."""
    window, other = "s [RANGE 9 SECONDS SLIDE 1 SECOND] GROUP BY k", "s [RANGE 4 SECONDS SLIDE 1 SECOND] GROUP BY k"
    sums = f"CREATE QUERY sums AS SELECT ISTREAM k, SUM(x) AS a FROM {window};"
    left = f"CREATE QUERY most AS SELECT ISTREAM k, MAX(x) AS a FROM {window};"
    left += f"CREATE QUERY both AS SELECT ISTREAM k, SUM(x) AS a, MAX(x) AS b FROM {other};"
    with ps.App(STREAM + sums + left, checkpoint=tmp_path, strategy="panes") as app:
        assert [type(stage.form) for stage in plan_at_work(app._flow.running).stages] == [PaneFamily]
        app.push("s", batch(0, 100, 5))
        app.checkpoint()
    with ps.App(STREAM + left, checkpoint=tmp_path, strategy="panes") as app, ps.App(STREAM + left) as whole:
        for one, first in ((app, 100), (whole, 0)):
            one.push("s", batch(first, 200 - first, 5))
            one.finish()
        for name in ("most", "both"):
            assert rows(app, name) == rows(whole, name)


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        ("SELECT MEDIAN(x) AS m FROM s [RANGE 9 SECONDS SLIDE 1 SECOND]", "MEDIAN of panes"),
        ("SELECT SUM(x) AS m FROM s [ROWS 9]", "RANGE windows over a stream"),
        ("SELECT SUM(x) AS m FROM s [RANGE 9 SECONDS]", "RANGE windows over a stream"),
        ("SELECT k FROM s", "it aggregates no window"),
    ],
)
def test_panes_that_cannot_be_are_refused(select: str, reason: str) -> None:
    with pytest.raises(ps.QueryError, match=reason):
        ps.App(f"{STREAM} CREATE QUERY q WITH ('strategy' = 'panes') AS {select};")


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ps.QueryError, match="there is no strategy 'pains'"):
        ps.App(STREAM, strategy="pains")
    for option, message in (("'strategy' = 'pains'", "no strategy 'pains'"), ("'speed' = '9'", "no option 'speed'")):
        with pytest.raises(ps.QueryError, match=message):
            ps.App(f"{STREAM} CREATE QUERY q WITH ({option}) AS SELECT SUM(x) AS a FROM s [ROWS 2];")
