"""Whole runs: nothing is lost, delays are seen as they are, answers are those of the engine, failures are told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import numpy as np
import psutil
import pyarrow as pa
import pytest

from penstock.errors import InputError
from penstock_bench.measure.results.resources import ResourceSampler
from penstock_bench.measure.running.controller import Controller, RunError
from penstock_bench.measure.running.live import State
from penstock_bench.measure.running.logs import read_log

from .conftest import Made

LONG = 60.0


def ran(controller: Controller) -> pa.Table:
    """What the sink logged of a run that went well."""
    controller.start()
    assert controller.wait(LONG)
    assert controller.snapshot().error is None
    logged = read_log(controller.directory / "sinks" / "sink-0")
    assert logged is not None
    return logged


def until(controller: Controller, reached: Callable[[], bool]) -> None:
    """Starts it if it does not run yet."""
    if not controller.directory.exists():
        controller.start()
    limit = time.monotonic() + LONG
    while not reached():
        assert time.monotonic() < limit, controller.snapshot()
        time.sleep(0.02)


def results(controller: Controller) -> int:
    return controller.snapshot().queries["q"].results


def latencies(logged: pa.Table) -> np.ndarray:
    return logged["received_ns"].to_numpy() - logged["cause_us"].to_numpy() * 1000


def test_a_known_delay_is_measured(made: Made) -> None:
    controller = made(rate=2000, options={"delay_ms": 150})
    logged = ran(controller)
    assert logged.num_rows == 2000
    assert latencies(logged).min() >= 150e6
    inside = logged["emitted_ns"].to_numpy() - logged["cause_us"].to_numpy() * 1000
    assert (inside <= latencies(logged)).all()
    summary = controller.result()
    assert summary["state"] == "done"
    assert summary["latency"]["q"]["count"] == 2000
    assert summary["latency"]["q"]["min"] >= 150e6
    seen = controller.snapshot()
    assert (seen.state, seen.streams["s"].accepted, seen.queries["q"].results) == (State.DONE, 2000, 2000)
    assert seen.queries["q"].overall.count == 2000
    assert seen.status == {"pushed": 2000}
    assert json.loads(json.dumps(seen.to_json()))["state"] == "done"
    assert {"system", "sink sink-0", "driver load-0"} <= set(seen.resources)
    assert "closed" in (controller.directory / "logs" / "host.txt").read_text()


def test_every_event_of_a_stall_is_seen(made: Made) -> None:
    """A second of a system that takes nothing delays the two thousand events that were due in it: of those, half waited
    at least half a second. A load generator that waits for the system would have sent, and seen, hardly any."""
    logged = ran(made(rate=2000, seconds=2.5, options={"stall_after": 1500, "stall_ms": 1000}))
    causes = np.sort(logged["cause_us"].to_numpy())
    assert len(causes) == 5000
    assert len(np.unique(causes)) == 5000
    gaps = np.diff(causes)
    assert gaps.max() <= 501  # the schedule went on as if nothing had happened
    waited = latencies(logged)
    assert np.count_nonzero(waited >= 0.5e9) >= 990
    assert np.count_nonzero(waited >= 0.25e9) >= 1490
    assert waited.max() >= 0.99e9


def test_answers_are_those_of_the_engine(made: Made) -> None:
    everything = {"text": {"penstock": "SELECT ts, id, v FROM s"}}
    mean = {"text": {"penstock": "SELECT AVG(v) AS mean, LAST(id) AS id FROM s [ROWS 50]"}}
    joined = {"text": {"penstock": "SELECT s.ts, s.id, t.name FROM s, t WHERE s.id = t.id"}, "cause": "ts"}
    controller = made(
        rate=3000,
        system={"adapter": "embedded", "options": {"memory": "16MB"}},
        tables={
            "t": {
                "columns": {"id": "BIGINT", "name": "STRING"},
                "key": "id",
                "rows": 100,
                "fields": {
                    "id": {"generator": "sequential"},
                    "name": {"generator": "list", "values": ["x", "y"]},
                },
            }
        },
        queries={"q": everything, "mean of 50": mean, "joined": joined},
        sinks=[{"name": "one", "queries": ["q"]}, {"name": "both", "copies": 2, "queries": ["mean of 50", "joined"]}],
        measuring={"answers": True, "sample": 0.25},
    )
    controller.start()
    summary = controller.result()
    events = read_log(controller.directory / "answers" / "q")
    assert events is not None
    assert events["id"].to_pylist() == list(range(1, 3001))
    values = events["v"].to_numpy()
    means = read_log(controller.directory / "answers" / "mean of 50")
    assert means is not None
    sums = np.concatenate([[0.0], np.cumsum(values)])
    wanted = [(sums[n] - sums[max(0, n - 50)]) / min(n, 50) for n in range(1, 3001)]
    order = np.argsort(means["id"].to_numpy())
    np.testing.assert_allclose(means["mean"].to_numpy()[order], wanted, rtol=1e-9)
    looked_up = read_log(controller.directory / "answers" / "joined")
    assert looked_up is not None
    assert sorted(looked_up["id"].to_pylist()) == list(range(1, 101))
    assert summary["latency"]["q"]["count"] == 750
    taken = [read_log(controller.directory / "sinks" / f"both-{copy}") for copy in range(2)]
    assert all(one is not None and one.num_rows > 0 for one in taken)


@pytest.mark.slow
def test_pausing_shifts_the_rest(made: Made) -> None:
    controller = made(rate=500, seconds=600)
    until(controller, lambda: results(controller) > 50)
    controller.pause()
    until(controller, lambda: controller.snapshot().state is State.PAUSED)
    time.sleep(0.5)
    before = results(controller)
    controller.resume()
    until(controller, lambda: results(controller) > before + 250)
    controller.stop()
    assert controller.result()["state"] == "stopped"
    logged = read_log(controller.directory / "sinks" / "sink-0")
    assert logged is not None
    gaps = np.diff(np.sort(logged["cause_us"].to_numpy()))
    assert np.count_nonzero(gaps > 2_001) == 1
    assert gaps.max() >= 400_000


@pytest.mark.slow
def test_a_stop_keeps_what_was_measured(made: Made) -> None:
    controller = made(seconds=600)
    until(controller, lambda: results(controller) > 100)
    controller.stop()
    summary = controller.result()
    assert summary["state"] == "stopped"
    logged = read_log(controller.directory / "sinks" / "sink-0")
    sent = read_log(controller.directory / "drivers" / "load-0")
    assert logged is not None
    assert sent is not None
    assert logged.num_rows == sum(sent["events"].to_pylist()) > 100
    assert summary["latency"]["q"]["count"] == logged.num_rows


@pytest.mark.parametrize(
    ("how", "said"),
    [("raise", "system under test: ZeroDivisionError: this system cannot count"), ("die", "was killed")],
)
def test_a_system_that_fails_is_blamed_and_the_rest_kept(made: Made, how: str, said: str) -> None:
    controller = made(seconds=600, options={"fail_after": 300, "how": how})
    controller.start()
    with pytest.raises(RunError, match=said) as told:
        controller.result()
    if how == "raise":
        assert "host.txt" in str(told.value)
        assert "in push" in str(told.value)
    assert controller.snapshot().state is State.FAILED
    assert json.loads((controller.directory / "summary.json").read_text())["state"] == "failed"
    logged = read_log(controller.directory / "sinks" / "sink-0")
    assert logged is not None
    assert logged.num_rows >= 300


@pytest.mark.slow
@pytest.mark.parametrize("which", ["load.driver", "running.sink"])
def test_a_driver_or_sink_that_is_killed_ends_the_run(made: Made, which: str) -> None:
    controller = made(seconds=600)
    until(controller, lambda: results(controller) > 100)
    victim = next(one for one in psutil.Process().children() if f"penstock_bench.measure.{which}" in one.cmdline())
    victim.kill()
    with pytest.raises(RunError, match=f"{which.partition('.')[2]} .*-0 was killed"):
        controller.result()
    assert json.loads((controller.directory / "summary.json").read_text())["state"] == "failed"


@pytest.mark.slow
def test_a_sink_that_is_behind_is_waited_for(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 5 ms for each of a thousand results; only one that makes no progress is ended after a while."""
    monkeypatch.setattr("penstock_bench.measure.running.controller.END_WITHIN", 2.0)
    system = {"adapter": "systems:SlowSink"}
    logged = ran(made(system=system, measuring={"linger": "50 ms"}))
    assert logged.num_rows == 1000


