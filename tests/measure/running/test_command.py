"""`penstock bench run` as a user meets it: its output, its exit codes, Ctrl-C, and the end of its parent."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

SETUP = """
name = "two words"

[parameters]
rate = 500
seconds = 600
text = "SELECT ts, id FROM s"

[quick]
seconds = 1

[streams.s]
columns = { ts = "TIMESTAMP", id = "BIGINT" }

[[drivers]]
name = "load"
fields.s.id = { generator = "sequential" }
phases = [{ rate = "${rate}", duration = "${seconds}" }]

[queries.q]
text = { penstock = "${text}", echo = "everything" }
"""


@pytest.fixture
def setup_file(tmp_path: Path) -> Path:
    file = tmp_path / "setup.toml"
    file.write_text(SETUP)
    return file


def begun(setup_file: Path, run: Path) -> subprocess.Popen[str]:
    """A run in a process of its own, when results have come."""
    command = [sys.executable, "-m", "penstock", "bench", "run", str(setup_file), "--adapter", "systems:Echo"]
    process = subprocess.Popen(
        [*command, "-o", str(run)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait(lambda: any(run.glob("sinks/*/part-*.parquet")) or process.poll() is not None)
    return process


def wait(reached: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_a_run_ends_with_its_summary(penstock, setup_file: Path, found_systems: None) -> None:  # type: ignore[no-untyped-def]
    chosen = ("--quick", "--set", "rate=300", "--adapter", "systems:Echo")
    code, out, err = penstock("bench", "run", setup_file, *chosen)
    assert code == 0
    summary = json.loads(out.splitlines()[-1])
    assert summary["state"] == "done"
    assert summary["parameters"]["rate"] == 300
    assert summary["latency"]["q"]["count"] == 300
    (run,) = Path("runs").glob("two-words-*")
    assert json.loads((run / "summary.json").read_text()) == summary
    assert str(run) in err
    assert " events" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "nothing"), "there is no setup 'nothing'; give a file SETUP.toml, or one of selection, projection"),
        (("run", "nothing.toml"), "nothing.toml: cannot be read"),
        (("run", "{}", "--set", "rate"), "--set rate: write NAME=VALUE"),
        (("run", "{}", "--set", "window=5"), "there is no parameter 'window'; the setup has rate, seconds, text"),
        (("run", "{}", "--adapter", "nobody"), "system.adapter = 'nobody': unknown; there are embedded"),
        (("run", "{}", "--output", "{}"), "is there already; give a new directory"),
        (("run", "{}", "--set", "text=SELECT it FROM s"), "unknown column 'it'\n  at line 3, column 8:"),
    ],
)
def test_mistakes_are_told_in_a_few_lines(  # type: ignore[no-untyped-def]
    penstock, setup_file: Path, arguments: tuple[str, ...], said: str
) -> None:
    code, out, err = penstock("bench", *(argument.format(setup_file) for argument in arguments))
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured(setup_file: Path, tmp_path: Path, found_systems: None) -> None:
    process = begun(setup_file, tmp_path / "run")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    summary = json.loads(out.splitlines()[-1])
    assert summary["state"] == "stopped"
    assert summary["latency"]["q"]["count"] > 100
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "stopped"


def test_processes_do_not_outlive_a_controller_that_is_killed(
    setup_file: Path, tmp_path: Path, found_systems: None
) -> None:
    process = begun(setup_file, tmp_path / "run")
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) == 3
    process.kill()
    process.communicate()
    gone, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    assert len(gone) == 3
