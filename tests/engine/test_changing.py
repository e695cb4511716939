"""Windows change from stored rows to panes and back while an app runs: when, for whom, and at what price."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from engine.test_panes import STREAM, batch, rows, uses_panes, windows

CHANGES = "a change is under way"


def outcome(app: ps.App) -> dict[str, list[dict[str, Any]]]:
    return {name: rows(app, name) for name in app.queries}


def held(app: ps.App, kinds: tuple[str, ...]) -> list[str]:
    """Who has memory, by the kind of what it is for."""
    return [name for name in app._stores.budget.describe() if name.startswith(kinds)]


def unchanged(text: str, events: int, per_second: int = 10) -> dict[str, list[dict[str, Any]]]:
    with ps.App(text, strategy="window") as app:
        app.push("s", batch(0, events, per_second))
        return outcome(app)


def test_a_change_takes_the_longest_window_and_no_answer_shows_it() -> None:
    """Windows of up to 6 seconds, ten events a second."""
    text = windows(5)
    with ps.App(text, strategy="window") as app:
        app.push("s", batch(0, 100, 10))
        app.set_strategy("panes")
        forms = []
        for first in range(100, 250, 10):
            app.push("s", batch(first, 10, 10))
            forms.append((uses_panes(app), CHANGES in app.explain()))
        assert forms == [(False, True)] * 8 + [(True, False)] * 7
        app.set_strategy("window")
        app.push("s", batch(250, 10, 10))
        assert (uses_panes(app), CHANGES in app.explain()) == (True, True)
        app.push("s", batch(260, 140, 10))
        app.push("s", batch(400, 10, 10))
        assert (uses_panes(app), CHANGES in app.explain()) == (False, False)
        assert outcome(app) == unchanged(text, 410)


def test_a_change_ends_between_the_pieces_of_a_push() -> None:
    text = windows(5)
    with ps.App(text, strategy="window", memory="1MB", block_size=4096) as app:
        app.push("s", batch(0, 100, 10))
        for first, strategy in ((100, "panes"), (2100, "window")):
            app.set_strategy(strategy)
            app.push("s", batch(first, 2000, 10))
            assert (uses_panes(app), CHANGES in app.explain()) == (strategy == "panes", False)
        assert outcome(app) == unchanged(text, 4100)


def test_the_form_that_is_left_gives_everything_back(tmp_path: Path) -> None:
    text = windows(5, "k, SUM(x) AS a").replace("];", "] GROUP BY k;")
    with ps.App(text, strategy="window", checkpoint=tmp_path) as app:
        app.push("s", batch(0, 200, 10))
        app.set_strategy("panes")
        for first in range(200, 400, 10):
            app.push("s", batch(first, 10, 10))
        assert uses_panes(app)
        assert held(app, ("family-",))
        assert not held(app, ("window-", "aggregate-"))
        app.checkpoint()
        assert not list(tmp_path.glob("blocks/window*"))


def test_one_query_takes_its_family_along_and_nobody_else() -> None:
    text = (
        windows(3) + "CREATE QUERY other AS SELECT k, MAX(x) AS a FROM s [RANGE 4 SECONDS SLIDE 1 SECOND] GROUP BY k;"
    )
    with ps.App(text, strategy="window") as app:
        app.set_strategy("panes", "W1")
        app.push("s", batch(0, 10, 10))
        plans = {plan.split("\n")[0]: plan for plan in app.explain().split("\n\n")}
        assert [CHANGES in plans[name] for name in ("w0", "w1", "w2", "other")] == [True, True, True, False]


def test_what_cannot_be_panes_is_refused_and_left_alone() -> None:
    text = windows(2) + "CREATE QUERY middle AS SELECT MEDIAN(x) AS a FROM s [RANGE 4 SECONDS SLIDE 1 SECOND];"
    with ps.App(text, strategy="window") as app:
        with pytest.raises(ps.QueryError, match="cannot be made of panes"):
            app.set_strategy("panes", "middle")
        with pytest.raises(ps.QueryError, match="no strategy 'pains'"):
            app.set_strategy("pains")
        app.set_strategy("panes")
        for first in range(0, 200, 10):
            app.push("s", batch(first, 10, 10))
        assert uses_panes(app)
        assert outcome(app) == unchanged(text, 200)


def test_a_rate_that_was_not_expected_makes_windows_change() -> None:
    """Two windows are worth panes at 100,000 events a second, but nobody knew that when they began."""
    with ps.App(windows(2)) as app:
        changed = []
        for first in range(0, 1_500_000, 50_000):
            app.push("s", batch(first, 50_000, 100_000))
            changed.append(uses_panes(app))
        assert not changed[0]
        assert changed[-1]
        assert outcome(app) == unchanged(windows(2), 1_500_000, 100_000)


def test_a_stream_that_is_slow_makes_panes_rows_again() -> None:
    text = windows(2)
    with ps.App(text, strategy="panes") as app:
        app.push("s", batch(0, 2_000, 1))
        app.set_strategy("auto")
        for first in range(2_000, 2_100):
            app.push("s", batch(first, 1, 1))
        assert not uses_panes(app)
        assert outcome(app) == unchanged(text, 2_100, 1)


def test_a_change_that_finds_no_memory_is_given_up() -> None:
    """The pane rows of many windows do not fit beside the stored rows: those go on."""
    text = STREAM + "".join(
        f"CREATE QUERY w{i} AS SELECT k, SUM(x) AS a, VAR_POP(x) AS b "
        f"FROM s [RANGE {i + 2} SECONDS SLIDE 1 SECOND] GROUP BY k;"
        for i in range(20)
    )
    with ps.App(text, strategy="window", memory="4MB", block_size=4096) as probe:
        for query in probe.queries:  # rows that wait to be read would be on the account
            probe.subscribe(query, lambda rows: None)
        probe.push("s", batch(0, 100, 10))
        least = probe.metrics.memory_peak
    with ps.App(text, strategy="window", memory=least + 20_000, block_size=4096) as app:
        app.push("s", batch(0, 100, 10))
        app.set_strategy("panes")
        app.push("s", batch(100, 100, 10))
        app.push("s", batch(200, 400, 10))
        assert not uses_panes(app)
        assert CHANGES not in app.explain()
        assert outcome(app) == unchanged(text, 600)


def test_rows_that_fail_are_rejected_once(tmp_path: Path) -> None:
    text = windows(3, "SUM(1 / k) AS a")
    with ps.App(text, strategy="window", checkpoint=tmp_path) as app:
        for first in range(0, 300, 10):
            if first in (50, 170):
                app.set_strategy("panes" if first == 50 else "window")
            app.push("s", batch(first, 10, 10))
        assert len(app.rejects) == app.metrics.rejected == 3 * 100


def test_an_unfinished_change_is_not_in_the_checkpoint(tmp_path: Path) -> None:
    text = windows(4)
    with ps.App(text, strategy="window", checkpoint=tmp_path) as app:
        app.push("s", batch(0, 100, 10))
        app.set_strategy("panes")
        app.push("s", batch(100, 20, 10))
        assert CHANGES in app.explain()
        came = outcome(app)
        app.checkpoint()
    with ps.App(text, strategy="window", checkpoint=tmp_path) as app:
        assert CHANGES not in app.explain()
        app.set_strategy("panes")
        for first in range(120, 300, 10):
            app.push("s", batch(first, 10, 10))
        assert uses_panes(app)
        again = outcome(app)
        assert {name: came[name] + again[name] for name in came} == unchanged(text, 300)
        app.checkpoint()
    with ps.App(text, checkpoint=tmp_path) as app:
        assert uses_panes(app)


def test_queries_that_are_dropped_leave_both_forms() -> None:
    text = windows(3)
    with ps.App(text, strategy="panes") as app:
        app.push("s", batch(0, 100, 10))
        app.set_strategy("window")
        app.push("s", batch(100, 20, 10))
        app.drop_query("w1")
        app.push("s", batch(120, 10, 10))
        assert held(app, ("window-", "aggregate-"))
        for name in ("w0", "w2"):
            app.drop_query(name)
        assert not held(app, ("window-", "aggregate-", "family-"))
