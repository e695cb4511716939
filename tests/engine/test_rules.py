"""Rules in an app: calls of Python functions and of servers, their numbers through restarts and kills, and failures."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from calls import servers
from engine import calling_process
from penstock.errors import BudgetError, QueryError

STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, x BIGINT, EVENT TIME t);"
RULE = "CREATE RULE high WHEN SELECT k, x FROM s WHERE x > 2 EVERY THEN CALL note(k, x * 10 AS tenfold)"


class Notes:
    """A function that remembers how it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any, idempotency_key: str) -> None:
        self.calls.append((idempotency_key, *arguments))


def event(t: int, x: int, k: str | None = "a") -> dict[str, Any]:
    return {"t": t * 1_000_000, "k": k, "x": x}


def test_a_function_is_called_where_a_rule_fires() -> None:
    notes = Notes()
    with ps.App(STREAM + RULE, functions={"Note": notes}) as app:
        app.push("s", [event(1, 3), event(2, 1), event(3, 4, None)])
        assert app.wait_for_calls(10)
        app.push("s", event(4, 5))
        app.finish()
        assert app.metrics.calls == 3
        assert (app.metrics.calls_waiting, app.rejects) == (0, [])
    assert notes.calls == [("high:0", "a", 30), ("high:1", None, 40), ("high:2", "a", 50)]


def test_values_are_those_of_python() -> None:
    notes = Notes()
    text = (
        "WHEN SELECT t, k, x FROM s EVERY THEN CALL note(t, CAST(t AS DATE), k, x, x > 1, x / 2, CAST(NULL AS DOUBLE))"
    )
    with ps.App(STREAM + text, functions={"note": notes}, synchronous_calls=True) as app:
        app.push("s", event(0, 3))
    ((_, t, day, *rest),) = notes.calls
    assert (t.isoformat(), day.isoformat()) == ("1970-01-01T00:00:00+00:00", "1970-01-01")
    assert rest == ["a", 3, True, 1.5, None]


def test_several_calls_have_keys_of_their_own() -> None:
    notes, others = Notes(), Notes()
    text = "CREATE RULE r WHEN SELECT x FROM s WHERE x > 2 THEN CALL note(), CALL other(x), CALL note(x), EMIT INTO out"
    with ps.App(STREAM + text, functions={"note": notes, "other": others}) as app:
        app.push("s", [event(1, 3), event(2, 0), event(3, 4)])
        app.finish()
        assert app.results("out").column("x").to_pylist() == [3, 4]
        assert app.results("r").column("x").to_pylist() == [3, 4]
    assert notes.calls == [("r:0",), ("r:1",), ("r/3:0", 3), ("r/3:1", 4)]
    assert others.calls == [("r/2:0", 3), ("r/2:1", 4)]


def test_what_a_function_raises_goes_to_the_rejects_and_the_run_goes_on() -> None:
    def fail(k: str, x: int, idempotency_key: str) -> None:
        if x == 40:
            raise ValueError("forty")

    heard = []
    with ps.App(STREAM + RULE, functions={"note": fail}) as app:
        app.subscribe_rejects(lambda reason, row: heard.append((threading.current_thread(), reason)))
        app.push("s", [event(1, 3), event(2, 4), event(3, 5)])
        app.finish()
        (reject,) = app.rejects
        assert (app.metrics.calls, app.metrics.rejected) == (2, 1)
    assert reject["reason"] == "CALL note: ValueError: forty"
    assert reject["row"] == {"idempotency_key": "high:1", "k": "a", "tenfold": 40}
    assert heard == [(threading.main_thread(), "CALL note: ValueError: forty")]


def test_arguments_that_cannot_be_computed_are_rejected_and_keep_their_number() -> None:
    notes = Notes()
    text = "CREATE RULE r WHEN SELECT x FROM s EVERY THEN CALL note(10 / x)"
    with ps.App(STREAM + text, functions={"note": notes}) as app:
        app.push("s", [event(1, 1), event(2, 0), event(3, 5)])
        app.finish()
        assert len(app.rejects) == 1
    assert notes.calls == [("r:0", 10.0), ("r:2", 2.0)]


