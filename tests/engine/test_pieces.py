"""What one push gives leaves in pieces: memory is bounded, time follows the rows, and a run can be interrupted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import BudgetError, PenstockError
from penstock.operators.outgoing import PIECE_ROWS

SECOND = 1_000_000
IN_2026 = 1_767_225_600 * SECOND
STREAM = "CREATE STREAM s (t BIGINT, k BIGINT, x DOUBLE, EVENT TIME t UNIT MICROSECONDS);"
SLIDING = "SELECT k, AVG(x) AS m, COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 SECOND] GROUP BY k"

MEASURE = """
import re, sys, numpy as np, pyarrow as pa, penstock as ps

def kilobytes(what):
    return int(re.search(what + r":\\s+(\\d+)", open("/proc/self/status").read())[1])

def run(groups, seconds, strategy, reads):
    with ps.App(sys.argv[1], memory="16MB", strategy=strategy) as app:
        if reads:
            app.subscribe("q1", lambda rows: None)
        app.push("s", pa.table({"t": np.zeros(groups, np.int64), "k": np.arange(groups), "x": np.ones(groups)}))
        app.push("s", {"t": seconds * 1_000_000, "k": 0, "x": 1.0})
        return app.metrics.results

for arguments in (("window", True), ("panes", True), ("window", False)):
    run(100, 50, *arguments)
    open("/proc/self/clear_refs", "w").write("5")
    before = kilobytes("VmRSS")
    came = run(int(sys.argv[2]), int(sys.argv[3]), *arguments)
    print(came, (kilobytes("VmHWM") - before) // 1024)
"""


def measured(groups: int, seconds: int) -> list[tuple[int, int]]:
    """The rows of a silence of so many seconds over so many groups, and the megabytes that a process added for it: with
    stored rows, with panes, and where nothing reads the results."""
    command = [sys.executable, "-c", MEASURE, STREAM + SLIDING, str(groups), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [(int(rows), int(added)) for rows, added in (line.split() for line in done.stdout.splitlines())]


def test_a_silence_over_many_groups_takes_no_more_than_the_budget() -> None:
    found = measured(60_000, 60)
    assert [rows for rows, _ in found] == [3_600_000] * 3
    assert max(added for _, added in found) <= 16 + 64


@pytest.mark.slow
def test_an_hour_of_silence() -> None:
    found = measured(10_000, 3_600)
    assert [rows for rows, _ in found] == [36_000_000] * 3
    assert max(added for _, added in found) <= 16 + 64


def first_rows(query: str, most: int) -> tuple[list[dict[str, Any]], list[int], ps.App]:
    """The first rows of one event in 1970 and one in 2026, and the sizes of the batches until there are so many."""
    app = ps.App(STREAM + query)
    batches: list[pa.RecordBatch] = []

    def take(rows: pa.RecordBatch) -> None:
        batches.append(rows)
        if sum(batch.num_rows for batch in batches) >= most:
            raise KeyboardInterrupt  # as if from the keyboard

    app.subscribe("q1", take)
    app.push("s", {"t": 1, "k": 1, "x": 1.0})
    with pytest.raises(KeyboardInterrupt):
        app.push("s", {"t": IN_2026, "k": 1, "x": 2.0})
    batches = [batch.replace_schema_metadata() for batch in batches]
    return pa.Table.from_batches(batches[:3]).slice(0, 3).to_pylist(), [batch.num_rows for batch in batches], app


@pytest.mark.parametrize(
    ("window", "seconds"),
    [("[ROWS 3 SLIDE 5 SECONDS]", 5), ("[SINCE TIMESTAMP '1970-01-01' SLIDE 1 SECOND]", 1)],
)
def test_decades_of_boundaries_come_in_pieces_and_can_be_interrupted(window: str, seconds: int) -> None:
    rows, sizes, app = first_rows(f"SELECT SUM(x) AS n FROM s {window}", 200_000)
    assert [row["n"] for row in rows] == [1.0, 1.0, 1.0]
    assert [row["window_end"].timestamp() for row in rows] == [seconds, 2 * seconds, 3 * seconds]
    assert max(sizes) < 2 * PIECE_ROWS
    with pytest.raises(PenstockError, match=r"it was interrupted.*\n.*make a new app"):
        app.push("s", {"t": IN_2026 + SECOND, "k": 1, "x": 2.0})
    assert app.look().state == "failed"
    app.close()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT ISTREAM SUM(x) AS n FROM s [ROWS 3 SLIDE 5 SECONDS]", [1.0, 3.0]),
        ("SELECT ISTREAM x AS n FROM s [ROWS 3 SLIDE 5 SECONDS]", [1.0, 2.0]),
        ("SELECT DSTREAM SUM(x) AS n FROM s [SINCE TIMESTAMP '1970-01-01' SLIDE 1 SECOND]", [1.0]),
        ("SELECT ISTREAM SUM(x) AS n FROM s [PARTITION BY k ROWS 3 SLIDE 1 SECOND] GROUP BY k", [1.0, 3.0]),
        ("SELECT ISTREAM x AS n FROM s [PARTITION BY k ROWS 3 SLIDE 1 SECOND]", [1.0, 2.0]),
        ("SELECT ISTREAM SUM(x) AS n FROM s [RANGE 10000 DAYS SLIDE 1 SECOND]", [1.0, 2.0]),
        ("SELECT DSTREAM x AS n FROM s [RANGE 10000 DAYS SLIDE 1 SECOND]", [1.0]),
        ("SELECT SUM(x) AS n FROM s [ROWS 3 SLIDE 1 SECOND] HAVING SUM(x) > 100", []),
        ("SELECT SUM(x) AS n FROM s [ROWS 3 SLIDE 1 SECOND WHEN FULL]", []),
        ("SELECT SUM(x) AS n FROM s [ROWS 3 SLIDE 1 SECOND] WHERE k = 2", []),
        (
            "SELECT ISTREAM a.x AS n FROM s [ROWS 3 SLIDE 1 SECOND] AS a "
            "JOIN s [ROWS 1 SLIDE 1 SECOND] AS b ON a.k = b.k",
            [1.0, 2.0],
        ),
    ],
)
def test_boundaries_of_which_nothing_comes_are_passed_over(query: str, expected: list[float]) -> None:
    with ps.App(STREAM + query) as app:
        app.push("s", {"t": 1, "k": 1, "x": 1.0})
        app.push("s", {"t": IN_2026, "k": 1, "x": 2.0})
        app.finish()
        assert app.results("q1").column("n").to_pylist() == expected


def test_what_is_rejected_at_every_boundary_is_not_passed_over() -> None:
    with ps.App(STREAM + "SELECT ISTREAM 1 / (COUNT(*) - 1) AS n FROM s [ROWS 3 SLIDE 1 SECOND]") as app:
        app.push("s", {"t": 1, "k": 1, "x": 1.0})
        app.push("s", {"t": 5_000 * SECOND, "k": 1, "x": 2.0})
        assert app.metrics.rejected == 5_000
        app.finish()
        assert app.results("q1").column("n").to_pylist() == [1.0]


def test_pieces_reach_derived_streams_in_order() -> None:
    groups, seconds = 2_000, 200
    program = (
        STREAM + "INSERT INTO d SELECT k, COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 SECOND] GROUP BY k;"
        "CREATE QUERY total AS SELECT COUNT(*) AS c, SUM(n) AS n FROM d [RANGE 1 SECOND SLIDE 1 SECOND]"
    )
    with ps.App(program, memory="16MB") as app:
        app.push("s", pa.table({"t": np.zeros(groups, np.int64), "k": np.arange(groups), "x": np.ones(groups)}))
        app.push("s", {"t": seconds * SECOND, "k": 0, "x": 1.0})
        rows = app.results("total")
    assert rows.column("c").to_pylist() == [groups] * seconds
    ends = rows.column("window_end").cast(pa.int64()).to_pylist()
    assert ends == [(b + 1) * SECOND for b in range(seconds)]


def test_a_join_with_many_matches_gives_pieces() -> None:
    program = (
        "CREATE STREAM a (t BIGINT, k BIGINT, EVENT TIME t UNIT MICROSECONDS);"
        "CREATE STREAM b (t BIGINT, k BIGINT, EVENT TIME t UNIT MICROSECONDS);"
        "SELECT a.k AS k FROM a [RANGE 1 HOUR] JOIN b [RANGE 1 HOUR] ON a.k = b.k"
    )
    sizes: list[int] = []
    with ps.App(program) as app:
        app.subscribe("q1", lambda rows: sizes.append(rows.num_rows))
        many = {"t": np.arange(1_000), "k": np.zeros(1_000, np.int64)}
        app.push("a", pa.table(many))
        app.push("b", pa.table(many))
        app.finish()
    assert sum(sizes) == 1_000_000
    assert max(sizes) < 800_000


# Rows that wait


def test_rows_that_wait_are_on_the_account_and_survive_a_restart(tmp_path: Path) -> None:
    program = STREAM + "SELECT k, x FROM s"
    rows = {"t": np.arange(200_000), "k": np.arange(200_000) % 7, "x": np.arange(200_000) / 2}
    with ps.App(program, memory="2MB", checkpoint=tmp_path) as app:
        app.push("s", pa.table(rows))
        waiting = app._flow.running["q1"].outlet._waiting
        assert 100_000 < waiting.spilled_rows <= waiting.rows == 200_000
        assert app._stores.budget.used <= 2_000_000
        app.checkpoint()
        app.push("s", pa.table({"t": [300_000], "k": [1], "x": [0.0]}))
    with ps.App(program, memory="2MB", checkpoint=tmp_path) as app:
        app.push("s", pa.table({"t": [300_000], "k": [1], "x": [0.0]}))
        came = app.results("q1")
        assert came.schema.metadata[b"penstock.sequence"] == b"0"
        assert came.column("x").to_pylist() == [*(rows["x"].tolist()), 0.0]
        assert app._flow.running["q1"].outlet._waiting.rows == 0
        app.checkpoint()
    with ps.App(program, memory="2MB", checkpoint=tmp_path) as app:
        app.push("s", pa.table({"t": [300_001], "k": [1], "x": [1.0]}))
        came = app.results("q1")
        assert (came.schema.metadata[b"penstock.sequence"], came.column("x").to_pylist()) == (b"200001", [1.0])


def test_rows_that_wait_make_room_for_others() -> None:
    """Values of MODE need the memory that rows have which wait: these page before anything is refused."""
    program = STREAM + "SELECT k, x FROM s; SELECT MODE(k) AS n FROM s [ROWS 1000000 SLIDE 1000000]"
    with ps.App(program, memory="1MB", block_size=4096) as app:
        app.push("s", pa.table({"t": np.zeros(1_000, np.int64), "k": np.zeros(1_000, np.int64), "x": np.ones(1_000)}))
        waiting = app._flow.running["q1"].outlet._waiting
        assert waiting.spilled_rows == 0
        many = pa.table({"t": np.ones(200_000, np.int64), "k": np.arange(200_000), "x": np.ones(200_000)})
        with pytest.raises(BudgetError):
            app.push("s", many)
        assert app._stores.budget.describe().get(f"{app._flow.running['q1'].pipeline.name}-results") == 0


def test_a_subscriber_gets_what_waits_on_disk_piece_by_piece() -> None:
    with ps.App(STREAM + "SELECT k, x FROM s", memory="2MB") as app:
        for first in range(0, 100_000, 20_000):
            times = np.arange(first, first + 20_000)
            app.push("s", pa.table({"t": times, "k": times, "x": np.ones(20_000)}))
        numbers: list[int] = []
        keys: list[int] = []

        def take(rows: pa.RecordBatch) -> None:
            numbers.append(int(rows.schema.metadata[b"penstock.sequence"]))
            assert numbers[-1] == len(keys)
            keys.extend(rows.column("k").to_pylist())

        app.subscribe("q1", take)
    assert keys == list(range(100_000))
    assert len(numbers) > 1


# A push does not wait for itself


def test_an_offer_from_a_subscriber_is_refused_at_once_where_it_would_wait_for_itself() -> None:
    refused: list[str] = []
    with ps.App(STREAM + "SELECT k FROM s", memory="1MB", dispatch="fcfs") as app:

        def offer_more(rows: pa.RecordBatch) -> None:
            while not refused:
                try:
                    app.offer("s", pa.table({"t": [1] * 1_000, "k": [1] * 1_000, "x": [1.0] * 1_000}), timeout=1e6)
                except BudgetError as error:
                    refused.append(str(error))

        app.subscribe("q1", offer_more)
        with app.dispatching():
            app.offer("s", {"t": 1, "k": 1, "x": 1.0})
    assert "input buffers are full" in refused[0]
