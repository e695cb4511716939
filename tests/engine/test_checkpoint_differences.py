"""Checkpoints that save what has changed. A fixture of all tests compares every one of them with the whole state."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.checkpoint import CheckpointDirectory
from penstock.store import state as state_format

SECOND = 1_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP, k BIGINT, c STRING, v DOUBLE, n BIGINT, EVENT TIME t LATENESS 1 SECONDS);"
SCHEMA = pa.schema(
    {"t": pa.timestamp("us", "UTC"), "k": pa.int64(), "c": pa.string(), "v": pa.float64(), "n": pa.int64()}
)
QUERIES = (
    "SELECT k, SUM(v) AS a, COUNT(*) AS b FROM s [RANGE 20 SECONDS] GROUP BY k",
    "SELECT k, AVG(v) AS a, MAX(n) AS b FROM s [ROWS 300] GROUP BY k",
    "SELECT c, k, VARIANCE(v) AS a, COUNT(n) AS b FROM s [RANGE 30 SECONDS SLIDE 3 SECONDS] GROUP BY c, k",
    "SELECT COUNT(*) AS b, SUM(n) AS a FROM s [RANGE 9 SECONDS]",
    "SELECT c, MEDIAN(v) AS a, COUNT(DISTINCT n) AS b FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY c",
    "SELECT k, CORR(v, n) AS a FROM s [RANGE 40 SECONDS SLIDE 10 SECONDS] WHERE n > 3 GROUP BY k",
    "SELECT ISTREAM k, SUM(n) AS a FROM s [RANGE 12 SECONDS] GROUP BY k",
    "SELECT k, SUM(v) AS a FROM s [PARTITION BY k ROWS 3] GROUP BY k",
    "SELECT k, SUM(v) AS a, FIRST(c) AS b FROM s [SESSION 2 SECONDS] GROUP BY k",
    "SELECT k, SUM(v) AS a FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k",
)


def events(count: int, seed: int, keys: int) -> list[dict[str, Any]]:
    """Keys come and go: those of later events are others."""
    rng = random.Random(seed)
    times = sorted(rng.randrange(60 * SECOND) for _ in range(count))
    return [
        {
            "t": time,
            "k": rng.randrange(keys) + at // (count // 3 + 1) * keys,
            "c": rng.choice("abcdef"),
            "v": rng.choice([1.5, -2.25, 1e300, 0.1, float(at)]) if rng.random() < 0.9 else None,
            "n": rng.randrange(10),
        }
        for at, time in enumerate(times)
    ]


def pushed(app: ps.App, rows: list[dict[str, Any]], how: str) -> None:
    if how == "batch":
        app.push("s", pa.RecordBatch.from_pylist(rows, SCHEMA))
    elif how == "list":
        app.push("s", rows)
    else:
        for row in rows:
            app.push("s", row)


@settings(max_examples=25)
@given(
    queries=st.lists(st.sampled_from(QUERIES), min_size=1, max_size=3, unique=True),
    seed=st.integers(0, 10**6),
    keys=st.sampled_from([1, 5, 400]),
    steps=st.lists(st.tuples(st.sampled_from(["batch", "list", "one"]), st.integers(1, 90)), min_size=2, max_size=12),
    restarts=st.sets(st.integers(0, 11), max_size=2),
    block_size=st.sampled_from([512, 65536]),
)
def test_checkpoints_after_every_push(
    tmp_path_factory: pytest.TempPathFactory,
    queries: list[str],
    seed: int,
    keys: int,
    steps: list[tuple[str, int]],
    restarts: set[int],
    block_size: int,
) -> None:
    directory = tmp_path_factory.mktemp("differences")
    text = STREAM + "".join(f"CREATE QUERY q{at} AS {query};" for at, query in enumerate(queries))
    rows = events(sum(count for _, count in steps) * 4, seed, keys)
    found: dict[str, list[dict[str, Any]]] = {f"q{at}": [] for at in range(len(queries))}
    app, begin = ps.App(text, checkpoint=directory, block_size=block_size), 0
    for at, (how, count) in enumerate(steps):
        pushed(app, rows[begin : begin + 4 * count], how)
        begin += 4 * count
        app.checkpoint()
        if at in restarts:
            app.close()
            app = ps.App(text, checkpoint=directory, block_size=block_size)
    with app:
        app.finish()
        for name, kept in found.items():
            kept += app.results(name).to_pylist()
    with ps.App(text) as app:
        app.push("s", rows[:begin])
        app.finish()
        assert str(found) == str({name: app.results(name).to_pylist() for name in found})


GROUPS = (
    STREAM.replace("1 SECONDS", "0 SECONDS")
    + "CREATE QUERY q AS SELECT k, SUM(v) AS a, COUNT(*) AS b FROM s [RANGE 1 HOUR] GROUP BY k;"
)


def batch(app: ps.App, start: int, keys: range) -> None:
    count = len(keys)
    columns = {
        "t": [start * SECOND] * count,
        "k": list(keys),
        "c": ["x"] * count,
        "v": [0.5] * count,
        "n": [1] * count,
    }
    app.push("s", pa.RecordBatch.from_pydict(columns, SCHEMA))
    app.results("q")


def files(directory: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in directory.glob("*") if file.is_file() and file.name != "begun"}


def test_a_checkpoint_writes_what_has_changed(tmp_path: Path) -> None:
    with ps.App(GROUPS, checkpoint=tmp_path) as app:
        batch(app, 0, range(50_000))
        app.checkpoint()
        for at in range(1, 4):
            batch(app, at, range(500))
            app.checkpoint()
    sizes = files(tmp_path)
    assert sorted(sizes) == ["changes-000002", "changes-000003", "changes-000004", "state"]
    assert sizes["state"] > 3_000_000
    assert max(size for name, size in sizes.items() if name != "state") < 150_000
    with ps.App(GROUPS, checkpoint=tmp_path) as app:
        batch(app, 5, range(3))
        assert app.checkpoint().epoch == 5
    assert files(tmp_path)["changes-000005"] < 150_000


def test_the_changes_are_never_larger_than_twice_the_state(tmp_path: Path) -> None:
    with ps.App(GROUPS, checkpoint=tmp_path) as app:
        wholes = 0
        for at in range(40):
            batch(app, at, range(at % 7 if at < 20 else 0, 3000, 7))
            app.checkpoint()
            sizes = files(tmp_path)
            assert sum(sizes.values()) <= 2.1 * len(state_format.encode(app._saved.state(False)))
            wholes += len(sizes) == 1
        assert 1 < wholes < 25


def test_a_gap_among_the_changes_is_refused(tmp_path: Path) -> None:
    with ps.App(GROUPS, checkpoint=tmp_path) as app:
        batch(app, 0, range(20_000))
        for at in range(4):
            batch(app, at, range(10))
            app.checkpoint()
    (tmp_path / "changes-000003").rename(tmp_path / "kept")
    with pytest.raises(ps.CheckpointError, match=r"changes-000003 is gone, and later changes are there; put it back"):
        ps.App(GROUPS, checkpoint=tmp_path)
    (tmp_path / "kept").rename(tmp_path / "changes-000003")
    data = bytearray((tmp_path / "changes-000004").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "changes-000004").write_bytes(data)
    with pytest.raises(ps.StorageError, match="damaged"):
        ps.App(GROUPS, checkpoint=tmp_path)


def test_changes_that_were_left_over_are_not_read(tmp_path: Path) -> None:
    """A process may end between a new whole checkpoint and the removal of the changes before it."""
    with ps.App(GROUPS, checkpoint=tmp_path) as app:
        batch(app, 0, range(20_000))
        for at in range(3):
            batch(app, at, range(10))
            app.checkpoint()
    kept = {name: (tmp_path / name).read_bytes() for name in files(tmp_path) if name != "state"}
    with ps.App(GROUPS, checkpoint=tmp_path) as app:
        for at in range(3):
            batch(app, 5 + at, range(20_000))
            app.checkpoint()
        events_before = app.metrics.events
    assert not kept.keys() & files(tmp_path).keys()
    for name, data in kept.items():
        (tmp_path / name).write_bytes(data)
    with ps.App(GROUPS, checkpoint=tmp_path) as app:
        assert app.metrics.events == events_before


def written(directory: CheckpointDirectory, state: dict[str, Any], extra: dict[str, Any] | None) -> int:
    """The number of the checkpoint."""
    begun = directory.begin(state, extra)
    try:
        directory.write(begun)
    except BaseException:
        directory.lost()
        raise
    directory.stands(begun)
    return begun.epoch


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("trouble", [ps.StorageError("the disk is full"), KeyboardInterrupt(), MemoryError()])
def test_a_checkpoint_that_failed_is_followed_by_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: BaseException, when: str
) -> None:
    """Before or after the file has its name."""
    directory = CheckpointDirectory(tmp_path)
    written(directory, {"x": 1}, None)
    write = state_format.write_atomically
    with monkeypatch.context() as patch:

        def failing(*arguments: Any) -> None:
            if when == "after":
                write(*arguments)
            raise trouble

        patch.setattr(state_format, "write_atomically", failing)
        with pytest.raises(type(trouble)):
            written(directory, {"x": 2}, None)
    assert CheckpointDirectory(tmp_path).read() == ({"x": 2 if when == "after" else 1}, None)
    assert written(directory, {"x": 3}, {"from": "here"}) == 2
    assert sorted(files(tmp_path)) == ["state"]
    assert CheckpointDirectory(tmp_path).read() == ({"x": 3}, {"from": "here"})


def test_files_with_other_names_do_no_harm(tmp_path: Path) -> None:
    with ps.App(GROUPS, checkpoint=tmp_path) as app:
        batch(app, 0, range(20_000))
        app.checkpoint()
        batch(app, 1, range(10))
        app.checkpoint()
    for name in ("changes-000002.bak", "changes-abc", "changes-7", "changes-000003~"):
        (tmp_path / name).write_bytes(b"mine")
    with ps.App(GROUPS, checkpoint=tmp_path) as app:
        assert app.metrics.events == 20_010
        for at in range(3):
            batch(app, 2 + at, range(20_000))
            app.checkpoint()
    assert {"changes-000002.bak", "changes-abc", "changes-7", "changes-000003~"} <= files(tmp_path).keys()


ONLY = STREAM.replace("1 SECONDS", "0 SECONDS") + "".join(
    f"CREATE QUERY q{limit} AS SELECT COUNT(*) AS n FROM s [RANGE 1 HOUR] WHERE k > {limit};" for limit in (10, 0)
)


def test_a_group_whose_first_row_was_left_out_comes_back(tmp_path: Path) -> None:
    """The windows are shared: rows that fail one WHERE are there for the other."""
    rows = [{"t": at * SECOND, "k": 20 if at > 4 else 5, "c": "x", "v": 1.0, "n": 1} for at in range(10)]
    with ps.App(ONLY, checkpoint=tmp_path) as app:
        app.checkpoint()
        app.push("s", rows[:3])
        app.checkpoint()
    with ps.App(ONLY, checkpoint=tmp_path) as app:
        app.push("s", rows[3:])
        assert app.results("q10").column("n").to_pylist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("later", ["64MB", "5MB"])
def test_a_restart_under_another_budget_and_differences_after_it(tmp_path: Path, later: str) -> None:
    """What restores changes the arrays that were read: rows go to disk where they had been in memory."""
    text = STREAM.replace("1 SECONDS", "0 SECONDS") + (
        "CREATE QUERY q AS SELECT k, SUM(v) AS a, COUNT(*) AS b FROM s [PARTITION BY k ROWS 5] GROUP BY k;"
    )
    keys = range(8000)
    found = []
    for memory, steps in (("64MB", range(4)), (later, range(4, 6)), (later, range(6, 9))):
        with ps.App(text, checkpoint=tmp_path, memory=memory, block_size=4096) as app:
            for at in steps:
                columns = {"t": [at * SECOND] * len(keys), "k": list(keys), "c": ["x"] * len(keys)}
                columns |= {"v": [float(at + key % 3) for key in keys], "n": [1] * len(keys)}
                app.push("s", pa.RecordBatch.from_pydict(columns, SCHEMA))
                found += app.results("q").to_pylist()
                app.checkpoint()
    for at in range(6, 9):
        expected = [
            {"k": key, "a": sum(float(then + key % 3) for then in range(max(0, at - 4), at + 1)), "b": min(5, at + 1)}
            for key in keys
        ]
        shown = [{name: row[name] for name in "kab"} for row in found[at * len(keys) : (at + 1) * len(keys)]]
        assert sorted(shown, key=lambda row: row["k"]) == expected
