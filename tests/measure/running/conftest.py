"""Runs of a few seconds with systems that a test scripts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock_bench.measure.running.controller import Controller
from penstock_bench.measure.setup.read import parse_setup

Made = Callable[..., Controller]


@pytest.fixture
def found_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of a run find `systems.py` as they would find an installed package."""
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))


def setup_of(**changed: Any) -> dict[str, Any]:
    """A setup of one driver, with what a test says instead; `rate`, `seconds` and `options` go where they belong."""
    options = changed.pop("options", {})
    phase = {"rate": changed.pop("rate", 1000), "duration": changed.pop("seconds", 1)}
    return {
        "name": "scripted",
        "streams": {"s": {"columns": {"ts": "TIMESTAMP", "id": "BIGINT", "v": "DOUBLE"}}},
        "drivers": [
            {
                "name": "load",
                "fields": {
                    "s": {"id": {"generator": "sequential"}, "v": {"generator": "uniform", "min": 0, "max": 100}}
                },
                "phases": changed.pop("phases", [phase]),
            }
        ],
        "queries": {"q": {"text": {"echo": "everything", "penstock": "SELECT ts, id, v FROM s"}}},
        "system": {"adapter": "systems:Echo", "options": options},
        "measuring": {"resources": "100 ms"},
        **changed,
    }


@pytest.fixture
def made(tmp_path: Path, found_systems: None) -> Iterator[Made]:
    """Makes a run of a setup; whatever still runs at the end of a test is stopped."""
    controllers: list[Controller] = []

    def make(**changed: Any) -> Controller:
        controller = Controller(parse_setup(setup_of(**changed)), tmp_path / f"run{len(controllers)}")
        controllers.append(controller)
        return controller

    yield make
    for controller in controllers:
        controller.stop()
        controller.stop()
