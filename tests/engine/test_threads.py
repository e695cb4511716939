"""One call at a time gets into an app; what a second thread is told, and what any thread may look at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps

TEXT = """
    CREATE STREAM s (t BIGINT, k INT, EVENT TIME t UNIT SECONDS);
    CREATE QUERY q AS SELECT k, COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 SECOND] GROUP BY k;
"""


def elsewhere(work: Callable[[], object]) -> BaseException | None:
    """What the work raises in another thread."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def test_a_second_thread_is_told_that_another_is_inside(tmp_path: Path) -> None:
    with ps.App(TEXT, checkpoint=tmp_path) as app:
        found: list[BaseException | None] = []

        def look(batch: object) -> None:
            calls = [
                lambda: app.push("s", {"t": 9, "k": 9}),
                app.checkpoint,
                lambda: app.add_query("SELECT k FROM s"),
                lambda: app.drop_query("q"),
            ]
            found.extend(elsewhere(call) for call in calls)
            with pytest.raises(ps.PenstockError, match="a subscriber is called in the middle of a push"):
                app.push("s", {"t": 9, "k": 9})

        app.subscribe("q", look)
        app.push("s", {"t": 1, "k": 1})
        app.push("s", {"t": 2, "k": 1})
        assert len(found) == 4
        assert all("another thread is inside this app" in str(error) for error in found)
        app.push("s", {"t": 3, "k": 1})  # the app goes on
        assert app.checkpoint().epoch


def test_checkpoints_from_several_threads_are_written_one_by_one_or_refused(tmp_path: Path) -> None:
    with ps.App(TEXT, checkpoint=tmp_path) as app:
        app.push("s", {"t": 1, "k": 1})
        raised: list[BaseException | None] = []

        def write() -> None:
            for _ in range(20):
                try:
                    app.checkpoint()
                except ps.PenstockError:
                    pass
                except BaseException as error:
                    raised.append(error)

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert raised == []
        assert app.checkpoint().positions == {"s": 1}


def test_any_thread_may_look_at_the_plan_while_queries_are_added() -> None:
    with ps.App(TEXT) as app:
        ended = threading.Event()
        raised: list[BaseException | None] = []

        def look() -> None:
            while not ended.is_set():
                try:
                    app.explain()
                except BaseException as error:
                    raised.append(error)

        thread = threading.Thread(target=look)
        thread.start()
        for number in range(60):
            app.add_query(f"SELECT k, COUNT(*) AS n FROM s [RANGE {number + 1} HOURS] GROUP BY k")
        ended.set()
        thread.join()
        assert raised == []
