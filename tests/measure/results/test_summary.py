"""Summaries: of a whole run, and of what is left of others."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import InputError
from penstock.histogram import Histogram
from penstock_bench.measure.results.measures import Measures
from penstock_bench.measure.results.reading import RunLogs
from penstock_bench.measure.results.summary import KILLED, summarise

from .handmade import MS, T0, Handmade, setup


def whole(path: Path, **measuring: object) -> Handmade:
    """Four seconds of 1,000 events each, in two streams, with a result for every event of the first."""
    run = Handmade(path, setup(streams=("s", "t"), queries=("q", "none"), **measuring))
    sent, pushed, taken = [], [], []
    for second in range(4):
        first, last, ms = second * 1_000_000 + 1000, (second + 1) * 1_000_000, (second + 1) * 1000
        for stream in ("s", "t"):
            sent.append((stream, 0, first, last, 1000, ms, ms, ms + 1))
            pushed.append((stream, first, last, 1000, ms + 2, ms + 4))
        taken += [("q", first + event * 1000, ms + 10, ms + 9) for event in range(1000)]
    run.sent(sent).pushed(pushed).taken(taken)
    run.used([(ms, "system", ms / 2000, 50_000_000 + ms * 1000, ms * 100, 0) for ms in range(1000, 4001, 500)])
    return run


def test_of_a_whole_run(tmp_path: Path) -> None:
    run = whole(tmp_path / "run").happened({"at_ns": T0, "what": "state", "state": "done"})
    summary = summarise(run.path)
    assert summary == json.loads((run.path / "summary.json").read_text())
    assert (summary["setup"], summary["adapter"], summary["state"]) == ("made", "embedded", "done")
    # From 1 ms, when the first event was due, to 4,004 ms, 8,000 events.
    assert summary["throughput"]["seconds"] == pytest.approx(4.003)
    assert summary["throughput"]["events_per_second"] == pytest.approx(8000 / 4.003)
    assert summary["throughput"]["by_stream"]["t"] == pytest.approx(4000 / 4.003)
    assert summary["throughput"]["by_query"] == pytest.approx({"q": 4000 / 4.003, "none": 0})
    assert summary["latency"]["q"]["count"] == 4000
    assert summary["latency"]["q"]["max"] == 1009 * MS
    assert summary["latency"]["none"]["count"] == 0
    assert summary["latency_overall"] == summary["latency"]["q"]
    assert summary["latency_by_phase"]["load"]["q"] == summary["latency"]["q"]
    assert summary["latency_mode"] == "scheduled"
    # A whole second's events are sent at its end: the oldest has waited for 999 ms.
    assert summary["schedule"] == {"due": 8000, "sent": 8000, "max_lag_us": 999_000, "kept": False}
    # The looks from 1 s to 4 s.
    assert summary["resources"]["system"] == {
        "cpu_s": pytest.approx(1.5),
        "cpu_share": pytest.approx(0.5),
        "max_rss_mb": 54.0,
        "mean_rss_mb": pytest.approx(52.5),
        "read_mb": pytest.approx(0.3),
        "written_mb": 0.0,
    }
    assert summary["adaptivity"] is None
    assert summary["machine"] == {"cpu": "abacus"}
    assert summary["notes"] == []


def test_over_time(tmp_path: Path) -> None:
    measures = Measures(whole(tmp_path / "run").path)
    series = measures.latency_series("q")
    assert series.times_s.tolist() == [0, 1, 2, 3]
    assert (series.p50 / MS).tolist() == [509] * 4
    assert (series.max / MS).tolist() == [1009] * 4
    flow = measures.throughput.streams["s"]
    assert (flow.times_s.tolist(), flow.rates.tolist()) == ([0, 1, 2, 3], [1000] * 4)
    assert measures.histogram("q").count == 4000
    assert measures.histogram(None).percentile(50) == pytest.approx(509 * MS, rel=0.004)
    assert [(p.name, p.begin_s, p.end_s) for p in measures.phases] == [("load", 0, pytest.approx(3.001))]
    assert len(measures.latency_series("none").times_s) == 0


def test_a_sample_stands_for_all_results(tmp_path: Path) -> None:
    summary = summarise(whole(tmp_path / "run", sample=0.1).path)
    assert summary["throughput"]["results"] == 40_000
    assert summary["latency"]["q"]["count"] == 4000


def test_without_a_log_there_are_histograms(tmp_path: Path) -> None:
    run = Handmade(tmp_path / "run", setup(log=False)).sent([("s", 0, 0, 9000, 10, 9, 10, 1000)])
    histogram = Histogram()
    histogram.record(pa.array([5 * MS] * 10 + [9 * MS] * 10).to_numpy())
    directory = run.run.sink("sink", 0)
    directory.mkdir(parents=True)
    (directory / "totals.json").write_text(json.dumps({"q": {"results": 50, "latency": histogram.to_json()}}))
    summary = summarise(run.path)
    assert summary["latency"]["q"]["p50"] == pytest.approx(5 * MS, rel=0.004)
    assert summary["latency"]["q"]["max"] == 9 * MS
    assert summary["latency_overall"]["count"] == 20
    assert summary["throughput"]["results_per_second"] == pytest.approx(50)
    assert any("histograms" in note for note in summary["notes"])
    (directory / "totals.json").write_text('{"q": {"results')
    assert any("totals.json cannot be read" in note for note in summarise(run.path)["notes"])


def test_torn_parts_are_left_out(tmp_path: Path) -> None:
    run = whole(tmp_path / "run")
    sink = run.run.sink("sink", 0)
    (part,) = sink.glob("*.parquet")
    text = part.read_bytes()
    (sink / "part-00090.parquet").write_bytes(text[: len(text) // 2])
    (sink / "part-00091.parquet").write_bytes(b"")
    (sink / "part-00092.new").write_bytes(text)
    pq.write_table(pa.table({"other": [1]}), sink / "part-00093.parquet")
    (run.run.driver("d", 0) / "part-00090.parquet").write_bytes(b"PAR1 and nothing else")
    run.happened({"at_ns": T0, "what": "note", "text": "driver d-0: late"}, '{"at_ns": 17', "[]", "{}")
    summary = summarise(run.path)
    assert summary["latency"]["q"]["count"] == 4000
    assert summary["state"] == "stopped"
    assert summary["notes"][0] == "driver d-0: late"
    assert sum("cannot be read and is left out" in note for note in summary["notes"]) == 4
    assert summary["notes"][-1] == KILLED


@pytest.mark.parametrize("missing", ["drivers", "host", "sinks", "resources", "run.json"])
def test_of_what_is_left(tmp_path: Path, missing: str) -> None:
    run = whole(tmp_path / "run").happened({"at_ns": T0, "what": "error", "error": "out of luck"})
    run.happened({"at_ns": T0, "what": "state", "state": "failed"})
    (run.path / missing).rename(tmp_path / "gone")
    summary = summarise(run.path)
    assert summary["state"] == "failed"
    assert "out of luck" in summary["notes"]
    if missing not in ("drivers", "host"):
        assert summary["throughput"]["events"] == 8000
    assert summary["latency"]["q"]["count"] == (0 if missing in ("drivers", "sinks") else 4000)


def test_of_a_run_that_never_began(tmp_path: Path) -> None:
    run = Handmade(tmp_path / "run", setup())
    (run.path / "run.json").unlink()
    summary = summarise(run.path)
    assert summary["throughput"]["events_per_second"] == 0
    assert summary["latency"]["q"]["count"] == 0
    assert summary["schedule"]["sent"] == 0


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no directory of a run"):
        summarise(tmp_path)
    (tmp_path / "setup.json").write_text("{")
    with pytest.raises(InputError, match="is no directory of a run"):
        summarise(tmp_path)


def test_answers_are_a_table(tmp_path: Path) -> None:
    run = whole(tmp_path / "run")
    directory = run.run.answers("q")
    directory.mkdir(parents=True)
    for number, values in enumerate(([1, 2], [3])):
        pq.write_table(pa.table({"n": values}), directory / f"part-0000{number}-sink-{number}.parquet")
    logs = RunLogs(run.path)
    answers = logs.answers("q")
    assert answers is not None
    assert answers.to_pydict() == {"n": [1, 2, 3]}
    assert logs.answers("none") is None