def test_an_event_that_cannot_be_computed_counts_as_if_it_had_not_come() -> None:
    rule = "WHEN SELECT x, 1 / (x - 2) AS y FROM s WHERE 10 / x > 2 THEN EMIT INTO out"
    with ps.App(STREAM + rule) as app:
        # 1 fires, 0 is rejected, 1 still holds, 9 does not, 2 fires and cannot be shown, 1 still holds, NULL does not.
        for t, x in enumerate([1, 0, 1, 9, 2, 1, None, 4]):
            app.push("s", {"t": t, "k": "a", "x": x})
        assert app.results("out").column("x").to_pylist() == [1, 4]
        assert [reject["row"]["x"] for reject in app.rejects] == [0, 2]


def test_what_is_kept_are_the_keys_that_hold() -> None:
    rule = "WHEN SELECT k, x FROM s WHERE x > 2 BY k THEN EMIT INTO out"
    keys = [f"key {n}" for n in range(50_000)]

    def push(app: ps.App, x: int) -> None:
        for start in range(0, len(keys), 1000):
            app.push("s", [{"t": 0, "k": key, "x": x} for key in keys[start : start + 1000]])

    with ps.App(STREAM + rule, memory="64MB") as app:
        push(app, 1)
        few = app.metrics.memory_bytes
        push(app, 3)
        many = app.metrics.memory_bytes
        push(app, 1)
        push(app, 3)
        assert app.metrics.results == 2 * len(keys)
    assert few < 500_000 < many
    with ps.App(STREAM + rule, memory="2MB") as app, pytest.raises(BudgetError, match="keys for which the condition"):
        push(app, 3)


def test_calls_do_not_hold_queries_up() -> None:
    gate = threading.Event()

    def wait(k: str, x: int, idempotency_key: str) -> None:
        gate.wait(10)

    with ps.App(STREAM + RULE + "; CREATE QUERY q AS SELECT x FROM s", functions={"note": wait}) as app:
        app.push("s", [event(1, 3), event(2, 4)])
        assert len(app.results("q")) == 2
        assert app.metrics.calls_waiting == 2
        assert not app.wait_for_calls(0.01)
        gate.set()
        app.finish()
        assert app.metrics.calls_waiting == 0


def test_numbers_go_on_after_a_restart_and_what_waited_is_called(tmp_path: Path) -> None:
    gate, before, after = threading.Event(), Notes(), Notes()

    def slow(*arguments: Any, idempotency_key: str) -> None:
        gate.wait(30)
        before(*arguments, idempotency_key=idempotency_key)

    app = ps.App(STREAM + RULE, checkpoint=tmp_path, functions={"note": slow})
    app.push("s", [event(1, 3), event(2, 4)])
    app.checkpoint()
    app.push("s", event(3, 5))
    gate.set()
    app.close()

    with ps.App(STREAM + RULE, checkpoint=tmp_path, functions={"note": after}) as app:
        app.push("s", [event(3, 5), event(4, 6)])
        app.finish()
    assert after.calls == [("high:0", "a", 30), ("high:1", "a", 40), ("high:2", "a", 50), ("high:3", "a", 60)]
    assert set(before.calls) <= set(after.calls)


@pytest.mark.parametrize("by_tick", [False, True])
def test_synchronous_calls_that_waited_in_a_checkpoint_are_made(tmp_path: Path, by_tick: bool) -> None:
    """Though no rule fires any more."""
    wait = threading.Event()
    with ps.App(STREAM + RULE, functions={"note": lambda *_, **__: wait.wait()}, checkpoint=tmp_path) as app:
        app.push("s", [event(1, 3), event(2, 4)])
        app.checkpoint()
        wait.set()
    notes = Notes()
    with ps.App(STREAM + RULE, functions={"note": notes}, checkpoint=tmp_path, synchronous_calls=True) as app:
        assert notes.calls == []
        app.tick() if by_tick else app.push("s", event(3, 0))
        assert notes.calls == [("high:0", "a", 30), ("high:1", "a", 40)]
        assert app.metrics.calls_waiting == 0


def test_a_key_is_never_used_for_another_firing(tmp_path: Path) -> None:
    """Also where the rule has changed, and begins afresh."""
    notes = Notes()
    for text in (RULE, RULE.replace("x > 2", "x > 3"), RULE.replace("x > 2", "x > 3")):
        with ps.App(STREAM + text, checkpoint=tmp_path, functions={"note": notes}) as app:
            app.push("s", [event(len(notes.calls), 4), event(len(notes.calls), 5)])
            assert app.wait_for_calls(10)
            app.checkpoint()
    assert [key for key, *_ in notes.calls] == [f"high:{n}" for n in range(6)]


