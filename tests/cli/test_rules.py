"""Rules in the command: what they emit goes to sinks, HTTP calls are made, and those that fail are with the rejects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calls.servers import Server

EVENTS = "t,room,degrees\n1,attic,31\n2,attic,33\n3,cellar,12\n4,attic,20\n5,attic,35\n6,cellar,40\n"
APP = """
    CREATE STREAM s (t BIGINT, room STRING, degrees DOUBLE, EVENT TIME t UNIT SECONDS) FROM 'in.csv';
    CREATE SINK alarms TO 'alarms.jsonl';
    {function}
    CREATE RULE hot WHEN SELECT t, room, degrees FROM s WHERE degrees > 30 BY room
        THEN EMIT INTO alarms SELECT t, room, CALL notify(room, degrees);
"""


def function(url: str) -> str:
    return f"CREATE FUNCTION notify AS HTTP POST '{url}' WITH ('retries' = '1', 'header.X-Token' = 'env:TOKEN');"


@pytest.fixture
def app_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", "secret")
    Path("in.csv").write_text(EVENTS)
    return tmp_path / "app.sql"


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_run_emits_and_calls(penstock, app_file: Path) -> None:  # type: ignore[no-untyped-def]
    with Server(lambda request: (404 if request["body"]["room"] == "cellar" else 200, {})) as server:
        app_file.write_text(APP.format(function=function(server.url)))
        code, out, err = penstock("run", app_file, "--engine", "embedded")
    assert (code, out) == (0, ""), err
    assert [(row["t"], row["room"]) for row in lines("alarms.jsonl")] == [(1, "attic"), (5, "attic"), (6, "cellar")]
    assert [(r["headers"]["Idempotency-Key"], r["headers"]["X-Token"], r["body"]) for r in server.seen] == [
        ("hot:0", "secret", {"room": "attic", "degrees": 31.0}),
        ("hot:1", "secret", {"room": "attic", "degrees": 35.0}),
        ("hot:2", "secret", {"room": "cellar", "degrees": 40.0}),
    ]
    (rejected,) = lines("app.rejects.jsonl")
    assert rejected["reason"].startswith("CALL notify:")
    assert rejected["reason"].endswith("answered 404 Not Found")
    assert json.loads(rejected["raw"]) == {"idempotency_key": "hot:2", "room": "cellar", "degrees": 40.0}


def test_explain_says_what_a_rule_does(penstock, app_file: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.delenv("TOKEN")
    app_file.write_text(APP.format(function=function("https://example.org")))
    code, out, err = penstock("explain", app_file)
    assert code == 0, err
    assert "rule hot, where it becomes true: emits into alarms, calls notify(room, degrees)" in out


def test_functions_in_python_need_the_library(penstock, app_file: Path) -> None:  # type: ignore[no-untyped-def]
    app_file.write_text(APP.format(function=""))
    code, _, err = penstock("run", app_file, "--engine", "embedded")
    assert code == 2
    assert "unknown function 'notify'" in err
    assert "functions in Python need the library" in " ".join(err.split())
