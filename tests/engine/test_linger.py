"""Single events that linger: nothing is lost, the order holds, and whoever asks sees everything."""

from __future__ import annotations

from typing import Any

import penstock as ps

PROGRAM = """
    CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING, x DOUBLE, EVENT TIME t);
    CREATE STREAM other (t TIMESTAMP NOT NULL, n BIGINT, EVENT TIME t);
    CREATE QUERY sums AS SELECT k, SUM(x) AS total FROM s [RANGE 10 SECONDS] GROUP BY k;
    CREATE QUERY counts AS SELECT COUNT(*) AS n FROM other [ROWS 2];
"""
LONG = 3600.0


def events(count: int) -> list[dict[str, Any]]:
    return [{"t": i * 1_000_000, "k": "ab"[i % 2], "x": float(i)} for i in range(count)]


def test_lingering_changes_no_answer() -> None:
    answers = []
    for linger in (0.0, LONG, 1e-9):
        with ps.App(PROGRAM, linger=linger) as app:
            for event in events(50):
                app.push("s", event)
                app.push("other", {"t": event["t"], "n": 1})
            app.finish()
            answers.append((app.results("sums").to_pylist(), app.results("counts").to_pylist()))
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0][0]) == 50


def test_events_wait_until_someone_asks() -> None:
    with ps.App(PROGRAM, linger=LONG) as app:
        came: list[int] = []
        app.subscribe("sums", lambda batch: came.append(batch.num_rows))
        for event in events(3):
            app.push("s", event)
        assert came == []
        app.flush()
        assert came == [3]
        app.push("s", events(4)[3])
        assert app.metrics.events == 4
        assert came == [3, 1]


def test_a_batch_does_not_overtake_events_that_linger() -> None:
    with ps.App(PROGRAM, linger=LONG) as app:
        first, second = events(2)
        app.push("s", first)
        app.push("s", [second])
        assert app.results("sums").column("total").to_pylist() == [0.0, 1.0]
        assert app.metrics.late == 0


def test_an_event_that_does_not_fit_takes_no_other_along() -> None:
    with ps.App(PROGRAM, linger=LONG) as app:
        first, second = events(2)
        app.push("s", first)
        app.push("s", {"t": 0, "k": "a", "x": "no number"})
        app.push("s", second)
        assert app.results("sums").num_rows == 2
        assert "column x must be DOUBLE" in app.rejects[0]["reason"]


def test_a_subscriber_may_look_in_while_others_linger() -> None:
    with ps.App(PROGRAM, linger=LONG) as app:
        seen: list[int] = []
        app.subscribe("sums", lambda batch: seen.append(app.metrics.results))
        for event in events(2):
            app.push("s", event)
        app.push("other", {"t": 0, "n": 1})
        app.flush()
        assert len(seen) == 1
        assert app.results("counts").num_rows == 1


def test_what_an_app_prints_works_nothing_off() -> None:
    with ps.App(PROGRAM, linger=LONG) as app:
        came: list[int] = []
        app.subscribe("sums", lambda batch: came.append(batch.num_rows))
        app.push("s", events(1)[0])
        assert "0 events" in repr(app)
        assert "0 events" in app._repr_html_()
        assert app.explain()
        assert came == []
        app.flush()
        assert came == [1]
        assert "1 events" in repr(app)
