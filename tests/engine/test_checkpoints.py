"""Checkpoints: what comes back, with the same queries and with others, and which checkpoints are refused."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.store import state as state_format

SECOND = 1_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, v BIGINT, w BIGINT, EVENT TIME t LATENESS 3 SECONDS) LATE INTO aside;"
SUMS = "CREATE QUERY sums AS SELECT k, SUM(v) AS n FROM s [ROWS 3] GROUP BY k;"
SLIDES = "CREATE QUERY slides AS SELECT k, MAX(v) AS m FROM s [RANGE 20 SECONDS SLIDE 5 SECONDS] GROUP BY k;"


def events(start: int, stop: int) -> list[dict[str, Any]]:
    """Out of order by up to three seconds."""
    return [{"t": (i + 2 * (i % 2)) * SECOND, "k": "ab"[i % 2], "v": i, "w": -i} for i in range(start, stop)]


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist()


def number(table: pa.Table) -> int:
    return int(table.schema.metadata[b"penstock.sequence"])


def whole(text: str, upto: int) -> dict[str, list[dict[str, Any]]]:
    """The results of a run that never stopped."""
    with ps.App(text) as app:
        app.push("s", events(0, upto))
        app.finish()
        return {name: rows(app.results(name)) for name in app.queries}


@pytest.mark.parametrize("read_first", [False, True])
@pytest.mark.parametrize(
    ("memory", "block_size"), [("64MB", 65536), ("1MB", 4096), ("8MB", 512)], ids=["same", "smaller", "other blocks"]
)
def test_a_restart_changes_nothing(tmp_path: Path, memory: str, block_size: int, read_first: bool) -> None:
    text = STREAM + SUMS + SLIDES
    parts: dict[str, list[dict[str, Any]]] = {"sums": [], "slides": []}
    with ps.App(text, checkpoint=tmp_path) as app:
        app.push("s", events(0, 50))
        if read_first:
            for name, kept in parts.items():
                kept += rows(app.results(name))
        assert app.checkpoint({"offset": 50}) == (1, {"s": 50})
        before = app.metrics
        app.push("s", events(50, 60))  # lost
    with ps.App(text, checkpoint=tmp_path, memory=memory, block_size=block_size) as app:
        assert app.restored == {"offset": 50}
        assert (app.metrics.events, app.metrics.results) == (before.events, before.results)
        app.push("s", events(50, 100))
        app.finish()
        for name, kept in parts.items():
            table = app.results(name)
            assert number(table) == len(kept)
            kept += rows(table)
    assert parts == whole(text, 100)


def test_epochs_go_on(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        with ps.App(STREAM + SUMS, checkpoint=tmp_path) as app:
            app.push("s", events(epoch, epoch + 1))
            assert app.checkpoint() == (epoch, {"s": epoch})
            assert app.restored is None


def test_late_events_that_wait_come_back(tmp_path: Path) -> None:
    with ps.App(STREAM + SUMS, checkpoint=tmp_path) as app:
        app.push("s", [*events(20, 21), *events(1, 3)])
        app.checkpoint()
    with ps.App(STREAM + SUMS, checkpoint=tmp_path) as app:
        assert app.metrics.late == 2
        assert app.results("aside").column("v").to_pylist() == [1, 2]
        assert app.late("s").column("v").to_pylist() == [1, 2]


def test_unchanged_queries_resume_and_others_begin_afresh(tmp_path: Path) -> None:
    """The query `slides` is changed, `sums` stays, `gone` goes and `fresh` comes."""
    gone = "CREATE QUERY gone AS SELECT MIN(v) AS m FROM s [RANGE 1 HOUR];"
    with ps.App(STREAM + SUMS + SLIDES + gone, checkpoint=tmp_path) as app:
        app.push("s", events(0, 40))
        app.checkpoint()
    changed = SLIDES.replace("MAX(v)", "MIN(v)")
    fresh = "CREATE QUERY fresh AS SELECT COUNT(*) AS n FROM s [RANGE 1 HOUR];"
    with ps.App(STREAM + fresh + changed + SUMS, checkpoint=tmp_path) as app:
        app.push("s", events(40, 80))
        app.finish()
        assert rows(app.results("sums")) == whole(STREAM + SUMS, 80)["sums"]
        counts = app.results("fresh").column("n").to_pylist()
        assert counts[0] == 1  # from the first event that is released now on: one that waited in the checkpoint
        assert number(app.results("slides")) == 0  # changed: its results count from 0 again
        assert "gone" not in app.queries
        app.checkpoint()
        names = sorted(path.name.split("-")[0] for path in tmp_path.rglob("*.blocks"))
        # The window of sums and one for those that began afresh; MIN of slides pages by itself, in its aggregation.
        assert names == ["aggregate", "s", "window", "window"]


def test_a_query_dropped_and_added_again_does_not_touch_the_checkpoint(tmp_path: Path) -> None:
    """Until the next checkpoint the blocks of the last one must stay as they are."""
    text = STREAM + SLIDES.replace("20 SECONDS SLIDE", "1 HOUR SLIDE")
    with ps.App(text, checkpoint=tmp_path, memory="200KB", block_size=512) as app:
        app.push("s", events(0, 400))
        app.checkpoint()
        app.drop_query("slides")
        app.add_query(text.removeprefix(STREAM))
        app.push("s", events(400, 1000))
    with ps.App(STREAM, checkpoint=tmp_path, memory="200KB", block_size=512) as app:
        app.add_query(text.removeprefix(STREAM))
        app.push("s", events(400, 1000))
    with ps.App(text, checkpoint=tmp_path, memory="200KB", block_size=512) as app:
        app.push("s", events(400, 1000))
        app.finish()
        assert rows(app.results("slides")) == whole(text, 1000)["slides"]


def test_added_queries_resume_too(tmp_path: Path) -> None:
    with ps.App(STREAM, checkpoint=tmp_path) as app:
        app.add_query(SUMS)
        app.push("s", events(0, 40))
        app.checkpoint()
        app.drop_query("sums")
        app.add_query(SUMS)
        app.checkpoint()
    with ps.App(STREAM + SUMS, checkpoint=tmp_path) as app:
        app.push("s", events(40, 50))
        assert app.results("sums").column("n").to_pylist()[0] == 37  # afresh since it was added again


def test_a_new_query_may_read_more_columns_unless_events_wait_without_them(tmp_path: Path) -> None:
    stream = STREAM.replace(" LATE INTO aside", "")
    wider = "CREATE QUERY ws AS SELECT w FROM s;"
    with ps.App(stream + SUMS, checkpoint=tmp_path / "a") as app:
        app.push("s", events(0, 10))
        app.checkpoint()
    with pytest.raises(ps.CheckpointError, match="wait to be put in order without w"):
        ps.App(stream + SUMS + wider, checkpoint=tmp_path / "a")
    prompt = stream.replace(" LATENESS 3 SECONDS", "")
    with ps.App(prompt + SUMS, checkpoint=tmp_path / "b") as app:
        app.push("s", [{"t": 1, "k": "a", "v": 1, "w": 1}])
        app.checkpoint()
    with ps.App(prompt + SUMS + wider, checkpoint=tmp_path / "b") as app:
        app.push("s", [{"t": 2, "k": "a", "v": 1, "w": 7}])
        assert app.results("ws").column("w").to_pylist() == [7]
        assert app.results("sums").column("n").to_pylist() == [1, 2]


def test_fewer_queries_read_fewer_columns_but_waiting_rows_fit(tmp_path: Path) -> None:
    stream = STREAM.replace(" LATE INTO aside", "")
    with ps.App(stream + SUMS + "SELECT w FROM s", checkpoint=tmp_path) as app:
        app.push("s", events(0, 10))
        app.checkpoint()
    with ps.App(stream + SUMS, checkpoint=tmp_path) as app:
        app.push("s", events(10, 20))
        app.finish()
        assert rows(app.results("sums")) == whole(stream + SUMS, 20)["sums"]


def test_a_finished_app_stays_finished(tmp_path: Path) -> None:
    with ps.App(STREAM + SUMS, checkpoint=tmp_path) as app:
        app.push("s", events(0, 10))
        app.finish()
        app.checkpoint()
    with ps.App(STREAM + SUMS, checkpoint=tmp_path) as app, pytest.raises(ps.InputError, match="was finished"):
        app.push("s", events(10, 11))


# Refusals


def test_another_app_is_refused(tmp_path: Path) -> None:
    with ps.App(STREAM + SUMS, checkpoint=tmp_path) as app:
        app.checkpoint()
    with pytest.raises(ps.CheckpointError, match="belongs to another app, with the streams s"):
        ps.App("CREATE STREAM r (t TIMESTAMP, EVENT TIME t); SELECT t FROM r", checkpoint=tmp_path)
    with pytest.raises(ps.CheckpointError, match="other declarations: stream s has other properties"):
        ps.App(STREAM.replace("3 SECONDS", "4 SECONDS") + SUMS, checkpoint=tmp_path)
    other = "CREATE STREAM r (t TIMESTAMP, EVENT TIME t); CREATE QUERY rs AS SELECT t FROM r"
    with ps.App(STREAM + SUMS + other, checkpoint=tmp_path) as app:  # a stream more is no other app
        app.push("r", {"t": 1})
        assert app.results("rs").num_rows == 1


def _try(text: str, directory: Path, answers: Any) -> None:
    try:
        ps.App(text, checkpoint=directory).close()
        answers.put("opened")
    except ps.CheckpointError as error:
        answers.put(str(error))


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with ps.App(STREAM + SUMS, checkpoint=tmp_path) as app:
        app.push("s", events(0, 10))
        app.checkpoint()
        with pytest.raises(ps.CheckpointError, match="in use"):
            ps.App(STREAM + SUMS, checkpoint=tmp_path)
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        process = context.Process(target=_try, args=(STREAM + SUMS, tmp_path, answers))
        process.start()
        assert "in use by another process" in answers.get(timeout=60)
        process.join()
        app.push("s", events(10, 20))
        app.checkpoint()
    ps.App(STREAM + SUMS, checkpoint=tmp_path).close()


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    with ps.App(STREAM + SUMS, checkpoint=tmp_path) as app:
        app.push("s", events(0, 10))
        app.checkpoint()
    file = tmp_path / "state"
    data = file.read_bytes()
    for damaged in (data[:100], data[:-1], b"", data[:200] + bytes([data[200] ^ 1]) + data[201:], b"x" * 500):
        file.write_bytes(damaged)
        with pytest.raises(ps.StorageError, match="damaged"):
            ps.App(STREAM + SUMS, checkpoint=tmp_path)
    file.write_bytes(data)
    ps.App(STREAM + SUMS, checkpoint=tmp_path).close()


def test_a_checkpoint_without_its_state_is_refused_and_not_begun_anew(tmp_path: Path) -> None:
    text = STREAM + SLIDES
    with ps.App(text, checkpoint=tmp_path, memory="1MB", block_size=512):
        pass  # no checkpoint was taken
    with ps.App(text, checkpoint=tmp_path, memory="1MB", block_size=512) as app:
        app.push("s", events(0, 1000))
        app.checkpoint()
        files = sorted(path.name for path in (tmp_path / "blocks").iterdir())
    (tmp_path / "state").rename(tmp_path / "kept")
    for _ in range(2):
        with pytest.raises(ps.CheckpointError, match="its file 'state' is gone; put it back, or start with a new dir"):
            ps.App(text, checkpoint=tmp_path)
    assert sorted(path.name for path in (tmp_path / "blocks").iterdir()) == files
    (tmp_path / "kept").rename(tmp_path / "state")
    with ps.App(text, checkpoint=tmp_path) as app:
        app.push("s", events(1000, 1100))
        app.finish()
        assert rows(app.results("slides")) == whole(text, 1100)["slides"]


def test_a_checkpoint_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with ps.App(STREAM + SLIDES, checkpoint=tmp_path / "new", memory="1MB", block_size=512) as app:
            app.push("s", events(0, 1000))
            for _ in range(2):
                app.checkpoint()
        with ps.App(STREAM + SLIDES, memory="1MB", block_size=512) as app:
            app.push("s", events(0, 1000))
            assert app._scratch is not None
            blocks = app._scratch.path
            modes = {path: path.stat().st_mode & 0o077 for path in [blocks, *blocks.rglob("*")]}
    finally:
        os.umask(before)
    modes |= {path: path.stat().st_mode & 0o077 for path in [tmp_path / "new", *(tmp_path / "new").rglob("*")]}
    assert {path.name for path, mode in modes.items() if mode} == set()


def test_a_newer_format_and_foreign_state_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ps.App(STREAM + SUMS, checkpoint=tmp_path) as app:
        monkeypatch.setattr(state_format, "VERSION", 99)
        app.checkpoint()
    monkeypatch.undo()
    with pytest.raises(ps.CheckpointError, match="format version 99"):
        ps.App(STREAM + SUMS, checkpoint=tmp_path)
    (tmp_path / "state").write_bytes(state_format.encode({"something": "else"}))
    with pytest.raises(ps.CheckpointError, match="not a checkpoint of an app"):
        ps.App(STREAM + SUMS, checkpoint=tmp_path)


def test_a_place_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ps.StorageError, match="cannot be used"):
        ps.App(STREAM + SUMS, checkpoint=tmp_path / "file")
    with ps.App(STREAM + SUMS, checkpoint=tmp_path / "new" / "deep") as app:
        app.checkpoint()
        with pytest.raises(ps.InputError, match="JSON"):
            app.checkpoint({"extra": object()})


# Budgets


@pytest.mark.parametrize("block_size", [512, 4096, 65536])
@pytest.mark.parametrize(
    "queries", [SUMS, SUMS + SLIDES, SUMS + SLIDES + "SELECT v FROM s [RANGE 1 HOUR SLIDE 1 HOUR]"]
)
def test_the_least_budget_is_said_and_works(queries: str, block_size: int) -> None:
    with pytest.raises(ps.BudgetError) as caught:
        ps.App(STREAM + queries, memory=100, block_size=block_size)
    (line,) = (line for line in str(caught.value).splitlines() if "can start with" in line)
    least = int(line.split(" is ")[1].split(" bytes")[0].replace(",", ""))
    with ps.App(STREAM + queries, memory=least, block_size=block_size) as app:
        app.push("s", events(0, 1)[0])
    with pytest.raises(ps.BudgetError):
        ps.App(STREAM + queries, memory=least - 1, block_size=block_size)


def test_a_checkpoint_that_does_not_fit_the_budget(tmp_path: Path) -> None:
    text = STREAM + "CREATE QUERY mids AS SELECT MODE(v) AS m FROM s [RANGE 10 HOURS SLIDE 1 HOUR]"
    with ps.App(text, checkpoint=tmp_path) as app:
        app.push("s", events(0, 30_000))
        app.checkpoint()
    with pytest.raises(ps.BudgetError, match="memory budget of at least"):
        ps.App(text, checkpoint=tmp_path, memory="300KB")
    with ps.App(text, checkpoint=tmp_path) as app:
        app.push("s", events(30_000, 36_100))
        app.finish()
        assert rows(app.results("mids")) == whole(text, 36_100)["mids"]
