"""The tests of the lanes are run in the checked build, in a process of its own (`lane.checked_memory`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.lane.memory import IS_CHECKED

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(IS_CHECKED, reason="this is the checked build")


def run(*tests: str) -> None:
    sources = str(Path(penstock.__file__).parents[1])
    environment = {**os.environ, "PENSTOCK_CHECKED_LANE": "1", "PYTHONPATH": sources}
    command = [sys.executable, "-m", "pytest", "-m", "not slow and not spark", *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_the_lanes() -> None:
    run("tests/lane", "tests/engine/test_push_lane.py")


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["conformance", "engine", "operators", "properties"])
def test_what_is_played_by_lanes(folder: str) -> None:
    run(f"tests/{folder}")