@pytest.mark.slow
def test_a_sink_that_is_ended_by_force_is_told(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_bench.measure.running.controller.END_WITHIN", 1.0)
    controller = made(seconds=60)
    until(controller, lambda: results(controller) >= 300)
    (sink,) = (p for p in psutil.Process().children() if "penstock_bench.measure.running.sink" in p.cmdline())
    sink.suspend()
    controller.stop()
    assert controller.wait(LONG)
    assert controller.summary is not None
    assert any("sink sink-0 did not end" in note for note in controller.summary["notes"])


@pytest.mark.slow
def test_what_was_taken_is_logged_when_the_rest_is_given_up(made: Made) -> None:
    """Results come a minute after their events: at the end the system has taken everything, and nothing has come."""
    controller = made(seconds=60, options={"delay_ms": 60_000})
    until(controller, lambda: controller.snapshot().streams["s"].accepted >= 500)
    controller.stop()
    controller.stop()
    assert controller.wait(LONG)
    assert controller.summary is not None
    taken = read_log(controller.directory / "host")
    assert taken is not None
    assert sum(taken["events"].to_pylist()) >= controller.snapshot().streams["s"].accepted >= 500
    assert not list((controller.directory / "host").glob("*.new"))


@pytest.mark.slow
def test_a_system_that_hangs_is_ended_when_asked_twice(made: Made) -> None:
    controller = made(seconds=600, options={"fail_after": 100, "how": "hang"})
    until(controller, lambda: results(controller) >= 100)
    controller.stop()
    controller.stop()
    summary = controller.result()
    assert summary["state"] == "stopped"
    assert any("did not work off" in note for note in summary["notes"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "phase", "said"),
    [
        ({"finish_s": 3600}, {"rate": 1000}, "did not work off what it had within 2 s"),
        # As many events as sockets and queues do not hold.
        ({"fail_after": 100, "how": "hang"}, {"rate": "max", "event_rate": 1_000_000}, "could send nothing for 2 s"),
    ],
)
def test_a_run_ends_though_its_system_does_not(
    made: Made, options: dict[str, object], phase: dict[str, object], said: str
) -> None:
    controller = made(options=options, phases=[{**phase, "duration": 1}], measuring={"patience": "2 s"})
    controller.start()
    assert controller.wait(LONG)
    with pytest.raises(RunError, match=said):
        controller.result()
    assert controller.too_slow
    summary = json.loads((controller.directory / "summary.json").read_text())
    assert summary["state"] == "failed"
    assert any("did not work off" in note for note in summary["notes"])
    if "finish_s" in options:
        assert summary["latency"]["q"]["count"] == 1000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT vv FROM s", "unknown column 'vv'"),
        ("SELECT v FROM s", "no column of its results (v) says which event caused one"),
        pytest.param(
            "CREATE QUERY other AS SELECT ts FROM s", "makes no query of the name 'q'", marks=pytest.mark.slow
        ),
    ],
)
def test_a_query_that_cannot_be_measured_is_told_in_its_own_words(made: Made, text: str, said: str) -> None:
    controller = made(seconds=600, system={}, queries={"q": {"text": {"penstock": text}}})
    controller.start()
    with pytest.raises(RunError) as told:
        controller.result()
    assert said in str(told.value)
    assert "Traceback" not in str(told.value)
    if "vv" in text:
        assert "| SELECT vv FROM s;\n  |        ^^" in str(told.value)


