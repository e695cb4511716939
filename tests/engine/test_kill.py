"""kill -9 of a process that pushes with checkpoints: when it is done at last, no result is lost and none repeated."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from engine import pushing_process

SCRIPT = Path(pushing_process.__file__)


def written(directory: Path) -> list[Any]:
    return [json.loads(line) for line in (directory / "results").read_text().splitlines()]


def expected(total: int) -> list[Any]:
    """The same without an interruption, in this process and from one batch."""
    with ps.App(pushing_process.PROGRAM) as app:
        app.push("s", pushing_process.events(0, total))
        app.finish()
        return [
            [name, i, {k: str(v) for k, v in row.items()}]
            for name in app.queries
            for i, row in enumerate(app.results(name).to_pylist())
        ]


def rounds(directory: Path, total: int, kills: int, chance: random.Random, *options: str) -> Iterator[int]:
    """Starts the process and kills it at a random moment, so many times; then lets it end."""
    for number in range(kills + 1):
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(directory), str(total), *options], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if number < kills:
                time.sleep(chance.uniform(0, 0.3))
                process.kill()
                process.wait()
                yield number
            else:
                assert process.wait(timeout=300) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def check(directory: Path, total: int, kills: int, seed: int, *options: str) -> None:
    survived = sum(1 for _ in rounds(directory, total, kills, random.Random(seed), *options))
    assert survived == kills
    assert (directory / "done").exists()
    lines = written(directory)
    by_query = sorted(lines, key=lambda line: (line[0], line[1]))
    assert [line[:2] for line in by_query] == sorted([line[:2] for line in expected(total)])
    assert by_query == sorted(expected(total), key=lambda line: (line[0], line[1]))


def test_killed_a_few_times(tmp_path: Path) -> None:
    check(tmp_path, 6_000, kills=3, seed=1)


def test_killed_while_groups_are_in_shards(tmp_path: Path) -> None:
    check(tmp_path, 3_000, 3, 3, "--page-groups")


@pytest.mark.slow
def test_killed_many_times(tmp_path: Path) -> None:
    check(tmp_path, 60_000, kills=40, seed=2)


@pytest.mark.slow
def test_killed_many_times_while_groups_are_in_shards(tmp_path: Path) -> None:
    check(tmp_path, 20_000, 40, 4, "--page-groups")
