"""Latencies of logs that are written by hand: every figure is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from penstock.histogram import Histogram
from penstock_bench.measure.results.measures import Measures
from penstock_bench.measure.setup.model import LatencyMode

from .handmade import MS, T0, Handmade, setup


def _at(ms: int) -> int:
    return T0 + ms * MS


def latencies(run: Handmade, mode: str, query: str = "q") -> list[float]:
    """In milliseconds, sorted, of measured phases."""
    samples = Measures(run.path, LatencyMode(mode)).samples[query]
    return sorted((samples.latency_ns[samples.measured] / MS).tolist())


def test_three_modes(tmp_path: Path) -> None:
    # Two batches; the second is sent 20 ms late because the system took the first one only then.
    run = Handmade(tmp_path / "run", setup())
    run.sent([("s", 0, 0, 9000, 10, 9, 10, 11), ("s", 0, 10_000, 19_000, 10, 19, 40, 41)])
    run.pushed([("s", 0, 9000, 10, 10.5, 12), ("s", 10_000, 19_000, 10, 41.5, 43)])
    run.taken([("q", 0, 13, 12), ("q", 9000, 13, 12), ("q", 10_000, 45, 42.5)])
    assert latencies(run, "scheduled") == [4, 13, 35]
    assert latencies(run, "end-to-end") == [3, 3, 5]
    assert latencies(run, "adapter") == [1, 1.5, 1.5]
    figures = Measures(run.path).latency["q"]
    assert (figures.count, figures.min, figures.max) == (3, 4 * MS, 35 * MS)
    assert (figures.p50, figures.p90, figures.p999) == (13 * MS, 35 * MS, 35 * MS)
    assert figures.mean == pytest.approx(52 / 3 * MS)
    assert figures.stdev == pytest.approx(((13.333**2 + 4.333**2 + 17.667**2) / 2) ** 0.5 * MS, rel=1e-3)


def test_the_time_tells_the_driver(tmp_path: Path) -> None:
    # Three copies: times that are 0, 1 and 2 modulo 3, in batches that overlap, sent at different moments.
    run = Handmade(tmp_path / "run", setup(copies=3))
    for copy in range(3):
        own = [
            ("s", 0, copy, 3000 + copy, 1001, 3 + copy / 1000, 10 * (copy + 1), 50),
            ("s", 0, 3003 + copy, 6000 + copy, 1000, 6 + copy / 1000, 100, 101),
        ]
        run.sent(own, copy)
    run.pushed([("s", copy, 3000 + copy, 1001, 60 + copy, 65) for copy in range(3)])
    run.taken([("q", 300, 90, 80), ("q", 301, 90, 80), ("q", 302, 90, 80), ("q", 3004, 200, 200)])
    assert latencies(run, "end-to-end") == [60, 70, 80, 100]
    assert latencies(run, "adapter") == [18, 19, 20]
    assert latencies(run, "scheduled") == pytest.approx([89.698, 89.699, 89.7, 196.996])


def test_the_end_of_a_window_counts_from_the_batch_that_passed_it(tmp_path: Path) -> None:
    run = Handmade(tmp_path / "run", setup())
    run.sent([("s", 0, 0, 900, 10, 1, 1, 1), ("s", 0, 1500, 2000, 10, 2, 3, 3)])
    # 1000 lies between the batches, 5000 after the last: the end of the input has closed that window.
    run.taken([("q", 1000, 7, 6), ("q", 5000, 8, 8)])
    measures = Measures(run.path, LatencyMode.END_TO_END)
    assert (measures.samples["q"].latency_ns / MS).tolist() == [4]
    assert "1 results were caused by no event" in measures.notes[0]


def test_the_end_of_a_window_counts_from_any_driver_that_passed_it(tmp_path: Path) -> None:
    # Times that are even tell the first copy, which sends once a second and ends early; the second one goes on.
    run = Handmade(tmp_path / "run", setup(copies=2))
    run.sent([("s", 0, 0, 0, 1, 0, 1, 1), ("s", 0, 1_000_000, 1_000_000, 1, 1000, 1001, 1001)], 0)
    busy = [(n * 100, n * 100_000 + 1, n * 100_000 + 90_001) for n in range(20)]
    run.sent([("s", 0, first, last, 10, ms + 90.001, ms + 91, ms + 91) for ms, first, last in busy], 1)
    run.pushed([("s", first, last, 10, ms + 92, ms + 93) for ms, first, last in busy])
    # The ends of windows at 0.3 s, before the first copy's next event, and at 1.5 s, after its last.
    run.taken([("q", 300_000, 395, 394), ("q", 1_500_000, 1596, 1595), ("q", 1_000_000, 1003, 1002)])
    assert latencies(run, "end-to-end") == [2, 4, 5]
    assert latencies(run, "adapter") == [2, 3]
    assert latencies(run, "scheduled") == [3, 95, 96]
    assert not Measures(run.path).notes


def test_a_driver_that_lags_has_not_caused_what_came_before(tmp_path: Path) -> None:
    # The first copy sends at 900 ms what was due from 0 to 500; the second had passed the window's end in time.
    run = Handmade(tmp_path / "run", setup(copies=2))
    run.sent([("s", 0, 0, 500_000, 100, 500, 900, 901)], 0)
    run.sent([("s", 0, 200_001, 299_999, 100, 300, 301, 302), ("s", 0, 300_001, 400_001, 100, 400, 401, 402)], 1)
    run.taken([("q", 300_000, 405, 404)])
    assert latencies(run, "end-to-end") == [4]


def test_a_pause_moves_the_schedule(tmp_path: Path) -> None:
    # Paused for a second after 10 ms: the times of later events are those of the moved schedule.
    run = Handmade(tmp_path / "run", setup())
    run.sent([("s", 0, 0, 9000, 10, 9, 10, 11), ("s", 0, 1_010_000, 1_019_000, 10, 1019, 1020, 1021)])
    run.taken([("q", 9000, 12, 12), ("q", 1_019_000, 1022, 1022)])
    run.happened(
        {"at_ns": _at(10), "what": "state", "state": "paused"},
        {"at_ns": _at(1010), "what": "state", "state": "running"},
        {"at_ns": _at(1030), "what": "state", "state": "done"},
    )
    assert latencies(run, "scheduled") == [3, 3]
    throughput = Measures(run.path).throughput
    assert throughput.seconds == pytest.approx(0.021)
    assert throughput.events_per_second == pytest.approx(20 / 0.021)


def test_only_measured_phases_count(tmp_path: Path) -> None:
    warm_up = {"name": "warm-up", "duration": 1, "rate": 10, "measured": False}
    run = Handmade(tmp_path / "run", setup([warm_up, {"duration": 1, "rate": 10}]))
    run.sent([("s", 0, 0, 9000, 10, 9, 10, 11), ("s", 1, 10_000, 19_000, 10, 19, 20, 21)])
    # The warm-up's last result comes while the load is measured; it belongs to the warm-up nevertheless.
    run.taken([("q", 9000, 30, 30), ("q", 19_000, 31, 31)])
    assert latencies(run, "scheduled") == [12]
    measures = Measures(run.path)
    assert measures.throughput.streams["s"].count == 10
    assert measures.throughput.queries["q"].count == 1
    by_phase = measures.latency_by_phase
    assert by_phase["warm-up"]["q"].max == 21 * MS
    assert by_phase["load"]["q"].max == 12 * MS


def test_a_closed_loop_counts_from_the_send(tmp_path: Path) -> None:
    # The times of its events run at another pace than the clock: they are due at no time.
    closed = {"name": "fill", "events": 20, "rate": "max", "event_rate": 1}
    run = Handmade(tmp_path / "run", setup([closed, {"duration": 1, "rate": 10}]))
    run.sent(
        [
            ("s", 0, 0, 9_000_000, 10, 1, 1, 2),
            # After it, times stay ahead of the schedule: here by 10 s.
            ("s", 1, 10_005_000, 10_009_000, 5, 9, 10, 11),
        ]
    )
    run.taken([("q", 3_000_000, 5, 5), ("q", 10_006_000, 12, 12)])
    assert latencies(run, "scheduled") == [4, 6]
    assert any("closed loop" in note for note in Measures(run.path).notes)
    assert Measures(run.path).latency_mode is LatencyMode.SCHEDULED


def test_a_run_of_closed_loops_says_what_it_shows(tmp_path: Path) -> None:
    run = Handmade(tmp_path / "run", setup([{"events": 10, "rate": "max", "event_rate": 1}]))
    run.sent([("s", 0, 0, 9000, 10, 0, 0, 1)]).pushed([("s", 0, 9000, 10, 1, 2)]).taken([("q", 9000, 5, 4)])
    measures = Measures(run.path)
    assert measures.latency_mode is LatencyMode.END_TO_END
    assert measures.latency["q"].max == 5 * MS
    # The system has taken all events after 2 ms, and is done with them after 5.
    assert measures.throughput.seconds == pytest.approx(0.004)
    run.happened({"at_ns": _at(9), "what": "done", "who": "system under test", "finished_ns": _at(9)})
    assert Measures(run.path).throughput.seconds == pytest.approx(0.008)


def test_a_replay_that_keeps_its_times(tmp_path: Path) -> None:
    replay = {"file": "x.csv", "stream": "s", "time_column": "t", "keep_times": True}
    run = Handmade(tmp_path / "run", setup(copies=2, replay=replay))
    # Recorded times say nothing of the copy, nor of the clock: the batch says when it was due and sent.
    run.sent([("s", 0, -90_000_001, -80_000_000, 10, 1, 2, 3)], 0).sent(
        [("s", 0, -70_000_001, -60_000_000, 10, 3, 5, 6)], 1
    )
    run.taken([("q", -85_000_000, 10, 10), ("q", -65_000_000, 10, 10)])
    assert latencies(run, "scheduled") == [7, 9]
    assert latencies(run, "end-to-end") == [5, 8]


def test_streams_of_one_driver_overlap(tmp_path: Path) -> None:
    run = Handmade(tmp_path / "run", setup(streams=("s", "t")))
    run.sent([("s", 0, 0, 9000, 5, 9, 10, 12), ("t", 0, 1000, 8000, 5, 9, 12, 13)])
    run.taken([("q", 5000, 20, 20)])
    # It may be an event of either stream: the first send is taken, so that the latency is not too small.
    assert latencies(run, "end-to-end") == [10]


def test_resolution_of_milliseconds(tmp_path: Path) -> None:
    run = Handmade(tmp_path / "run", setup(resolution="ms"))
    run.sent([("s", 0, 0, 9000, 10, 9, 10, 11)])
    run.taken([("q", 0, 1.4, 1), ("q", 0, 1.5, 1), ("q", 0, 0.1, 0)])
    assert latencies(run, "scheduled") == [0, 1, 2]


def test_no_host_no_adapter_latency(tmp_path: Path) -> None:
    run = Handmade(tmp_path / "run", setup(latency="adapter"))
    run.sent([("s", 0, 0, 9000, 10, 9, 10, 11)]).taken([("q", 0, 1.4, 1)])
    measures = Measures(run.path)
    assert measures.latency["q"].count == 0
    assert any("no host" in note for note in measures.notes)


def test_a_system_that_catches_up_is_not_faster_than_the_load(tmp_path: Path) -> None:
    run = Handmade(tmp_path / "run", setup())
    # It stood still for the first 900 ms, and took all that was queued within 200.
    run.sent(
        [
            ("s", 0, n * 100_000, n * 100_000 + 99_000, 100, n * 100 + 99, n * 100 + 100, n * 100 + 101)
            for n in range(11)
        ]
    )
    run.pushed([("s", n * 100_000, n * 100_000 + 99_000, 100, 900 + n * 20, 900 + n * 20 + 20) for n in range(10)])
    throughput = Measures(run.path).throughput
    assert throughput.seconds == pytest.approx(1.1)
    assert throughput.events_per_second == pytest.approx(1000 / 1.1)


def _with_totals(run: Handmade) -> Measures:
    """A sink that logs no samples has noted one result, 7 ms after the time in its cause."""
    latency = Histogram()
    latency.record(np.array([7 * MS]))
    own = run.run.sink("sink", 0)
    own.mkdir(parents=True)
    (own / "totals.json").write_text(json.dumps({"q": {"results": 1, "latency": latency.to_json()}}))
    return Measures(run.path)


def test_histograms_are_of_the_scheduled_latency(tmp_path: Path) -> None:
    run = Handmade(tmp_path / "run", setup(log=False, latency="end-to-end"))
    measures = _with_totals(run.sent([("s", 0, 0, 9000, 10, 9, 10, 11)]))
    assert measures.latency["q"].max == 7 * MS
    assert measures.latency_mode is LatencyMode.SCHEDULED


@pytest.mark.parametrize("kept", [False, True])
def test_histograms_of_events_that_were_not_due_at_their_times_are_no_latency(tmp_path: Path, kept: bool) -> None:
    closed = [
        {"name": "fill", "events": 10, "rate": "max", "event_rate": 1, "measured": False},
        {"duration": 1, "rate": 10},
    ]
    replay = {"file": "x.csv", "stream": "s", "time_column": "t", "keep_times": True}
    made = setup(replay=replay, log=False) if kept else setup(closed, log=False)
    measures = _with_totals(Handmade(tmp_path / "run", made).sent([("s", 0, 0, 9000, 10, 9, 10, 11)]))
    assert measures.latency["q"].count == measures.latency_overall.count == measures.histogram("q").count == 0
    assert any("no latency is known" in note for note in measures.notes)
    assert measures.throughput.queries["q"].count == 1


def test_a_closed_loop_ends_before_the_phase_after_it(tmp_path: Path) -> None:
    closed = {"name": "fill", "events": 10, "rate": "max", "event_rate": 1}
    run = Handmade(tmp_path / "run", setup([closed, {"duration": 1, "rate": 10, "measured": False}]))
    run.sent([("s", 0, 0, 9000, 10, 0, 0, 1), ("s", 1, 10_000, 1_009_000, 10, 1000, 1000, 1001)])
    run.pushed([("s", 0, 9000, 10, 1, 11), ("s", 10_000, 1_009_000, 10, 1001, 1002)])
    run.happened({"at_ns": _at(1005), "what": "done", "who": "system under test", "finished_ns": _at(1005)})
    throughput = Measures(run.path).throughput
    assert throughput.seconds == pytest.approx(0.01)
    assert throughput.streams["s"].rate == pytest.approx(1000)
