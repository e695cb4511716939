"""User-defined aggregates in an app: with and without `remove`, through restarts, and when their code fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

SECOND = 1_000_000


class Spread(ps.UserAggregate):
    """Largest minus smallest, from a sorted list."""

    name = "SPREAD"
    argument_types = (ps.SqlType.BIGINT,)
    result_type = ps.SqlType.BIGINT
    state_schema = pa.schema([("values", pa.list_(pa.int64()))])

    def create(self) -> dict[str, Any]:
        return {"values": []}

    def add(self, state: dict[str, Any], *values: Any) -> None:
        if values[0] == 13:
            raise ValueError("unlucky")
        state["values"] = sorted([*state["values"], values[0]])

    def remove(self, state: dict[str, Any], *values: Any) -> None:
        state["values"].remove(values[0])

    def result(self, state: dict[str, Any]) -> Any:
        return state["values"][-1] - state["values"][0]


class SpreadAgain(Spread):
    """The same, added up anew at every evaluation."""

    remove = ps.UserAggregate.remove


WINDOWS = ["ROWS 4", "RANGE 5 SECONDS", "RANGE 5 SECONDS SLIDE 2 SECONDS", "RANGE 4 SECONDS SLIDE 4 SECONDS"]


def program(window: str) -> str:
    return f"""
        CREATE STREAM s (t TIMESTAMP, k STRING, v BIGINT NOT NULL, EVENT TIME t);
        SELECT k, SPREAD(v) AS spread, MAX(v) - MIN(v) AS expected, COUNT(*) AS n FROM s [{window}] GROUP BY k
    """


def events(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"t": i * SECOND, "k": "abc"[i * i % 3], "v": 2 * (i * 7919 % 101)} for i in range(start, stop)]


@pytest.mark.parametrize("aggregate", [Spread(), SpreadAgain()], ids=["with remove", "without"])
@pytest.mark.parametrize("window", WINDOWS)
def test_it_agrees_with_the_built_in_ones_through_a_restart(
    tmp_path: Path, window: str, aggregate: ps.UserAggregate
) -> None:
    seen = 0
    for start in (0, 30, 60):
        with ps.App(program(window), aggregates=[aggregate], checkpoint=tmp_path) as app:
            app.push("s", events(start, start + 30))
            if start == 60:
                app.finish()
            table = app.results("q1")
            seen += table.num_rows
            assert table.column("spread").to_pylist() == table.column("expected").to_pylist()
            app.checkpoint()
    with ps.App(program(window), aggregates=[aggregate]) as app:
        app.push("s", events(0, 90))
        app.finish()
        assert app.results("q1").num_rows == seen


@pytest.mark.parametrize("aggregate", [Spread(), SpreadAgain()], ids=["with remove", "without"])
def test_failing_code_rejects_the_results_it_concerns(aggregate: ps.UserAggregate) -> None:
    """The 13 spoils a's results while it is in the window (with `remove`, until a has been empty once); b goes on."""
    with ps.App(program("RANGE 3 SECONDS"), aggregates=[aggregate]) as app:
        values = [(0, "a", 1), (1, "a", 13), (2, "b", 5), (2, "a", 2), (9, "b", 7), (9, "a", 4), (10, "a", 10)]
        app.push("s", [{"t": t * SECOND, "k": k, "v": v} for t, k, v in values])
        rows = [(r["k"], r["spread"]) for r in app.results("q1").to_pylist()]
        assert rows == [("a", 0), ("b", 0), ("b", 0), ("a", 0), ("a", 6)]
        assert app.metrics.rejected == 2
        assert all(reject["reason"] for reject in app.rejects)


def test_a_name_that_was_not_given_is_refused() -> None:
    with pytest.raises(ps.QueryError, match="SPREAD"):
        ps.App(program("ROWS 4"))
    with pytest.raises(ps.QueryError, match="SPREAD"):
        ps.App(program("ROWS 4").replace("SPREAD(v)", "SPREAD(v, v)"), aggregates=[Spread()])


def test_added_while_running() -> None:
    stream, query = program("ROWS 2").split(";")
    with ps.App(stream, aggregates=[Spread()]) as app:
        name = app.add_query(query)
        app.push("s", events(0, 5))
        assert app.results(name).num_rows == 5
