"""The search for the highest rate: the rates it tries, and how it judges a trial from its logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InputError
from penstock_bench.measure.load.driver import SENT
from penstock_bench.measure.running.directory import RunDirectory
from penstock_bench.measure.running.logs import RollingLog
from penstock_bench.measure.running.serving import PUSHED
from penstock_bench.measure.running.sink import TAKEN
from penstock_bench.measure.running.sustainable import (
    Search,
    Trial,
    judge,
    rates,
    searched_parameter,
    slope,
    trial_setup,
)
from penstock_bench.measure.setup.model import Setup
from penstock_bench.measure.setup.read import parse_setup


def searched(capacity: float, start: float) -> list[Trial]:
    trials: list[Trial] = []
    for rate in rates(start, trials):
        trials.append(Trial(rate, rate <= capacity, ""))
    return trials


@pytest.mark.parametrize("capacity", [12.0, 999.0, 1000.0, 54_321.0, 7_654_321.0])
@pytest.mark.parametrize("start", [1000.0, 10_000_000.0])
def test_the_search_comes_within_five_percent(capacity: float, start: float) -> None:
    trials = searched(capacity, start)
    best = max(trial.rate for trial in trials if trial.sustained)
    assert capacity / 1.05 <= best <= capacity
    assert len(trials) < 30


def test_the_search_ends_where_nothing_or_everything_is_sustained() -> None:
    assert not any(trial.sustained for trial in searched(0.0, 1000.0))
    assert all(trial.sustained for trial in searched(np.inf, 1000.0))


def test_slope() -> None:
    due = np.linspace(0, 10e9, 1001)
    assert slope(due, due * 0.1) == pytest.approx(0.1, rel=0.01)
    assert slope(due, np.full(1001, 5e9)) == 0
    hiccup = np.where((due > 8e9) & (due < 8.5e9), 2e9, 1e6)
    assert slope(due, hiccup) == 0
    assert slope(np.zeros(0), np.zeros(0)) == 0


def setup(**phase: object) -> Setup:
    return parse_setup(
        {
            "name": "x",
            "parameters": {"rate": 500, "size": 3},
            "streams": {"s": {"columns": {"ts": "TIMESTAMP", "n": "BIGINT"}, "lateness": 1}},
            "drivers": [
                {
                    "name": name,
                    "fields": {"s": {"n": {"generator": "sequential"}}},
                    "phases": [
                        {"rate": 10, "events": 5, "measured": False},
                        {"rate": rate, "duration": "1 h", "arrivals": "poisson", "seed": 3, **phase},
                        {"rate": 5, "duration": 1},
                    ],
                }
                for name, rate in (("a", 300), ("b", 100))
            ],
            "queries": {"q": {"text": {"penstock": "SELECT ts FROM s"}}},
            "measuring": {"latency": "adapter"},
        }
    )


def test_a_trial_is_the_first_measured_phase_at_a_constant_rate() -> None:
    made = trial_setup(setup(end_rate=5), 1000, 8_000_000)
    for driver, rate in zip(made.drivers, (750, 250), strict=True):
        warm, trial = driver.phases
        assert (warm.rate, warm.end_rate, warm.duration, warm.measured) == (rate / 100, rate, 4_000_000, False)
        assert (trial.rate, trial.end_rate, trial.duration, trial.measured) == (rate, None, 8_000_000, True)
        assert (trial.arrivals, trial.seed) == ("poisson", 3)
    assert made.measuring.latency == "scheduled"
    closed = trial_setup(setup(rate="max", event_rate=5), 1000, 8_000_000)
    assert [driver.phases[1].rate for driver in closed.drivers] == [500, 500]
    assert [driver.phases[1].rate for driver in trial_setup(setup(), None, 1).drivers] == [300, 100]
    with pytest.raises(InputError, match=r"drivers\.a: its rate is 'max'"):
        trial_setup(setup(rate="max", event_rate=5), None, 1)


def test_what_is_searched_for() -> None:
    assert searched_parameter(setup(), None) == "rate"
    assert searched_parameter(setup(), "size") == "size"
    assert searched_parameter(setup(rate="max", event_rate=5), None) is None
    with pytest.raises(InputError, match="no parameter 'speed'; the setup has rate, size"):
        searched_parameter(setup(), "speed")


RATE = 1000
SECONDS = 10
BEGIN_US = 1_700_000_000_000_000


def run(path: Path, sent: Callable[[int], int], done: Callable[[int], int]) -> Path:
    """The logs of a trial whose batches, ten a second, are sent and done so many ns after they are due."""
    one = setup().model_copy(update={"drivers": setup().drivers[:1]})
    directory = RunDirectory.create(path / "run", trial_setup(one, RATE, SECONDS * 1_000_000), "")
    directory.write_facts({"clock_offset_ns": 0, "place": {}, "adapter": "embedded", "machine": {}, "began_ns": 0})
    count = SECONDS * 10
    last = BEGIN_US + np.arange(1, count + 1) * 100_000
    due = last * 1000
    sends, dones = due + np.array([sent(i) for i in range(count)]), due + np.array([done(i) for i in range(count)])
    same = {"stream": ["s"] * count, "first_us": last, "last_us": last, "events": [100] * count}
    logs = [
        (
            directory.driver("a", 0),
            SENT,
            {**same, "phase": [1] * count, "due_ns": due, "sent_ns": sends, "done_ns": sends},
        ),
        (directory.host, PUSHED, {**same, "begun_ns": dones, "done_ns": dones}),
        (
            directory.sink("sink", 0),
            TAKEN,
            {"query": ["q"] * count, "cause_us": last, "received_ns": dones, "emitted_ns": dones},
        ),
    ]
    for place, schema, columns in logs:
        with RollingLog(place, schema) as log:
            log.append(pa.RecordBatch.from_pydict(columns, schema=schema))
    return directory.path


MS = 1_000_000


def test_a_system_that_keeps_up_is_sustained(tmp_path: Path) -> None:
    trial = judge(RATE, run(tmp_path, lambda i: MS, lambda i: 5 * MS + i % 7 * MS), None)
    assert trial.sustained
    assert trial.latency_p99_ms == pytest.approx(11)
    assert trial.lag_ms == pytest.approx(1)


def test_a_stall_that_is_made_good_is_sustained(tmp_path: Path) -> None:
    assert judge(RATE, run(tmp_path, lambda i: MS, lambda i: 2000 * MS if i == 90 else 5 * MS), None).sustained


def test_a_backlog_that_grows_is_not(tmp_path: Path) -> None:
    """One event in twenty is too many: the delay grows by 50 ms a second."""
    trial = judge(RATE, run(tmp_path, lambda i: MS, lambda i: 5 * i * MS), None)
    assert not trial.sustained
    assert trial.growth == pytest.approx(0.05, rel=0.05)
    assert "falls behind by 0.05" in trial.why


def test_a_schedule_that_is_not_kept_is_not(tmp_path: Path) -> None:
    trial = judge(RATE, run(tmp_path, lambda i: 300 * MS, lambda i: 310 * MS), None)
    assert trial.why == "at the end events are sent up to 300 ms after they were due"


def test_what_is_left_of_the_warm_up_does_not_count(tmp_path: Path) -> None:
    trial = judge(RATE, run(tmp_path, lambda i: max(1000 - 50 * i, 1) * MS, lambda i: max(1010 - 50 * i, 2) * MS), None)
    assert trial.sustained
    assert trial.lag_ms == pytest.approx(1)


def test_latency_beyond_the_limit_is_not(tmp_path: Path) -> None:
    path = run(tmp_path, lambda i: MS, lambda i: 80 * MS)
    assert judge(RATE, path, 100_000).sustained
    assert judge(RATE, path, 50_000).why == "the 99th percentile of q is 80.0 ms"


@pytest.mark.slow
def test_a_real_search(tmp_path: Path) -> None:
    """With one setup and few trials: it ends, and says what it tried."""

    def read(parameters: dict[str, object]) -> Setup:
        one = setup()
        return one.model_copy(update={"drivers": one.drivers[:1], "parameters": {**one.parameters, **parameters}})

    search = Search(read, tmp_path / "out", parameter=None, trial_us=500_000, latency_limit_us=1)  # type: ignore[arg-type]
    stops: list[Trial] = []
    answer = search.run(lambda controller: controller.wait() and len(stops) < 1, stops.append)
    assert answer["complete"] is False
    assert answer["sustainable"] is None
    assert [trial["sustained"] for trial in answer["trials"]] == [False]
    assert "99th percentile" in answer["trials"][0]["why"]
