"""Fixtures for every folder. One Spark session serves the whole test run, since starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

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