def test_calls_of_a_function_that_is_gone_are_rejected(tmp_path: Path) -> None:
    gate = threading.Event()
    app = ps.App(STREAM + RULE, checkpoint=tmp_path, functions={"note": lambda *a, idempotency_key: gate.wait(30)})
    app.push("s", event(1, 3))
    app.checkpoint()
    gate.set()
    app.close()
    with ps.App(STREAM, checkpoint=tmp_path) as app:
        assert [r["reason"] for r in app.rejects] == ["CALL note: the function is not there any more"]


def test_rules_come_and_go_while_the_app_runs() -> None:
    notes = Notes()
    with ps.App(STREAM, functions={"note": notes}) as app:
        app.push("s", event(1, 3))
        assert app.add_query(RULE) == "high"
        app.push("s", event(2, 4))
        with pytest.raises(QueryError, match="a stream named 'high' exists already"):
            app.add_query(RULE)
        app.wait_for_calls()
        app.drop_query("high")
        app.push("s", event(3, 5))
        app.add_query(RULE)
        app.push("s", event(4, 6))
        app.finish()
    assert notes.calls == [("high:0", "a", 40), ("high:1", "a", 60)]


def test_a_rule_stands_for_its_query() -> None:
    with ps.App(STREAM + "CREATE RULE high WHEN SELECT x FROM s WHERE x > 2 THEN EMIT INTO out") as app:
        app.push("s", event(1, 3))
        assert len(app.results("HIGH")) == 1
        app.drop_query("high")
        assert app.queries == ()


def test_what_stands_in_a_header_is_asked_for_before_the_first_event() -> None:
    text = "CREATE FUNCTION note AS HTTP POST 'http://127.0.0.1:9' WITH ('header.X' = 'env:NOT_THERE_AT_ALL');"
    with ps.App(STREAM + text + RULE) as app:
        assert "calls note" in app.explain()
        with pytest.raises(QueryError, match="needs the environment variable NOT_THERE_AT_ALL"):
            app.push("s", event(1, 3))
        assert app.metrics.events == 0


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(QueryError, match="the function 'note' cannot be called: it is a str"):
        ps.App(STREAM + RULE, functions={"note": "text"})  # type: ignore[dict-item]


def test_a_program_says_what_its_rules_do() -> None:
    with ps.App(STREAM + RULE, functions={"note": Notes()}) as app:
        assert "rule high, at every row: calls note(k, tenfold)" in app.explain()


BOTH = STREAM + "CREATE STREAM r (t TIMESTAMP, k STRING, y BIGINT, EVENT TIME t);"
ARRIVALS: list[tuple[str, dict[str, Any]]] = [
    ("s", {"t": 1_000_000, "k": "a", "x": 1}),
    ("r", {"t": 2_000_000, "k": "a", "y": 5}),
    ("s", {"t": 3_000_000, "k": "a", "x": 7}),
    ("r", {"t": 4_000_000, "k": "b", "y": 5}),
    ("s", {"t": 5_000_000, "k": "b", "x": 9}),
    ("r", {"t": 6_000_000, "k": "b", "y": 1}),
]
JOINED = "FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS], r [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE s.k = r.k"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            "WHEN PATTERN SEQ(s a, r b) WHERE a.k = b.k WITHIN 10 SECONDS THEN EMIT INTO out SELECT a_k, x, y",
            [("a", 1, 5), ("b", 9, 1)],
        ),
        (
            "WHEN SELECT s.k, x, y FROM s [RANGE 9 SECONDS], r [RANGE 9 SECONDS] WHERE s.k = r.k THEN EMIT INTO out "
            "SELECT k, x + y AS z",
            [("a", 6), ("a", 12), ("b", 14), ("b", 10)],
        ),
        (
            f"WHEN SELECT s.k, x, y {JOINED} THEN EMIT INTO out SELECT k, x, y",
            [("a", 1, 5), ("a", 7, 5), ("b", 9, 5), ("b", 9, 1)],
        ),
        (f"WHEN SELECT s.k, COUNT(*) AS n {JOINED} GROUP BY s.k THEN EMIT INTO out SELECT k, n", [("a", 2), ("b", 1)]),
        (
            "CREATE TABLE most (k STRING PRIMARY KEY, m BIGINT); ON r UPSERT INTO most VALUES (r.k, r.y);"
            "WHEN SELECT * FROM (SELECT s.k, x, m FROM s, most WHERE s.k = most.k) WHERE x > m BY k THEN EMIT INTO out",
            [("a", 7, 5), ("b", 9, 5)],
        ),
    ],
    ids=["pattern", "join", "join at slides", "groups of a join", "table"],
)
@pytest.mark.parametrize("cut", range(len(ARRIVALS)))
def test_patterns_joins_and_tables_are_conditions(
    rule: str, expected: list[tuple[Any, ...]], cut: int, tmp_path: Path
) -> None:
    """With a restart after each event."""
    rows: list[tuple[Any, ...]] = []
    for is_last, part in enumerate((ARRIVALS[:cut], ARRIVALS[cut:])):
        with ps.App(BOTH + rule, checkpoint=tmp_path) as app:
            for stream, row in part:
                app.push(stream, row)
            if is_last:
                app.finish()
            rows += [tuple(row.values()) for row in app.results("out").to_pylist()]
            app.checkpoint()
    assert rows == expected


