"""How far a driver has come, however its phases end."""

from __future__ import annotations

import pytest

from penstock_bench.measure.running.live import DriverView, fraction_done
from penstock_bench.measure.setup.model import Driver

TIMED = {"rate": 1, "duration": 10}
COUNTED = {"rate": "max", "event_rate": 1, "events": 100}
EITHER = {**COUNTED, "duration": 10}


@pytest.mark.parametrize(
    ("phases", "view", "seconds", "done"),
    [
        ([TIMED, TIMED], DriverView(sent=7), 5.0, 0.25),
        ([TIMED], DriverView(), 50.0, 1.0),
        ([COUNTED, COUNTED], DriverView(sent=50), 5.0, 0.25),
        ([EITHER], DriverView(sent=50), 1.0, 1.0),  # two copies, each of which has sent fifty
        ([TIMED, COUNTED], DriverView(phase=1), 5.0, 0.5),
        ([], DriverView(), 5.0, 0.0),
        ([], DriverView(finished=True), 5.0, 1.0),
    ],
)
def test_fraction_done(phases: list[dict[str, object]], view: DriverView, seconds: float, done: float) -> None:
    copies = 2 if phases and phases[0] is EITHER else 1
    given = {"name": "d", "copies": copies, "phases": phases, "fields": {"s": {}}}
    if not phases:
        given |= {"replay": {"file": "f", "stream": "s", "pace": "max"}}
    assert fraction_done(Driver.model_validate(given), view, seconds) == pytest.approx(done)
