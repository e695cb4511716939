"""Sessions of many keys: however the stream is cut, a session is its key's, and so is what it is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps

PROGRAM = """CREATE STREAM s (t BIGINT, k INT, EVENT TIME t UNIT SECONDS);
CREATE QUERY q AS SELECT {emit} k, COUNT(*) AS n FROM s [PARTITION BY k SESSION 10 SECONDS] GROUP BY k"""
ROWS = "CREATE STREAM s (t BIGINT, k INT, EVENT TIME t UNIT SECONDS);"
ROWS += "CREATE QUERY q AS SELECT {emit} k, 1 AS n FROM s [PARTITION BY k SESSION 10 SECONDS]"

Event = dict[str, int]


def answers(program: str, *batches: list[Event]) -> list[tuple[Any, Any]]:
    with ps.App(program) as app:
        for batch in batches:
            app.push("s", batch)
        app.finish()
        return [(row["k"], row["n"]) for row in app.results("q").to_pylist()]


def test_keys_that_open_two_sessions_in_one_push() -> None:
    events = [{"t": t, "k": k} for t in (0, 20) for k in range(9)]
    events += [{"t": 21, "k": 100}, {"t": 25, "k": 0}]
    whole = answers(PROGRAM.format(emit=""), events)
    assert whole[9:] == [*((k, 1) for k in range(1, 9)), (100, 1), (0, 2)]
    for cut in range(1, len(events)):
        assert answers(PROGRAM.format(emit=""), events[:cut], events[cut:]) == whole


def many_keys() -> list[Event]:
    """Each of 300 keys has two sessions, of one event and of two, 150 seconds apart: the others come in between."""
    first = [{"t": k, "k": k} for k in range(300)]
    second = [{"t": k + 150 + more, "k": k} for k in range(300) for more in (0, 1)]
    return sorted(first + second, key=lambda event: event["t"])


@pytest.mark.parametrize("program", [PROGRAM, ROWS], ids=["groups", "rows"])
@pytest.mark.parametrize("size", [1, 7, 100, 900])
def test_a_session_is_compared_with_the_session_before_of_its_key(program: str, size: int) -> None:
    events = many_keys()
    batches = [events[at : at + size] for at in range(0, len(events), size)]
    came = answers(program.format(emit="ISTREAM"), *batches)
    left = answers(program.format(emit="DSTREAM"), *batches)
    if program is ROWS:  # of two equal rows one was there before
        assert (sorted(came), left) == (sorted([(k, 1) for k in range(300)] * 2), [])
    else:
        assert sorted(came) == sorted([(k, 1) for k in range(300)] + [(k, 2) for k in range(300)])
        assert sorted(left) == [(k, 1) for k in range(300)]


def test_what_a_key_showed_before_is_there_after_a_restart(tmp_path: Path) -> None:
    program, events = PROGRAM.format(emit="DSTREAM"), many_keys()
    rows: list[tuple[int, int]] = []
    for begin, end in ((0, 230), (230, 500), (500, 900)):
        with ps.App(program, checkpoint=str(tmp_path)) as app:
            app.push("s", events[begin:end])
            if end == 900:
                app.finish()
            rows += [(row["k"], row["n"]) for row in app.results("q").to_pylist()]
            app.checkpoint()
    assert sorted(rows) == [(k, 1) for k in range(300)]


@pytest.mark.slow
def test_keys_that_showed_nothing_are_forgotten() -> None:
    """What is kept of a key is what its last session showed."""
    program = PROGRAM.format(emit="ISTREAM") + " HAVING COUNT(*) > 1"
    with ps.App(program, memory="80KB") as app:
        for start in range(0, 12_000, 500):
            app.push("s", [{"t": k, "k": k} for k in range(start, start + 500)])
        app.push("s", [{"t": 12_000, "k": 7}] * 2)
        app.finish()
        assert [(row["k"], row["n"]) for row in app.results("q").to_pylist()] == [(7, 2)]
