"""The command on Spark: the same answers as embedded, from the same text; each test starts Spark, so they are few."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark

APP = """
    CREATE STREAM calls (
        at BIGINT, agent STRING, seconds DOUBLE NOT NULL, EVENT TIME at UNIT SECONDS LATENESS 5 SECONDS
    ) FROM 'in' LATE INTO too_late;
    CREATE SINK too_late TO '{out}/late.csv';
    CREATE SINK totals TO '{out}/totals.jsonl';
    CREATE SINK forgotten TO 'discard:';

    INSERT INTO totals SELECT agent, COUNT(*) AS calls, SUM(seconds) AS seconds
    FROM calls [RANGE 30 SECONDS SLIDE 10 SECONDS] GROUP BY agent;

    INSERT INTO minutes SELECT agent, MAX(seconds) AS longest
    FROM calls [RANGE 60 SECONDS SLIDE 60 SECONDS] GROUP BY agent;

    SELECT AVG(longest) AS longest FROM minutes [RANGE 2 MINUTES SLIDE 1 MINUTE];
    INSERT INTO forgotten SELECT COUNT(*) AS n FROM calls [RANGE 10 SECONDS SLIDE 10 SECONDS];
"""


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "penstock", "run", *map(str, args)]


def run(directory: Path, *args: object, code: int = 0) -> list[dict[str, Any]]:
    """What the command prints."""
    ran = subprocess.run(command(*args), cwd=directory, capture_output=True, text=True, timeout=300)
    assert ran.returncode == code, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def calls(numbers: range) -> str:
    return "".join(f"{n},{'abc'[n % 3]},{n % 7 / 2}\n" for n in numbers)


def rows_under(path: Path) -> list[str]:
    """The rows of a sink, a file or a directory of them, without headers, in an order that says nothing."""
    files = [path] if path.is_file() else sorted(path.rglob("*.*sv")) + sorted(path.rglob("*.jsonl"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    return sorted(line for line in lines if not line.startswith("at,"))


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row) for row in rows)


@pytest.mark.slow
def test_a_whole_application_has_the_answers_of_the_embedded_engine(tmp_path: Path) -> None:
    """Several queries and sinks, a derived stream, rejects, a late event; files that are not well made."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("at,agent,seconds\n" + calls(range(100)) + "x,a,1\n101,b,\n102,c\n")
    (tmp_path / "in" / "2.csv").write_text("agent,seconds,at\n" + "a,1.5,97\nc,9.5,20\nb,2.5,250\n")
    for engine in ("embedded", "spark"):
        (tmp_path / f"{engine}.sql").write_text(APP.format(out=engine))
    embedded = run(tmp_path, "embedded.sql", "--engine", "embedded", "-q", "--rejects", "embedded/rejects.jsonl")
    spark = run(tmp_path, "spark.sql", "-q", "--rejects", "spark/rejects", "--master", "local[2]", "--buckets", 3)
    assert in_order(spark) == in_order(embedded)
    assert len(spark) > 2
    assert rows_under(tmp_path / "spark" / "totals.jsonl") == rows_under(tmp_path / "embedded" / "totals.jsonl")
    late = [rows_under(tmp_path / engine / "late.csv") for engine in ("embedded", "spark")]
    assert late == [["20,c,9.5"]] * 2
    rejected = [
        [json.loads(line) for line in rows_under(tmp_path / e / r)]
        for e, r in [("embedded", "rejects.jsonl"), ("spark", "rejects")]
    ]
    assert sorted(row["raw"] for row in rejected[0]) == sorted(row["row"] for row in rejected[1])
    assert len(rejected[1]) == 3


@pytest.mark.slow
def test_three_ways_to_run_go_on_from_one_checkpoint(tmp_path: Path) -> None:
    """What is there, then on and on until Ctrl-C, then to the end: together the uninterrupted answers.

    One event comes far too late, and is found on the side.
    """
    (tmp_path / "in").mkdir()
    files = {
        name: "at,agent,seconds\n" + calls(numbers)
        for name, numbers in [("1.csv", range(100)), ("2.csv", range(100, 200)), ("3.csv", range(200, 260))]
    }

    files["2.csv"] += "20,a,9.5\n"

    def deliver(name: str) -> None:
        (tmp_path / f".{name}").write_text(files[name])
        (tmp_path / f".{name}").rename(tmp_path / "in" / name)

    (tmp_path / "app.sql").write_text(APP.format(out="out"))
    arguments = ("app.sql", "--checkpoint", "state", "--master", "local[2]", "-q")
    deliver("1.csv")
    printed = run(tmp_path, *arguments, "--available-now")
    before = rows_under(tmp_path / "out" / "totals.jsonl")
    deliver("2.csv")
    process = subprocess.Popen(
        command(*arguments, "--trigger", "1 second"), cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: len(rows_under(tmp_path / "out" / "totals.jsonl")) > len(before))
    finally:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    printed += [json.loads(line) for line in out.splitlines()]
    deliver("3.csv")
    printed += run(tmp_path, *arguments)

    (tmp_path / "all.sql").write_text(APP.format(out="all"))
    # What was printed before the stop, and not committed, is printed again; files have it once.
    assert set(in_order(run(tmp_path, "all.sql", "--engine", "embedded", "-q"))) == set(in_order(printed))
    assert rows_under(tmp_path / "out" / "totals.jsonl") == rows_under(tmp_path / "all" / "totals.jsonl")
    assert rows_under(tmp_path / "out" / "late.csv") == rows_under(tmp_path / "all" / "late.csv") == ["20,a,9.5"]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
