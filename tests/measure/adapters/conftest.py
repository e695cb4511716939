"""One broker serves all tests of a session that need one: starting it takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_bench.measure.adapters.kafka_broker import KafkaBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(directory=tmp_path_factory.mktemp("kafka"), heap="512m") as running:
        yield running
