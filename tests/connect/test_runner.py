"""The runner: sources, app and sinks together; what one run leaves another goes on from."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import parquet

from penstock.connect import runner
from penstock.connect.runner import Outcome, Report, run
from penstock.engine.app import App
from penstock.errors import CheckpointError, InputError

HOUR = 3_600_000_000


def write_events(path: Path, rows: list[tuple[int, str, int]]) -> None:
    path.write_text("t,k,n\n" + "".join(f"{t},{k},{n}\n" for t, k, n in rows))


def events(count: int, seed: int = 1) -> list[tuple[int, str, int]]:
    chance = random.Random(seed)
    return [(i * 10, chance.choice("abc"), chance.randint(-50, 50)) for i in range(count)]


def app_text(folder: Path, source: str = "in.csv", sink: str = "out.csv") -> str:
    return f"""
        CREATE STREAM s (t BIGINT, k STRING, n INT, EVENT TIME t UNIT MILLISECONDS) FROM '{folder / source}';
        CREATE SINK o TO '{folder / sink}';
        INSERT INTO o SELECT k, SUM(n) AS total, COUNT(*) AS events FROM s [RANGE 2 SECONDS SLIDE 500 MILLISECONDS]
        GROUP BY k;
    """


def expected(rows: list[tuple[int, str, int]]) -> list[tuple[int, str, int, int]]:
    """By definition: at every half second b, the sums over [b - 2 s, b)."""
    found = []
    for b in range(500, rows[-1][0] // 500 * 500 + 501, 500):
        inside = [(k, n) for t, k, n in rows if b - 2000 <= t < b]
        for key in sorted({k for k, _ in inside}):
            values = [n for k, n in inside if k == key]
            found.append((b, key, sum(values), len(values)))
    return found


def results(path: Path) -> list[tuple[int, str, int, int]]:
    found = []
    for line in path.read_text().splitlines()[1:]:
        _, end, key, total, count = line.split(",")
        seconds = end.removeprefix("1970-01-01T00:").removesuffix("Z").split(":")
        found.append((int(seconds[0]) * 60_000 + round(float(seconds[1]) * 1000), key, int(total), int(count)))
    return sorted(found)


@pytest.mark.parametrize("batch_rows", [7, 1000])
def test_a_bounded_run(tmp_path: Path, batch_rows: int) -> None:
    rows = events(1000)
    write_events(tmp_path / "in.csv", rows)
    reports: list[Report] = []
    with App(app_text(tmp_path)) as app:
        assert run(app, batch_rows=batch_rows, on_progress=reports.append) is Outcome.FINISHED
        assert app.metrics.events == 1000
    assert results(tmp_path / "out.csv") == expected(rows)
    assert reports[-1].fraction == 1.0


def test_stops_go_on_and_the_end_is_not_final(tmp_path: Path) -> None:
    """Stopped every few batches under changing batch sizes; after the end, more input is added."""
    rows = events(1500)
    (tmp_path / "in").mkdir()
    write_events(tmp_path / "in" / "1.csv", rows[:700])
    text = app_text(tmp_path, "in")
    chance = random.Random(3)

    def run_on() -> Outcome:
        left = chance.randint(1, 4)

        def stop() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        with App(text, checkpoint=tmp_path / "state", memory="2MB") as app:
            return run(app, checkpoint_every=0, batch_rows=chance.randint(20, 90), stop=stop)

    outcomes = [run_on() for _ in range(4)]
    assert outcomes == [Outcome.STOPPED] * 4
    while run_on() is Outcome.STOPPED:
        pass
    assert results(tmp_path / "out.csv") == expected(rows[:700])
    write_events(tmp_path / "in" / "2.csv", rows[700:])
    while run_on() is Outcome.STOPPED:
        pass
    assert results(tmp_path / "out.csv") == expected(rows)


def test_without_a_checkpoint_a_run_begins_anew(tmp_path: Path) -> None:
    rows = events(300)
    write_events(tmp_path / "in.csv", rows)
    for _ in range(2):
        with App(app_text(tmp_path)) as app:
            run(app)
        assert results(tmp_path / "out.csv") == expected(rows)


def test_limit(tmp_path: Path) -> None:
    rows = events(1000)
    write_events(tmp_path / "in.csv", rows)
    with App(app_text(tmp_path)) as app:
        assert run(app, limit=333, batch_rows=50) is Outcome.FINISHED
    assert results(tmp_path / "out.csv") == expected(rows[:333])


def test_rejects_of_reading_and_of_computing_are_in_one_file(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("t,k,n\n0,a,1\n1,a,x\n2,b,0\n3,a,2\n")
    text = app_text(tmp_path).replace("SUM(n) AS total", "100 % SUM(n) AS total")
    with App(text) as app:
        run(app, reject_file=tmp_path / "rejects.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines()]
    assert [(line["row"], line["raw"]) for line in lines[:1]] == [(3, "1,a,x")]
    assert len(lines) == 2
    assert "zero" in lines[1]["reason"].lower()
    assert [(k, total) for _, k, total, _ in results(tmp_path / "out.csv")] == [("a", 1)]


def test_no_reject_of_computing_is_lost(tmp_path: Path) -> None:
    write_events(tmp_path / "in.csv", [(i, "a", 0) for i in range(25_000)])
    text = (
        app_text(tmp_path)
        .replace("SUM(n) AS total", "1 % LAST(n) AS total")
        .replace("RANGE 2 SECONDS SLIDE 500 MILLISECONDS", "ROWS 2")
    )
    with App(text) as app:
        run(app, reject_file=tmp_path / "rejects.jsonl")
        assert app.metrics.rejected == 25_000
    assert len((tmp_path / "rejects.jsonl").read_text().splitlines()) == 25_000


def test_late_events_go_to_their_sink(tmp_path: Path) -> None:
    write_events(tmp_path / "in.csv", [(0, "a", 1), (5000, "a", 2), (100, "b", 3), (6000, "a", 4)])
    text = app_text(tmp_path).replace("in.csv'", "in.csv' LATE INTO l") + f"CREATE SINK l TO '{tmp_path / 'late.csv'}';"
    with App(text) as app:
        run(app)
    assert (tmp_path / "late.csv").read_text() == "t,k,n\n100,b,3\n"


def test_two_sources_are_read_side_by_side(tmp_path: Path) -> None:
    rows = events(400)
    write_events(tmp_path / "1.csv", rows[::2])
    write_events(tmp_path / "2.csv", rows[1::2])
    stream = "(t BIGINT, k STRING, n INT, EVENT TIME t UNIT MILLISECONDS)"
    text = f"""
        CREATE STREAM a {stream} FROM '{tmp_path}/1.csv';
        CREATE STREAM b {stream} FROM '{tmp_path}/2.csv';
        CREATE SINK o TO '{tmp_path}/out.csv';
        INSERT INTO o SELECT k, SUM(n) AS total, COUNT(*) AS events
        FROM (SELECT * FROM a UNION ALL SELECT * FROM b) [RANGE 2 SECONDS SLIDE 500 MILLISECONDS] GROUP BY k;
    """
    with App(text) as app:
        run(app, batch_rows=10)
    assert results(tmp_path / "out.csv") == expected(rows)


def test_queries_without_a_sink_are_printed(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_events(tmp_path / "in.csv", [(0, "a", 1), (1, "b", 2)])
    text = app_text(tmp_path).replace("INSERT INTO o", "") + "SELECT MAX(n) AS top FROM s [ROWS 2 SLIDE 2];"
    with App(text) as app:
        run(app)
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert sorted(line["query"] for line in lines) == ["q1", "q1", "q2"]
    assert [line["top"] for line in lines if line["query"] == "q2"] == [2]


def test_what_cannot_run(tmp_path: Path) -> None:
    write_events(tmp_path / "in.csv", [(0, "a", 1)])
    with (
        App("CREATE STREAM s (t TIMESTAMP, EVENT TIME t); SELECT COUNT(*) AS n FROM s [ROWS 1];") as app,
        pytest.raises(InputError, match="stream s has no source"),
    ):
        run(app)
    both = app_text(tmp_path) + "INSERT INTO o SELECT COUNT(*) AS n FROM s [ROWS 1];"
    with App(both) as app, pytest.raises(InputError, match="sink o: its queries have different columns"):
        run(app)
    with App(app_text(tmp_path)) as app, pytest.raises(InputError, match="no checkpoint directory"):
        run(app, checkpoint_every=1.0)


def test_a_checkpoint_of_pushed_events_is_refused(tmp_path: Path) -> None:
    write_events(tmp_path / "in.csv", events(10))
    with App(app_text(tmp_path), checkpoint=tmp_path / "state") as app:
        app.push("s", {"t": 5, "k": "a", "n": 1})
        app.checkpoint()
    with (
        App(app_text(tmp_path), checkpoint=tmp_path / "state") as app,
        pytest.raises(CheckpointError, match="where to go on reading is unknown"),
    ):
        run(app, checkpoint_every=0)


def test_results_that_were_removed_are_noticed(tmp_path: Path) -> None:
    write_events(tmp_path / "in.csv", events(100))
    with App(app_text(tmp_path), checkpoint=tmp_path / "state") as app:
        run(app, checkpoint_every=0)
    (tmp_path / "out.csv").unlink()
    with (
        App(app_text(tmp_path), checkpoint=tmp_path / "state") as app,
        pytest.raises(CheckpointError, match=r"out\.csv: has 0 bytes where the checkpoint wrote"),
    ):
        run(app, checkpoint_every=0)


def test_a_source_has_no_column_of_arrival_instants(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("t,n\n5,1\n2,2\n9,3\n")
    text = f"""
        CREATE STREAM s (t BIGINT, n INT, came TIMESTAMP, ARRIVAL ORDER t UNIT SECONDS ARRIVED came)
            FROM '{tmp_path / "in.csv"}';
        CREATE SINK o TO '{tmp_path / "out.csv"}';
        INSERT INTO o SELECT n FROM s WHERE came IS NOT NULL;
    """
    with App(text) as app:
        assert run(app) is Outcome.FINISHED
    assert (tmp_path / "out.csv").read_text().split() == ["n", "1", "2", "3"]


def growing(folder: Path, sink: str, query: str, options: str = "") -> str:
    (folder / "in.csv").write_text("t,k,n\n1000,a,1\n1200,a,2\n")
    return f"""
        CREATE STREAM s (t BIGINT, k STRING, n INT, EVENT TIME t UNIT MILLISECONDS)
            FROM '{folder / "in.csv"}' WITH ('follow' = 'true' {options});
        CREATE SINK o TO '{folder / sink}';
        INSERT INTO o {query};
    """


class Until:
    """Stops a run when there is something to see, or after so many looks."""

    def __init__(self, see: Callable[[], bool], looks: int = 60) -> None:
        self._see, self._looks = see, looks
        self.seen = False

    def __call__(self) -> bool:
        self.seen = self._see()
        self._looks -= 1
        return self.seen or self._looks == 0


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_results_of_live_input_are_seen_when_it_pauses(tmp_path: Path, with_checkpoint: bool) -> None:
    """No commit is due for an hour; the run is stopped by what a reader of the file sees."""
    text = growing(tmp_path, "out.csv", "SELECT k, n FROM s")
    every = {"checkpoint_every" if with_checkpoint else "commit_every": 3600.0}
    until = Until(lambda: (tmp_path / "out.csv").exists() and "a,2" in (tmp_path / "out.csv").read_text())
    with App(text, checkpoint=tmp_path / "state" if with_checkpoint else None) as app:
        assert run(app, stop=until, **every) is Outcome.STOPPED
    assert until.seen


def test_results_of_live_input_are_seen_while_it_does_not_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a batch of one row each, and no time between two flushes, all rows but the last read are in the file."""
    monkeypatch.setattr(runner, "FLUSH_SECONDS", 0.0)
    write_events(tmp_path / "in.csv", events(5))
    seen: list[int] = []

    def look() -> bool:
        out = tmp_path / "out.csv"
        seen.append(len(out.read_text().splitlines()) - 1 if out.exists() else 0)
        return False

    text = app_text(tmp_path).partition("SELECT")[0] + "SELECT k, n FROM s;"
    with App(text) as app:
        run(app, batch_rows=1, stop=look)
    assert [rows for rows in seen if rows > 0][:4] == [1, 2, 3, 4]


