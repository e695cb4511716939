"""What an app tells of its rate-sized windows, and the paper's workloads that they are measured with."""

from __future__ import annotations

import pyarrow as pa

import penstock as ps
from penstock.generators.rate_sizing import DECLARATIONS, SECOND, Workload, configured_size, q3, q4

SIZED = "[RATE SIZED 10 SECONDS]"


def run(query: str, workload: Workload) -> ps.App:
    app = ps.App(DECLARATIONS + query)
    for stream in app.streams:
        app.push(stream, workload.events(stream))
    app.finish()
    return app


def test_sizes_follow_the_rates() -> None:
    with run(q3(SIZED), Workload(1, 60)) as app:
        (join,) = app.metrics.rate_sizing["q3"]
        assert {alias: side.size for alias, side in join.sides.items()} == {"d": 500, "r": 10}
        assert join.sides["r"].saving > 0.979
        assert join.sides["r"].events == 60
        assert join.matches == app.results("q3").num_rows
        assert 4 < join.wait < 6
        sizes = app.sizes("q3").filter(pa.compute.field("side") == "r")
        assert set(sizes.column("size").to_pylist()) == {0, 10}
        assert sizes.column("time").cast(pa.int64()).to_pylist()[:2] == [SECOND // 10, SECOND // 5]


def test_a_rate_that_alternates() -> None:
    with run(q3(SIZED), Workload(3, 100)) as app:
        held = app.sizes("q3").filter(pa.compute.field("side") == "r").column("held").to_pylist()[200:]
        assert 0.43 < 1 - sum(held) / len(held) / configured_size(3) < 0.46
        assert {max(held), min(held)} <= {100, 101, 10, 11}


def test_a_join_over_a_join_sees_the_rate_of_its_results() -> None:
    with run(q4(SIZED), Workload(2, 60)) as app:
        metrics = app.metrics.rate_sizing
        assert {alias: side.size for alias, side in metrics["mr"][0].sides.items()} == {"m": 100, "r": 500}
        wire, derived = metrics["q4"][0].sides["d"].size, metrics["q4"][0].sides["mr"].size
        assert wire == 500
        assert 80 <= derived <= 125


def test_apps_without_such_windows_have_none() -> None:
    with run(q3("[RANGE 10 SECONDS]"), Workload(3, 5)) as app:
        assert app.metrics.rate_sizing == {}
        assert app.sizes("q3").num_rows == 0
        assert "rate_sizing" in app.metrics._repr_html_()


def test_workloads_repeat() -> None:
    for stream in ("d", "r", "m"):
        assert Workload(3, 30).events(stream).equals(Workload(3, 30).events(stream))
    assert not Workload(3, 30).events("d").equals(Workload(3, 30, seed=2).events("d"))
    assert Workload(3, 40).events("r").num_rows == 220
