"""Fixtures for every folder. One Spark session serves the whole test run, since starting one takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from properties.counter import COUNTER
from store.checked_differences import check_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_configure() -> None:
    """In the checked build even a few rows take a lane (`lane.checked_memory`)."""
    if os.environ.get("PENSTOCK_CHECKED_LANE") == "1":
        from penstock.engine import push_lanes
        from penstock.operators import column_lane, window_lane

        push_lanes.LEAST_PUSHES, column_lane.LEAST_ROWS, window_lane.LEAST_ROWS = 0, 1, 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`-m "not spark"` leaves out what needs a session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from penstock.spark.session import SHORT_RUN, session

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    running = session("penstock-tests", "local[2]", SHORT_RUN, log_file=str(log))
    yield running
    running.stop()


@pytest.fixture(autouse=True, scope="session")
def checked_differences() -> Iterator[None]:
    """Checkpoints of all tests that run apps in this process are compared with what was to be saved."""
    with pytest.MonkeyPatch.context() as patch:
        check_differences(patch)
        yield


@pytest.fixture
def penstock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs the command in this process and in an empty directory; gives the exit code and what it wrote to the two
    streams."""
    from penstock.cli.command import main

    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["penstock", *map(str, args)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capfd.readouterr()
        return int(left.value.code or 0), out, err

    return run


# The line at the end that says how many generated cases were run. Parallel workers hand their counts to the
# controller, which loads no conftest but this one.


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["properties"] = vars(COUNTER)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    COUNTER.merge(getattr(node, "workeroutput", {}).get("properties", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if COUNTER.cases:
        terminalreporter.write_line(str(COUNTER))
