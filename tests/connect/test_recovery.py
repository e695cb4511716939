"""Killed with SIGKILL at random moments and started again, the command leaves what an undisturbed run leaves."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

COMMAND = [sys.executable, "-m", "penstock", "run", "--engine", "embedded"]


def write_input(folder: Path, rows: int) -> None:
    """Some rows cannot be read, some are out of order, some are late."""
    chance = random.Random(11)
    lines = ["t,k,x"]
    for i in range(rows):
        time_ms = i * 20 - chance.choice([0, 0, 0, 300, 900, 5000 if chance.random() < 0.02 else 0])
        value = "oops" if chance.random() < 0.003 else repr(chance.uniform(-1e9, 1e9) * 10.0 ** chance.randint(-12, 12))
        lines.append(f"{time_ms},k{chance.randint(0, 30)},{value}")
    for part in range(3):
        (folder / f"{part}.csv").write_text("\n".join(lines[:1] + lines[1 + part :: 3][: rows // 3]) + "\n")


def app_text(source: Path, out: Path) -> str:
    stream = "(t BIGINT, k STRING, x DOUBLE, EVENT TIME t UNIT MILLISECONDS LATENESS 1 SECOND)"
    return f"""
        CREATE STREAM s {stream} FROM '{source}' LATE INTO late;
        CREATE SINK late TO '{out}/late.jsonl';
        CREATE SINK sums TO '{out}/sums.csv';
        CREATE SINK parts TO '{out}/parts';
        INSERT INTO sums SELECT k, SUM(x) AS total, AVG(x) AS mean, MAX(x) AS top
        FROM s [RANGE 30 SECONDS SLIDE 1 SECOND] GROUP BY k;
        INSERT INTO parts SELECT k, COUNT(*) AS n, MIN(x) AS low FROM s [ROWS 1000 SLIDE 50] GROUP BY k;
    """


def prepare(folder: Path, source: Path) -> list[str]:
    folder.mkdir()
    (folder / "app.sql").write_text(app_text(source, folder))
    return [*COMMAND, str(folder / "app.sql"), "--rejects", str(folder / "rejects.jsonl"), "--quiet", "--memory", "2MB"]


def outcome(folder: Path) -> dict[str, object]:
    parts = sorted((folder / "parts").glob("*.parquet"))
    return {
        "sums": (folder / "sums.csv").read_bytes(),
        "late": (folder / "late.jsonl").read_bytes(),
        "rejects": (folder / "rejects.jsonl").read_bytes(),
        "parts": pa.concat_tables(parquet.read_table(part) for part in parts),
    }


def kill_until_done(folder: Path, source: Path, most_kills: int, seed: int) -> int:
    """Kills a run again and again, most times a moment after it has written a checkpoint; returns how often."""
    chance = random.Random(seed)
    state = folder / "state" / "state"
    command = [*prepare(folder, source), "--checkpoint", str(folder / "state"), "--every", "0", "--batch", "700"]
    for kills in range(most_kills):
        before = state.stat().st_mtime_ns if state.exists() else None
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        if chance.random() < 0.8:
            while process.poll() is None and (not state.exists() or state.stat().st_mtime_ns == before):
                time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.3))
        process.kill()
        _, errors = process.communicate()
        if process.returncode != -signal.SIGKILL:
            assert process.returncode == 0, errors.decode()
            return kills
    subprocess.run(command, check=True, timeout=300)
    return most_kills


def check(tmp_path: Path, rows: int, most_kills: int, rounds: int) -> None:
    source = tmp_path / "in"
    source.mkdir()
    write_input(source, rows)
    subprocess.run(prepare(tmp_path / "undisturbed", source), check=True, timeout=300)
    wanted = outcome(tmp_path / "undisturbed")
    for number in range(rounds):
        folder = tmp_path / f"killed{number}"
        kills = kill_until_done(folder, source, most_kills, number)
        assert kills > 0
        found = outcome(folder)
        for name, value in wanted.items():
            assert found[name] == value, f"{name} after {kills} kills in round {number}"


@pytest.mark.slow
def test_kill_and_resume(tmp_path: Path) -> None:
    check(tmp_path, rows=40_000, most_kills=2, rounds=1)


@pytest.mark.slow
def test_kill_and_resume_many_rounds(tmp_path: Path) -> None:
    check(tmp_path, rows=100_000, most_kills=20, rounds=3)
