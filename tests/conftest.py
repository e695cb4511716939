"""Fixtures for every folder. One Spark session serves the whole test run, since starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from properties.counter import COUNTER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


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