def test_parquet_files_come_with_commits(tmp_path: Path) -> None:
    write_events(tmp_path / "in.csv", events(50))
    text = app_text(tmp_path, sink="parts").partition("SELECT")[0] + "SELECT k, n FROM s;"
    for every, parts in ((0.0, 5), (3600.0, 1)):
        with App(text) as app:
            run(app, batch_rows=10, commit_every=every)
        files = sorted((tmp_path / "parts").iterdir())
        assert len(files) == parts
        assert sum(parquet.read_table(file).num_rows for file in files) == 50


def test_live_input_is_committed_every_second_by_default(tmp_path: Path) -> None:
    """The interval follows from the sources alone."""
    with App(growing(tmp_path, "parts", "SELECT k, n FROM s")) as app:
        until = Until(lambda: any((tmp_path / "parts").glob("epoch-*.parquet")))
        run(app, stop=until)
        assert until.seen


def test_a_heartbeat_closes_the_windows_of_a_source_that_is_silent(tmp_path: Path) -> None:
    query = "SELECT SUM(n) AS n FROM s [RANGE 200 MILLISECONDS SLIDE 200 MILLISECONDS]"
    text = growing(tmp_path, "out.jsonl", query, ", 'heartbeat' = '1 MILLISECOND'")
    found = tmp_path / "out.jsonl"
    until = Until(lambda: found.exists() and len(found.read_text().splitlines()) == 2)
    with App(text) as app:
        run(app, stop=until)
    assert [json.loads(line)["n"] for line in found.read_text().splitlines()] == [1, 2]


def test_an_interval_is_given_once(tmp_path: Path) -> None:
    write_events(tmp_path / "in.csv", events(5))
    with App(app_text(tmp_path), checkpoint=tmp_path / "state") as app, pytest.raises(InputError, match="every"):
        run(app, checkpoint_every=1.0, commit_every=1.0)
