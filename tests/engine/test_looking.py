"""Looks at an app from another thread: what they show, and that they work nothing off and never fail."""

from __future__ import annotations

import threading

import pytest

from penstock import App
from penstock.engine.live_view import Look

PROGRAM = """
    CREATE STREAM s (t BIGINT, k STRING, x INT, EVENT TIME t UNIT SECONDS, LATENESS 5 SECONDS);
    CREATE QUERY a AS SELECT k, SUM(x) AS total FROM s [RANGE 1 MINUTE] GROUP BY k;
    CREATE QUERY b AS SELECT MAX(x) AS most FROM s [RANGE 1 MINUTE SLIDE 10 SECONDS];
    CREATE QUERY c AS SELECT 10 / x AS part FROM s;
"""


def test_what_is_seen() -> None:
    with App(PROGRAM, memory="2MB") as app:
        app.push("s", [{"t": t, "k": "k", "x": t % 3} for t in range(100)])
        app.push("s", {"t": 1, "k": "late", "x": 1})
        look = app.look()
        assert look.state == "running"
        (stream,) = look.streams
        assert (stream.events, stream.late, stream.held, stream.watermark) == (101, 1, 5, 94_000_000)
        a, b, c = look.queries
        assert (a.results, a.sharers, b.sharers, c.sharers) == (95, 1, 1, 0)
        assert (a.kept, c.kept) == ("stored window", "of its own")
        assert look.metrics == app.metrics
        assert sum(look.memory.values()) == look.metrics.memory_bytes
        assert look.rejects[-1]["row"]["x"] == 0
        app.add_query("CREATE QUERY d AS SELECT COUNT(*) AS n FROM s [RANGE 1 MINUTE]")
        assert [query.name for query in app.look().program.queries] == ["a", "b", "c", "d"]
        app.finish()
        assert app.look().state == "finished"
    assert app.look().state == "closed"


def test_a_look_works_nothing_off() -> None:
    """Events that linger for company go on lingering."""
    with App(PROGRAM, linger=1000.0) as app:
        app.push("s", {"t": 1, "k": "k", "x": 1})
        assert app.look().metrics.events == 0
        assert app.metrics.events == 1


@pytest.mark.slow
def test_looks_while_everything_changes() -> None:
    with App(PROGRAM, memory="2MB") as app:
        looks: list[Look] = []
        ended = threading.Event()
        failures: list[BaseException] = []

        def watch() -> None:
            try:
                while not ended.is_set():
                    looks.append(app.look())
            except BaseException as error:
                failures.append(error)

        watcher = threading.Thread(target=watch)
        watcher.start()
        for t in range(150):
            app.push("s", [{"t": t, "k": f"k{t % 7}", "x": i % 5} for i in range(20)])
            name = app.add_query(
                f"CREATE QUERY q{t} AS SELECT k, COUNT(*) AS n FROM s [RANGE {t + 1} SECONDS] GROUP BY k"
            )
            if t % 2:
                app.drop_query(name)
        ended.set()
        watcher.join()
        assert failures == []
        assert looks
        counts = [look.metrics.events for look in looks]
        assert counts == sorted(counts)
