"""`penstock state`: checkpoints of the embedded engine in full; of Spark what is shown, given what is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import App
from penstock.cli.state import as_dict, show_state
from penstock.engine.inspect import CheckpointState, Files, SavedShare
from penstock.engine.saved_state import SavedQuery, SavedState, SavedStore, SavedStream
from penstock.store.state import VERSION

SECOND = 1_000_000
PROGRAM = """
    CREATE STREAM s (t TIMESTAMP, k STRING, v DOUBLE, EVENT TIME t LATENESS 2 SECONDS);
    CREATE QUERY long AS SELECT k, SUM(v) AS x FROM s [RANGE 100 SECONDS SLIDE 10 SECONDS] GROUP BY k;
    CREATE QUERY longer AS SELECT MAX(v) AS x FROM s [RANGE 200 SECONDS SLIDE 20 SECONDS];
    CREATE QUERY few AS SELECT k, v FROM s [PARTITION BY k ROWS 3];
    CREATE QUERY sessions AS SELECT k, COUNT(*) AS x FROM s [PARTITION BY k SESSION 5 SECONDS] GROUP BY k;
"""
EVENTS = [{"t": 1000 * SECOND + i * 20_000, "k": "abcd"[i % 4], "v": i / 7} for i in range(15_000)]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    directory = tmp_path / "state of an app"
    with App(PROGRAM, checkpoint=directory, memory="2MB") as app:
        app.push("s", pa.RecordBatch.from_pylist(EVENTS, schema=pa.schema(app._inputs.named("s").ingest.schema)))
        app.checkpoint()
    return directory


def test_a_checkpoint_of_an_app_as_json(penstock: Any, checkpoint: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")}
    code, out, _ = penstock("state", checkpoint, "--json")
    assert code == 0
    assert {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")} == before
    found = json.loads(out)
    assert (found["engine"], found["number"], found["ended"]) == ("embedded", 1, False)
    assert found["format_version"] == VERSION
    last = EVENTS[-1]["t"]
    (stream,) = found["streams"]
    assert (stream["events"], stream["last_time"], stream["watermark"]) == (15_000, last, last - 2 * SECOND)
    assert stream["waiting"] == sum(event["t"] > last - 2 * SECOND for event in EVENTS)
    queries = {query["name"]: query for query in found["queries"]}
    in_order = [event["t"] for event in EVENTS if event["t"] <= last - 2 * SECOND]
    for name, extent, slide in [("long", 100, 10), ("longer", 200, 20)]:
        start = (last - 2 * SECOND) // (slide * SECOND) * slide * SECOND - extent * SECOND
        assert queries[name]["rows"] == sum(t >= start for t in in_order)
    assert queries["few"]["rows"] == 12
    assert {name: query["groups"] for name, query in queries.items()} == {
        "long": 4,
        "longer": 1,
        "few": 4,
        "sessions": 4,
    }
    assert queries["long"]["blocks"] == queries["longer"]["blocks"] > 1, "they share a window"
    assert found["in_use"]["nbytes"] == sum(file.stat().st_size for file in checkpoint.rglob("*.blocks"))
    assert found["orphans"] == {"number": 0, "nbytes": 0}
    assert found["missing"] == []


def test_a_checkpoint_of_an_app_as_tables(penstock: Any, checkpoint: Path) -> None:
    (checkpoint / "blocks" / "nobody.blocks").write_bytes(b"12345")
    code, out, _ = penstock("state", checkpoint)
    assert code == 0
    assert "checkpoint 1 of an embedded app" in out
    assert "1970-01-01 00:21:39.980  1970-01-01 00:21:37.980  15,000           100" in out
    assert "orphans         1 with 5 B" in out
    assert "MISSING" not in out


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda directory: None, "is no directory; give the checkpoint directory of a run"),
        (lambda directory: directory.mkdir(), "is no checkpoint directory: it has neither blocks nor offsets in it"),
        (lambda directory: (directory / "blocks").mkdir(parents=True), "has no checkpoint yet"),
    ],
)
def test_what_is_no_checkpoint_is_told_in_one_line(penstock: Any, tmp_path: Path, spoil: Any, message: str) -> None:
    spoil(tmp_path / "d")
    code, out, err = penstock("state", tmp_path / "d")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_damage_is_told_in_one_line(penstock: Any, checkpoint: Path) -> None:
    data = bytearray((checkpoint / "state").read_bytes())
    data[-100] ^= 1
    (checkpoint / "state").write_bytes(data)
    code, _, err = penstock("state", checkpoint)
    assert code == 2
    assert "saved state is damaged: its checksum does not fit" in err
    assert err.count("\n") == 1


def test_all_that_is_whole_is_verified(penstock: Any, checkpoint: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")}
    code, out, _ = penstock("state", checkpoint, "--verify", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["verified"]["damaged"] == []
    assert found["verified"]["blocks"] == sum(store["blocks"] for store in found["stores"]) > 10
    assert found["components"]["FifoStore"] == 1
    assert "verified" in penstock("state", checkpoint, "--verify")[1]
    assert {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")} == before


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
            "block 0 is damaged: its checksum does not fit",
        ),
        (lambda data: data[:70_000], "the file is truncated"),
        (lambda data: None, "is missing"),
    ],
    ids=["a flipped bit", "truncated", "missing"],
)
def test_what_damage_affects_is_named(penstock: Any, checkpoint: Path, spoil: Any, says: str) -> None:
    """The two queries with slides share a window; it is one file, and the other queries do not need it."""
    (file,) = checkpoint.glob("blocks/window-s-*.blocks")
    data = spoil(file.read_bytes())
    file.unlink() if data is None else file.write_bytes(data)
    code, out, _ = penstock("state", checkpoint, "--verify")
    assert code == 1
    assert says in out
    assert "needed by long, longer" in out
    code, out, _ = penstock("state", checkpoint, "--verify", "--json")
    assert code == 1
    found = json.loads(out)
    damaged = found["verified"]["damaged"]
    window = next(store for store in found["stores"] if store["name"].startswith("window-s-"))
    assert {damage["store"] for damage in damaged} == {window["name"]}
    assert len(damaged) == (1 if says.startswith("block 0") else window["blocks"] - (says == "the file is truncated"))
    rows = sum(damage["rows"] for damage in damaged)
    assert 0 < rows <= window["rows"]
    assert all(damage["queries"] == ["long", "longer"] for damage in damaged)


def test_rows_of_queues_and_of_runs_are_counted(penstock: Any, tmp_path: Path) -> None:
    text = "CREATE STREAM s (t TIMESTAMP, k BIGINT, v DOUBLE, EVENT TIME t LATENESS 1 HOUR);"
    text += "CREATE QUERY few AS SELECT k, SUM(v) AS x FROM s [PARTITION BY k ROWS 500] GROUP BY k"
    events = [{"t": i * SECOND, "k": i % 9, "v": i / 7} for i in range(9000)]
    with App(text, checkpoint=tmp_path, memory="150KB", block_size=1024) as app:
        app.push("s", events)
        app.checkpoint()
    for file in (tmp_path / "blocks").glob("*.blocks"):
        file.write_bytes(b"")
    code, out, _ = penstock("state", tmp_path, "--verify", "--json")
    assert code == 1
    found = json.loads(out)
    rows = {store["name"]: 0 for store in found["stores"]}
    for damage in found["verified"]["damaged"]:
        assert damage["queries"] == ["few"]
        rows[damage["store"]] += damage["rows"] or 0
    assert rows["s-reorder"] > 1000
    assert sum(n for name, n in rows.items() if name.startswith("few-")) > 1000


def test_a_checkpoint_of_spark_in_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    state = CheckpointState(
        engine="Spark",
        directory="d",
        number=12,
        format_version=1,
        ended=True,
        saved=SavedState(
            {"s": SavedStream("s", 7, None, None, 0)},
            {"q": SavedQuery("q", 5, 2, 3, ("w",))},
            {"w": SavedStore(3, 1, 2048, ("f",), ("r",))},
        ),
        state_bytes=10,
        in_use=Files(1, 2048),
        orphans=Files(),
        retired=Files(1, 3),
        missing=("x.segment",),
        shares=(SavedShare("f00d-0", "partials", 2, ("q",)),),
        texts={"q": "SELECT SUM(v) FROM s [RANGE 1 HOUR SLIDE 1 MINUTE]"},
    )
    monkeypatch.setattr("penstock.cli.state._inspect", lambda directory, verify: state)
    show_state("d", as_json=False)
    out = capsys.readouterr().out
    assert "d: micro-batch 12 of Spark, ended" in out
    assert "f00d-0  partials  q              2" in out
    assert "q      [RANGE 1 HOUR SLIDE 1 MINUTE]        5       2     3       1  2.0 KiB" in out
    assert "MISSING         x.segment" in out
    assert as_dict(state)["queries"][0]["bytes"] == 2048