def test_what_can_be_known_at_once_is_refused_at_once(made: Made) -> None:
    with pytest.raises(InputError, match="'nothing': unknown; there are embedded"):
        made(system={"adapter": "nothing"}).start()
    with pytest.raises(InputError, match=r"systems:Nobody cannot be loaded"):
        made(system={"adapter": "systems:Nobody"}).start()
    with pytest.raises(InputError, match="is not derived from Adapter"):
        made(system={"adapter": "systems:EchoEngine"}).start()
    with pytest.raises(InputError, match="delay_sm: unknown to adapter 'systems:Echo'; it knows delay_ms"):
        made(options={"delay_sm": 1}).start()
    controller = made(options={"refuse": "the port 1234 is in use: end what uses it"})
    controller.start()
    with pytest.raises(RunError, match=r"^the port 1234 is in use: end what uses it$"):
        controller.result()


@pytest.mark.slow
def test_without_a_log_the_summary_has_histograms(made: Made) -> None:
    measuring = {"log": False, "sample": 0.5, "resolution": "ms"}
    controller = made(rate=1000, options={"delay_ms": 100}, measuring=measuring)
    controller.start()
    summary = controller.result()
    assert read_log(controller.directory / "sinks" / "sink-0") is None
    assert summary["throughput"]["results"] == 1000
    assert summary["latency"]["q"]["count"] == 500
    assert summary["latency"]["q"]["min"] >= 100e6
    assert summary["latency"]["q"]["max"] % 1e6 == 0


def unwritable(controller: Controller) -> None:
    controller._run.happenings.unlink()
    controller._run.happenings.mkdir()


@pytest.mark.slow
def test_a_run_whose_last_write_fails_ends(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = made(rate=200, seconds=0.2)
    stop = ResourceSampler.stop

    def stop_and_break(sampler: ResourceSampler) -> None:
        stop(sampler)
        unwritable(controller)

    monkeypatch.setattr(ResourceSampler, "stop", stop_and_break)
    controller.start()
    assert controller.wait(LONG)
    assert controller.snapshot().state is State.FAILED
    with pytest.raises(RunError, match=r"happenings\.jsonl: cannot be written: Is a directory"):
        controller.result()


@pytest.mark.slow
def test_a_run_that_cannot_be_written_any_more_ends_with_all_its_processes(made: Made) -> None:
    controller = made(rate=200, seconds=LONG)
    until(controller, lambda: results(controller) > 0)
    processes = [psutil.Process(process.pid) for process in controller._processes]
    unwritable(controller)
    controller.pause()
    assert controller.wait(LONG)
    assert controller.snapshot().state is State.FAILED
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