def test_tables_are_changed_once_through_a_restart(tmp_path: Path) -> None:
    notes = Notes()
    text = (
        BOTH
        + """
        CREATE TABLE seen (k STRING PRIMARY KEY, n BIGINT, last BIGINT);
        CREATE RULE high WHEN SELECT k, x FROM s WHERE x > 0 EVERY
            THEN UPSERT INTO seen (k, n, last) VALUES (high.k, COALESCE(n, 0) + 1, high.x), CALL note(k),
                 DELETE FROM seen WHERE seen.k = high.k AND high.x = 9;
        CREATE QUERY q AS SELECT r.k, n, last FROM r LEFT JOIN seen ON r.k = seen.k
    """
    )
    rows = []
    after: list[tuple[str, dict[str, Any]]] = [("s", event(7, 2)), ("r", {"t": 8_000_000, "k": "a", "y": 0})]
    for part in (ARRIVALS[:3], ARRIVALS[3:], after):
        with ps.App(text, checkpoint=tmp_path, functions={"note": notes}) as app:
            for stream, row in part:
                app.push(stream, row)
            if part is after:
                app.finish()
            rows += [tuple(row.values()) for row in app.results("q").to_pylist()]
            app.wait_for_calls()
            app.checkpoint()
    assert rows == [("a", 1, 1), ("b", None, None), ("b", None, None), ("a", 3, 2)]
    assert notes.calls == [("high:0", "a"), ("high:1", "a"), ("high:2", "b"), ("high:3", "a")]


@contextmanager
def noting(path: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, str(Path(servers.__file__)), str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def killed(directory: Path, total: int, kills: int, seed: int) -> None:
    """Every firing reaches the server; one that does so again has the same key and says the same."""
    chance = random.Random(seed)
    script = Path(calling_process.__file__)
    with noting(directory / "seen") as url:
        for number in range(kills + 1):
            process = subprocess.Popen(
                [sys.executable, str(script), str(directory), str(total), url], stdout=subprocess.PIPE, text=True
            )
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                if number < kills:
                    time.sleep(chance.uniform(0, 0.4))
                    process.kill()
                else:
                    assert process.wait(timeout=300) == 0
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
    seen = [json.loads(line) for line in (directory / "seen").read_text().splitlines()]
    with ps.App(calling_process.program("http://127.0.0.1:9").replace("CALL note(k, total),", "")) as app:
        app.push("s", calling_process.events(0, total))
        app.finish()
        rows = app.results("alarms").to_pylist()
    expected = {f"high:{n}": {"k": row["k"], "total": row["total"]} for n, row in enumerate(rows)}
    assert len(expected) > total // 100
    assert {key for key, _ in seen} == set(expected)
    assert all(body == expected[key] for key, body in seen)


@pytest.mark.slow
def test_killed_many_times(tmp_path: Path) -> None:
    killed(tmp_path, 30_000, kills=20, seed=4)
