"""Fixtures for every folder. One Spark session serves the whole test run, since starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from penstock.spark.session import session

    running = session("penstock-tests", "local[2]")
    yield running
    running.stop()
