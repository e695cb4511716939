"""How long hypothesis searches here, and a line at the end that says how many generated cases were run.

`quick` is what every run does; `pytest tests/properties --hypothesis-profile=ci-long` searches for a long time.
Parallel workers hand their counts to the controller.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from properties.counter import COUNTER

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("quick", max_examples=100, deadline=None, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile("ci-long", max_examples=5_000, deadline=None, suppress_health_check=_SLOW_IS_FINE)


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
