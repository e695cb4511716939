"""A run's directory: a setup that is written is read again as it was; what is there is not overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import InputError
from penstock_bench.measure.running.directory import RunDirectory
from penstock_bench.measure.setup.model import Setup

SETUP = Setup.model_validate(
    {
        "name": "one",
        "streams": {"s": {"columns": {"ts": "TIMESTAMP", "n": "INT"}, "lateness": "1.5 ms"}},
        "drivers": [
            {
                "name": "d",
                "fields": {"s": {"n": {"generator": "sequential"}}},
                "phases": [{"duration": "2 minutes", "rate": 5}, {"events": 10, "rate": "max", "event_rate": 5}],
            }
        ],
        "queries": {"q": {"text": {"penstock": "SELECT ts FROM s"}}},
    }
)


def test_a_setup_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SETUP, "name = 'one'")
    assert run.setup() == SETUP
    assert (run.path / "setup.toml").read_text() == "name = 'one'"


def test_facts(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SETUP, "")
    run.write_facts({"clock_offset_ns": 5, "place": {"token": "x"}})
    assert run.clock().offset_ns == 5
    assert (run.path / "run.json").stat().st_mode & 0o077 == 0


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    with pytest.raises(InputError, match="is there already"):
        RunDirectory.create(tmp_path, SETUP, "")
